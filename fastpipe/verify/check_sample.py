"""The members of a sample in a shard, as far as the tar headers lead -> its row, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import flaw, size_of
from fastpipe.errors import PackError
from fastpipe.format import tar_writer as tar
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.open_file import read_at
from fastpipe.format.sample_layout import named_in
from fastpipe.sources.picture.probe import form_of
from fastpipe.verify.damage import Damage
from fastpipe.verify.shard_facts import ShardFacts

Read = Callable[[int, int], bytes]  # bytes of a shard: so many from an offset on


class SampleMember(NamedTuple):
    ending: str  # its name without "KEY."
    offset: int  # of its bytes in the shard
    size: int

    @property
    def stop(self) -> int:  # where its padding ends
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
    with suppress(PackError), opened(shard, "") as samples:
        return [members[0].offset - tar.BLOCK for members, _ in samples]
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


@dataclass(frozen=True)
class ShardSpan:
    """A run of bytes of a shard that is read at once, and the samples in it."""

    shard: ShardFacts
    start: int  # bytes of the file
    stop: int
    first: int  # number of its first sample, counted in the shard
    starts: list[int]  # where its samples begin (their KEY.cls); each ends where the next one does or at `stop`
    records: NDArray[np.void]  # (samples,) of the index
    last: bool  # of the shard: its last sample is followed by the end of the archive


class Mismatch(NamedTuple):
    """What does not fit in a sample, as damage of the shard; or of the index, unless the bytes are wrong in any case.
    The shard's hash decides.
    """

    damage: Damage
    of_shard: bool


class Checked(NamedTuple):
    """A span's bytes, fewer where the shard ends before; why they cannot be read; what is wrong, in order."""

    data: bytes
    unreadable: str | None
    mismatches: list[Mismatch]


def check_span(span: ShardSpan) -> Checked:
    """Reads a span and checks each sample in it: its members, its hash, that it decodes."""
    shard, data, unreadable = span.shard, b"", None
    try:
        data = _read(shard, span.start, span.stop)
    except OSError as problem:
        unreadable = problem.strerror or str(problem)
    view = memoryview(data)
    mismatches: list[Mismatch | None] = []
    for place, (start, stop) in enumerate(pairwise([*span.starts, span.stop])):
        sample = shard.first_sample + span.first + place
        damage = partial(Damage, shard.name, sample=sample, samples=1, key=shard.key(start))
        part = view[start - span.start : stop - span.start]
        if unreadable is not None:  # as a whole; then those that can be are read one by one
            try:
                part = memoryview(_read(shard, start, stop))
            except OSError as problem:
                words = f"cannot be read: {problem.strerror or problem}"
                mismatches.append(Mismatch(damage(words, offset=start), of_shard=True))
                continue
        end = span.last and place == len(span.starts) - 1 and not shard.removed
        mismatches.append(_check(shard, start, part, span.records[place], damage, with_end=end))
    return Checked(data, unreadable, [each for each in mismatches if each is not None])


def _read(shard: ShardFacts, start: int, stop: int) -> bytes:
    """The bytes of a shard in a range, as far as there are any."""
    if shard.direct is not None:
        return bytes(shard.direct.fetched(shard.name, start, stop).data) if start < stop else b""
    with open(shard.path, "rb", buffering=0) as file:
        return read_at(file.fileno(), stop - start, start)


def _check(
    shard: ShardFacts, start: int, data: memoryview, record: Any, damage: Callable[..., Damage], *, with_end: bool
) -> Mismatch | None:
    """The first thing in the sample at `start` that does not fit its index record, the end of the archive included."""

    def read(at: int, size: int) -> bytes:
        return bytes(data[at - start : at - start + size])

    try:
        members = sample_members(shard, start, read)
    except ValueError as problem:
        misplaced = f"a member is damaged, or not where the index has it: {problem}"
        return Mismatch(damage(misplaced, offset=start), of_shard=False)
    picture_at = members[1].offset
    label, picture, note = (read(each.offset, each.size) for each in members[:3])
    digest, expected = xxhash.xxh3_64_intdigest(picture), int(record["xxh3_64"])
    if digest != expected:
        words = "the image has changed since it was packed: hash", f"{expected:016x}", f"{digest:016x}"
        return Mismatch(damage(*words, offset=picture_at), of_shard=False)
    wrong = flaw(picture)
    if wrong is None:
        try:
            found = record_of(shard, picture_at, label, picture, note, digest)
        except (ValueError, RecursionError) as refused:
            wrong = f"its members are damaged: {refused}"
    if wrong is not None:
        return Mismatch(damage(wrong, offset=picture_at), of_shard=True)
    for name, told, is_now in zip(INDEX_DTYPE.names or (), record.item(), found, strict=True):
        if told != is_now:
            words = f"its {name} differs from the index", str(told), str(is_now)
            return Mismatch(damage(*words, offset=picture_at), of_shard=False)
    stop = members[-1].stop
    after = tar.end(stop) if with_end else b""
    rest = read(stop, len(data)) if not shard.removed else b""  # else members of samples that were removed
    if (
        stop > start + len(data)
        or rest != after
        or any(any(read(each.offset + each.size, each.stop - each.offset - each.size)) for each in members)
    ):
        return Mismatch(
            damage("image and label are intact, but bytes beside them have changed", offset=stop), of_shard=True
        )
    return None
