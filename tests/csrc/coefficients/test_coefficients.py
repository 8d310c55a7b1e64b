"""Tests of KEY.fpc: its bytes follow docs/explanation/format.md, every kernel reads them, and the JPEG comes back."""

from __future__ import annotations

import numpy as np
import xxhash
from support.pictures import fpc
from support.pictures.coefficient_sources import KERNELS, UNUSUAL, far_means, packed, sources
from support.pictures.jpegs import by_cjpeg, by_pillow, encoded, picture
from support.sources.pack_sources import twelve_bit

from fastpipe import _engine


def test_the_bytes_are_as_the_format_page_says() -> None:
    unusual = {
        str(options): by_cjpeg(picture(53, 38), "-quality", "90", *options) for options in UNUSUAL
    }
    deep = {"twelve bits": twelve_bit(encoded(picture(70, 45, "smooth"), "420"))}
    for name, source in (sources() | unusual | deep).items():
        jpeg, coefficients = packed(source)
        found = fpc.read(coefficients)
        assert (
            (found.width, found.height)
            == _engine.picture_size(jpeg)
            == _engine.picture_size(coefficients)
        ), name
        assert found.xxh3_64 == xxhash.xxh3_64_intdigest(jpeg), name
        for kernels in KERNELS:
            read = _engine.coefficients_of(coefficients, kernels)
            assert all(map(np.array_equal, read, found.blocks)), (name, kernels)
            assert _engine.restore_jpeg(coefficients, kernels) == jpeg, (name, kernels)
        if name.startswith("steps of 1"):
            means = [
                np.abs(np.diff(plane[:, :, 0].astype(int))).max(initial=0) for plane in found.blocks
            ]
            assert max(means) > 127, "no mean takes two bytes"
            assert max(np.abs(plane[:, :, 1:]).max() for plane in found.blocks) > 127


def test_segments_come_back_in_order() -> None:
    segments = [
        (0xE2, b"ICC_PROFILE\0\1\1" + bytes(range(256)) * 9),
        (0xFE, b""),
        (0xE1, b"Exif\0\0" + b"x" * 65000),
    ]
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
