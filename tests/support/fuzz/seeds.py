"""Synthetic pictures -> the JPEGs, KEY.fpcs, PNGs and KEY.tifs that the fuzzer damages: all that the engine reads."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from support.pictures import pngs
from support.pictures.jpegs import WHOLE_ROWS, by_cjpeg, by_pillow, encoded, picture, tiled
from support.pictures.tiffs import tiled_tiff

from fastpipe import _engine
from fastpipe.dataset.format.tiled_file import cut_into_tiles
from fastpipe.sources.picture.convert import EncodeOptions, convert
from fastpipe.sources.picture.png import encode_png

COMMON = ("444", "422", "440", "420", "gray")
CJPEG = {  # by libjpeg-turbo's own tool, where it is installed
    "progressive": ["-progressive"],
    "progressive-restarts": ["-progressive", "-restart", "1"],
    "arithmetic": ["-arithmetic"],
    "arithmetic-progressive": ["-arithmetic", "-progressive", "-sample", "2x1"],
    "restarts-of-three": ["-restart", "3B"],
    "wide-steps": ["-quality", "1"],
    "two-by-four": ["-sample", "2x4"],
}


def baseline() -> Iterator[tuple[str, bytes]]:
    """What the own decoder takes: these are most of the seeds."""
    for number, sampling in enumerate(COMMON):
        for kind, (width, height), quality in (
            ("noise", (67, 45), 85),
            ("noise", (24, 33), 100),
            ("smooth", (97, 70), 90),
            ("stripes", (41 + number, 28), 60),
        ):
            plain = encoded(picture(width, height, kind), sampling, quality)
            name = f"{sampling}-{kind}-{width}x{height}"
            yield name, plain
            yield f"{name}-tiles-16", tiled(plain, 16)
            yield f"{name}-rows", tiled(plain, WHOLE_ROWS)
    yield "tiles-32", tiled(encoded(picture(200, 90, "smooth"), "420", 90), 32)
    yield "tiny", encoded(picture(1, 1), "420")


def others() -> Iterator[tuple[str, bytes]]:
    """What libjpeg-turbo decodes, and what only the transcoder reads."""
    noise, smooth = picture(53, 38), picture(90, 61, "smooth")
    yield "411", encoded(noise, "411")
    yield "411-tiles", tiled(encoded(smooth, "411"), 32)
    yield "rgb", by_pillow(noise, keep_rgb=True)
    yield "optimised", by_pillow(smooth, optimize=True)
    yield "progressive-420", by_pillow(smooth, progressive=True)
    yield "progressive-444", by_pillow(noise, progressive=True, subsampling=0)
    yield "restarts-of-two", by_pillow(noise, restart_marker_blocks=2)
    yield "restarts-of-rows", by_pillow(smooth, restart_marker_rows=1)
    cmyk = io.BytesIO()
    Image.fromarray(noise).convert("CMYK").save(cmyk, "JPEG")
    yield "cmyk", cmyk.getvalue()
    if shutil.which("cjpeg") is not None:
        for name, options in CJPEG.items():
            yield f"cjpeg-{name}", by_cjpeg(smooth, *options)


def masks() -> Iterator[tuple[str, bytes]]:
    """PNGs of each kind that is read, with each filter, whole and in pieces."""
    random = np.random.default_rng(0)
    for color, bits in [
        (0, 1),
        (0, 2),
        (0, 4),
        (0, 8),
        (0, 16),
        (3, 1),
        (3, 4),
        (3, 8),
        (2, 8),
        (4, 8),
        (6, 8),
        (2, 16),
        (4, 16),
        (6, 16),
    ]:
        channels = pngs.CHANNELS[color]
        pixels = random.integers(0, 2**bits, (23, 31, channels))
        pixels[:9] = 2**bits - 1
        palette = (
            bytes(random.integers(0, 256, 3 * 2**bits, dtype=np.uint8)) if color == 3 else None
        )
        clear = bytes(range(2**bits)) if color == 3 else pixels[11, 7].astype(">u2").tobytes()
        for name, filters, options in (
            ("plain", (0,), {}),
            ("filters", (4, 3, 2, 1, 0), {"idat_bytes": 100}),
            ("interlaced", (4, 1), {"interlaced": True}),
            ("clear", (3,), {"transparency": clear} if channels % 2 else {}),
        ):
            data = pngs.png(
                pixels, bits=bits, color=color, filters=filters, palette=palette, **options
            )
            yield f"png-{color}-{bits}-{name}", data
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.uint16):
            for filters in (True, False):
                strips = random.integers(0, 20, (23, 31, channels)).astype(dtype)
                yield (
                    f"png-strips-{channels}-{strips.itemsize}-{filters}",
                    encode_png(strips, filters=filters, strip_rows=5),
                )


def coefficients() -> Iterator[tuple[str, bytes]]:
    """The same pictures as KEY.fpc, and some with values of all sizes."""
    ones = [[1] * 64] * 2
    large = [("large-444", by_pillow(picture(41, 33), qtables=ones, subsampling=0)),
             ("large-420", by_pillow(picture(70, 50, "stripes"), qtables=ones))]  # fmt: skip
    for name, jpeg in (*baseline(), *others(), *large):
        if "tiles" in name or "rows" in name or name == "cmyk":
            continue
        stored, _ = _engine.transcode(jpeg, [(0xFE, b"a comment")], tile=16, coefficients=True)
        if stored is not None:
            yield name, stored


def tifs() -> Iterator[tuple[str, bytes]]:
    """KEY.tifs of each kind of tiles, with an empty one."""
    pixels = picture(90, 70)
    for colours in ("gray", "RGB", "444", "422", "420"):
        tiff = tiled_tiff(pixels, side=32, colours=colours, empty={1})
        yield f"tif-{colours}", convert(tiff, EncodeOptions()).data
    random = np.random.default_rng(0)
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.uint16):
            samples = random.integers(0, 20, (40, 60, channels)).astype(dtype)
            yield (
                f"tif-png-{channels}-{samples.itemsize}",
                cut_into_tiles(samples, encode_png, is_png=True),
            )


def write(folder: Path) -> int:
    """Writes the files into a folder that is made; returns how many there are."""
    folder.mkdir(parents=True)
    count = 0
    for name, jpeg in (*baseline(), *others()):
        (folder / f"{name}.jpg").write_bytes(jpeg)
        count += 1
    for name, data in coefficients():
        (folder / f"{name}.fpc").write_bytes(data)
        count += 1
    for name, data in masks():
        (folder / f"{name}.png").write_bytes(data)
        count += 1
    for name, data in tifs():
        (folder / f"{name}.tif").write_bytes(data)
        count += 1
    return count
