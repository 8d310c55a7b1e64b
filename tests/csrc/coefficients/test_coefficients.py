"""Tests of KEY.fpc: its bytes are as docs/format.md says, every kernel reads them, and the JPEG comes back."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import fpc
from support.pictures.coefficient_sources import KERNELS, UNUSUAL, far_means, packed, sources
from support.pictures.jpegs import PICTURES, SUBSAMPLINGS, by_cjpeg, by_pillow, encoded, picture
from support.sources.pack_sources import twelve_bit

from fastpipe import _engine


def test_the_bytes_are_as_the_format_page_says() -> None:
    for name, source in sources().items():
        jpeg, coefficients = packed(source)
        found = fpc.read(coefficients)
        assert (found.width, found.height) == _engine.picture_size(jpeg) == _engine.picture_size(coefficients), name
        assert found.xxh3_64 == xxhash.xxh3_64_intdigest(jpeg), name
        for kernels in KERNELS:
            read = _engine.coefficients_of(coefficients, kernels)
            assert all(map(np.array_equal, read, found.blocks)), (name, kernels)
            assert _engine.restore_jpeg(coefficients, kernels) == jpeg, (name, kernels)
        if name.startswith("steps of 1"):
            means = [np.abs(np.diff(plane[:, :, 0].astype(int))).max(initial=0) for plane in found.blocks]
            assert max(means) > 127, "no mean takes two bytes"
            assert max(np.abs(plane[:, :, 1:]).max() for plane in found.blocks) > 127


@settings(max_examples=100)
@given(
    sampling=st.sampled_from(sorted(SUBSAMPLINGS)),
    width=st.integers(1, 200),
    height=st.integers(1, 200),
    kind=st.sampled_from(PICTURES),
    quality=st.integers(1, 100),
    tile=st.sampled_from([0, 8, 32, 10_000]),
    seed=st.integers(0, 2**32),
)
def test_any_picture_comes_back(
    sampling: str, width: int, height: int, kind: str, quality: int, tile: int, seed: int
) -> None:
    jpeg, coefficients = packed(encoded(picture(width, height, kind, seed), sampling, quality), tile)
    expected = fpc.read(coefficients).blocks
    for kernels in KERNELS:
        assert all(map(np.array_equal, _engine.coefficients_of(coefficients, kernels), expected)), kernels
    assert _engine.restore_jpeg(coefficients) == jpeg


def test_unusual_layouts_come_back() -> None:
    for options in UNUSUAL:
        jpeg, coefficients = packed(by_cjpeg(picture(53, 38), "-quality", "90", *options))
        expected = fpc.read(coefficients).blocks
        assert all(map(np.array_equal, _engine.coefficients_of(coefficients, "scalar"), expected)), options
        assert _engine.restore_jpeg(coefficients) == jpeg, options


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernels named sse9"):
        _engine.decode(b"", kernels="sse9")


def test_twelve_bits_are_requantised_as_for_a_jpeg() -> None:
    jpeg, coefficients = packed(twelve_bit(encoded(picture(70, 45, "smooth"), "420")))
    assert _engine.restore_jpeg(coefficients) == jpeg


def test_segments_come_back_in_order() -> None:
    segments = [(0xE2, b"ICC_PROFILE\0\1\1" + bytes(range(256)) * 9), (0xFE, b""), (0xE1, b"Exif\0\0" + b"x" * 65000)]
    jpeg, coefficients = packed(encoded(picture(40, 30)), segments=segments)
    assert fpc.read(coefficients).segments == segments
    assert _engine.restore_jpeg(coefficients) == jpeg


def test_restart_markers_of_the_source_leave_no_trace() -> None:
    source = encoded(picture(200, 90, "smooth"), "420")
    with_markers = by_pillow(picture(200, 90, "smooth"), restart_marker_blocks=3, quality=75)
    assert _engine.restore_jpeg(packed(with_markers)[1]) == packed(with_markers)[0]
    assert packed(packed(source, tile=8)[0], tile=32)[1] == packed(source, tile=32)[1]


def test_means_beyond_eight_bits() -> None:
    """Each interval of a JPEG counts from 0; without intervals, means may climb as far as they like."""
    coefficients = far_means(4000)
    expected = _engine.restore_jpeg(coefficients)
    assert expected[:2] == b"\xff\xd8"
    assert np.abs(fpc.read(coefficients).blocks[0][:, :, 0].astype(int)).max() > 2047
    whole = _engine.decode(expected, method="libjpeg")
    for kernels in KERNELS:
        assert np.array_equal(_engine.decode(coefficients, kernels=kernels), whole)
        part = _engine.decode(coefficients, (9, 0, 30, 8), method="libjpeg", kernels=kernels)
        assert np.array_equal(part, whole[:, 9:39])
