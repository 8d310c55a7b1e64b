"""TIFFs in JPEG tiles -> KEY.tif: the same pixels as tifffile's, whole and in part, and what is refused."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
import tifffile
from support.pictures.jpegs import picture
from support.pictures.tiffs import pyramid, shown, tiled_tiff

from fastpipe import _engine
from fastpipe.dataset.format.sample_layout import picture_ending
from fastpipe.errors import ImageError
from fastpipe.sources.picture.convert import EncodeOptions, convert, read_stored_header
from fastpipe.sources.picture.probe import read_form

OPTIONS = EncodeOptions()


def stored(tiff: bytes, **options: Any) -> bytes:
    return convert(tiff, EncodeOptions(**options)).data


def reason(tiff: bytes, **options: Any) -> str:
    with pytest.raises(ImageError) as caught:
        stored(tiff, **options)
    return str(caught.value)


@pytest.mark.parametrize("colours", ["gray", "RGB", "444", "422", "420"])
@pytest.mark.parametrize("size", [(1, 1), (64, 64), (65, 63), (301, 203)])
def test_pixels_are_those_of_tifffile(colours: str, size: tuple[int, int]) -> None:
    tiff = tiled_tiff(picture(*size, "smooth"), colours=colours)
    packed = convert(tiff, OPTIONS)
    assert picture_ending(packed.data) == "tif"
    assert (packed.width, packed.height, packed.change, packed.png_of) == (*size, None, None)
    assert read_form(packed.data) == ((1 if colours == "gray" else 3), 8)
    assert read_stored_header(tiff) == (*size, *read_form(packed.data))
    assert np.array_equal(_engine.decode(packed.data), shown(tiff))
    # Other programs open it, too.
    assert np.array_equal(shown(packed.data), shown(tiff))
    _engine.check_picture(packed.data)


@pytest.mark.parametrize("denominator", [1, 2, 4, 8])
@pytest.mark.parametrize("colours", ["gray", "420"])
def test_a_region_equals_that_of_the_whole(denominator: int, colours: str) -> None:
    data = stored(tiled_tiff(picture(301, 203), colours=colours))
    whole = _engine.decode(data, denominator=denominator)
    height, width = whole.shape[:2]
    assert (width, height) == (-(-301 // denominator), -(-203 // denominator))
    rng = random.Random(denominator)
    for _ in range(60):
        left, top = rng.randrange(width), rng.randrange(height)
        right, bottom = rng.randrange(left, width) + 1, rng.randrange(top, height) + 1
        part = _engine.decode(
            data, region=(left, top, right - left, bottom - top), denominator=denominator
        )
        assert np.array_equal(part, whole[top:bottom, left:right])


def test_a_scale_is_that_of_each_tile() -> None:
    pixels = picture(128, 64, "smooth")
    tiff = tiled_tiff(pixels, colours="444")
    data = stored(tiff)
    with tifffile.TiffFile(io.BytesIO(tiff)) as file:
        places = list(zip(file.pages[0].dataoffsets, file.pages[0].databytecounts, strict=True))
    tiles = [tiff[offset : offset + size] for offset, size in places]
    expected = [_engine.decode(tile, denominator=4) for tile in tiles]
    assert np.array_equal(_engine.decode(data, denominator=4), np.concatenate(expected, axis=1))


def test_empty_tiles_are_black() -> None:
    tiff = tiled_tiff(picture(301, 203), empty={2, 5})
    pixels = _engine.decode(stored(tiff))
    assert np.array_equal(pixels, shown(tiff))
    assert not pixels[:64, 128:192].any()
    assert pixels[:64, 192:256].any()
    _engine.check_picture(stored(tiff))


def test_tables_that_tiles_share() -> None:
    tiff = tiled_tiff(picture(301, 203), share_tables=True)
    with tifffile.TiffFile(io.BytesIO(tiff)) as opened:
        assert opened.pages[0].jpegtables
    assert np.array_equal(_engine.decode(stored(tiff)), shown(tiff))
    assert stored(tiff) == stored(tiled_tiff(picture(301, 203)))


def test_packing_it_again_changes_nothing() -> None:
    data = stored(tiled_tiff(picture(301, 203)))
    assert stored(data) == data


def test_levels() -> None:
    levels = [picture(301, 203), picture(150, 101), picture(75, 50)]
    tiff = pyramid(levels)
    for number, level in enumerate(levels):
        packed = convert(tiff, EncodeOptions(level=number))
        alone = stored(tiled_tiff(level))
        assert packed.data == alone
        assert not packed.multi_frame
    assert reason(tiff, level=3) == (
        "it has no level 3; its levels are 0: 301 x 203, 1: 150 x 101, 2: 75 x 50 pixels: pass --level"
    )
    png = io.BytesIO()
    tifffile.imwrite(png, levels[0], photometric="rgb")
    assert "it has no level 1; its levels are 0: 301 x 203 pixels" in reason(
        png.getvalue(), level=1
    )
    jpeg = _engine.transcode(tiled_jpeg(), [])[0]
    assert jpeg is not None
    assert "a JPEG has its picture in one size, and --level 1 was passed" in reason(jpeg, level=1)


def tiled_jpeg() -> bytes:
    tiff = tiled_tiff(picture(64, 64))
    with tifffile.TiffFile(io.BytesIO(tiff)) as file:
        (offset,), (size,) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    return tiff[offset : offset + size]


def test_several_pages_are_counted() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for seed in range(3):
            writer.write(
                picture(64, 64, seed=seed),
                tile=(64, 64),
                compression="jpeg",
                photometric="rgb",
                contiguous=False,
            )
    packed = convert(file.getvalue(), OPTIONS)
    assert packed.multi_frame
    assert (packed.width, packed.height) == (64, 64)
    first = tifffile.imread(io.BytesIO(file.getvalue()), key=0)
    assert np.array_equal(_engine.decode(packed.data), first)


def test_other_tiffs_become_pngs_as_before() -> None:
    pixels = picture(301, 203, "smooth")
    for compression in (None, "zlib"):
        file = io.BytesIO()
        tifffile.imwrite(file, pixels, tile=(64, 64), photometric="rgb", compression=compression)
        packed = convert(file.getvalue(), OPTIONS)
        assert packed.png_of == "TIFF"
        assert np.array_equal(_engine.decode(packed.data), pixels)


def test_a_shrunk_or_turned_picture_is_decoded() -> None:
    tiff = tiled_tiff(picture(301, 203, "smooth"), colours="444")
    packed = convert(tiff, EncodeOptions(max_size=100))
    assert (packed.width, packed.height, packed.change) == (100, 67, "shrunk")
    turned = tiled_tiff(picture(301, 203), colours="444", extratags=[(274, 3, 1, 6, True)])
    packed = convert(turned, OPTIONS)
    assert picture_ending(packed.data) == "jpg"
    assert (packed.width, packed.height) == (203, 301)


def test_pictures_over_a_limit() -> None:
    tiff = tiled_tiff(picture(301, 203))
    assert "301 x 203" in reason(tiff, max_pixels=301 * 203 - 1)
    assert stored(tiff, max_pixels=301 * 203)


def test_colours_that_contradict() -> None:
    tiff = tiled_tiff(picture(64, 64), colours="RGB")
    place = tiff.index(b"\x06\x01\x03\0")  # tag 262, RGB
    assert tiff[place + 8] == 2
    said = tiff[: place + 8] + b"\x06" + tiff[place + 9 :]
    assert reason(said).startswith(
        "the tile in row 0, column 0: the TIFF says that its colours are YCbCr, and the JPEG that they "
        "are RGB"
    )


def test_damaged_tiles_are_named() -> None:
    tiff = tiled_tiff(picture(301, 203))
    with tifffile.TiffFile(io.BytesIO(tiff)) as file:
        offset = file.pages[0].dataoffsets[7]
    broken = tiff[: offset + 800] + b"\xff\xd9" + tiff[offset + 802 :]
    assert reason(broken).startswith("the tile in row 1, column 2: ")
    cut = tiff[: offset + 100]
    assert reason(cut)


def test_a_damaged_key_tif_is_an_error() -> None:
    """Whatever its bytes: an error or pixels, and never more of them than it has room for."""
    data = stored(tiled_tiff(picture(150, 101)))
    rng = random.Random(0)
    outcomes = {"error": 0, "pixels": 0}
    for _ in range(3000):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            # Half of them in the header, the tags and the places of the tiles.
            end = rng.choice((420, len(bad)))
            bad[rng.randrange(8, end)] = rng.randrange(256)
        if rng.random() < 0.2:
            del bad[rng.randrange(8, len(bad)) :]
        try:
            width, height = _engine.picture_size(bytes(bad), 1 << 24)
            pixels = _engine.decode(bytes(bad), max_pixels=1 << 24)
        except ValueError as problem:
            words = str(problem)
            assert any(name in words for name in ("TIFF", "JPEG", "larger"))
            outcomes["error"] += 1
            continue
        assert pixels.shape == (height, width, 3)
        outcomes["pixels"] += 1
    assert min(outcomes.values()) > 100
