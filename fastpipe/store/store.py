"""A folder, or a bucket behind a URL -> the same verbs: list, read, write whole, swap, remove."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import xxhash

from fastpipe.dataset.format.folder import Place, Url
from fastpipe.dataset.format.layout import WORK_FOLDER
from fastpipe.dataset.format.open_file import read_at
from fastpipe.errors import ConfigError, PackError
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.store.files import PARTIAL, make_in_shared, no_link, publish, write_error
from fastpipe.store.remote.options import BUCKETS, RemoteOptions

# The name of the note in an object's metadata. Azure allows only letters and digits.
_NOTE = "fastpipestate"
_READS_AT_A_TIME = 32

Item = TypeVar("Item")
Result = TypeVar("Result")


class NewFile(NamedTuple):
    """A file that nobody sees before `commit`."""

    # Where the file is written, on this machine.
    path: Path
    # Gives the closed, synced file its name. A file in a bucket carries the note in its metadata.
    commit: Callable[[str], None]

    def discard(self) -> None:
        """Removes the file.

        If writing fails, the file stays in the work folder, where it does no harm. The error
        that led here is the one that the user should see.
        """
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class _WholeFiles(ABC):
    """Files that appear whole. Names have "/" between folders."""

    place: Place
    # A folder of this machine in which files are written before they get their names.
    scratch: Path

    @abstractmethod
    def new_file(self, name: str) -> NewFile:
        """Returns a file to write. It and its `commit` raise OSError or PackError."""

    @contextlib.contextmanager
    def open_atomic(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file to write, which appears whole if the block ends without an exception.

        Raises:
            PackError: the file cannot be written.
        """
        new: NewFile | None = None
        try:
            new = self.new_file(name)
            with open(new.path, "wb", opener=no_link) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.commit("")
        except BaseException as problem:
            if new is not None:
                new.discard()
            if isinstance(problem, OSError):
                raise write_error(f"{self.place}/{name}", problem) from problem
            raise

    def write(self, name: str, data: bytes | memoryview) -> None:
        with self.open_atomic(name) as file:
            file.write(data)

    def _partial_path(self, name: str) -> Path:
        """A new path in the scratch folder. Several workers may write the same file at a time."""
        last_part = name.rpartition("/")[2]
        unique = uuid.uuid4().hex[:12]
        return self.scratch / f"{last_part}.{unique}{PARTIAL}"


class Folder(_WholeFiles):
    """The files of a dataset, in a folder of this machine. Safe in threads.

    Raises:
        PackError: a file cannot be written.
    """

    # Nothing is uploaded from here; a Bucket counts.
    uploaded_bytes = 0

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.place: Path = folder
        self.scratch = scratch or folder / WORK_FOLDER

    def close(self) -> None:
        """Cancels what is under way."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The sizes in bytes of the files in a folder, by their names in it."""
        sizes: dict[str, int] = {}
        # A folder that does not exist has no files.
        missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with missing, os.scandir(self.place / folder) as entries:
            for entry in entries:
                # Another worker may rename or remove the file after it was listed.
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        sizes[entry.name] = entry.stat().st_size
        return sizes

    def find_other_file(self) -> str | None:
        """The name of something in the folder besides a work folder; None if there is nothing."""
        try:
            names = set(os.listdir(self.place))
        except FileNotFoundError:
            return None
        return min(names - {WORK_FOLDER}, default=None)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Reads a range of a file, by default to its end.

        The file is opened at each call, because a dataset may have more files than a process may
        have open.

        Raises:
            FileNotFoundError: there is no such file.
        """
        with open(self.place / name, "rb", buffering=0) as file:
            if stop is None:
                stop = os.fstat(file.fileno()).st_size
            return read_at(file.fileno(), stop - start, start)

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Calls `work`, which reads a little, for each item. Gives the results in order.

        A bucket works on several items at a time.
        """
        return map(work, items)

    def written_ns(self, name: str) -> int:
        """When a file was written, in nanoseconds since 1970. A bucket uses the server's clock."""
        return (self.place / name).stat().st_mtime_ns

    def note(self, name: str) -> str:
        """The note that a file in a bucket carries; "" if there is no note or no such file."""
        return ""

    def new_file(self, name: str) -> NewFile:
        final = self.place / name
        partial = self._partial_path(name)
        make_in_shared(self.scratch)
        make_in_shared(final.parent)
        return NewFile(partial, lambda _: publish(partial, final))

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        """Writes a small file if its content is still `old`; None means that there is no file.

        Returns False if the content is another one. The lock of the work folder keeps other
        writers out between the comparison and the write. For `note` see NewFile.
        """
        content: bytes | None = None
        with contextlib.suppress(FileNotFoundError):
            content = self.read(name)
        if content != old:
            return False
        self.write(name, data)
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that exist, and the folders that become empty."""
        folders: set[Path] = set()
        for name in names:
            path = self.place / name
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders - {self.place, self.scratch}:
            # A folder that is not empty stays.
            with contextlib.suppress(OSError):
                folder.rmdir()

    def check_room(self, needed_bytes: int) -> None:
        """Raises PackError if the disk has no room for the files that are written at a time.

        Only a bucket checks: its files are written to another disk first.
        """


class Bucket(_WholeFiles):
    """The same verbs behind a URL. Files are written on this machine, and uploaded whole.

    If an upload is killed, its parts stay in the bucket, and cost money, until a lifecycle rule of
    the bucket removes them: obstore cannot list them. An upload that fails is aborted.
    """

    def __init__(
        self, url: Url, remote: RemoteOptions | None, scratch: Path | None = None
    ) -> None:
        # Imported here, because most packs make no requests.
        from fastpipe.store.remote.objects import Objects

        check_writable(url)
        self.place: Url = url
        self.uploaded_bytes = 0
        scratch_root = scratch or cache_folder() / "pack"
        self.scratch = scratch_root / own_folder_name(url)
        self._objects = Objects(url, remote or RemoteOptions(), PackError)

    def close(self) -> None:
        self._objects.cancel()
        with contextlib.suppress(OSError):
            for partial in self.scratch.glob(f"*{PARTIAL}"):
                partial.unlink()

    def sizes(self, folder: str = "") -> dict[str, int]:
        prefix = f"{folder}/" if folder else ""
        sizes: dict[str, int] = {}
        for name, facts in self._objects.listed(folder):
            name_in_folder = name.removeprefix(prefix)
            if name_in_folder and "/" not in name_in_folder:
                sizes[name_in_folder] = facts.size_bytes
        return sizes

    def find_other_file(self) -> str | None:
        for name, facts in self._objects.listed(""):
            # Some programs mark a folder by an empty object of its name.
            is_marker = not name and facts.size_bytes == 0
            if not is_marker and not name.startswith(f"{WORK_FOLDER}/"):
                return name
        return None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        if stop is None:
            data, _ = self._content(name)
            if data is None:
                raise FileNotFoundError(2, "no such file", str(self.place / name))
            return data[start:]

        pieces = self._objects.pieces(
            lambda at, end: self._objects.get(name, at, end),
            start,
            stop,
        )
        return b"".join(pieces)

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        from fastpipe.store.remote.objects import in_order

        with ThreadPoolExecutor(
            _READS_AT_A_TIME, thread_name_prefix="fastpipe-read"
        ) as threads:
            futures = (threads.submit(work, item) for item in items)
            yield from in_order(futures, _READS_AT_A_TIME)

    def new_file(self, name: str) -> NewFile:
        self.scratch.mkdir(parents=True, exist_ok=True)
        path = self._partial_path(name)

        def upload(note: str) -> None:
            attributes = {_NOTE: note} if note else {}
            self._objects.put(name, path, attributes)
            self.uploaded_bytes += path.stat().st_size
            path.unlink()

        return NewFile(path, upload)

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        content, etag = self._content(name)
        if content != old:
            # If the content is already the new one, the answer to our own request was lost, and
            # the request was made again.
            return content == data
        is_written = self._objects.put(name, data, {_NOTE: note}, replaces=etag)
        self.uploaded_bytes += len(data)
        return is_written or self._content(name)[0] == data

    def _content(self, name: str) -> tuple[bytes | None, str | None]:
        """The content of a small file and its ETag; None and "" if there is no such file."""
        answer = self._objects.find(name)
        if answer is None:
            return None, ""
        return bytes(answer.data), answer.etag

    def written_ns(self, name: str) -> int:
        (facts,) = self._objects.stats([name])
        return 0 if facts is None else facts.ctime_ns

    def note(self, name: str) -> str:
        answer = self._objects.find(name, 1)
        if answer is None:
            return ""
        return answer.attributes.get(_NOTE, "")

    def remove(self, names: Iterable[str]) -> None:
        self._objects.remove(list(names))

    def check_room(self, needed_bytes: int) -> None:
        free_bytes = shutil.disk_usage(self.scratch).free
        if free_bytes < needed_bytes:
            raise PackError(
                f"{self.scratch} has {free_bytes / 1e6:,.1f} MB free; expected at least "
                f"{needed_bytes / 1e6:,.1f} MB, because shards are written there before they are "
                "uploaded. Make room, pass --spool DIR on another disk, or a smaller --shard-size"
            )


def own_folder_name(place: Place) -> str:
    """The name of a folder for the files of one destination.

    Several destinations may share a scratch folder or a --spool, and may have the same last name.
    """
    text = str(place)
    last_name = re.sub(r"[^A-Za-z0-9.-]+", "-", text.rpartition("/")[2])
    return f"{last_name}-{xxhash.xxh3_64_hexdigest(os.fsencode(text))}"


def check_writable(url: Url) -> None:
    """Raises ConfigError if fastpipe cannot write to URLs of this scheme."""
    if url.scheme in BUCKETS:
        return
    writable = ", ".join(f"{scheme}://" for scheme in BUCKETS)
    raise ConfigError(
        f"DST {url}: fastpipe cannot write to {url.scheme}://; it writes to {writable} and to "
        "folders. Pack into a folder and upload it, dataset.json last"
    )


Store = Folder | Bucket


def open_store(
    place: Place, remote: RemoteOptions | None = None, scratch: Path | None = None
) -> Store:
    """The store of a folder or URL.

    Raises:
        ConfigError: fastpipe cannot write to the URL, or an option is unknown.
    """
    if isinstance(place, Path):
        return Folder(place, scratch)
    return Bucket(place, remote, scratch)
