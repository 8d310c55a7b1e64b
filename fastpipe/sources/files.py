"""A path of a source, on this machine or behind a URL -> its state, its bytes, and the names in a folder."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn, TypeAlias, cast

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Url
from fastpipe.format.open_file import FileState, changed, read_at, state_of
from fastpipe.store.remote.options import RemoteOptions, place_of

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemoteFile, RemotePath

SourcePath: TypeAlias = "Path | RemotePath"

# Files and folders that systems and programs leave among pictures: macOS and its zip files, Windows, Synology, Jupyter,
# git, Android. No class and no sample, wherever they lie. Other names with a dot are hidden only at the top.
_LEFT_BEHIND = frozenset(
    (
        *(
            "__MACOSX",
            ".DS_Store",
            ".AppleDouble",
            ".Trashes",
            ".Spotlight-V100",
            ".fseventsd",
            "Icon\r",
        ),
        *(
            "Thumbs.db",
            "thumbs.db",
            "Thumbs.DB",
            "THUMBS.DB",
            "ehthumbs.db",
            "desktop.ini",
            "Desktop.ini",
        ),
        *(
            "$RECYCLE.BIN",
            "System Volume Information",
            "@eaDir",
            "#recycle",
            ".ipynb_checkpoints",
            ".directory",
        ),
        *(
            ".git",
            ".gitkeep",
            ".gitignore",
            ".gitattributes",
            ".keep",
            ".nomedia",
            ".picasa.ini",
            "Picasa.ini",
        ),
    )
)
_OF_MACOS = "._"  # before the name of the file that it belongs to
# A name that begins with none of these is none of them.
FIRST_OF_LEFT_BEHIND = "".join({name[0] for name in _LEFT_BEHIND})


def source_path(data: str | os.PathLike[str], remote: RemoteOptions | None = None) -> SourcePath:
    """The path of a source, or of an image root. ConfigError: a URL that nobody reads."""
    found = place_of(data)
    if not isinstance(found, Url):
        return Path(cast("str | os.PathLike[str]", found))
    from fastpipe.store.remote.remote_path import remote_path  # most sources are on this machine

    return remote_path(found, remote or RemoteOptions())


def state_at(root: SourcePath, path: str) -> FileState:
    """The state of a file below a folder. OSError: there is none, or it cannot be looked at."""
    if isinstance(root, Path):
        return state_of(
            os.stat(os.path.join(root, path))
        )  # a Path for each of a million files would take seconds
    return (root / path).state()


def state_or_problem(root: SourcePath, path: str, absent: str | None = None) -> FileState | str:
    """The state of a file below a folder, or why it cannot be read: `absent` where there is no file."""
    try:
        found = state_at(root, path)
    except OSError as problem:
        if absent is not None and isinstance(problem, FileNotFoundError):
            return absent
        return f"cannot be read: {problem.strerror}"
    return found if found.is_regular else "not a regular file (a folder, pipe, socket or device)"


class LocalFile(io.FileIO):
    """An open file of this machine, read by ranges; see `RemoteFile` for one behind a URL."""

    def __init__(
        self, path: Path | str | bytes
    ) -> None:  # it does not wait for the writer of a pipe
        super().__init__(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """A range; shorter only where the file ends before."""
        return read_at(self.fileno(), size_bytes, offset_bytes)

    @property
    def state(self) -> FileState:
        """As it is now; that of a file behind a URL is as it was listed: reading finds out whether it still is."""
        return state_of(os.fstat(self.fileno()))


def opened(path: SourcePath) -> LocalFile | RemoteFile:
    return LocalFile(path) if isinstance(path, Path) else path.open()


def open_regular(path: SourcePath) -> LocalFile | RemoteFile:
    """Opens a file to read ranges of. PackError: it cannot be read, or is a pipe or the like, which has none."""
    try:
        file = opened(path)
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(path))}: {problem.strerror}") from problem
    if not file.state.is_regular:
        file.close()
        raise PackError(
            f"{readable(str(path))} is not a regular file; expected one, for fastpipe reads no streams"
        )
    return file


def open_binary(path: SourcePath) -> BinaryIO:
    return io.BufferedReader(opened(path), 1 << 20)


@contextmanager
def open_unchanged(path: SourcePath) -> Iterator[BinaryIO]:
    """Opens a file that must not change while it is read. PackError: it has, or it cannot be read."""
    try:
        with open_binary(path) as file:
            before = state_at(path.parent, path.name)
            yield file
            after = state_at(path.parent, path.name)
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(path))}: {problem.strerror}") from problem
    if before[:2] != after[:2]:
        raise changed(path)


def is_left_behind(name: str) -> bool:
    """Whether a system or a program leaves files or folders of this name among pictures."""
    # Few names begin so, and there may be millions.
    return name[0] in FIRST_OF_LEFT_BEHIND and (name in _LEFT_BEHIND or name.startswith(_OF_MACOS))


def lies_in_left_behind(path: str) -> bool:
    """The same of a path with "/", or of any folder in it."""
    folder, _, name = path.rpartition("/")
    return (name[:1] in FIRST_OF_LEFT_BEHIND and bool(name) and is_left_behind(name)) or (
        bool(folder) and _is_folder_left(folder)
    )


@lru_cache(1024)  # a million files lie in a few folders
def _is_folder_left(folder: str) -> bool:
    return any(name and is_left_behind(name) for name in folder.split("/"))


class Names(NamedTuple):
    """The names in a folder, sorted; apart from the others hidden ones, in which tools keep their notes."""

    folders: list[str]
    files: list[str]
    hidden: list[str]


def names_in(folder: SourcePath, most: int | None = None) -> Names:
    """The names in a folder, or the first that the system gives, at `most`. PackError: it cannot be listed."""
    if isinstance(folder, Path):
        try:
            with os.scandir(folder) as entries:
                found = [(entry.name, _is_folder(entry)) for entry in islice(entries, most)]
        except OSError as problem:
            _refuse(problem)
    else:
        found = folder.listed()[:most]
    names = Names([], [], [])
    for name, is_folder in sorted(found):
        is_hidden = name.startswith(".") or is_left_behind(name)
        (names.hidden if is_hidden else names.folders if is_folder else names.files).append(name)
    return names


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        return False  # a link to itself is a file that cannot be read


def files_below(root: SourcePath, folder: str = "", *, hidden: bool = True) -> Iterator[str]:
    """The paths of all files below root/folder, relative to root, with "/", without those that systems leave behind;
    not `hidden`: without dotted names.
    """
    if not isinstance(root, Path):
        for path in (root / folder).files_below():
            is_dotted = not hidden and any(part.startswith(".") for part in path.split("/"))
            if not is_dotted and not lies_in_left_behind(path):
                yield f"{folder}/{path}" if folder else path
        return
    top = root.resolve()
    seen = {
        (info.st_dev, info.st_ino)
        for info in map(os.stat, [top, *top.parents] if folder else top.parents)
    }
    for place, folders, files in os.walk(root / folder, followlinks=True, onerror=_refuse):
        info = os.stat(place)
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        folders[:] = sorted(
            name for name in folders if (hidden or name[0] != ".") and not is_left_behind(name)
        )
        prefix = os.path.relpath(place, root).replace(os.sep, "/") + "/"
        prefix = prefix.removeprefix("./")
        for name in files:
            if name[0] in FIRST_OF_LEFT_BEHIND and is_left_behind(
                name
            ):  # a call for each of a million names would take longer
                continue
            if hidden or name[0] != ".":
                yield prefix + name


def _refuse(problem: OSError) -> NoReturn:
    raise PackError(
        f"{readable(str(problem.filename))} cannot be listed: {problem.strerror}"
    ) from problem


def read_listed_file(
    root: SourcePath, path: str, listed: FileState, start: int = 0, stop: int | None = None
) -> bytes:
    """Bytes of a file that has not changed since it was listed (not ctime: backups change it). PackError: it has."""
    stop = listed.size_bytes if stop is None else stop
    if not isinstance(root, Path):
        return root.objects.read((root / path).key, start, stop, listed)
    had = f": it had {listed.size_bytes:,} bytes when it was listed, and"
    try:
        file = opened(root / path)
    except OSError as problem:
        if problem.errno not in (
            errno.ENOENT,
            errno.ENOTDIR,
            errno.ELOOP,
            errno.EISDIR,
        ):  # as if it were gone
            raise
        with_all = "" if root.exists() else ", with all of the source"
        raise changed(
            root / path, f"{had} has disappeared{with_all} ({problem.strerror})"
        ) from problem
    with file:
        before = file.state
        data = file.read_at(stop - start, start) if before.is_regular else b""
        after = file.state
    if not before[:2] == after[:2] == listed[:2] or len(data) != stop - start:
        now = (
            f"now has {after.size_bytes:,}: it was written again, or something else is in its place"
        )
        raise changed(root / path, f"{had} {now}")
    return data
