"""Tar files for tests, header by header, so that any field may say what it should not."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from fastpipe.dataset.format import tar_writer as tar

END = bytes(2 * tar.BLOCK)


def sealed(header: bytes) -> bytes:
    """The header with its right checksum."""
    blank = header[:148] + b" " * 8 + header[156:]
    return blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]


def header(name: bytes | str, size: int | bytes = 0, kind: bytes = b"0", **fields: bytes) -> bytes:
    """A ustar header.

    Args:
        name: up to 100 bytes.
        size: a number, or the 12 bytes of the field.
        kind: the type's letter.
        fields: others: link, magic, prefix, more (from byte 482 on), checksum (in place of the right one).
    """
    raw = name.encode() if isinstance(name, str) else name
    digits = b"%011o\0" % size if isinstance(size, int) else size
    block = bytearray(tar.BLOCK)
    block[: len(raw)] = raw
    block[100:124] = b"0000644\0" + 2 * b"0000000\0"
    block[124:148] = digits + b"00000000000\0"
    block[156:157] = kind
    places = {"link": 157, "magic": 257, "prefix": 345, "more": 482}
    for field, value in {"magic": b"ustar\x0000", **fields}.items():
        if field in places:
            block[places[field] : places[field] + len(value)] = value
    whole = sealed(bytes(block))
    return whole[:148] + fields["checksum"] + whole[156:] if "checksum" in fields else whole


def member(name: bytes | str, data: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    """A header, what follows it, and padding."""
    return header(name, len(data), kind, **fields) + data + tar.padding(len(data))


def record(keyword: str, value: bytes) -> bytes:
    """A record of a pax header."""
    rest = b" " + keyword.encode() + b"=" + value + b"\n"
    length = next(
        length
        for length in range(len(rest), len(rest) + 12)
        if len(str(length)) + len(rest) == length
    )
    return str(length).encode() + rest


def pax(kind: bytes = b"x", **records: bytes) -> bytes:
    """A pax header, with double underscores in keywords for dots."""
    return member(
        "pax",
        b"".join(record(key.replace("__", "."), value) for key, value in records.items()),
        kind,
    )


def tar_of_folder(folder: Path, file: Path, under: str = "") -> Path:
    """A tar of a folder's content, as `tar` makes it; `under` a folder of that name if it is given."""
    with tarfile.open(file, "w") as archive:
        archive.add(folder, under or ".")
    return file


def write_tar(file: Path, members: Mapping[str, bytes]) -> Path:
    """An ordinary tar of some files."""
    with tarfile.open(file, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file
