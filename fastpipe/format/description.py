"""The content of dataset.json <-> its bytes, which have a hash of themselves; and what they tell of a folder."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any, Protocol

import xxhash

from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FORMAT

SELF_CHECKSUM = "self_xxh3_64"

_BLANK = b"0" * 16
_AT_END = re.compile(rb'\n "%s": "([0-9a-f]{16})"\n}\n\Z' % SELF_CHECKSUM.encode())


def with_self_checksum(info: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The content with a hash as the last field, and its bytes. The hash is the XXH3-64 of these bytes with zeros in
    place of its digits.
    """
    text = io.BytesIO()  # of many shards the pieces would take much more memory than the text
    for piece in json.JSONEncoder(indent=1).iterencode({**info, SELF_CHECKSUM: _BLANK.decode()}):
        text.write(piece.encode())
    text.write(b"\n")
    digest = xxhash.xxh3_64_hexdigest(text.getbuffer())
    text.seek(-len(_BLANK + b'"\n}\n'), io.SEEK_END)
    text.write(digest.encode())
    return {**info, SELF_CHECKSUM: digest}, text.getvalue()


def read_self_checksum(data: bytes) -> tuple[str, str] | None:
    """The hash that the bytes of a dataset.json carry, and the one that they have; None if they carry none."""
    found = _AT_END.search(data, max(0, len(data) - 64))
    if found is None:
        return None
    start, end = found.span(1)
    return found[1].decode(), xxhash.xxh3_64_hexdigest(data[:start] + _BLANK + data[end:])


def fingerprint(info: dict[str, Any]) -> str:
    """What names a dataset's content and order: XXH3-128 of what dataset.json says of samples, classes and files."""
    content = {name: info[name] for name in ("samples", "classes", "shards", "fields")}
    content["index"] = {name: info["index"][name] for name in ("name", "xxh3_64")}
    shards, encode = content.pop("shards"), json.JSONEncoder(sort_keys=True).encode
    digest = xxhash.xxh3_128(encode(content)[:-1].encode() + b', "shards": [')  # the last, and long
    for at, shard in enumerate(shards):
        digest.update(b", " * (at > 0) + encode(shard).encode())
    digest.update(b"]}")
    return digest.hexdigest()


class File(Protocol):
    """A path of a file, on this machine or behind a URL."""

    def read_bytes(self) -> bytes: ...


def is_dataset(file: File) -> bool:
    """Whether a dataset.json is one of ours. OSError: it is there and cannot be read."""
    try:
        info = json.loads(file.read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(info, dict) and info.get("format") == DATASET_FORMAT


def is_foreign(file: File) -> bool:
    """Whether it is JSON of another program: no dataset.json of ours, and none that was damaged."""
    try:
        data = file.read_bytes()
        return read_self_checksum(data) is None and json.loads(data).get("format") != DATASET_FORMAT
    except (MemoryError, OSError, ValueError, AttributeError, RecursionError):
        return False


def damage(index: Index, size_of: Callable[[str], int] | None = None) -> str | None:
    """A shard that is gone or of another size; None: there is none. To find changed bits everything would have to be
    read. `size_of` gives the size of a file, by name, or raises OSError; None: the file system is asked.
    """
    for shard in index.shards:
        try:
            size = shard.path.stat().st_size if size_of is None else size_of(shard.path.name)
        except OSError as problem:
            return f"{shard.path.name}: {problem.strerror}"
        if size != shard.size_bytes:
            return f"{shard.path.name} has {size:,} bytes, expected {shard.size_bytes:,}"
    return None
