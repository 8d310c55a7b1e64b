"""A sample -> its names, and the bytes before and after its image in a shard (docs/explanation/format.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Uint64s
from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.dataset.format.tiled_file import TILED_MAGIC

# A header and a block for KEY.cls (a label has at most 20 digits), and the header of the image; of a
# sample without an image, that of KEY.json.
BEFORE_BYTES = 3 * tar.BLOCK

# The first entry of KEY.json, with the name of the class and the identity of the source's picture.
OURS = "fastpipe"
_PATH = ', "path": '  # the text of KEY.json behind that entry
_BEGINNING_BYTES = 1 << 16  # of KEY.json: more than the entry and the path have

# The first bytes of a KEY.fpc and of a KEY.png.
FPC_MAGIC = b"FPC"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PIECE_BYTES = 4096  # of a picture, for its identity


def identity_of(size_bytes: int, read: Callable[[int, int], bytes | memoryview]) -> int:
    """The identity of a picture's file (docs/explanation/format.md).

    Args:
        size_bytes: of the file.
        read: gets an offset and a size, and returns these bytes of the file.
    """
    # Three pieces and the size tell photos apart, and a large file is not read whole.
    digest = xxhash.xxh3_64(size_bytes.to_bytes(8, "little"))
    piece_bytes = min(size_bytes, _PIECE_BYTES)
    last = size_bytes - piece_bytes
    for offset in (0, last // 2, last):
        digest.update(read(offset, piece_bytes))
    return digest.intdigest()


def key_hashes(paths: Iterable[str]) -> Uint64s:
    """(paths,) the column "key" of the index for sources with these paths."""
    hashes = [key_hash(path) for path in paths]
    return np.array(hashes, dtype=np.uint64)


def key_hash(path: str) -> int:
    """XXH3-64 of a sample's source path, as `readable` gives it: column "key" of the index."""
    return xxhash.xxh3_64_intdigest(path.encode(errors="surrogatepass"))


def sample_key(shard: int, start: int) -> str:
    """The name of a sample in its tar, without an ending: the number of its shard, and the block that it begins in.

    Args:
        shard: number of the shard.
        start: the first byte of the sample in it.
    """
    return f"{shard:06d}-{start // tar.BLOCK:08d}"


def note_header_at(record: np.void) -> int:
    """Where the header of KEY.json begins in the shard of a sample with this index record."""
    offset = int(record["offset"])
    if not has_images(record):
        # A sample without an image: its record is about KEY.json itself.
        return offset - tar.BLOCK
    return tar.padded(offset + int(record["size"]), tar.BLOCK)


class Stored(NamedTuple):
    """The value of a field as a shard has it: an entry of KEY.json, or members, or neither."""

    note: Any = None
    # Only a list of pictures has more than one.
    members: tuple[bytes, ...] = ()

    @property
    def member(self) -> bytes | None:
        """The only member; None: there is none."""
        return self.members[0] if self.members else None


def picture_ending(data: bytes) -> str:
    """The name, without "KEY.", of the member that begins with these bytes."""
    if data.startswith(PNG_MAGIC):
        return "png"
    if data.startswith(TILED_MAGIC):
        return "tif"
    return "fpc" if data.startswith(FPC_MAGIC) else "jpg"


def before_picture(key: str, label: int, picture: bytes) -> bytes:
    """KEY.cls and the header of the image: BEFORE_BYTES bytes. Without an image, KEY.cls alone."""
    digits = str(label).encode()
    cls_header = tar.header(key + ".cls", len(digits))
    cls_padding = tar.padding(len(digits))
    cls_member = cls_header + digits + cls_padding
    if not picture:
        return cls_member
    image_name = f"{key}.{picture_ending(picture)}"
    image_header = tar.header(image_name, len(picture))
    return cls_member + image_header


def after_picture(key: str, size_bytes: int, note: bytes) -> bytes:
    """The padding of an image of this size, 0 without one, and KEY.json with the note."""
    image_padding = tar.padding(size_bytes)
    note_header = tar.header(key + ".json", len(note))
    note_padding = tar.padding(len(note))
    return image_padding + note_header + note + note_padding


class Ours(NamedTuple):
    """The beginning of a KEY.json of fastpipe."""

    class_name: str | None
    identity: int  # of the source's picture
    path: str  # of the source


def read_ours(read_beginning: Callable[[int], bytes]) -> Ours | None:
    """Reads the beginning of a KEY.json; None if another program wrote it.

    Args:
        read_beginning: gets a number, and returns so many bytes of its beginning, or all.

    Raises:
        ValueError: the file is damaged.
    """
    opening = f'{{"{OURS}": '.encode()
    if read_beginning(len(opening)) != opening:
        return None
    # The note may have megabytes of fields behind its beginning, so it is not parsed as a whole.
    decoder = json.JSONDecoder()
    try:
        beginning = read_beginning(_BEGINNING_BYTES)
        text = beginning[len(opening) :].decode("ascii", "replace")
        # raw_decode parses one value, and returns where it ends.
        entry, end = decoder.raw_decode(text)
        if not text.startswith(_PATH, end):
            raise ValueError("no path behind it")
        path, _ = decoder.raw_decode(text, end + len(_PATH))
        name = entry.get("class")
        identity = int(entry["identity"], 16)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise ValueError(
            f"KEY.json is damaged: expected an identity and a path, got {problem!r}"
        ) from problem
    if name is not None:
        name = str(name)
    return Ours(name, identity, str(path))


def read_names(note: bytes) -> tuple[int, int]:
    """The columns "identity" and "key" of a sample's record, from its KEY.json.

    Raises:
        ValueError: the note is damaged.
    """
    ours = read_ours(lambda size: note[:size])
    if ours is None:
        raise ValueError("KEY.json is damaged: expected an identity and a path")
    json.loads(note)  # `read_ours` does not look at the fields behind the path
    return ours.identity, key_hash(ours.path)
