"""Tests of restart markers that do not fit: the pixels are right, or there is an error that names the JPEG.

What is right, where the file differs from a sound one, is what libjpeg-turbo makes of all of it, if it does not refuse
it: intervals that are there twice and numbered in turn are a JPEG of another picture, with bytes left over.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support.pictures.jpegs import (
    DENOMINATORS,
    Pixels,
    by_pillow,
    crop,
    encoded,
    full_decode,
    header_segments,
    picture,
    random_region,
    restart_interval,
    scan_start,
    tiled,
)
from support.sources.pack_sources import segment

from fastpipe import _engine

NAMED_REASON = re.compile(r"the (JPEG|bytes) [a-zA-Z' ]+(: [^\n]+)?")
WIDTH, HEIGHT = 127, 95  # in 4:2:0 eight columns and six rows of MCUs
DRI, SOS, EOI = 0xDD, 0xDA, b"\xff\xd9"

Intervals = list[bytes]


def take_apart(jpeg: bytes) -> tuple[bytes, Intervals]:
    """The header, and the coded bytes of each restart interval without markers."""
    start = scan_start(jpeg)
    return jpeg[:start], re.split(rb"\xff[\xd0-\xd7]", jpeg[start:-2])


def joined(intervals: Intervals, numbers: Iterator[int] | None = None) -> bytes:
    """With markers numbered in turn, or as given."""
    numbers = numbers or iter(n % 8 for n in range(len(intervals)))
    out = intervals[0]
    for coded in intervals[1:]:
        out += bytes([0xFF, 0xD0 + next(numbers)]) + coded
    return out


def with_interval(header: bytes, interval: int | None) -> bytes:
    """With another DRI segment, or without any."""
    out = b"\xff\xd8"
    for marker, payload in header_segments(header):
        if marker != DRI:
            out += segment(marker, payload)
        elif interval is not None:
            out += segment(DRI, interval.to_bytes(2, "big"))
    return out


def numbers_with(count: int, changed: dict[int, int]) -> Iterator[int]:
    return (changed.get(n, n % 8) for n in range(count))


Damage = Callable[[bytes, Intervals], bytes]

# Each takes the header and the intervals, and gives a whole file.
DAMAGES: dict[str, Damage] = {
    "wrong number": lambda h, i: h + joined(i, numbers_with(len(i), {5: 6})) + EOI,
    "wrong number, the one before": lambda h, i: h + joined(i, numbers_with(len(i), {5: 4})) + EOI,
    "wrong number, far off": lambda h, i: h + joined(i, numbers_with(len(i), {5: 1})) + EOI,
    "wrong first number": lambda h, i: h + joined(i, numbers_with(len(i), {0: 7})) + EOI,
    "wrong last number": lambda h, i: h + joined(i, numbers_with(len(i), {len(i) - 2: 3})) + EOI,
    "all numbers one too high": lambda h, i: (
        h + joined(i, iter((n + 1) % 8 for n in range(len(i)))) + EOI
    ),
    "all numbers the same": lambda h, i: h + joined(i, iter([0] * len(i))) + EOI,
    "two numbers swapped": lambda h, i: h + joined(i, numbers_with(len(i), {9: 2, 10: 1})) + EOI,
    "a marker missing": lambda h, i: h + joined([*i[:6], i[6] + i[7], *i[8:]]) + EOI,
    "a marker missing, numbers as they were": lambda h, i: (
        h
        + joined([*i[:6], i[6] + i[7], *i[8:]], iter([n % 8 for n in range(len(i)) if n != 6]))
        + EOI
    ),
    "the last marker missing": lambda h, i: h + joined([*i[:-2], i[-2] + i[-1]]) + EOI,
    "a marker twice": lambda h, i: h + joined([*i[:6], b"", *i[6:]]) + EOI,
    "a marker twice, numbers as they were": lambda h, i: (
        h
        + joined(
            [*i[:6], b"", *i[6:]],
            iter([*(n % 8 for n in range(6)), 5, *(n % 8 for n in range(6, 60))]),
        )
        + EOI
    ),
    "a marker before the first interval": lambda h, i: h + joined([b"", *i]) + EOI,
    "a marker before the end": lambda h, i: h + joined([*i, b""]) + EOI,
    "a marker in the middle of an interval": lambda h, i: (
        h + joined([*i[:6], i[6][: len(i[6]) // 2], i[6][len(i[6]) // 2 :], *i[7:]]) + EOI
    ),
    "an interval dropped": lambda h, i: h + joined([*i[:6], *i[7:]]) + EOI,
    "an interval dropped, numbers as they were": lambda h, i: (
        h + joined([*i[:6], *i[7:]], iter([n % 8 for n in range(len(i)) if n != 6])) + EOI
    ),
    "the first interval dropped": lambda h, i: h + joined(i[1:]) + EOI,
    "the last interval dropped": lambda h, i: h + joined(i[:-1]) + EOI,
    "eight intervals dropped": lambda h, i: h + joined([*i[:6], *i[14:]]) + EOI,
    "eight intervals dropped at the start": lambda h, i: h + joined(i[8:]) + EOI,
    "eight intervals dropped at the end": lambda h, i: h + joined(i[:-8]) + EOI,
    "an interval twice": lambda h, i: h + joined([*i[:6], i[6], *i[6:]]) + EOI,
    "eight intervals twice": lambda h, i: h + joined([*i[:14], *i[6:]]) + EOI,
    "an empty interval": lambda h, i: h + joined([*i[:6], b"", *i[7:]]) + EOI,
    "a short interval": lambda h, i: h + joined([*i[:6], i[6][:-4], *i[7:]]) + EOI,
    "a long interval": lambda h, i: h + joined([*i[:6], i[6] + b"\x12\x34", *i[7:]]) + EOI,
    "an unknown marker between": lambda h, i: (
        h + joined([*i[:6], i[6] + b"\xff\x42", *i[7:]]) + EOI
    ),
    "a comment between": lambda h, i: (
        h + joined([*i[:6], i[6] + segment(0xFE, b"hello"), *i[7:]]) + EOI
    ),
    "an end marker between": lambda h, i: h + joined([*i[:6], i[6] + EOI, *i[7:]]) + EOI,
    "fill bytes before a marker": lambda h, i: (
        h + joined([*i[:6], i[6] + b"\xff\xff\xff", *i[7:]]) + EOI
    ),
    "fill bytes before every marker": lambda h, i: (
        h + joined([coded + b"\xff" for coded in i]) + EOI
    ),
    "fill bytes in the header": lambda h, i: h[:2] + b"\xff\xff" + h[2:] + joined(i) + EOI,
    "a restart marker in the header": lambda h, i: h[:2] + b"\xff\xd3" + h[2:] + joined(i) + EOI,
    "restart markers in a comment": lambda h, i: (
        h[:2] + segment(0xFE, b"\xff\xd0\xff\xd1") + h[2:] + joined(i) + EOI
    ),
    "DRI half": lambda h, i: with_interval(h, restart_interval(h) // 2) + joined(i) + EOI,
    "DRI one more": lambda h, i: with_interval(h, restart_interval(h) + 1) + joined(i) + EOI,
    "DRI twice": lambda h, i: with_interval(h, restart_interval(h) * 2) + joined(i) + EOI,
    "DRI a row": lambda h, i: with_interval(h, 8) + joined(i) + EOI,
    "DRI large": lambda h, i: with_interval(h, 65535) + joined(i) + EOI,
    "DRI 0": lambda h, i: with_interval(h, 0) + joined(i) + EOI,
    "no DRI": lambda h, i: with_interval(h, None) + joined(i) + EOI,
    "two DRI, the last counts": lambda h, i: (
        h[:2] + segment(DRI, b"\0\1") + h[2:] + joined(i) + EOI
    ),
    "DRI of three bytes": lambda h, i: h[:2] + segment(DRI, b"\0\2\0") + h[2:] + joined(i) + EOI,
    "no restart markers at all": lambda h, i: h + b"".join(i) + EOI,
    "the last interval cut": lambda h, i: h + joined(i)[:-9] + EOI,
    "the last interval cut, no end marker": lambda h, i: h + joined(i)[:-9],
    "cut in the middle": lambda h, i: h + joined(i)[: sum(map(len, i)) // 2],
    "cut in a marker": lambda h, i: h + joined(i[:7]) + b"\xff",
    "no end marker": lambda h, i: h + joined(i),
    "half an end marker": lambda h, i: h + joined(i) + b"\xff",
    "bytes after the end": lambda h, i: h + joined(i) + EOI + b"\xff\xd0 garbage \xff\xd9",
    "a byte before the end": lambda h, i: h + joined(i) + b"\0" + EOI,
    "another scan": lambda h, i: h + joined(i) + h[h.rindex(b"\xff\xda") :] + joined(i) + EOI,
    "nothing in the scan": lambda h, i: h + EOI,
}
HARMLESS = {
    "fill bytes before a marker",
    "fill bytes before every marker",
    "fill bytes in the header",
    "a restart marker in the header",
    "restart markers in a comment",
    "two DRI, the last counts",
    "bytes after the end",
    "a byte before the end",
}
# libjpeg-turbo stops at the last row, and never sees that there is more.
TOO_MUCH = {"a marker before the end", "another scan", "an interval twice", "eight intervals twice"}


SOURCES = {
    "420": tiled(encoded(picture(WIDTH, HEIGHT)), 32),
    "gray": tiled(encoded(picture(64, 60), "gray"), 16),
    "411": tiled(encoded(picture(250, 47), "411"), 64),
    "no grid": by_pillow(picture(WIDTH, HEIGHT), restart_marker_blocks=3),
}


def decode_or_reason(
    jpeg: bytes, region: tuple[int, int, int, int] | None = None, by: int = 1
) -> Pixels | None:
    try:
        return _engine.decode(jpeg, region, by)
    except ValueError as problem:
        assert NAMED_REASON.fullmatch(str(problem)), str(problem)  # noqa: PT017
        return None


@pytest.mark.parametrize("source", SOURCES)
def test_pictures_and_crops_are_right_or_refused(source: str) -> None:
    jpeg = SOURCES[source]
    sound = {denominator: full_decode(jpeg, denominator) for denominator in DENOMINATORS}
    rng = np.random.default_rng(1)
    for (name, damage), denominator in itertools.product(DAMAGES.items(), DENOMINATORS):
        damaged = damage(*take_apart(jpeg))
        assert damaged != jpeg, name
        whole = decode_or_reason(damaged, None, denominator)
        if name in HARMLESS:
            assert whole is not None, name
            assert np.array_equal(whole, sound[denominator]), name
        elif whole is not None:
            assert name in TOO_MUCH
            assert np.array_equal(
                whole, _engine.decode(damaged, None, denominator, method="libjpeg")
            ), name
        expected = sound[denominator] if whole is None else whole
        height, width, _ = expected.shape
        for _ in range(12):
            region = random_region(rng, width, height)
            got = decode_or_reason(damaged, region, denominator)
            assert got is not None or whole is None, (name, region)
            if got is not None:
                assert np.array_equal(got, crop(expected, region)), (name, denominator, region)


def with_hidden_steps(jpeg: bytes, stray: bytes) -> bytes:
    """A marker that has no length, and a long segment, before the true quantisation steps; wrong ones before both.

    Who takes the next marker for that length goes astray in the long segment; a segment in there leads over the true
    steps.
    """
    segments = header_segments(jpeg)
    steps = b"".join(segment(*one) for one in segments if one[0] == 0xDB)
    wrong = b"".join(
        segment(0xDB, bytes([one[1][0], *[99] * 64])) for one in segments if one[0] == 0xDB
    )
    rest = b"".join(segment(*one) for one in segments if one[0] != 0xDB)
    long = bytearray(segment(0xE2, bytes(65533)))
    astray = 2 + int.from_bytes((stray + long)[2:4], "big") - len(stray)
    long[astray : astray + 4] = b"\xff\xec" + (len(long) - astray - 2 + len(steps)).to_bytes(
        2, "big"
    )
    return b"\xff\xd8" + wrong + stray + bytes(long) + steps + rest + jpeg[scan_start(jpeg) :]


@pytest.mark.parametrize("stray", [b"\xff\xd3", b"\xff"], ids=["restart marker", "fill byte"])
def test_markers_without_a_length_hide_nothing_in_the_header(stray: bytes) -> None:
    jpeg = tiled(encoded(picture(WIDTH, HEIGHT), "444"), 16)
    crafted = with_hidden_steps(jpeg, stray)
    region = (3, 2, 5, 4)
    for denominator in DENOMINATORS:
        expected = full_decode(jpeg, denominator)
        assert np.array_equal(full_decode(crafted, denominator), expected), (
            "to libjpeg-turbo it is the same picture"
        )
        assert np.array_equal(_engine.decode(crafted, region, denominator), crop(expected, region))
