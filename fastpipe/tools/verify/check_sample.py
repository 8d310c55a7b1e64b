"""The members of a sample in a shard, as far as the tar headers lead -> its row and its damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Records
from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.layout import WIDE_INDEX_DTYPE
from fastpipe.dataset.format.open_file import read_at
from fastpipe.dataset.format.pixel_form import NO_FORM
from fastpipe.dataset.format.sample_layout import (
    key_hash,
    note_header_at,
    read_names,
    read_ours,
)
from fastpipe.engine.pictures import flaw, size_of
from fastpipe.errors import PackError
from fastpipe.sources.picture.probe import read_form
from fastpipe.tools.verify.damage import Damage
from fastpipe.tools.verify.shard_facts import ShardFacts, member_endings

# Gets an offset and a size, and returns bytes of a shard.
Read = Callable[[int, int], bytes]
_NOTE = "json"  # the ending of the note


class SampleMember(NamedTuple):
    ending: str  # its name without "KEY."
    offset: int  # of its bytes in the shard
    size: int

    @property
    def stop(self) -> int:
        """The end of its padding."""
        return self.offset + tar.padded(self.size, tar.BLOCK)


def sample_members(shard: ShardFacts, start: int, read: Read) -> list[SampleMember]:
    """The label, image, note and fields of the sample at byte `start`; it need not have an image.

    Raises:
        ValueError: a header is not as it was packed.
    """
    name = shard.member(start)
    members: list[SampleMember] = []

    def next_offset() -> int:
        """Where the next member begins."""
        return members[-1].stop if members else start

    def read_next(endings: tuple[str, ...]) -> bool:
        """Adds the next member if it has one of these endings."""
        offset = next_offset()
        head = read(offset, tar.BLOCK)
        ending, size = _announced_member(head, name, endings)
        if ending:
            members.append(SampleMember(ending, offset + tar.BLOCK, size))
        return bool(ending)

    def read_required(endings: tuple[str, ...]) -> None:
        if not read_next(endings):
            raise missing(endings)

    def missing(endings: tuple[str, ...]) -> ValueError:
        offset = next_offset()
        names = " or .".join(endings)
        return ValueError(f"expected the tar header of {name}.{names} at byte {offset}")

    read_required(("cls",))
    if read_next(shard.pictures):
        read_required((_NOTE,))
    elif not read_next((_NOTE,)):
        raise missing(shard.pictures)
    # A sample need not have all fields, and of a list of pictures any number.
    for field in shard.members:
        number = 0
        while read_next(member_endings(field, number)) and field.kind == "images":
            number += 1
    return members


def _announced_member(
    head: bytes, sample_name: str, endings: tuple[str, ...]
) -> tuple[str, int]:
    """Which of these members of a sample a tar header announces, and its size; "": none of them."""
    for ending in endings:
        name = f"{sample_name}.{ending}"
        if head.startswith(f"{name}\0".encode()):
            # A header is compared as a whole: pack writes it in one way only.
            size = int(head[tar.SIZE_FIELD], 8)
            if head == tar.header(name, size):
                return ending, size
    return "", 0


@contextmanager
def open_samples(
    shard: ShardFacts, purpose: str
) -> Iterator[Iterator[tuple[list[SampleMember], Read]]]:
    """As a context manager, gives the members of each sample of a shard, and what reads their bytes.

    An error in the `with` block counts as damage of the shard.

    Args:
        shard: the shard.
        purpose: what is rebuilt from it, for messages.

    Raises:
        PackError: the shard is damaged.
    """
    try:
        with open(shard.path, "rb", buffering=0) as file:

            def read(offset: int, size: int) -> bytes:
                return read_at(file.fileno(), size, offset)

            yield _members_of_samples(shard, read)
    except (
        OSError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as problem:
        raise PackError(
            f"{shard.name} is damaged, so {purpose} cannot be rebuilt from it ({problem}); run "
            "fastpipe verify with --repair and without --quick"
        ) from problem


def _members_of_samples(
    shard: ShardFacts, read: Read
) -> Iterator[tuple[list[SampleMember], Read]]:
    start = 0
    for _ in range(shard.samples):
        members = sample_members(shard, start, read)
        start = members[-1].stop
        yield members, read


def starts_in_tar(shard: ShardFacts) -> list[int]:
    """Where samples begin, by the headers in the shard.

    Empty if the headers do not lead through it, if it is behind a URL, or if it has samples that
    were removed: its headers do not say which these are.
    """
    if shard.direct is not None or shard.removed:
        return []
    starts = []
    try:
        with open_samples(shard, "the list of its samples") as samples:
            for members, _ in samples:
                starts.append(members[0].offset - tar.BLOCK)
    except PackError:
        return []
    return starts


class SampleContent(NamedTuple):
    """What the index knows of a sample.

    Attributes:
        label, note: the bytes of these members.
        picture: the bytes of the image; None: the sample has none.
        offset: in the shard, of what the index describes: the image, or else the note.
    """

    label: bytes
    picture: bytes | None
    note: bytes
    offset: int

    @property
    def described(self) -> bytes:
        """The bytes that the index describes."""
        return self.note if self.picture is None else self.picture


def read_content(members: list[SampleMember], read: Read) -> SampleContent:
    """Reads a sample's label, image and note, which are its first members."""
    label_member = members[0]
    label = read(label_member.offset, label_member.size)
    # The image; of a sample without one, the note.
    next_member = members[1]
    offset = next_member.offset
    content = read(offset, next_member.size)
    if next_member.ending == _NOTE:
        return SampleContent(label, None, content, offset)
    note_member = members[2]
    note = read(note_member.offset, note_member.size)
    return SampleContent(label, content, note, offset)


def record_of(
    shard: ShardFacts, content: SampleContent, digest: int
) -> tuple[Any, ...]:
    """The index record of a sample with this content, in the order of WIDE_INDEX_DTYPE.

    `digest`: the hash of what the index describes.

    Raises:
        ValueError, RecursionError: a member is damaged.
    """
    width = 0
    height = 0
    form = NO_FORM
    if content.picture is not None:
        width, height = size_of(content.picture)
        form = read_form(content.picture)
    identity, key = read_names(content.note)
    return (
        shard.number,
        content.offset,
        len(content.described),
        width,
        height,
        form.channels,
        form.bits,
        int(content.label),
        digest,
        identity,
        key,
    )


def records_of(shard: ShardFacts) -> Records:
    """(samples,) of WIDE_INDEX_DTYPE: the records that pack wrote. PackError: the shard is damaged."""
    records = []
    with open_samples(shard, "the index") as samples:
        for members, read in samples:
            content = read_content(members, read)
            digest = xxhash.xxh3_64_intdigest(content.described)
            records.append(record_of(shard, content, digest))
    return np.array(records, dtype=WIDE_INDEX_DTYPE)


@dataclass(frozen=True)
class ShardSpan:
    """A run of bytes of a shard that is read at once, and the samples in it."""

    shard: ShardFacts
    start: int  # byte of the file
    stop: int
    first_row: int  # number of its first sample, counted in the shard
    # Where its samples begin (their KEY.cls). Each ends where the next one does, or at `stop`.
    starts: list[int]
    records: Records  # (samples,) of the index
    last: bool  # of the shard: its last sample is followed by the end of the archive


class Mismatch(NamedTuple):
    """A fault in a sample, as damage of the shard.

    It may be a fault of the index instead, unless the bytes are wrong in any case: `of_shard`. The
    shard's hash decides.
    """

    damage: Damage
    of_shard: bool


class SpanResult(NamedTuple):
    """The result of check_span."""

    data: bytes  # of the span; fewer where the shard ends before
    unreadable: str | None  # why the span cannot be read
    mismatches: list[Mismatch]  # in order
    num_unread: int  # samples of which no byte could be read


def check_span(span: ShardSpan) -> SpanResult:
    """Reads a span and checks each sample in it: its members, its hash, that it decodes."""
    shard = span.shard
    data = b""
    unreadable = None
    try:
        data = _read_range(shard, span.start, span.stop)
    except OSError as problem:
        unreadable = problem.strerror or str(problem)

    view = memoryview(data)
    mismatches = []
    num_unread = 0
    for position, (start, stop) in enumerate(pairwise([*span.starts, span.stop])):
        sample = shard.first_sample + span.first_row + position
        record = span.records[position]
        member = shard.member(start)
        new_damage = partial(
            Damage, shard.name, sample=sample, samples=1, member=member
        )
        sample_data = view[start - span.start : stop - span.start]
        if unreadable is not None:
            # The span cannot be read as a whole, but some of its samples may be readable.
            try:
                sample_data = memoryview(_read_range(shard, start, stop))
            except OSError as problem:
                problem_text = f"cannot be read: {problem.strerror or problem}"
                mismatches.append(
                    Mismatch(new_damage(problem_text, offset=start), of_shard=True)
                )
                num_unread += 1
                continue
        if not len(sample_data):
            num_unread += 1  # it is behind the end of the shard
        is_last = span.last and position == len(span.starts) - 1
        mismatch = _check_sample(
            shard,
            start,
            sample_data,
            record,
            new_damage,
            with_end=is_last and not shard.removed,
        )
        if mismatch is not None:
            key = _source_path(start, sample_data, record)
            damage = replace(mismatch.damage, key=key)
            mismatches.append(mismatch._replace(damage=damage))
    return SpanResult(data, unreadable, mismatches, num_unread)


def _read_range(shard: ShardFacts, start: int, stop: int) -> bytes:
    """The bytes of a shard in a range, as far as there are any."""
    if shard.direct is not None:
        if start >= stop:
            return b""
        return bytes(shard.direct.fetched(shard.name, start, stop).data)
    with open(shard.path, "rb", buffering=0) as file:
        return read_at(file.fileno(), stop - start, start)


def _source_path(start: int, data: memoryview, record: Any) -> str | None:
    """The source path of a damaged sample, from its note; None: the note is damaged, too.

    Args:
        start: the first byte of the sample in its shard.
        data: its bytes.
        record: of the index.
    """
    note_at = note_header_at(record) + tar.BLOCK - start
    try:
        ours = read_ours(lambda size: bytes(data[note_at : note_at + size]))
    except ValueError:
        return None
    if ours is None or key_hash(ours.path) != int(record["key"]):
        return None
    return ours.path


def _check_sample(
    shard: ShardFacts,
    start: int,
    data: memoryview,
    record: Any,
    new_damage: Callable[..., Damage],
    *,
    with_end: bool,
) -> Mismatch | None:
    """The first thing in a sample that does not fit its index record.

    Args:
        shard: that it is in.
        start: its first byte there.
        data: its bytes.
        record: of the index.
        new_damage: makes a Damage of the sample.
        with_end: whether the end of the archive follows it.
    """

    def read(offset: int, size: int) -> bytes:
        first = offset - start
        return bytes(data[first : first + size])

    try:
        members = sample_members(shard, start, read)
    except ValueError as problem:
        misplaced = f"a member is damaged, or not where the index has it: {problem}"
        return Mismatch(new_damage(misplaced, offset=start), of_shard=False)

    content = read_content(members, read)
    # The hash comes first: an image with other bytes may still decode, to other pixels.
    digest = xxhash.xxh3_64_intdigest(content.described)
    expected_digest = int(record["xxh3_64"])
    if digest != expected_digest:
        changed = "note" if content.picture is None else "image"
        damage = new_damage(
            f"the {changed} has changed since it was packed: hash",
            f"{expected_digest:016x}",
            f"{digest:016x}",
            offset=content.offset,
        )
        return Mismatch(damage, of_shard=False)

    # The image has the bytes that the index expects, so a flaw in it is damage in any case. Label
    # and note have no hash of their own: the record that they give is compared below.
    problem_text = None
    if content.picture is not None:
        problem_text = flaw(content.picture)
    if problem_text is None:
        try:
            actual_record = record_of(shard, content, digest)
        except (ValueError, RecursionError) as problem:
            problem_text = f"its members are damaged: {problem}"
    if problem_text is not None:
        return Mismatch(new_damage(problem_text, offset=content.offset), of_shard=True)
    for name, expected, actual in zip(
        WIDE_INDEX_DTYPE.names or (), record.item(), actual_record, strict=True
    ):
        if expected != actual:
            damage = new_damage(
                f"its {name} differs from the index",
                str(expected),
                str(actual),
                offset=content.offset,
            )
            return Mismatch(damage, of_shard=False)

    if not _is_rest_intact(shard, start, data, members, read, with_end=with_end):
        damage = new_damage(
            "image and label are intact, but bytes beside them have changed",
            offset=members[-1].stop,
        )
        return Mismatch(damage, of_shard=True)
    return None


def _is_rest_intact(
    shard: ShardFacts,
    start: int,
    data: memoryview,
    members: list[SampleMember],
    read: Read,
    *,
    with_end: bool,
) -> bool:
    """Whether the bytes behind the members are as they were packed: padding, and the end."""
    stop = members[-1].stop
    if stop > start + len(data):
        return False
    # Where a shard has removed samples, their members may follow, which no index knows any more.
    if not shard.removed:
        expected = b""
        if with_end:
            expected = tar.end(stop)
        if read(stop, len(data)) != expected:
            return False
    # The padding of each member is zeros.
    for member in members:
        member_end = member.offset + member.size
        if any(read(member_end, member.stop - member_end)):
            return False
    return True
