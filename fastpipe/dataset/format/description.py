"""The content of dataset.json <-> its bytes; files of a dataset -> whether they have changed."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self

import xxhash

from fastpipe.dataset.format.folder import Place, why_no_dataset
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    DATASET_FORMAT,
    FORMAT_VERSION,
    READABLE_VERSIONS,
)
from fastpipe.distribution import UPGRADE
from fastpipe.errors import DatasetError, no_permission
from fastpipe.warnings_once import is_known, warn_once

_CHUNK_BYTES = 4 << 20
# A loader waits at its start for the comparison of files that have at most so many bytes together.
_AT_ONCE_BYTES = 256 << 20
REPACK = "pack the source again, with --overwrite"
SELF_CHECKSUM = "self_xxh3_64"

# The file is hashed with these digits in the place of its own hash.
_BLANK = b"0" * 16
_CHECKSUM_AT_END = re.compile(
    rb'\n "%s": "([0-9a-f]{16})"\n}\n\Z' % SELF_CHECKSUM.encode()
)


class NewerFormatError(DatasetError):
    """A newer fastpipe packed the dataset. It is not damaged, and must not be packed again."""


def with_self_checksum(info: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Adds a last field, the hash of the file itself, to the content of a dataset.json.

    The hash is the XXH3-64 of the file's bytes with zeros in place of its own digits.

    Returns:
        The content with that field, and the bytes of the file.
    """
    # Written piece by piece: for many shards a list of the pieces would take much more memory
    # than the text.
    text = io.BytesIO()
    blank_info = {**info, SELF_CHECKSUM: _BLANK.decode()}
    encoder = json.JSONEncoder(indent=1)
    for piece in encoder.iterencode(blank_info):
        text.write(piece.encode())
    text.write(b"\n")
    digest = xxhash.xxh3_64_hexdigest(text.getbuffer())

    # The digits replace the zeros, which are the last value of the file.
    last_bytes = _BLANK + b'"\n}\n'
    text.seek(-len(last_bytes), io.SEEK_END)
    text.write(digest.encode())
    complete_info = {**info, SELF_CHECKSUM: digest}
    return complete_info, text.getvalue()


def read_self_checksum(data: bytes) -> tuple[str, str] | None:
    """The hash that a dataset.json carries, and the hash that its bytes have; None: it has none."""
    end_at = max(0, len(data) - 64)
    match = _CHECKSUM_AT_END.search(data, end_at)
    if match is None:
        return None
    start, end = match.span(1)
    # Piece by piece: for many shards, a copy would take much memory.
    whole = memoryview(data)
    digest = xxhash.xxh3_64()
    for piece in (whole[:start], _BLANK, whole[end:]):
        digest.update(piece)
    return match[1].decode(), digest.hexdigest()


def fingerprint(info: dict[str, Any]) -> str:
    """Names a dataset's content and order: XXH3-128 of its samples, classes, fields and shards."""
    content = {name: info[name] for name in ("samples", "classes", "fields")}
    index = info["index"]
    content["index"] = {"name": index["name"], "xxh3_64": index["xxh3_64"]}
    encode = json.JSONEncoder(sort_keys=True).encode

    # The result is the hash of one JSON object. Its last entry, "shards", is long and therefore
    # hashed shard by shard.
    without_brace = encode(content)[:-1].encode()
    digest = xxhash.xxh3_128(without_brace + b', "shards": [')
    separator = b""
    for shard in info["shards"]:
        entry = encode(shard).encode()
        digest.update(separator + entry)
        separator = b", "
    digest.update(b"]}")
    return digest.hexdigest()


class _Folder(Protocol):
    """A path, on this machine or behind a URL."""

    def __truediv__(self, name: str, /) -> Self: ...
    def read_bytes(self) -> bytes: ...


def is_dataset(folder: _Folder) -> bool:
    """Whether a folder has a dataset.json of fastpipe. OSError: the file cannot be read."""
    try:
        info = json.loads((folder / DATASET_FILE).read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(info, dict) and info.get("format") == DATASET_FORMAT


def is_foreign(folder: _Folder) -> bool:
    """Whether a folder's dataset.json is valid JSON that another program wrote.

    False for a damaged dataset.json of fastpipe, which most often still carries its hash.
    """
    try:
        data = (folder / DATASET_FILE).read_bytes()
        if read_self_checksum(data) is not None:
            return False
        return bool(json.loads(data).get("format") != DATASET_FORMAT)
    except (MemoryError, OSError, ValueError, AttributeError, RecursionError):
        return False


def read_info(
    path: Path,
    hook: Callable[[dict[str, Any]], Any] | None = None,
    version: int | None = None,
) -> dict[str, Any]:
    """Reads dataset.json.

    Args:
        path: the dataset's folder.
        hook: json's object_hook.
        version: of the dataset; None: the newest.

    Raises:
        DatasetError: there is no dataset.json, or it is damaged or of another format version.
    """
    file = path / DATASET_FILE
    if version is not None:
        # dataset.json of the newest version lies in the dataset's folder, whatever its number is.
        newest = read_info(path)["version"]
        file = path / (description_folder(path, version, newest) + DATASET_FILE)
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise DatasetError(why_no_dataset(path)) from problem
    except OSError as problem:
        raise DatasetError(
            no_permission(problem)
            or f"{file} cannot be read: {problem.strerror}; check its permissions, the disk and the "
            "limit on open files (ulimit -n)"
        ) from problem
    _warn_if_changed(data, file)
    return parse_info(data, file, hook)


def _warn_if_changed(data: bytes, file: Path) -> None:
    """Says once if a dataset.json is not as it was written."""
    hashes = read_self_checksum(data)
    warning = f"changed {file}"
    if is_known(warning):
        return
    if hashes is not None:
        expected, actual = hashes
        if expected == actual:
            return
    warn_once(
        warning,
        f"{file} has been changed since it was written, by hand or by damage: its classes, fields and "
        "shards cannot be trusted. Put it back as it was; to rename or renumber classes, see "
        "data.with_classes",
    )


def description_folder(path: Place, version: int, newest: int) -> str:
    """The folder of a version's dataset.json, with "/" at its end; "" for the newest version.

    Raises:
        DatasetError: there is no such version.
    """
    if not 0 < version <= newest:
        raise DatasetError(
            f"{path} has no version {version}; expected 1 to {newest}, the newest: see "
            f"fastpipe log {path}"
        )
    return "" if version == newest else f"v{version}/"


def parse_info(
    data: bytes, file: Path | str, hook: Callable[[dict[str, Any]], Any] | None = None
) -> dict[str, Any]:
    """Parses the bytes of a dataset.json, as `read_info` does. `file` is for messages."""
    try:
        info: object = json.loads(data, object_hook=hook)
    except (ValueError, RecursionError) as problem:
        advice = REPACK
        if data.lstrip()[:1] == b"<":
            # A server that wants a login, or that has no such file, may answer with a page.
            advice = (
                "it is a web page or XML: check the URL, and that no login is needed"
            )
        raise DatasetError(
            f"{file} is not valid JSON ({problem}); {advice}"
        ) from problem
    if not isinstance(info, dict) or info.get("format") != DATASET_FORMAT:
        raise DatasetError(
            f"{file} does not describe a fastpipe dataset; expected format {DATASET_FORMAT!r}"
        )
    _check_format_version(info.get("format_version"), file)
    # When there is a second format version: the older description becomes one of the newest
    # version here, in memory, so that nothing behind this line knows of versions.
    version = info.get("version")
    if not isinstance(version, int) or not 0 < version < 2**31:
        raise DatasetError(
            f"{file} has a missing or invalid field ('version': {version!r}); {REPACK}"
        )
    return info


def _check_format_version(version: object, file: Path | str) -> None:
    """Checks that this fastpipe can read the format version of a dataset.

    Raises:
        NewerFormatError: only a newer one can.
        DatasetError: no fastpipe can.
    """
    # In Python, True and 1.0 equal 1.
    number = version if type(version) is int else 0
    if number in READABLE_VERSIONS:
        return
    readable_text = " or ".join(map(str, READABLE_VERSIONS))
    problem = (
        f"{file} has format version {version!r}; this fastpipe reads {readable_text}"
    )
    if number > FORMAT_VERSION:
        raise NewerFormatError(
            f"{problem}. A newer fastpipe packed it. Upgrade: {UPGRADE}"
        )
    raise DatasetError(f"{problem}. No release of fastpipe wrote it; {REPACK}")


class Intact:
    """Compares files with their hashes, once, in a thread.

    Args:
        files: path, expected hash, and the advice that restores the file: Index.list_hashed_files.
    """

    def __init__(self, files: Iterable[tuple[Path, str, str]]) -> None:
        self._files = list(files)
        self._errors: list[DatasetError] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Starts the thread, unless it was started. Waits for it where the files are small.

        Raises:
            DatasetError: as `check`, which reports errors of large files later.
        """
        if self._thread is not None:
            return
        # The thread must not keep this object alive: when it is dropped, nobody needs the result.
        # See Note [callbacks] in slots.py.
        closed_ref = weakref.ref(self._closed)

        def has_ended() -> bool:
            closed = closed_ref()
            return closed is None or closed.is_set()

        self._thread = threading.Thread(
            target=_compare,
            args=(self._files, self._errors, has_ended),
            name="fastpipe-hashes",
            daemon=True,
        )
        self._thread.start()
        size_bytes = sum(
            file.stat().st_size for file, *_ in self._files if file.exists()
        )
        self.check(end=size_bytes <= _AT_ONCE_BYTES)

    def check(self, *, end: bool = False) -> None:
        """Raises DatasetError if a file is known to have changed.

        Args:
            end: wait first until all files are compared.
        """
        if end and self._thread is not None:
            self._thread.join()
        if self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """Makes the thread end soon."""
        self._closed.set()


def _compare(
    files: list[tuple[Path, str, str]],
    errors: list[DatasetError],
    has_ended: Callable[[], bool],
) -> None:
    """Appends an error for the first file that differs from its hash."""
    # The first error is enough, as `Intact.check` raises it.
    for file, expected, restored_by in files:
        try:
            if file.name == DATASET_FILE:
                expected, actual = read_self_checksum(file.read_bytes()) or ("", "")
            else:
                actual = file_hash(file, has_ended)
            problem = f"has changed since it was packed: expected XXH3-64 {expected}, got {actual}"
        except OSError as error:
            actual = ""
            problem = f"cannot be read: {error.strerror or error}"
        if has_ended():
            return
        if actual != expected:
            advice = f"Its values cannot be trusted: {restored_by}"
            errors.append(DatasetError(f"{file} {problem}. {advice}"))
            return


def file_hash(file: Path, has_ended: Callable[[], bool] = bool) -> str:
    """XXH3-64 of a file, in hex.

    Args:
        file: its path.
        has_ended: stops the reading when it returns True; the hash is then of no use.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    digest = xxhash.xxh3_64()
    # O_NONBLOCK: opening a pipe would wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(file, flags)
    with open(handle, "rb", buffering=0) as source:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise OSError("not a regular file")
        while not has_ended():
            data = source.read(_CHUNK_BYTES)
            if not data:
                break
            digest.update(data)
    return digest.hexdigest()
