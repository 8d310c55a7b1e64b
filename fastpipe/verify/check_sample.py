"""The bytes of a span of a shard -> what is wrong in its samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import xxhash

from fastpipe.engine.pictures import flaw, size_of
from fastpipe.format import tar_writer as tar
from fastpipe.format.open_file import read_at
from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.sample_layout import BEFORE_BYTES, after_picture, before_picture, named_in, picture_ending
from fastpipe.sources.picture.probe import form_of
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.spans import ShardSpan
from fastpipe.verify.tar_members import ending_in_header, size_in_header


@dataclass(frozen=True)
class Mismatch:
    """What does not fit in a sample. Which is wrong, the shard or the record of the index, the shard's hash decides.

    Attributes:
        sample: number in the dataset.
        offset: of the first byte concerned in the shard.
        problem, expected, got: in words.
        of_shard: the bytes are those that were packed, and they are wrong.
        key: of the sample.
    """

    sample: int
    offset: int
    problem: str
    expected: str = ""
    got: str = ""
    of_shard: bool = False
    key: str | None = None


@dataclass(frozen=True)
class Checked:
    """A span that was read.

    Attributes:
        data: its bytes; fewer than expected where the shard ends before.
        unreadable: why there are none; None: they were read.
        mismatches: in order.
    """

    data: bytes
    unreadable: str | None
    mismatches: list[Mismatch]


def check_span(span: ShardSpan) -> Checked:
    """Reads a span and checks each sample in it: its members, its hash, that it decodes."""
    data, unreadable = b"", None
    try:
        data = _read(span, span.start, span.stop)
    except OSError as problem:
        unreadable = problem.strerror or str(problem)
    view = memoryview(data)
    mismatches: list[Mismatch] = []
    stops = [*span.starts[1:], span.stop]
    for place, (start, stop) in enumerate(zip(span.starts, stops, strict=False)):
        sample = span.shard.first_sample + span.first + place
        part = view[start - span.start : stop - span.start]
        if unreadable is not None:  # as a whole; then those that can be are read one by one
            try:
                part = memoryview(_read(span, start, stop))
            except OSError as problem:
                words = f"cannot be read: {problem.strerror or problem}"
                mismatches.append(Mismatch(sample, start, words, of_shard=True, key=span.shard.key(start)))
                continue
        end = span.last and place == len(span.starts) - 1
        mismatch = _check(span.shard, sample, start, part, span.records[place], with_end=end)
        if mismatch is not None:
            mismatches.append(replace(mismatch, key=span.shard.key(start)))
    return Checked(data, unreadable, mismatches)


def _read(span: ShardSpan, start: int, stop: int) -> bytes:
    """The bytes of a shard in a range, as far as there are any."""
    if span.shard.direct is not None:
        return bytes(span.shard.direct.fetched(span.shard.name, start, stop).data) if start < stop else b""
    with open(span.shard.path, "rb", buffering=0) as file:
        return read_at(file.fileno(), stop - start, start)


def _check(
    facts: ShardFacts, sample: int, start: int, data: memoryview, record: Any, *, with_end: bool
) -> Mismatch | None:
    """The first thing in a sample that does not fit.

    Args:
        facts: of the shard.
        sample: its number.
        start: of its bytes in the shard.
        data: they.
        record: its index record.
        with_end: the end of the archive follows.
    """
    shard, offset, size, width, height, channels, bits, label, digest, *named = record.item()
    key = facts.key(start)
    picture_at = start + BEFORE_BYTES
    if shard != facts.number:
        return Mismatch(
            sample, start, "the sample is in a different shard than in the index", f"{shard}", f"{facts.number}"
        )
    if offset != picture_at:
        return Mismatch(
            sample, picture_at, "the image is not at the offset in the index", f"byte {offset}", f"byte {picture_at}"
        )
    before, picture = bytes(data[:BEFORE_BYTES]), bytes(data[BEFORE_BYTES : BEFORE_BYTES + size])
    if before not in (before_picture(key, label, size, ending) for ending in facts.pictures):
        ending = picture_ending(picture)
        return _before(key, sample, start, before, before_picture(key, label, size, ending), ending)
    if len(picture) != size:
        return Mismatch(sample, picture_at, "the image is truncated", f"{size} bytes", f"{len(picture)}", of_shard=True)
    found = xxhash.xxh3_64_intdigest(picture)
    if found != digest:
        return Mismatch(
            sample, picture_at, "the image has changed since it was packed: hash", f"{digest:016x}", f"{found:016x}"
        )
    problem = flaw(picture)
    if problem is not None:
        return Mismatch(sample, picture_at, problem, of_shard=True)
    if (width, height) != (size_now := size_of(picture)):
        sizes = f"{width} x {height}", f"{size_now[0]} x {size_now[1]}"
        return Mismatch(sample, picture_at, "the size of the image differs from the index", *sizes)
    if (form := PixelForm(channels, bits)) != (form_now := form_of(picture)):
        words = "the channels or bits of the image differ from the index"
        return Mismatch(sample, picture_at, words, str(form), str(form_now))
    return _after(facts, sample, start, bytes(data[BEFORE_BYTES + size :]), size, (*named,), with_end=with_end)


def _before(key: str, sample: int, start: int, got: bytes, expected: bytes, ending: str) -> Mismatch:
    """Which member is not as it should be: KEY.cls, or the image, which has this ending."""
    if len(got) < len(expected):
        return Mismatch(sample, start, "the shard ends inside the sample", of_shard=True)
    place = next(number for number, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b)
    if tar.BLOCK <= place < 2 * tar.BLOCK:
        expected_label, label = (repr(bytes(part[tar.BLOCK :][:24]).rstrip(b"\0"))[1:] for part in (expected, got))
        if expected_label == label:
            return Mismatch(sample, start + place, f"the padding of {key}.cls is not zeros; its label is right")
        return Mismatch(sample, start + place, f"the label in {key}.cls differs from the index", expected_label, label)
    member = f"{key}.cls" if place < tar.BLOCK else f"{key}.{ending}"
    values = f"{expected[place]:#04x}", f"{got[place]:#04x}"
    return Mismatch(sample, start + place, f"the tar header of {member} does not match the index", *values)


def _after(
    shard: ShardFacts,
    sample: int,
    start: int,
    got: bytes,
    picture_bytes: int,
    named: tuple[int, ...],
    *,
    with_end: bool,
) -> Mismatch | None:
    """What is wrong behind the image: its note is JSON, and the members of fields follow; their bytes are not known.

    `named` is what the index has of the note.
    """
    key = shard.key(start)
    at = len(tar.padding(picture_bytes))
    note_at = at + tar.BLOCK
    try:
        note = got[note_at : note_at + size_in_header(got[at:])]
        told = named_in(note)
    except (ValueError, RecursionError):
        note, told = b"", None
    expected = after_picture(key, picture_bytes, note)
    name = f"{key}.json" + (" or a field" if shard.members else "")
    for endings in shard.members if told else ():
        ending = _announced(got[len(expected) : len(expected) + tar.BLOCK], key, endings)
        if ending is not None:
            content = len(expected) + tar.BLOCK
            size = size_in_header(got[len(expected) :])
            data = got[content : content + size]
            expected += tar.header(f"{key}.{ending}", len(data)) + data + tar.padding(len(data))
    if shard.removed:
        got = got[: len(expected)]  # members of samples that were removed
    if with_end and not shard.removed:
        expected += tar.end(start + BEFORE_BYTES + picture_bytes + len(expected))
        name += " and the archive's end"
    if told == named and got == expected:
        return None
    if told is not None and got == expected:
        words = "identity and path of its source differ from the index"
        return Mismatch(sample, start + BEFORE_BYTES + picture_bytes + note_at, words, str(named), str(told))
    places = (number for number, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b)
    place = start + BEFORE_BYTES + picture_bytes + (next(places, note_at) if told else at)
    return Mismatch(
        sample,
        place,
        f"{name}, after the image, has changed since it was packed; image and label are intact",
        of_shard=True,
    )


def _announced(head: bytes, key: str, endings: tuple[str, ...]) -> str | None:
    try:
        return ending_in_header(head, key, endings)
    except ValueError:
        return None
