"""The content of dataset.json -> its bytes, with a hash of themselves in them; and back to whether they are whole."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import xxhash

SELF_CHECKSUM = "self_xxh3_64"

_BLANK = b"0" * 16
_AT_END = re.compile(rb'\n "%s": "([0-9a-f]{16})"\n}\n\Z' % SELF_CHECKSUM.encode())


def with_self_checksum(info: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Adds the hash as the last field: XXH3-64 of the file's bytes with zeros in place of the hash's digits.

    Returns:
        The content with the hash, and its bytes.
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
