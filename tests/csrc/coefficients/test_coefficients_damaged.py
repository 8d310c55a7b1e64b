"""Tests of a KEY.fpc whose bytes are damaged: an error, or pixels of the right shape, and never anything else."""

from __future__ import annotations

import contextlib
import itertools
import re

import numpy as np
import pytest
from numpy.typing import NDArray
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
    assert {
        "in MCU row 0",
        "in MCU row 1",
        "they make another JPEG than when they were packed",
    } <= reasons
    assert ("a value is larger than a JPEG holds" in reasons) == (data == LARGE)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """With one to four damages: most to the blocks; the size in the header is the file's."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        kind = rng.integers(10)
        if kind < 4:
            out[int(rng.integers(HEADER_BYTES, len(out)))] = int(
                rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            )
        elif (
            kind < 6
        ):  # lengths of blocks that sum up to the same, so that the row still ends where it should
            one, other = HEADER_BYTES + rng.choice(4, 2, replace=False)
            moved = int(rng.integers(0, 1 + min(out[one], 255 - out[other])))
            out[one] -= moved
            out[other] += moved
        elif kind == 6:
            out[int(rng.integers(4, HEADER_BYTES))] ^= 1 << int(rng.integers(8))
        elif kind == 7:
            out[16:20] = rng.choice([1, 8, 9, 38, 53, 200], 2).astype("<u2").tobytes()
        elif kind == 8:
            place = HEADER_BYTES - 4 * int(rng.integers(1, 5))
            out[place : place + 4] = int(rng.integers(len(out) + 9)).to_bytes(4, "little")
        else:
            del out[int(rng.integers(HEADER_BYTES, len(out))) :]
            out += bytes(int(rng.integers(2) * rng.integers(300)))
        if len(out) < HEADER_BYTES + 8:
            break
    return changed(bytes(out), 4, len(out), 4)


def test_kernels_and_decoders_agree_on_damaged_pictures() -> None:
    rng = np.random.default_rng(6)

    def decoded(data: bytes, kernels: str, method: str) -> NDArray[np.uint8] | None:
        try:
            return _engine.decode(data, kernels=kernels, method=method, max_pixels=100_000)
        except ValueError as problem:
            assert re.search("coefficients|size limit", str(problem))  # noqa: PT017
            return None

    taken = refused = 0
    for number in range(1500):
        broken = damaged((PLAIN, LARGE)[number % 2], rng)
        expected = decoded(broken, "scalar", "libjpeg")
        taken += expected is not None
        refused += expected is None
        for kernels, method in itertools.product(KERNELS, ["", "libjpeg"]):
            got = decoded(broken, kernels, method)
            if method == "libjpeg":
                assert (got is None) == (expected is None), kernels
            if got is not None and expected is not None:
                assert np.array_equal(got, expected), (kernels, method)
    assert min(taken, refused) > 200


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


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="over 2000 pixels"):
        _engine.decode(PLAIN, max_pixels=2000)
    with pytest.raises(ValueError, match="no kernels named sse9"):
        _engine.decode(b"", kernels="sse9")
    with pytest.raises(ValueError, match="another JPEG"):
        _engine.restore_jpeg(changed(PLAIN, 8, PLAIN[8] ^ 1))
