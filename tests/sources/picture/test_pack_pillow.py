"""Tests of sources.picture.pillow: known pixels come out of files of every format, and no damaged picture passes."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile
from support.pictures import pngs
from support.pictures.pngs import chunk, png, with_surplus
from support.pictures.raw_files import BOMBS, H, W, bmp, tiff

from fastpipe.errors import ImageError
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.pillow import OpenedImage, to_rgb
from fastpipe.sources.picture.probe import image_format

RNG = np.random.default_rng(7)
LIMIT = 10**6
Array = NDArray[Any]


def noise(*shape: int, top: int = 256) -> Array:
    return RNG.integers(0, top, shape).astype(np.uint8 if top <= 256 else np.uint16)


RGB = noise(H, W, 3)
ALPHA = noise(H, W, 1)
GRAY = RGB[:, :, 0]
CMYK = np.concatenate([RGB, ALPHA], 2)
GRAY16 = noise(H, W, top=65536)
RGB16 = noise(H, W, 3, top=65536)
IMAGES = {
    "RGB": Image.fromarray(RGB),
    "RGBA": Image.fromarray(np.concatenate([RGB, ALPHA], 2)),
    "L": Image.fromarray(GRAY),
    "LA": Image.fromarray(np.concatenate([RGB[:, :, :1], ALPHA], 2)),
    "1": Image.fromarray(GRAY).convert("1"),
    "I;16": Image.fromarray(GRAY16),
    "CMYK": Image.frombytes("CMYK", (W, H), CMYK.tobytes()),
}
PALETTES = {count: noise(count, 3) for count in (2, 4, 13, 200)}
INDICES = {count: noise(H, W, top=count) for count in PALETTES}
for count, colors in PALETTES.items():
    IMAGES[f"P{count}"] = Image.fromarray(INDICES[count])
    IMAGES[f"P{count}"].putpalette(colors.tobytes())


def gray(values: Array) -> Array:
    return np.dstack([values] * 3)


# What each of them shows, from the numbers that it was made of.
SHOWN = {
    "RGB": RGB,
    "RGBA": RGB,
    "L": gray(GRAY),
    "LA": gray(GRAY),
    "1": gray(np.asarray(IMAGES["1"]).astype(np.uint8) * 255),
    "I;16": gray((GRAY16 >> 8).astype(np.uint8)),
    **{f"P{count}": PALETTES[count][INDICES[count]] for count in PALETTES},
}


def saved(mode: str, image_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    IMAGES[mode].save(file, image_format, **options)
    return file.getvalue()


def opened(data: bytes, max_pixels: int = LIMIT) -> OpenedImage:
    return open_image(data, image_format(data), max_pixels=max_pixels)


def decoded(data: bytes) -> Array:
    return to_rgb(opened(data).samples())


def refused(data: bytes, max_pixels: int = LIMIT) -> str:
    with pytest.raises(ImageError) as caught:
        opened(data, max_pixels).samples()
    return str(caught.value)


def raw(bits: int, samples: int) -> bytes:
    return noise(H * ((W * bits * samples + 7) // 8)).tobytes()


def tiles(pixels: Array, side: int) -> list[bytes]:
    padded = np.zeros((-(-H // side) * side, -(-W // side) * side, *pixels.shape[2:]), pixels.dtype)
    padded[:H, :W] = pixels
    starts = [(y, x) for y in range(0, H, side) for x in range(0, W, side)]
    return [zlib.compress(padded[y : y + side, x : x + side].tobytes()) for y, x in starts]


PNG16 = png(RGB16, bits=16, color=pngs.RGB)
RLE8 = b"\5\1\0\0" + b"\2\3\0\3\1\2\3\0\0\0" + b"\1\4\4\5\0\0" + b"\0\1"
TURNED = IMAGES["RGB"].rotate(180)
FRAMES: dict[str, Any] = {"save_all": True, "append_images": [TURNED]}


def p6(values: Array, most: int) -> bytes:
    return b"P6 %d %d %d\n" % (W, H, most) + values.astype(">u2" if most > 255 else "u1").tobytes()


# name -> the file, and what it shows.
EXACT: dict[str, tuple[bytes, Array]] = {
    **{f"png {mode}": (saved(mode, "PNG"), shown) for mode, shown in SHOWN.items()},
    "png P with alpha": (saved("P200", "PNG", transparency=bytes(range(200))), SHOWN["P200"]),
    "png P with one clear color": (saved("P13", "PNG", transparency=3), SHOWN["P13"]),
    "png RGB with clear color": (saved("RGB", "PNG", transparency=(1, 2, 3)), RGB),
    "png L with clear gray": (saved("L", "PNG", transparency=7), SHOWN["L"]),
    "png RGB16": (PNG16, (RGB16 >> 8).astype(np.uint8)),
    "png interlaced": (png(RGB, color=pngs.RGB, interlaced=True), RGB),
    "png animated": (saved("RGB", "PNG", **FRAMES), RGB),
    "png animated, picture apart": (saved("RGB", "PNG", **FRAMES, default_image=True), RGB),
    **{
        f"webp {mode}": (saved(mode, "WEBP", lossless=True, exact=True), SHOWN[mode])
        for mode in ("L", "RGB", "RGBA")
    },
    "webp animated": (saved("RGB", "WEBP", **FRAMES, lossless=True), RGB),
    **{
        f"bmp {mode}": (saved(mode, "BMP"), SHOWN[mode])
        for mode in ("1", "L", "P200", "RGB", "RGBA")
    },
    **{
        f"tiff {mode} {compression}": (saved(mode, "TIFF", compression=compression), SHOWN[mode])
        for mode in ("1", "L", "LA", "P200", "RGB", "RGBA", "I;16")
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")
    },
    "tiff big": (saved("RGB", "TIFF", big_tiff=True), RGB),
    "tiff two pages": (saved("RGB", "TIFF", **FRAMES), RGB),
    "tiff tiles": (tiff(2, 8, 3, tiles(RGB, 16), compression=8, tile=16), RGB),
    "tiff planes": (tiff(2, 8, 3, [RGB[:, :, band].tobytes() for band in range(3)], t284=2), RGB),
    "tiff L white is zero": (tiff(0, 8, 1, [GRAY.tobytes()]), gray(255 - GRAY)),
    "tiff L16 white is zero": (
        tiff(0, 16, 1, [GRAY16.astype("<u2").tobytes()]),
        255 - SHOWN["I;16"],
    ),
    "tiff L16 white is zero deflate": (
        tiff(0, 16, 1, [zlib.compress(GRAY16.astype("<u2").tobytes())], compression=8),
        255 - SHOWN["I;16"],
    ),
    **{f"gif {mode}": (saved(mode, "GIF"), SHOWN[mode]) for mode in ("1", "L", "P13", "P200")},
    "gif animated": (
        saved("P13", "GIF", save_all=True, append_images=[IMAGES["P200"]], transparency=2),
        SHOWN["P13"],
    ),
    "ppm": (p6(RGB, 255), RGB),
    "ppm in words": (
        b"P3 %d %d 255\n" % (W, H) + b" ".join(b"%d" % one for one in RGB.ravel()) + b"\n",
        RGB,
    ),
    "pgm": (saved("L", "PPM"), SHOWN["L"]),
    "pgm 16": (b"P5 %d %d 65535\n" % (W, H) + GRAY16.astype(">u2").tobytes(), SHOWN["I;16"]),
    "pbm": (saved("1", "PPM"), SHOWN["1"]),
    **{
        f"tga {mode}": (saved(mode, "TGA"), SHOWN[mode])
        for mode in ("L", "LA", "P200", "RGB", "RGBA")
    },
    "tga RLE": (saved("RGB", "TGA", compression="tga_rle"), RGB),
    **{
        f"jpeg 2000 {mode}": (saved(mode, "JPEG2000"), SHOWN[mode])
        for mode in ("L", "LA", "RGB", "RGBA", "I;16")
    },
    "jpeg 2000 bare": (saved("RGB", "JPEG2000", no_jp2=True), RGB),
    "jpeg 2000 tiles": (saved("RGB", "JPEG2000", tile_size=(8, 8)), RGB),
    **{
        f"ico {kind}": (saved("RGB", "ICO", sizes=[(W, H)], bitmap_format=kind), RGB)
        for kind in ("png", "bmp")
    },
}
LOSSY = {
    "webp lossy": saved("RGB", "WEBP", quality=80),
    "avif": saved("RGB", "AVIF", quality=90),
    "avif animated": saved("RGB", "AVIF", **FRAMES),
    "tiff jpeg": saved("RGB", "TIFF", compression="jpeg"),
    "bmp RLE8": bmp(8, RLE8, compression=1, palette=16),
    "bmp 16": bmp(16, bytes(range(36))),
}
RGBA16 = noise(H, W, 4, top=65536)
BITS12 = RGB16 >> 4
LARGER = noise(3 * H, 2 * W, 3, top=65536)  # OpenCV writes no JPEG 2000 as small as the others


def by_opencv(samples: Array, ending: str, *options: int) -> bytes:
    return cv2.imencode(ending, samples[:, :, [2, 1, 0, 3][: samples.shape[2]]], options)[
        1
    ].tobytes()


def jpeg_2000(samples: Array) -> bytes:
    return by_opencv(samples, ".jp2", cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000)


def jpeg_2000_of_12_bits(samples: Array) -> bytes:
    """OpenCV writes 16 bits; with them said to be 12, the middle of the range is 30,720 lower."""
    data = bytearray(jpeg_2000(samples + 32768 - 2048))
    data[data.index(b"ihdr") + 14] = 11
    at = data.index(b"\xff\x4f\xff\x51") + 42
    data[at : at + 9 : 3] = b"\x0b" * 3
    return bytes(data)


def scaled(values: Array, most: int) -> Array:
    return np.floor(values * (65535 / most) + 0.5).astype(np.uint16)


# name -> the file, and all bits that it has.
DEEP: dict[str, tuple[bytes, Array]] = {
    **{
        f"tiff RGB16 {ending} {compression}": (
            by_opencv(samples, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, compression),
            samples,
        )
        for ending, samples in (("colour", RGB16), ("alpha", RGBA16))
        for compression in (1, 5, 8)
    },
    **{
        f"tiff {endian}16, {kind}": (
            tiff(2, 16, 4, [RGBA16.astype(endian + "u2").tobytes()], endian=endian, t338=extra),
            RGBA16[:, :, :channels],
        )
        for endian in "<>"
        for kind, extra, channels in (("fourth is nothing", 0, 3), ("alpha", 2, 4))
    },
    "tiff tiles of 16 bits": (tiff(2, 16, 3, tiles(RGB16, 16), compression=8, tile=16), RGB16),
    **{
        f"ppm of {most}": (p6(np.minimum(RGB16, most), most), scaled(np.minimum(RGB16, most), most))
        for most in (256, 1000, 4095, 65534, 65535)
    },
    "ppm in words of 4095": (
        b"P3 %d %d 4095\n" % (W, H) + b" ".join(b"%d" % one for one in BITS12.ravel()) + b"\n",
        scaled(BITS12, 4095),
    ),
    "pgm of 4095": (
        b"P5 %d %d 4095\n" % (W, H) + BITS12[:, :, :1].astype(">u2").tobytes(),
        scaled(BITS12[:, :, :1], 4095),
    ),
    "jpeg 2000 of 16 bits": (jpeg_2000(LARGER), LARGER),
    "jpeg 2000 of 12 bits": (jpeg_2000_of_12_bits(LARGER >> 4), scaled(LARGER >> 4, 4095)),
    "png with surplus": (with_surplus(PNG16), RGB16),
}
FILES = {**{name: data for name, (data, _) in {**EXACT, **DEEP}.items()}, **LOSSY}


def test_a_file_shows_what_it_was_made_of() -> None:
    for name, (data, shown) in EXACT.items():
        pixels = decoded(data)
        assert (pixels.dtype, pixels.flags.c_contiguous) == (np.uint8, True)
        np.testing.assert_array_equal(pixels, shown, err_msg=name)


def test_colours_keep_all_their_bits() -> None:
    for name, (data, expected) in DEEP.items():
        samples = opened(data).samples()
        assert samples.dtype == np.uint16
        np.testing.assert_array_equal(samples, expected, err_msg=name)
        shown = gray(expected[:, :, 0]) if expected.shape[2] == 1 else expected[:, :, :3]
        np.testing.assert_array_equal(decoded(data), shown >> 8, err_msg=name)


def test_a_png_with_surplus_data_shows_the_rows_that_it_says() -> None:
    for mode, shown in SHOWN.items():
        if mode != "1":
            np.testing.assert_array_equal(
                decoded(with_surplus(saved(mode, "PNG"))), shown, err_msg=mode
            )
    np.testing.assert_array_equal(
        opened(with_surplus(saved("RGBA", "PNG"))).samples()[:, :, 3:], ALPHA
    )
    wrong = with_surplus(saved("RGB", "PNG"))
    assert refused(wrong[:60] + b"\0" + wrong[61:]).startswith("the PNG is corrupt")


def upright(samples: Array) -> list[Array]:
    """Samples as each orientation, 1 to 8, turns them."""
    turned = [samples, samples[:, ::-1], samples[::-1, ::-1], samples[::-1]]
    return turned + [
        each.swapaxes(0, 1)
        for each in (samples, samples[::-1], samples[::-1, ::-1], samples[:, ::-1])
    ]


def test_a_tiff_is_turned_upright() -> None:
    deep = RGB16.astype("<u2").tobytes()
    for orientation, (expected, expected16) in enumerate(
        zip(upright(RGB), upright(RGB16), strict=True), 1
    ):
        found = opened(saved("RGB", "TIFF", tiffinfo={274: orientation}))
        assert (*found.size[::-1], found.orientation) == (*expected.shape[:2], 1)
        np.testing.assert_array_equal(to_rgb(found.samples()), expected)
        np.testing.assert_array_equal(
            opened(tiff(2, 16, 3, [deep], t274=orientation)).samples(), expected16
        )


def test_orientation_of_other_files_is_told_and_not_applied() -> None:
    for orientation in (*range(1, 9), 0, 9, 300):
        exif = Image.Exif()
        exif[274] = orientation
        for kind, options in (
            ("PNG", {}),
            ("WEBP", {"lossless": True}),
            ("AVIF", {"lossless": True}),
        ):
            found = opened(saved("RGB", kind, exif=exif, **options))
            assert found.orientation == (orientation if 1 <= orientation <= 8 else 1), kind
            assert found.size == (W, H)
            if kind == "PNG":
                np.testing.assert_array_equal(to_rgb(found.samples()), RGB)


def test_png_orientation_after_the_pixels() -> None:
    block = b"MM\x00*" + struct.pack(">IHHHIHHI", 8, 1, 274, 3, 1, 6, 0, 0)
    data = FILES["png RGB"]
    assert opened(data[:-12] + chunk(b"eXIf", block) + data[-12:]).orientation == 6


def test_avif_and_heic_show_what_they_were_made_of_nearly() -> None:
    smooth = np.asarray(Image.fromarray(noise(3, 4, 3)).resize((64, 48), Image.Resampling.BICUBIC))
    file = io.BytesIO()
    Image.fromarray(smooth).save(file, "AVIF", quality=90)
    assert np.abs(decoded(file.getvalue()).astype(int) - smooth).mean() < 3
    heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    heif.from_pillow(Image.fromarray(smooth)).save(file, quality=90)
    assert np.abs(decoded(file.getvalue()).astype(int) - smooth).mean() < 3


def test_heic_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    heic = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"
    assert (
        refused(heic)
        == "HEIC needs pillow-heif: pip install 'fastpipe-loader[heif]', then pack again"
    )


def test_inks_of_a_cmyk_tiff_take_light_away() -> None:
    c, m, y, k = (CMYK[:, :, ink].astype(float) for ink in range(4))
    expected = np.dstack([(255 - ink) * (255 - k) / 255 for ink in (c, m, y)])
    np.testing.assert_allclose(decoded(saved("CMYK", "TIFF")), expected, atol=1.5)


def test_gray_of_12_bits_is_scaled() -> None:
    values = GRAY16 >> 4
    nibbles = np.stack([values >> 8 & 15, values >> 4 & 15, values & 15], -1).astype(np.uint8)
    rows = [row.ravel() for row in nibbles]
    rows = [np.append(row, np.zeros(len(row) % 2, np.uint8)) for row in rows]
    packed = b"".join((row[::2] << 4 | row[1::2]).astype(np.uint8).tobytes() for row in rows)
    np.testing.assert_array_equal(
        decoded(tiff(1, 12, 1, [packed])), gray((values >> 4).astype(np.uint8))
    )


def test_alpha_that_was_multiplied_in_is_taken_out() -> None:
    half = np.dstack([RGB // 2, np.full((H, W), 128, np.uint8)])
    np.testing.assert_allclose(
        decoded(tiff(2, 8, 4, [half.tobytes()], t338=1)), (RGB // 2) * (255 / 128), atol=1
    )


def test_frames_are_told() -> None:
    several = {name for name, data in FILES.items() if opened(data).multi_frame}
    assert several == {name for name in FILES if "animated" in name or "pages" in name}


def test_the_limit_of_pixels_comes_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = {}
    for name, data in FILES.items():
        width, height = opened(data).size
        pixels[name] = width * height
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)  # Pillow's own limit, which is not asked
    for name, data in FILES.items():
        if not name.startswith(("webp", "ico bmp")):  # these plugins cannot be kept from it
            assert decoded(data).shape[0] * decoded(data).shape[1] == pixels[name], name
    monkeypatch.setattr(Image.core, "new", None)
    for name, data in FILES.items():
        most = pixels[name] - 1
        assert f"over the limit of {most:,} pixels (--max-pixels)" in refused(data, most), name


def test_small_files_that_announce_giants_are_refused() -> None:
    """tests/long/sources/test_source_memory.py measures that they take no memory."""
    for name, data in BOMBS.items():
        assert len(data) < 2000
        assert refused(data, 100_000), name


def test_tiff_with_too_little_in_a_strip() -> None:
    modes, compressions = (
        ("L", "RGB", "1", "P200", "I;16"),
        ("tiff_lzw", "tiff_adobe_deflate", "packbits"),
    )
    for mode, compression in itertools.product(modes, compressions):
        data = saved(mode, "TIFF", compression=compression)
        start = struct.unpack_from("<I", data, 4)[0]
        entries = range(start + 2, start + 2 + 12 * struct.unpack_from("<H", data, start)[0], 12)
        at = next(at for at in entries if struct.unpack_from("<H", data, at)[0] == 279)
        short = bytearray(data)
        struct.pack_into(
            "<HHII", short, at, 279, 4, 1, struct.unpack_from("<I", data, at + 8)[0] * 3 // 4
        )
        reason = refused(bytes(short))
        assert reason.startswith(
            "TIFF that Pillow cannot decode, damaged or of a rare kind: decoder error"
        ), mode


def test_tiff_overlapping_strips() -> None:
    rows = 2000
    entries = [(256, 3, 1, 1), (257, 3, 1, rows), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    start = 8 + 2 + 12 * 8 + 4
    entries += [(273, 4, rows, start), (278, 3, 1, 1), (279, 4, rows, start + 4 * rows)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    arrays = struct.pack(f"<{rows}I", *[8] * rows) + struct.pack(f"<{rows}I", *[16000] * rows)
    data = b"II*\x00" + struct.pack("<IH", 8, len(entries)) + body + bytes(4) + arrays
    assert "claim 32,000,000 bytes of a file of 16,1" in refused(data)


UNSUPPORTED_TIFFS = {
    "pixels of Pillow's mode F": tiff(1, 32, 1, [raw(32, 1)], t339=3),
    "pixels of Pillow's mode I": tiff(1, 32, 1, [raw(32, 1)]),
    "signed or float 8-bit samples": tiff(1, 8, 1, [raw(8, 1)], t339=2),
    "pixels of Pillow's mode La": tiff(1, 8, 2, [raw(8, 2)], t338=1),
    "16-bit samples in separate planes": tiff(2, 16, 3, [raw(16, 1)] * 3, t284=2),
    "subsampled YCbCr outside JPEG": tiff(6, 8, 3, [raw(8, 3)], t530=(2, 2)),
}


def test_unsupported_tiffs_are_named() -> None:
    """Pillow shows most of them, wrong."""
    for words, data in UNSUPPORTED_TIFFS.items():
        message = refused(data)
        assert words in message
        assert message.endswith("is not supported; save it as 8-bit PNG")


def test_camera_raw_thumbnail_is_refused() -> None:
    assert "thumbnail" in refused(saved("RGB", "TIFF", tiffinfo={254: 1}))


def test_webp_cut_by_one_byte() -> None:
    data = LOSSY["webp lossy"]
    assert (
        refused(data[:-1]) == f"truncated WebP: RIFF needs {len(data)} bytes, has {len(data) - 1}"
    )


def test_bmp_that_says_the_wrong_place_of_its_rows() -> None:
    """Pillow's mmap_error.bmp: a palette of fewer colors than the header has room for."""
    data = bytearray(bmp(8, b"\1\2\3\4\5\0\0\0" * 3, palette=256))
    wrong = bytes(data[:10]) + struct.pack("<I", 54) + bytes(data[14:])
    np.testing.assert_array_equal(decoded(wrong), decoded(bytes(data)))


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_no_truncated_picture_is_accepted() -> None:
    """A picture may be whole without its last bytes: then it shows the same."""
    for name, data in FILES.items():
        whole = decoded(data)
        sizes = range(0, len(data), 1 + len(data) // 40)
        for size in [*sizes, *range(max(0, len(data) - 12), len(data) - 2)]:
            try:
                pixels = decoded(data[:size])
            except ImageError:
                continue
            np.testing.assert_array_equal(pixels, whole, err_msg=f"{name}, {size} bytes")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_bad_files_leave_stderr_alone(capfd: pytest.CaptureFixture[str]) -> None:
    for data in FILES.values():
        for size in (len(data) // 2, len(data) - 20):
            with contextlib.suppress(ImageError):
                decoded(data[:size])
        with contextlib.suppress(ImageError):
            decoded(data[: len(data) // 2] + bytes(9) + data[len(data) // 2 + 9 :])
    bad_profile = chunk(b"iCCP", b"x\0\0y")
    data = FILES["png RGB"]
    np.testing.assert_array_equal(decoded(data[:33] + bad_profile + data[33:]), RGB)
    refused(tiff(2, 8, 3, [b"abc"], compression=50000))
    assert capfd.readouterr() == ("", "")


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_mutated_files_decode_or_raise_image_error(
    name: str, changes: list[tuple[float, int]]
) -> None:
    data = bytearray(FILES[name])
    for where, value in changes:
        data[int(where * len(data))] = value
    try:
        pixels = decoded(bytes(data))
    except ImageError:
        return
    assert pixels.shape[2] == 3
    assert pixels.shape[0] * pixels.shape[1] <= LIMIT


def test_no_setting_of_pillow_is_changed() -> None:
    def pillow_settings() -> tuple[object, ...]:
        return (
            Image.MAX_IMAGE_PIXELS,
            ImageFile.LOAD_TRUNCATED_IMAGES,
            ImageFile.MAXBLOCK,
            list(warnings.filters),
        )

    before = pillow_settings()
    assert before[:3] == (
        89_478_485,
        False,
        65_536,
    )  # as Pillow sets them, when fastpipe is imported, too
    for data in FILES.values():
        decoded(data)
    assert pillow_settings() == before


def test_many_threads_give_the_same_pixels() -> None:
    names = sorted(FILES) * 3
    alone = {name: decoded(data) for name, data in FILES.items()}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for name, pixels in zip(
                names, pool.map(lambda name: decoded(FILES[name]), names), strict=True
            ):
                np.testing.assert_array_equal(pixels, alone[name])
    finally:
        sys.setswitchinterval(before)
