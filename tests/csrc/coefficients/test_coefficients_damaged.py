"""Tests of a KEY.fpc whose bytes are damaged: an error, or pixels of the right shape, and never anything else."""

from __future__ import annotations

import contextlib
import itertools
import re

import numpy as np
import pytest
from support.pictures.coefficient_sources import KERNELS, packed
from support.pictures.jpegs import by_pillow, encoded, picture

from fastpipe import _engine

PLAIN = packed(encoded(picture(53, 38), "420"), segments=[(0xFE, b"a comment")])[1]
LARGE = packed(by_pillow(picture(40, 30), qtables=[[1] * 64] * 2))[1]
SEGMENT_BYTES = 4 + len("a comment")
HEADER_BYTES = 48 + 2 * 128 + 4 * 4


def restored(data: bytes) -> bytes | str:
    """The JPEG, or the words with which it is refused."""
    try:
        return _engine.restore_jpeg(data)
    except ValueError as problem:
        return str(problem)


def changed(data: bytes, at: int, value: int, size: int = 1) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def test_every_truncation_is_an_error() -> None:
    calls = (_engine.decode, _engine.restore_jpeg, _engine.coefficients_of, _engine.picture_size)
    for size, call in itertools.product(range(len(PLAIN)), calls):
        with pytest.raises(ValueError, match=r"truncated|damaged|not a"):
            call(PLAIN[:size])
    for number, size in enumerate(range(0, len(LARGE), 3)):
        with pytest.raises(ValueError, match=r"truncated|damaged|not a"):
            calls[number % 4](LARGE[:size])


@pytest.mark.parametrize("data", [PLAIN, LARGE], ids=["plain", "large values"])
def test_every_changed_byte_of_the_blocks(data: bytes) -> None:
    """All kernels agree on what is damaged, and on the coefficients where nothing shows; the JPEG's hash shows all."""
    whole = _engine.restore_jpeg(data)
    rng = np.random.default_rng(5)
    refused = 0
    reasons: set[str] = set()
    for at in range(HEADER_BYTES, len(data) - 128):
        broken = changed(data, at, data[at] ^ int(rng.integers(1, 256)))
        found = []
        for kernels in KERNELS:
            with contextlib.suppress(ValueError):
                found.append(_engine.coefficients_of(broken, kernels))
        assert len(found) in (0, len(KERNELS)), "the kernels disagree on whether it is damaged"
        refused += not found
        for other in found[1:]:
            assert all(map(np.array_equal, found[0], other))
        jpeg = restored(broken)
        if isinstance(jpeg, str):
            reasons.add(jpeg.partition("damaged: ")[2])
        elif at < len(data) - 128 - SEGMENT_BYTES and jpeg == whole:
            assert found, "a JPEG of damaged coefficients"
            assert all(map(np.array_equal, found[0], _engine.coefficients_of(data)))
    assert refused > 10
    assert {"in MCU row 0", "in MCU row 1", "they make another JPEG than when they were packed"} <= reasons
    assert ("a value is larger than a JPEG holds" in reasons) == (data == LARGE)


# (place in the header, size of a field in bytes, a value of it, what is said of it)
LIES = [
    (3, 1, 2, "coefficients of version 2; this fastpipe reads version 1"),
    (4, 4, 5, "its header says 5"),
    (16, 2, 0, "a header of 0 x 38 pixels"),
    (16, 2, 65501, "a header of 65501 x 38 pixels"),
    (16, 2, 60000, "the places of 3 rows do not fit"),
    (18, 2, 60000, "cannot hold a header"),
    (20, 1, 2, "2 components"),
    (21, 1, 4, "flags 4"),
    (30, 1, 7, "tables 0x07"),
    (32, 4, 2**32 - 1, "do not fit"),
    (37, 1, 0x52, "factors 0x52"),
    (37, 1, 0x44, "blocks in an MCU"),
    (38, 1, 4, "tables 4"),
    (39, 1, 1, "tables 0 and 1"),
    (43, 1, 2, "and 2"),
    (48 + 256, 4, 0, "the places of 3 rows do not fit"),
    (48 + 260, 4, 2**32 - 1, "the places of 3 rows do not fit"),
]


def test_a_lie_in_the_header_is_told() -> None:
    for at, size, value, words in LIES:
        with pytest.raises(ValueError, match=re.escape(words)):
            _engine.decode(changed(PLAIN, at, value, size))


def test_a_picture_of_many_pixels_is_refused_before_memory_is_made() -> None:
    with pytest.raises(ValueError, match="over 2000 pixels"):
        _engine.decode(PLAIN, max_pixels=2000)


def test_the_hash_of_the_jpeg_is_compared() -> None:
    with pytest.raises(ValueError, match="another JPEG"):
        _engine.restore_jpeg(changed(PLAIN, 8, PLAIN[8] ^ 1))
