"""Tests of the strips' kernels: all of a machine's, and those of an emulated ARM, give the same pixels and files."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import xxhash
from support.native.bare_programs import CSRC, MACHINES, needs_arm, output_of
from support.pictures.jpegs import WHOLE_ROWS, crop, encoded, full_decode, picture, tiled
from support.running.soak import times

from fastpipe import _engine

DECODE = CSRC / "jpeg/decode"
KERNELS = [*CSRC.glob("jpeg/unstuff*.cc"), *DECODE.glob("idct*.cc"), *DECODE.glob("color*.cc")]
TILE = 32


@pytest.mark.parametrize("arm", MACHINES)
def test_all_kernels_agree(tmp_path: Path, *, arm: bool) -> None:
    """With libjpeg-turbo compares test_baseline_decoder, by the fastest of them."""
    run = output_of("strip_agreement", KERNELS, [str(times(2000, 100_000))], tmp_path, arm=arm)
    assert run.returncode == 0, run.stdout
    kernels = run.stdout.splitlines()[0].split()
    if arm:
        assert kernels == ["scalar", "neon", "scalar", "neon", "2"]
    else:
        assert kernels[0] == "scalar"
        assert (len(kernels) > 3) == ("baseline" in _engine.decode_methods())


def common_jpegs() -> dict[str, bytes]:
    """Of all common samplings, in tiles or not, of widths 1 to 64 and larger ones."""
    found = {}
    for number, (sampling, width) in enumerate(
        itertools.product(("444", "422", "420", "440", "gray"), (*range(1, 65, 3), 64, 97, 200))
    ):
        kind, quality = (("noise", 100), ("smooth", 90), ("stripes", 60), ("noise", 30))[number % 4]
        height = 1 + number * 7 % 60
        jpeg = encoded(picture(width, height, kind), sampling, quality)
        tile = (0, 8, 16, WHOLE_ROWS)[number // 4 % 4]
        found[f"{number}-{sampling}-{width}-{height}-{kind}-{tile}.jpg"] = tiled(jpeg, tile)
    return found


def expected_hashes(jpeg: bytes) -> list[str]:
    """libjpeg-turbo's pixels and what this machine packs."""
    found = []
    for middle in (False, True):
        for denominator in (1, 2, 4, 8):
            pixels = full_decode(jpeg, denominator)
            height, width = pixels.shape[:2]
            if middle:
                pixels = crop(
                    pixels, (width // 4, height // 4, (width + 1) // 2, (height + 1) // 2)
                )
            found.append(xxhash.xxh3_64_hexdigest(np.ascontiguousarray(pixels).tobytes()))
    for coefficients in (False, True):
        packed, _ = _engine.transcode(jpeg, tile=TILE, coefficients=coefficients)
        found.append(xxhash.xxh3_64_hexdigest(packed))
    return found


@needs_arm
def test_arm_makes_the_same_of_pictures(tmp_path: Path) -> None:
    """The pixels of the own decoder and the files that `pack` stores; libjpeg-turbo is not in the program."""
    jpegs = common_jpegs()
    for name, jpeg in jpegs.items():
        (tmp_path / name).write_bytes(jpeg)
    coding = [
        DECODE / f"{name}.cc" for name in ("baseline_decoder", "entropy", "scaled_strips", "strips")
    ]
    reading = [
        CSRC / f"jpeg/{name}.cc" for name in ("parsed_header", "huffman_lookup", "restart_map")
    ]
    names = (
        "scan_tokens",
        "jpeg_writer",
        "output_header",
        "tiling",
        "entropy_writer",
        "optimal_huffman",
    )
    packing = [CSRC / f"jpeg/transcode/{name}.cc" for name in names]
    storing = [
        CSRC / f"coefficients/{name}.cc"
        for name in ("coefficient_writer", "block_row_writer", "fpc_header")
    ]
    storing += [
        CSRC / "base/xxh3.cc",
        CSRC / "coefficients/block_row.cc",
        *CSRC.glob("coefficients/block_bytes*.cc"),
    ]
    files = [tmp_path / name for name in jpegs]
    parts = [*KERNELS, *coding, *reading, *packing, *storing]
    run = output_of("picture_hashes", parts, [str(TILE), *files], tmp_path, arm=True)
    assert run.returncode == 0, run.stderr
    made = dict(zip(jpegs, map(str.split, run.stdout.splitlines()), strict=True))
    taken = 0
    for name, jpeg in jpegs.items():
        for got, expected in zip(made[name], expected_hashes(jpeg), strict=True):
            assert got in (expected, "-"), name
            taken += got != "-"
    assert taken > 0.8 * 10 * len(jpegs)
