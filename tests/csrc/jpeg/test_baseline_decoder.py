"""Tests of the decoder of common JPEGs: it takes those it should, and gives libjpeg-turbo's pixels or gives up."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.pictures.jpegs import (
    PICTURES,
    WHOLE_ROWS,
    Pixels,
    Region,
    by_cjpeg,
    by_pillow,
    crop,
    encoded,
    full_decode,
    picture,
    random_region,
    scan_start,
    tiled,
)
from support.sources.pack_sources import unusual_sampling

from fastpipe import _engine

COMMON = ("444", "422", "420", "440", "gray")
GIVEN_UP = "the JPEG has an unsupported format: the baseline decoder gave up"

needs_baseline = pytest.mark.skipif(
    "baseline" not in _engine.decode_methods(), reason="needs AVX2 and BMI2, or NEON"
)


def by_baseline(jpeg: bytes, region: Region | None = None, denominator: int = 1) -> Pixels | None:
    """None where it gives up."""
    try:
        return _engine.decode(jpeg, region, denominator, method="baseline")
    except ValueError as problem:
        assert GIVEN_UP in str(problem)  # noqa: PT017
        return None


def by_libjpeg(jpeg: bytes, region: Region | None = None, denominator: int = 1) -> Pixels | None:
    """None where it finds the JPEG damaged."""
    try:
        return _engine.decode(jpeg, region, denominator, method="libjpeg")
    except ValueError:
        return None


@needs_baseline
def test_common_pictures_are_decoded_by_baseline() -> None:
    sizes = [(5, 1), (5, 33), (16, 16), (17, 15), (64, 48), (97, 70), (120, 7)]
    kinds = [("noise", 100), ("noise", 1), ("smooth", 90), ("flat", 75), ("stripes", 60)]
    rng = np.random.default_rng(0)
    for case in itertools.product(COMMON, [0, 8, 16, 32, WHOLE_ROWS], sizes, kinds):
        sampling, tile, (width, height), (kind, quality) = case
        jpeg = tiled(encoded(picture(width, height, kind), sampling, quality), tile)
        expected = full_decode(jpeg)
        for region in [
            (0, 0, width, height),
            *(random_region(rng, width, height) for _ in range(4)),
        ]:
            got = by_baseline(jpeg, region)
            assert got is not None, (case, region)
            assert np.array_equal(got, crop(expected, region)), (case, region)


def gray_of_factors(factors: int) -> bytes:
    """A scan of one component has blocks in plain order, whatever its sampling factors."""
    gray = encoded(NOISE, "gray")
    at = gray.index(b"\xff\xc0") + 11
    return gray[:at] + bytes([factors]) + gray[at + 1 :]


NOISE = picture(96, 64)
COMMON_LAYOUTS: dict[str, Callable[[], bytes]] = {
    "standard tables": lambda: by_pillow(NOISE, restart_marker_blocks=2),
    "optimised tables": lambda: by_pillow(NOISE, restart_marker_blocks=2, optimize=True),
    "16-bit steps": lambda: by_pillow(
        NOISE, restart_marker_blocks=1, qtables=[[400] * 64, [999] * 64]
    ),
    "steps of 1": lambda: by_pillow(NOISE, qtables=[[1] * 64] * 2),
    "an interval over the whole picture": lambda: by_pillow(NOISE, restart_marker_blocks=5000),
    "gray of factors 2 x 2": lambda: gray_of_factors(0x22),
    "gray of factors 2 x 2, tiled": lambda: tiled(gray_of_factors(0x22), 16),
    "bytes after the end": lambda: (
        by_pillow(NOISE, restart_marker_blocks=2) + b"\xff\xd0\xff\xd8 garbage"
    ),
    "metadata": lambda: by_pillow(NOISE, icc_profile=bytes(200_000), comment=b"\xff\xd9\xff\xda"),
}


@needs_baseline
def test_common_layouts_are_decoded_by_baseline() -> None:
    rng = np.random.default_rng(5)
    for name, make in COMMON_LAYOUTS.items():
        jpeg = make()
        expected = full_decode(jpeg)
        for region in [(0, 0, 96, 64), *(random_region(rng, 96, 64) for _ in range(30))]:
            got = by_baseline(jpeg, region)
            assert got is not None, name
            assert np.array_equal(got, crop(expected, region)), (name, region)


def with_steps(jpeg: bytes, step: int) -> bytes:
    """The JPEG with all of its quantisation steps overwritten: its coefficients then mean something else."""
    at = jpeg.index(b"\xff\xdb")
    size = int.from_bytes(jpeg[at + 2 : at + 4], "big")
    assert size in (67, 132)
    out = bytearray(jpeg)
    for table in range(at + 4, at + 2 + size, 65):
        out[table + 1 : table + 65] = bytes([step]) * 64
    return bytes(out)


EXTRA = tiled(encoded(NOISE), 32)
OTHER_LAYOUTS: dict[str, Callable[[], bytes]] = {
    "4:1:1": lambda: encoded(NOISE, "411"),
    "4:1:1, tiled": lambda: tiled(encoded(NOISE, "411"), 32),
    "RGB": lambda: by_pillow(NOISE, keep_rgb=True),
    "RGB, tiled": lambda: by_pillow(NOISE, keep_rgb=True, restart_marker_blocks=2),
    "4:4:4 of factors 2 x 1": lambda: by_cjpeg(NOISE, "-sample", "2x1,2x1,2x1", "-restart", "1B"),
    "two blocks of each colour": lambda: by_cjpeg(NOISE, "-sample", "2x2,2x1,2x1"),
    "colours halved in different directions": lambda: tiled(unusual_sampling(), 32),
    "an interval that is no tile": lambda: by_pillow(NOISE, restart_marker_blocks=5),
    "an interval of two rows": lambda: by_pillow(NOISE, restart_marker_rows=2),
    "too narrow for smooth upsampling": lambda: encoded(picture(4, 40), "420"),
    "values over 16 bits": lambda: with_steps(encoded(NOISE, "444", 100), 255),
    "values over 16 bits, tiled": lambda: tiled(with_steps(encoded(NOISE, "444", 100), 255), 16),
    "a byte more than the last tile needs": lambda: EXTRA[:-2] + b"\0" + EXTRA[-2:],
    "fill bytes before the end marker": lambda: EXTRA[:-2] + b"\xff\xff" + EXTRA[-2:],
}


@needs_baseline
def test_other_pictures_are_left_to_libjpeg() -> None:
    rng = np.random.default_rng(6)
    for name, make in OTHER_LAYOUTS.items():
        jpeg = make()
        assert by_baseline(jpeg) is None, name
        expected = _engine.decode(jpeg, method="libjpeg")
        assert np.array_equal(_engine.decode(jpeg), expected), name
        height, width, _ = expected.shape
        for _ in range(30):
            region = random_region(rng, width, height)
            assert np.array_equal(_engine.decode(jpeg, region), crop(expected, region)), (
                name,
                region,
            )


@needs_baseline
def test_reduced_decodes_are_its_own() -> None:
    rng = np.random.default_rng(4)
    kinds = [("noise", 95), ("stripes", 100), ("smooth", 80)]
    for sampling, denominator, (kind, quality) in itertools.product(COMMON, [2, 4, 8], kinds):
        for tile in (0, 32, WHOLE_ROWS):
            jpeg = tiled(encoded(picture(101, 75, kind), sampling, quality), tile)
            expected = _engine.decode(jpeg, None, denominator, method="libjpeg")
            height, width, _ = expected.shape
            for region in [
                (0, 0, width, height),
                *(random_region(rng, width, height) for _ in range(3)),
            ]:
                reduced = by_baseline(jpeg, region, denominator)
                if denominator == 8 and sampling in ("422", "440"):
                    assert reduced is None, (
                        "there colours have more pixels than the brightness has one way"
                    )
                    continue
                assert reduced is not None, (sampling, denominator, kind, tile)
                assert np.array_equal(reduced, crop(expected, region)), (
                    sampling,
                    denominator,
                    kind,
                    tile,
                    region,
                )


def test_unknown_ways_of_decoding_are_refused() -> None:
    with pytest.raises(ValueError, match="no way of decoding named fast"):
        _engine.decode(encoded(picture(9, 9)), method="fast")


@needs_baseline
def test_brightness_beyond_white_is_what_libjpeg_makes_of_it() -> None:
    """libjpeg's own table of pixels wraps far beyond white."""
    for step, denominator in itertools.product(range(8, 20), [1, 2, 4, 8]):
        jpeg = bytearray(encoded(np.full((16, 16, 3), 250, dtype=np.uint8), "gray", 90))
        at = jpeg.index(b"\xff\xdb") + 5
        jpeg[at] = step  # of the first coefficient
        expected = by_libjpeg(bytes(jpeg), None, denominator)
        got = by_baseline(bytes(jpeg), None, denominator)
        assert got is None or np.array_equal(got, expected), (step, denominator)
        assert np.array_equal(_engine.decode(bytes(jpeg), None, denominator), expected), (
            step,
            denominator,
        )


def mutated(jpeg: bytes, rng: np.random.Generator) -> bytes:
    """With one to three small damages, most of them behind the header."""
    out = bytearray(jpeg)
    start = scan_start(jpeg)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(start if rng.random() < 0.7 else 2, len(out)))
        kind = rng.integers(6)
        if kind <= 1:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            out[at] = int(rng.choice([0, 1, 17, 18, 33, 34, 127, 255]))
        elif kind == 3:
            del out[at : at + int(rng.integers(1, 4))]
        elif kind == 4:
            out[at:at] = rng.integers(0, 256, int(rng.integers(1, 4)), dtype=np.uint8).tobytes()
        else:
            out[at:] = out[int(rng.integers(2, len(out))) :]
        if len(out) < start:
            break
    return bytes(out)


@needs_baseline
def test_what_it_takes_of_damaged_pictures_is_what_libjpeg_makes_of_them() -> None:
    """A whole picture that it decodes, libjpeg-turbo accepts, and its pixels are the same."""
    rng = np.random.default_rng(7)
    sources = [
        tiled(encoded(picture(40, 27, kind), sampling, quality), tile)
        for kind in PICTURES
        for quality, tile in [(30, 0), (75, 16), (100, 8), (95, WHOLE_ROWS)]
        for sampling in COMMON
    ]
    taken = refused = 0
    for number in range(5000):
        jpeg = mutated(sources[number % len(sources)], rng)
        denominator = (1, 1, 2, 4, 8)[number % 5]
        try:
            _engine.picture_size(jpeg, max_pixels=100_000)
        except ValueError:
            continue
        got = by_baseline(jpeg, None, denominator)
        expected = by_libjpeg(jpeg, None, denominator)
        refused += expected is None
        if got is not None:
            taken += 1
            assert expected is not None, jpeg
            assert np.array_equal(got, expected), jpeg
    assert taken > 500, "too few damages let the picture be decoded"
    assert refused > 500


@needs_baseline
def test_a_tile_of_bits_that_no_encoder_writes_is_left_to_libjpeg() -> None:
    """Random bits run into codes that there are none of, beyond the last coefficient or beyond the tile's end."""
    rng = np.random.default_rng(8)
    for sampling in COMMON:
        jpeg = tiled(encoded(picture(64, 48), sampling), 16)
        start = scan_start(jpeg)
        end = next(i for i in range(start, len(jpeg)) if jpeg[i] == 0xFF and jpeg[i + 1] != 0)
        taken = 0
        for size in range(1, 300):
            damaged = (
                jpeg[:start] + rng.integers(0, 255, size, dtype=np.uint8).tobytes() + jpeg[end:]
            )
            got = by_baseline(damaged)
            if got is not None:
                taken += 1
                assert np.array_equal(got, by_libjpeg(damaged)), sampling
        assert taken < 30, sampling


def rows_of(jpegs: list[bytes], shard: Path, size: tuple[int, int]) -> Pixels:
    """Each picture whole, as one engine thread resizes it: (N, height, width, 3)."""
    shard.write_bytes(b"".join(jpegs))
    tasks = np.zeros(len(jpegs), dtype=_engine.TASK_DTYPE)
    at = 0
    for row, (task, jpeg) in enumerate(zip(tasks, jpegs, strict=True)):
        width, height = _engine.picture_size(jpeg)
        task["offset"], task["size"], task["out_row"] = at, len(jpeg), row
        task["width"], task["height"] = width, height
        task["box"] = task["bounds"] = (0, 0, width, height)
        at += len(jpeg)
    images = np.zeros((len(jpegs), *size, 3), np.uint8)
    engine = _engine.Engine([(os.fsencode(shard), at)], 1, 1)
    job = _engine.Job(engine, tasks, [(images, True, {})], False)
    assert job.wait(60)
    assert job.errors() == []
    engine.close(60)
    return images


@needs_baseline
@pytest.mark.parametrize("size", [(33, 44), (8, 100)], ids=["across first", "down first"])
def test_rows_that_were_given_before_it_gave_up_leave_no_trace(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """A byte too many in the last tile shows when all others are done; the batch has the picture all the same."""
    jpegs, spoilt = [], []
    for seed, (sampling, tile) in enumerate(itertools.product(COMMON, [0, 16, WHOLE_ROWS])):
        jpeg = tiled(encoded(picture(90 + seed, 120 - seed, "smooth", seed), sampling), tile)
        jpegs.append(jpeg)
        spoilt.append(jpeg[:-2] + b"\0" + jpeg[-2:])
        assert by_baseline(jpegs[-1]) is not None
        assert by_baseline(spoilt[-1]) is None
    assert np.array_equal(
        rows_of(spoilt, tmp_path / "spoilt", size), rows_of(jpegs, tmp_path / "good", size)
    )


@needs_baseline
def test_one_thread_decodes_one_picture_after_the_other(tmp_path: Path) -> None:
    """Scratch memory that a larger picture, or one of another kind, leaves behind shows in no later one."""
    rng = np.random.default_rng(9)
    jpegs = []
    for seed in range(120):
        width, height = (int(rng.integers(1, 150)) for _ in range(2))
        source = encoded(
            picture(width, height, PICTURES[seed % 4], seed), COMMON[int(rng.integers(5))]
        )
        jpegs.append(tiled(source, int(rng.choice([0, 8, 16, 48, WHOLE_ROWS]))))
    together = rows_of(jpegs, tmp_path / "together", (40, 40))
    for jpeg, row in zip(jpegs, together, strict=True):
        width, height = _engine.picture_size(jpeg)
        assert np.array_equal(row, _engine.resize(full_decode(jpeg), 40, 40)), (width, height)
