"""Tests of decoding a KEY.fpc: the pixels are those of libjpeg-turbo's decode of the JPEG, at every crop and scale."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import fpc
from support.pictures.coefficient_sources import KERNELS, UNUSUAL, packed, sources
from support.pictures.jpegs import (
    DENOMINATORS,
    PICTURES,
    SUBSAMPLINGS,
    by_cjpeg,
    crop,
    encoded,
    full_decode,
    picture,
    random_region,
)
from support.sources.pack_sources import twelve_bit

from fastpipe import _engine

METHODS = ["", "libjpeg"]


def test_crops_of_every_kind_of_picture() -> None:
    """The common kinds, unusual layouts, and 12 bits."""
    rng = np.random.default_rng(1)
    unusual = {
        str(options): by_cjpeg(picture(101, 75), "-quality", "90", *options) for options in UNUSUAL
    }
    deep = {"twelve bits": twelve_bit(encoded(picture(70, 45, "smooth"), "420"))}
    for name, source in (sources() | unusual | deep).items():
        jpeg, coefficients = packed(source)
        for denominator in DENOMINATORS:
            expected = _engine.decode(jpeg, None, denominator, method="libjpeg")
            for number in range(8):
                region = random_region(rng, expected.shape[1], expected.shape[0])
                kernels, method = KERNELS[number % len(KERNELS)], METHODS[number // 2 % 2]
                got = _engine.decode(
                    coefficients, region, denominator, method=method, kernels=kernels
                )
                assert np.array_equal(got, crop(expected, region)), (
                    name,
                    denominator,
                    region,
                    kernels,
                    method,
                )


@settings(max_examples=120)
@given(
    sampling=st.sampled_from(sorted(SUBSAMPLINGS)),
    width=st.integers(1, 200),
    height=st.integers(1, 200),
    kind=st.sampled_from(PICTURES),
    quality=st.integers(1, 100),
    tile=st.sampled_from([0, 8, 32, 10_000]),
    seed=st.integers(0, 2**32),
)
def test_any_picture_and_any_crop(
    sampling: str, width: int, height: int, kind: str, quality: int, tile: int, seed: int
) -> None:
    source = encoded(picture(width, height, kind, seed), sampling, quality)
    jpeg, coefficients = packed(source, tile)
    expected_blocks = fpc.read(coefficients).blocks
    for kernels in KERNELS:
        assert all(
            map(np.array_equal, _engine.coefficients_of(coefficients, kernels), expected_blocks)
        ), kernels
    assert _engine.restore_jpeg(coefficients) == jpeg
    assert np.array_equal(_engine.decode(coefficients), full_decode(source))
    rng = np.random.default_rng(seed)
    for denominator, method in itertools.product(DENOMINATORS, METHODS):
        expected = _engine.decode(jpeg, None, denominator, method="libjpeg")
        region = random_region(rng, expected.shape[1], expected.shape[0])
        got = _engine.decode(coefficients, region, denominator, method=method)
        assert np.array_equal(got, crop(expected, region)), (denominator, region, method)


def test_every_column_range_and_every_row_range() -> None:
    width, height = 37, 21
    columns = [(left, right, 5, 14) for left, right in itertools.combinations(range(width + 1), 2)]
    rows = [(13, 19, top, bottom) for top, bottom in itertools.combinations(range(height + 1), 2)]
    for sampling in SUBSAMPLINGS:
        source = encoded(picture(width, height), sampling)
        _, coefficients = packed(source)
        expected = full_decode(source)
        for (left, right, top, bottom), method in itertools.product(columns + rows, METHODS):
            got = _engine.decode(
                coefficients, (left, top, right - left, bottom - top), method=method
            )
            assert np.array_equal(got, expected[top:bottom, left:right]), (
                sampling,
                method,
                left,
                right,
                top,
                bottom,
            )
