"""A sample -> what names it, and the bytes before and after its image in a shard (docs/format.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import xxhash

from fastpipe.format import tar_writer as tar

# A header and a block for KEY.cls (a label has at most 20 digits), and the header of the image.
BEFORE_BYTES = 3 * tar.BLOCK

OURS = "fastpipe"  # the first entry of KEY.json: the class's name, and the identity of the source's picture
_PATH = ', "path": '  # behind it
FPC_MAGIC, PNG_MAGIC = b"FPC", b"\x89PNG\r\n\x1a\n"  # what a KEY.fpc and a KEY.png begin with
_PIECE_BYTES = 4096  # of a picture, for its identity


def identity_of(size_bytes: int, read: Callable[[int, int], bytes | memoryview]) -> int:
    """By what a picture is known (docs/format.md); `read` gives bytes of its file from an offset on: so many."""
    digest = xxhash.xxh3_64(size_bytes.to_bytes(8, "little"))
    last = max(size_bytes - _PIECE_BYTES, 0)
    for offset in (0, last // 2, last):
        digest.update(read(offset, min(size_bytes, _PIECE_BYTES)))
    return digest.intdigest()


def key_hash(path: str) -> int:
    """XXH3-64 of a sample's key: the path of its source, as `readable` gives it."""
    return xxhash.xxh3_64_intdigest(path.encode(errors="surrogatepass"))


def sample_key(shard: int, start: int) -> str:
    """The WebDataset key of a sample: the number of its shard, and the block in which byte `start`, its first, is."""
    return f"{shard:06d}-{start // tar.BLOCK:08d}"


class Stored(NamedTuple):
    """The value of a field as it stands in a shard: an entry of KEY.json, or a member; neither if there is none."""

    note: Any = None
    member: bytes | None = None


def picture_ending(data: bytes) -> str:
    """What follows "KEY." in the name of the member that begins with these bytes."""
    return "png" if data.startswith(PNG_MAGIC) else "fpc" if data.startswith(FPC_MAGIC) else "jpg"


def before_picture(key: str, label: int, picture: bytes) -> bytes:
    """KEY.cls and the header of the image: BEFORE_BYTES bytes."""
    digits = str(label).encode()
    cls = tar.header(key + ".cls", len(digits)) + digits + tar.padding(len(digits))
    return cls + tar.header(f"{key}.{picture_ending(picture)}", len(picture))


def after_picture(key: str, size_bytes: int, note: bytes) -> bytes:
    """The padding of the image, and KEY.json with the note."""
    return tar.padding(size_bytes) + tar.header(key + ".json", len(note)) + note + tar.padding(len(note))


class Ours(NamedTuple):
    """The beginning of a KEY.json of ours: the sample's class, the identity of its source's picture, and its path."""

    class_name: str | None
    identity: int
    path: str


def read_ours(first: Callable[[int], bytes]) -> Ours | None:
    """The beginning of our KEY.json; None: another program's. `first` gives so many bytes. ValueError: damaged."""
    start = f'{{"{OURS}": '.encode()
    if first(len(start)) != start:
        return None
    try:
        text = first(1 << 16)[len(start) :].decode("ascii", "replace")
        said, end = json.JSONDecoder().raw_decode(text)
        if not text.startswith(_PATH, end):
            raise ValueError("no path behind it")
        path, _ = json.JSONDecoder().raw_decode(text, end + len(_PATH))
        name, identity = said.get("class"), int(said["identity"], 16)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise ValueError(f"KEY.json is damaged: expected an identity and a path, got {problem!r}") from problem
    return Ours(None if name is None else str(name), identity, str(path))


def named_in(note: bytes) -> tuple[int, int]:
    """The identity and the hash of the key that the index has of a sample, from its KEY.json. ValueError: damaged."""
    ours = read_ours(lambda size: note[:size])
    if ours is None:
        raise ValueError("KEY.json is damaged: expected an identity and a path")
    json.loads(note)
    return ours.identity, key_hash(ours.path)
