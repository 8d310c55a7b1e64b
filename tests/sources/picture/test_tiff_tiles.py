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
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.png import encode_png
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
    assert "a JPEG has its image in one size, and --level 1 was passed" in reason(jpeg, level=1)


def test_a_level_that_is_shrunk() -> None:
    levels = [picture(301, 203), picture(150, 101, "smooth")]
    packed = convert(pyramid(levels), EncodeOptions(level=1, max_size=50))
    alone = convert(tiled_tiff(levels[1]), EncodeOptions(max_size=50))
    assert packed.data == alone.data
    assert packed.source_size == (150, 101)


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
    # tifffile cannot read it, and Pillow says what is wrong.
    assert reason(tiff[:9])
    assert reason(tiff[:9], level=1).startswith("damaged TIFF: ")


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


# ------------------------------------------------------------------------ tiles that are cut from pixels

FORMS = {"gray": 1, "gray and alpha": 2, "RGB": 3, "RGB and alpha": 4}


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of 100 x 100 are large ones."""
    monkeypatch.setattr("fastpipe.sources.picture.convert.TILED_PNG_PIXELS", 10_000)


def samples_of(form: str, bits: int, size: tuple[int, int] = (301, 303)) -> Any:
    rng = np.random.default_rng(bits)
    dtype = np.uint8 if bits == 8 else np.uint16
    shape = (size[1], size[0], FORMS[form])
    return rng.integers(0, 2**bits, shape, dtype=dtype)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("form", FORMS)
def test_large_pictures_without_loss_are_cut_into_pngs(form: str, bits: int) -> None:
    samples = samples_of(form, bits)
    png = encode_png(samples)
    packed = convert(png, OPTIONS)
    assert picture_ending(packed.data) == "tif"
    assert packed.png_of == "PNG"
    assert read_form(packed.data) == read_form(png)
    for channels in (1, 3, 4):
        for wanted_bits in (8, 16):
            options: dict[str, Any] = {"channels": channels, "bits": wanted_bits}
            whole = _engine.decode(png, **options)
            assert np.array_equal(_engine.decode(packed.data, **options), whole)
            part = _engine.decode(packed.data, region=(200, 100, 101, 203), **options)
            assert np.array_equal(part, whole[100:303, 200:301])
    with pytest.raises(ValueError, match="expected 1 for a PNG"):
        _engine.decode(packed.data, denominator=2)
    # tifffile and imagecodecs read it, too.
    shown_samples = tifffile.imread(io.BytesIO(packed.data))
    assert np.array_equal(shown_samples.reshape(samples.shape), samples)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("form", FORMS)
def test_packing_png_tiles_again(form: str) -> None:
    png = encode_png(samples_of(form, 16))
    data = stored(png)
    again = stored(data)
    # Gray with alpha becomes RGB with alpha.
    assert (again == data) == (form != "gray and alpha")
    rgba: dict[str, Any] = {"channels": 4, "bits": 16}
    assert np.array_equal(_engine.decode(again, **rgba), _engine.decode(png, **rgba))
    small = _engine.decode(stored(data, max_size=100), bits=16)
    expected = _engine.decode(stored(png, max_size=100), bits=16)
    assert np.array_equal(small, expected)
    alone = convert(data, OPTIONS, may_be_tiled=False)
    assert picture_ending(alone.data) == "png"
    assert np.array_equal(_engine.decode(alone.data, bits=16), _engine.decode(png, bits=16))


def test_pictures_that_are_too_long_for_a_jpeg() -> None:
    """Of a format with loss."""
    wide = np.repeat(picture(700, 20, "smooth"), 100, axis=1)
    lossy = OpenedImage((70_000, 20), lambda: wide, lossless=False)
    packed = convert(lossy, OPTIONS)
    assert picture_ending(packed.data) == "tif"
    assert (packed.width, packed.height, packed.change) == (70_000, 20, "pixels")
    shown_pixels = shown(packed.data).astype(int)
    assert np.abs(shown_pixels - wide).mean() < 3
    gray = OpenedImage((70_000, 20), lambda: wide[:, :, :1], lossless=False)
    assert np.abs(shown(stored_of(gray)).astype(int) - wide[:, :, :1]).mean() < 3
    refused = "a side over JPEG's 65,500 pixels"
    with pytest.raises(ImageError, match=refused):
        convert(lossy, OPTIONS, may_be_tiled=False)


def stored_of(opened: OpenedImage) -> bytes:
    return convert(opened, OPTIONS).data


def test_a_png_of_any_length() -> None:
    wide = np.repeat(picture(700, 9), 100, axis=1)
    packed = convert(encode_png(wide), OPTIONS)
    assert (packed.width, packed.height) == (70_000, 9)
    assert np.array_equal(_engine.decode(packed.data), wide)
    with pytest.raises(ImageError, match="a side over a PNG's 65,535 pixels"):
        convert(encode_png(wide), OPTIONS, may_be_tiled=False)
