"""The tar headers of a shard -> the members of its samples, as far as the headers lead through it, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import size_of
from fastpipe.errors import PackError
from fastpipe.format import tar_writer as tar
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.open_file import read_at
from fastpipe.format.sample_layout import named_in
from fastpipe.sources.picture.probe import form_of
from fastpipe.verify.shard_facts import ShardFacts

Read = Callable[[int, int], bytes]  # bytes of a shard: so many from an offset on


class SampleMember(NamedTuple):
    """A member of a sample."""

    ending: str  # its name without "KEY."
    offset: int  # of its bytes in the shard
    size: int

    @property
    def stop(self) -> int:
        """Where its padding ends."""
        return self.offset + tar.padded(self.size, tar.BLOCK)


def sample_members(shard: ShardFacts, start: int, read: Read) -> list[SampleMember]:
    """The label, image, note and fields of the sample at `start`. ValueError: a header is not as it was packed."""
    key, at = shard.key(start), start
    found: list[SampleMember] = []
    for endings in (("cls",), shard.pictures, ("json",), *shard.members):
        head = read(at, tar.BLOCK)
        ending, size = _announced(head, key, endings)
        if ending:
            found.append(SampleMember(ending, at + tar.BLOCK, size))
            at = found[-1].stop
        elif len(found) < 3:  # a sample need not have all fields
            raise ValueError(f"expected the tar header of {key}.{' or .'.join(endings)} at byte {at}")
    return found


def _announced(head: bytes, key: str, endings: tuple[str, ...]) -> tuple[str, int]:
    """Which of these members of a key a tar header announces, and its size; "": none of them."""
    for ending in endings:
        name = f"{key}.{ending}"
        if head.startswith(f"{name}\0".encode()):
            size = int(head[tar.SIZE_FIELD], 8)
            if head == tar.header(name, size):
                return ending, size
    return "", 0


@contextmanager
def opened(shard: ShardFacts, made: str) -> Iterator[Iterator[tuple[list[SampleMember], Read]]]:
    """The members of each sample, and what reads them. PackError: the shard is damaged, so `made` cannot be."""
    try:
        with open(shard.path, "rb", buffering=0) as file:
            yield _members(shard, lambda at, size: read_at(file.fileno(), size, at))
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:
        raise PackError(
            f"{shard.name} is damaged, so {made} cannot be rebuilt from it ({problem}); run fastpipe verify with "
            "--repair and without --quick"
        ) from problem


def _members(shard: ShardFacts, read: Read) -> Iterator[tuple[list[SampleMember], Read]]:
    at = 0
    for _ in range(shard.samples):
        members = sample_members(shard, at, read)
        at = members[-1].stop
        yield members, read


def starts_in_tar(shard: ShardFacts) -> list[int]:
    """Where samples begin by the headers in the shard; none if they do not lead through it, or if it is elsewhere, or
    has samples that were removed.
    """
    if shard.direct is not None or shard.removed:  # the headers do not say which samples these are
        return []
    try:
        with opened(shard, "") as samples:
            return [members[0].offset - tar.BLOCK for members, _ in samples]
    except PackError:
        return []


def record_of(
    shard: ShardFacts, offset: int, label: bytes, picture: bytes, note: bytes, digest: int
) -> tuple[Any, ...]:
    """The index record of a sample with these members. ValueError, RecursionError: one of them is damaged."""
    seen = *size_of(picture), *form_of(picture)
    return shard.number, offset, len(picture), *seen, int(label), digest, *named_in(note)


def records_of(shard: ShardFacts) -> NDArray[np.void]:
    """(samples,) of INDEX_DTYPE: the records that pack wrote. PackError: the shard is damaged."""
    records = []
    with opened(shard, "the index") as samples:
        for members, read in samples:
            label, picture, note = (read(each.offset, each.size) for each in members[:3])
            digest = xxhash.xxh3_64_intdigest(picture)
            records.append(record_of(shard, members[1].offset, label, picture, note, digest))
    return np.array(records, dtype=INDEX_DTYPE)
