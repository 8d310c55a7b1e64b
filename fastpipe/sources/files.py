"""A path of a source, on this machine or behind a URL -> its state, its bytes, the names in it."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn, TypeAlias, cast

from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.open_file import (
    FileState,
    changed_error,
    read_at,
    state_of,
)
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import (
    ConfigError,
    PackError,
    did_you_mean_path,
    no_permission,
    readable,
)
from fastpipe.store.remote.options import RemoteOptions, place_of

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemoteFile, RemotePath

SourcePath: TypeAlias = "Path | RemotePath"

# The file of `fastpipe demo` that says which photos a finished folder holds; and the one that stands
# in for it while photos are being written.
DEMO_MANIFEST = ".fastpipe-demo.json"
DEMO_UNFINISHED = ".fastpipe-demo.json.unfinished"
# Files and folders that systems and programs leave among pictures. No class and no sample is called
# so. Other folders with a dot are hidden, too; other files with a dot only at the top of a source.
_LEFT_BEHIND = frozenset(
    [
        # macOS, and zip files made with it
        "__MACOSX",
        ".DS_Store",
        ".AppleDouble",
        ".Trashes",
        ".Spotlight-V100",
        ".fseventsd",
        "Icon\r",
        # Windows
        "Thumbs.db",
        "thumbs.db",
        "Thumbs.DB",
        "THUMBS.DB",
        "ehthumbs.db",
        "desktop.ini",
        "Desktop.ini",
        "$RECYCLE.BIN",
        "System Volume Information",
        # Synology
        "@eaDir",
        "#recycle",
        # QNAP
        "@Recycle",
        "@Recently-Snapshot",
        # file systems of Linux
        "lost+found",
        # Jupyter
        ".ipynb_checkpoints",
        # KDE
        ".directory",
        # git
        ".git",
        ".gitkeep",
        ".gitignore",
        ".gitattributes",
        ".keep",
        # fastpipe demo
        DEMO_MANIFEST,
        DEMO_UNFINISHED,
        # Android
        ".nomedia",
        # Picasa
        ".picasa.ini",
        "Picasa.ini",
    ]
)
# macOS puts it before the name of the file that its own file belongs to.
_MACOS_PREFIX = "._"
# A name that begins with none of these characters was not left behind.
FIRST_OF_LEFT_BEHIND = "".join({name[0] for name in _LEFT_BEHIND})


def source_path(
    data: str | os.PathLike[str], remote: RemoteOptions | None = None
) -> SourcePath:
    """The path of a source, or of an image root.

    ConfigError: it is no path, or a URL that fastpipe cannot read.
    """
    if not isinstance(data, (str, os.PathLike)):
        raise ConfigError(
            f"SRC: expected a folder, a file or a URL, got {type(data).__name__}. For a list of files "
            "write a CSV with the columns path and label, and pass that; or give the samples of a "
            "program to fastpipe.Writer"
        )
    place = place_of(data)
    if not isinstance(place, Url):
        return Path(cast("str | os.PathLike[str]", place))
    # Most sources are on this machine, and need no client of a server.
    from fastpipe.store.remote.remote_path import remote_path

    return remote_path(place, remote or RemoteOptions())


def state_at(root: SourcePath, path: str) -> FileState:
    """The state of a file below a folder. OSError: there is no such file, or it is not readable."""
    if isinstance(root, Path):
        # A Path for each of a million files would take seconds, and os.path.join half a second.
        place = path if path.startswith("/") else f"{root}/{path}"
        return state_of(os.stat(place))
    return (root / path).state()


def state_or_problem(root: SourcePath, path: str) -> FileState | str:
    """The state of a file below a folder, or why it cannot be read."""
    try:
        return _regular_or_problem(state_at(root, path))
    except OSError as problem:
        return _describe_unreadable(problem)


def find_state(root: SourcePath, path: str) -> FileState | str | None:
    """As state_or_problem; None where there is no file."""
    try:
        return _regular_or_problem(state_at(root, path))
    except FileNotFoundError:
        return None
    except OSError as problem:
        return _describe_unreadable(problem)


def _regular_or_problem(state: FileState) -> FileState | str:
    if not state.is_regular:
        return "not a regular file (a folder, pipe, socket or device)"
    return state


def _describe_unreadable(problem: OSError) -> str:
    return f"cannot be read: {problem.strerror}"


class LocalFile(io.FileIO):
    """An open file of this machine, read by ranges; see `RemoteFile` for one behind a URL."""

    def __init__(self, path: Path | str | bytes) -> None:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        super().__init__(
            path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        )

    def read_at(self, size_bytes: int, offset_bytes: int) -> bytes:
        """Reads a range; it is shorter only if the file ends before."""
        return read_at(self.fileno(), size_bytes, offset_bytes)

    @property
    def state(self) -> FileState:
        """The state at this moment.

        That of a `RemoteFile` is as it was listed: reading finds out whether it still is.
        """
        return state_of(os.fstat(self.fileno()))


def path_below(root: SourcePath, folder: SourcePath) -> str:
    """The path of a folder relative to one around it, with "/"; "" for that folder itself."""
    # `relative_to` is only of a Path, and a folder behind a URL has none. The root may be ".".
    if isinstance(root, Path):
        relative = os.path.relpath(str(folder), root)
        return "" if relative == "." else relative
    root_length = len(str(root))
    return str(folder)[root_length:].strip("/")


def shared_folders(folder: Path) -> tuple[Path, ...]:
    """The top of a disk, a home and /tmp: they hold many datasets, whose names may be the same."""
    temporary = Path(tempfile.gettempdir())
    return (Path(folder.anchor), Path.home(), temporary)


def open_file(path: SourcePath) -> LocalFile | RemoteFile:
    """Opens a file to read ranges of. OSError: it does not exist, or cannot be read."""
    if isinstance(path, Path):
        return LocalFile(path)
    return path.open()


def unreadable(path: SourcePath, problem: OSError) -> PackError:
    """The error about a file of the source that cannot be read."""
    text = no_permission(problem) or f"cannot read {readable(path)}: {problem.strerror}"
    return PackError(text)


def open_regular(path: SourcePath) -> LocalFile | RemoteFile:
    """As `open_file`. PackError: the file cannot be read, or has no ranges, as a pipe."""
    try:
        file = open_file(path)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    if not file.state.is_regular:
        file.close()
        raise PackError(
            f"{readable(path)} is not a regular file; expected one, for fastpipe reads no "
            "streams"
        )
    return file


def open_binary(path: SourcePath) -> BinaryIO:
    return io.BufferedReader(open_file(path), 1 << 20)


@contextmanager
def open_unchanged(path: SourcePath) -> Iterator[BinaryIO]:
    """Opens a file that must not change while it is read. PackError: it has, or is not readable."""
    try:
        with open_binary(path) as file:
            before = state_at(path.parent, path.name)
            yield file
            after = state_at(path.parent, path.name)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    if not _is_same(before, after):
        raise changed_error(path)


def _is_same(first: FileState, second: FileState) -> bool:
    """Whether size and mtime are the same. A backup or a new link changes the ctime."""
    return first[:2] == second[:2]


def is_left_behind(name: str) -> bool:
    """Whether a system or a program leaves files or folders of this name among pictures."""
    # This test is cheap and excludes nearly all names, of which there may be millions.
    if name[0] not in FIRST_OF_LEFT_BEHIND:
        return False
    return name in _LEFT_BEHIND or name.startswith(_MACOS_PREFIX)


def lies_in_left_behind(path: str) -> bool:
    """Whether a path with "/", or any folder in it, was left behind; see `is_left_behind`."""
    folder, _, name = path.rpartition("/")
    if name and is_left_behind(name):
        return True
    return bool(folder) and _is_folder_left_behind(folder)


def find_hidden_folder(path: str) -> str:
    """The path of the first folder with a dot that a file with a path lies in; "" if there is none."""
    if not path.startswith(".") and "/." not in path:
        return ""
    folders = path.split("/")[:-1]
    for index, name in enumerate(folders):
        if name.startswith("."):
            return "/".join(folders[: index + 1])
    return ""


def stray_images(paths: Iterable[str]) -> list[str]:
    """The images among files that are not packed, without those that systems leave behind."""
    images = []
    for path in paths:
        if is_picture(path) and not lies_in_left_behind(path):
            images.append(path)
    return images


@lru_cache(1024)  # a million files lie in a few folders
def _is_folder_left_behind(folder: str) -> bool:
    return any(name and is_left_behind(name) for name in folder.split("/"))


class Names(NamedTuple):
    """The names in a folder, sorted. Hidden ones, in which tools keep their notes, are apart."""

    folders: list[str]
    files: list[str]
    hidden: list[str]


def names_in(folder: SourcePath, most: int | None = None) -> Names:
    """The names in a folder, or only as many as `most`, in the order in which the system has them.

    PackError: the folder cannot be listed.
    """
    if isinstance(folder, Path):
        try:
            listed = []
            with os.scandir(folder) as entries:
                for entry in islice(entries, most):
                    listed.append((entry.name, _is_folder(entry)))
        except OSError as problem:
            _raise_not_listed(problem)
    else:
        listed = folder.listed()[:most]
    names = Names([], [], [])
    for name, is_folder in sorted(listed):
        if name.startswith(".") or is_left_behind(name):
            names.hidden.append(name)
        elif is_folder:
            names.folders.append(name)
        else:
            names.files.append(name)
    return names


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        return False  # a link to itself is a file that cannot be read


def files_below(
    root: SourcePath,
    folder: str = "",
    *,
    hidden: bool = True,
    hidden_folders: set[str] | None = None,
) -> Iterator[str]:
    """The paths of all files below root/folder, relative to root, with "/".

    Folders with a dot and files that systems leave behind are passed over; without `hidden` also
    files with a dot. Links are followed, but not into a folder that has been visited.
    `hidden_folders` gets the paths of the folders with a dot.
    """
    if hidden_folders is None:
        hidden_folders = set()
    if not isinstance(root, Path):
        yield from _remote_files_below(root, folder, hidden_folders, hidden=hidden)
        return
    top = root.resolve()
    # A link to a folder above is a cycle. The top itself comes first in the walk, unless the walk
    # begins in a folder below it.
    visited = {_identity_of(path) for path in top.parents}
    if folder:
        visited.add(_identity_of(top))
    for place, folders, files in os.walk(
        root / folder, followlinks=True, onerror=_raise_not_listed
    ):
        identity = _identity_of(place)
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        relative = os.path.relpath(place, root)
        prefix = relative.replace(os.sep, "/") + "/"
        prefix = prefix.removeprefix("./")
        visible_folders = []
        for name in sorted(folders):
            if is_left_behind(name):
                continue
            if name[0] == ".":
                hidden_folders.add(prefix + name)
            else:
                visible_folders.append(name)
        # os.walk goes into the folders that stay in its list.
        folders[:] = visible_folders
        for name in files:
            # A call for each of a million names would take longer.
            if name[0] in FIRST_OF_LEFT_BEHIND and is_left_behind(name):
                continue
            if hidden or name[0] != ".":
                yield prefix + name


def _identity_of(folder: str | Path) -> tuple[int, int]:
    info = os.stat(folder)
    return info.st_dev, info.st_ino


def _remote_files_below(
    root: RemotePath, folder: str, hidden_folders: set[str], *, hidden: bool
) -> Iterator[str]:
    prefix = f"{folder}/" if folder else ""
    for path in (root / folder).files_below():
        if lies_in_left_behind(path):
            continue
        hidden_folder = find_hidden_folder(path)
        if hidden_folder:
            hidden_folders.add(prefix + hidden_folder)
            continue
        is_dotted = path.rpartition("/")[2].startswith(".")
        if hidden or not is_dotted:
            yield prefix + path


def _raise_not_listed(problem: OSError) -> NoReturn:
    raise PackError(
        no_permission(problem)
        or f"{readable(problem.filename)} cannot be listed: {problem.strerror}"
    ) from problem


# Errors as if the file were gone.
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)


def read_listed_file(
    root: SourcePath,
    path: str,
    listed: FileState,
    start: int = 0,
    stop: int | None = None,
) -> bytes:
    """Bytes of a file that must not have changed since it was listed.

    Args:
        root, path: the file.
        listed: its state when it was listed.
        start, stop: the first byte, and the one after the last; None: the end of the file.

    Raises:
        PackError: the file has changed or vanished; or a server does not give it.
        OSError: a file of this machine cannot be opened or read.
    """
    if stop is None:
        stop = listed.size_bytes
    if not isinstance(root, Path):
        key = (root / path).key
        return root.objects.read(key, start, stop, listed)
    # The begin of both messages; `changed_error` names the file before it.
    listed_text = f": it had {listed.size_bytes:,} bytes when it was listed, and"
    try:
        file = open_file(root / path)
    except OSError as problem:
        if problem.errno not in _ABSENT_ERRNOS:
            raise
        with_all = ""
        if not root.exists():
            with_all = ", with all of the source"
        raise changed_error(
            root / path, f"{listed_text} has disappeared{with_all} ({problem.strerror})"
        ) from problem
    with file:
        before = file.state
        data = b""
        # A pipe has no bytes at an offset.
        if before.is_regular:
            data = file.read_at(stop - start, start)
        # A program may write the file while it is read.
        after = file.state
    is_unchanged = _is_same(before, listed) and _is_same(after, listed)
    if not is_unchanged or len(data) != stop - start:
        raise changed_error(
            root / path,
            f"{listed_text} now has {after.size_bytes:,}: it was written again, or something else "
            "is in its place",
        )
    return data


def not_a_folder(path: SourcePath, next_step: str) -> str:
    """The message about a path that should be a folder."""
    shown = readable(str(path))
    if path.exists():
        return f"{shown} is not a folder; {next_step}"
    near = did_you_mean_path(path) if isinstance(path, Path) else ""
    return f"{shown} does not exist{near or f'; {next_step}'}"
