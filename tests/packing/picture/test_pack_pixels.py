"""Tests of fastpipe.packing.picture.pixels against Pillow, and that no damaged picture passes."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
import turbojpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fastpipe.errors import ConfigError, ImageError
from fastpipe.packing.picture import jpeg as turbo
from fastpipe.packing.picture.pixels import apply_orientation, decode_rgb, encode_jpeg, shrink
from fastpipe.packing.picture.probe import Probe, probe

W, H = 21, 11
RNG = np.random.default_rng(7)
LIMIT = 10**6
Array = NDArray[Any]


def noise(*shape: int, top: int = 256) -> Array:
    return RNG.integers(0, top, shape, dtype=np.uint8 if top == 256 else np.uint16)


RGB = noise(H, W, 3)
ALPHA = noise(H, W, 1)
IMAGES = {
    "RGB": Image.fromarray(RGB),
    "RGBA": Image.fromarray(np.concatenate([RGB, ALPHA], 2)),
    "L": Image.fromarray(RGB[:, :, 0]),
    "LA": Image.fromarray(np.concatenate([RGB[:, :, :1], ALPHA], 2)),
    "1": Image.fromarray(RGB[:, :, 0]).convert("1"),
    "I;16": Image.fromarray(noise(H, W, top=65536)),
    "CMYK": Image.frombytes("CMYK", (W, H), np.concatenate([RGB, ALPHA], 2).tobytes()),
}
IMAGES |= {f"P{n}": IMAGES["RGB"].quantize(n) for n in (2, 4, 13, 200)}


def saved(mode: str, image_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    IMAGES[mode].save(file, image_format, **options)
    return file.getvalue()


def encoded(suffix: str, pixels: Array) -> bytes:
    return bytes(cv2.imencode(suffix, pixels)[1])


def decoded(data: bytes) -> Array:
    return decode_rgb(data, probe(data), max_pixels=LIMIT)


def refused(data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        decoded(data)
    return str(caught.value)


def with_pillow(data: bytes) -> Array:
    image = Image.open(io.BytesIO(data))
    if image.mode.startswith("I;16"):  # Pillow clips these; we scale
        high = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.dstack([high] * 3)
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB"))


def interlaced_png(rgb: Array) -> bytes:
    """Write a PNG with Adam7, which neither Pillow nor OpenCV can."""
    rows = b""
    for y, x, dy, dx in [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]:
        rows += b"".join(b"\0" + row.tobytes() for row in rgb[y::dy, x::dx] if row.size)
    head = struct.pack(">IIBBBBB", rgb.shape[1], rgb.shape[0], 8, 2, 0, 0, 1)
    return png(head, zlib.compress(rows))


def png(head: bytes, stream: bytes) -> bytes:
    chunks = [(b"IHDR", head), (b"IDAT", stream), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bmp(
    bits: int, rows: bytes, *, height: int = 3, compression: int = 0, palette: int = 0, header: int = 40,
    masks: tuple[int, ...] = (),
) -> bytes:  # fmt: skip
    """Write a BMP 5 pixels wide."""
    if header == 12:
        info = struct.pack("<IHHHH", 12, 5, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, 5, height, 1, bits, compression, len(rows), 0, 0, palette, 0)
        info = (info + struct.pack(f"<{len(masks)}I", *masks)).ljust(header, b"\0")
    colors = bytes((37 * i * (k + 1) + 11) % 256 for i in range(palette) for k in range(3 if header == 12 else 4))
    offset = 14 + len(info) + len(colors)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + info + colors + rows


RLE8 = b"\5\1\0\0" + b"\2\3\0\3\1\2\3\0\0\0" + b"\1\4\4\5\0\0" + b"\0\1"
RLE4 = b"\5\x12\0\0" + b"\2\x34\0\3\x12\x30\0\0" + b"\1\x40\4\x56\0\0" + b"\0\1"
PIXELS_16 = b"".join(noise(10).tobytes() + b"\0\0" for _ in range(3))
PIXELS_32 = noise(60).tobytes()

BMPS = {
    **{f"bmp {mode}": saved(mode, "BMP") for mode in ("1", "L", "P200", "RGB", "RGBA")},
    "bmp 1 palette": bmp(1, noise(12).tobytes(), palette=2),
    "bmp 4": bmp(4, noise(12).tobytes(), palette=16),
    "bmp 8": bmp(8, b"".join(noise(5).tobytes() + b"\0" * 3 for _ in range(3)), palette=256),
    "bmp OS/2 24": bmp(24, noise(48).tobytes(), header=12),
    "bmp OS/2 4": bmp(4, noise(12).tobytes(), palette=16, header=12),
    "bmp 24 top down": bmp(24, noise(48).tobytes(), height=-3),
    "bmp 16": bmp(16, PIXELS_16),
    "bmp 16 555": bmp(16, PIXELS_16, compression=3, masks=(0x7C00, 0x3E0, 0x1F)),
    "bmp 16 565": bmp(16, PIXELS_16, compression=3, masks=(0xF800, 0x7E0, 0x1F)),
    "bmp 16 top down": bmp(16, PIXELS_16, height=-3),
    "bmp 32": bmp(32, PIXELS_32),
    "bmp 32 masks": bmp(32, PIXELS_32, compression=3, masks=(0xFF000000, 0xFF0000, 0xFF00)),
    "bmp 32 V4": bmp(32, PIXELS_32, compression=3, header=108, masks=(255, 0xFF00, 0xFF0000, 0xFF000000)),
    "bmp RLE8": bmp(8, RLE8, compression=1, palette=16),
    "bmp RLE4": bmp(4, RLE4, compression=2, palette=16),
}


def tiff(
    photometric: int, bits: int, samples: int, segments: list[bytes], *, endian: str = "<",
    compression: int = 1, tile: int = 0, **more: int | tuple[int, ...],
) -> bytes:  # fmt: skip
    """Write a TIFF of 21x11 pixels in one strip (or plane), or in square tiles; ``more`` is tNNN=value."""
    tags: dict[int, tuple[int, ...]] = {256: (W,), 257: (H,), 258: (bits,) * samples, 259: (compression,)}
    tags |= {262: (photometric,), 277: (samples,)}
    tags |= {int(k[1:]): v if isinstance(v, tuple) else (v,) for k, v in more.items()}
    if tile:
        tags |= {322: (tile,), 323: (tile,)}
    offsets, counts = (324, 325) if tile else (273, 279)
    tags[offsets], tags[counts] = (0,) * len(segments), tuple(len(s) for s in segments)
    values_at = 8 + 2 + 12 * len(tags) + 4
    blob = b"".join(segments)
    tags[offsets] = tuple(values_at + sum(map(len, segments[:i])) for i in range(len(segments)))
    entries = b""
    for tag in sorted(tags):
        kind, code = (4, "I") if tag in (offsets, counts) else (3, "H")
        value = struct.pack(f"{endian}{len(tags[tag])}{code}", *tags[tag])
        if len(value) > 4:
            blob += b"\0" * (len(blob) % 2)
            at, blob = values_at + len(blob), blob + value
            value = struct.pack(endian + "I", at)
        entries += struct.pack(endian + "HHI", tag, kind, len(tags[tag])) + value.ljust(4, b"\0")
    start = (b"II*\0" if endian == "<" else b"MM\0*") + struct.pack(endian + "IH", 8, len(tags))
    return start + entries + bytes(4) + blob


def raw(bits: int, samples: int) -> bytes:
    return noise(H * ((W * bits * samples + 7) // 8)).tobytes()


def tiles(pixels: Array, side: int) -> list[bytes]:
    padded = np.zeros((-(-H // side) * side, -(-W // side) * side, *pixels.shape[2:]), pixels.dtype)
    padded[:H, :W] = pixels
    starts = [(y, x) for y in range(0, H, side) for x in range(0, W, side)]
    return [zlib.compress(padded[y : y + side, x : x + side].tobytes()) for y, x in starts]


RGB16 = noise(H, W, 3, top=65536)
COLORS = {n: tuple(int(v) for v in noise(3 * n, top=65536)) for n in (2, 16, 256)}

TIFFS = {
    **{
        f"tiff {mode} {compression}": saved(mode, "TIFF", compression=compression)
        for mode in ("1", "L", "LA", "P200", "RGB", "RGBA", "I;16")
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")
    },
    **{f"tiff 1 {fax}": saved("1", "TIFF", compression=fax) for fax in ("group3", "group4")},
    **{f"tiff {mode} jpeg": saved(mode, "TIFF", compression="jpeg") for mode in ("L", "RGB")},
    "tiff big": saved("RGB", "TIFF", big_tiff=True),
    "tiff big RGBA": saved("RGBA", "TIFF", big_tiff=True),
    "tiff two pages": saved("RGB", "TIFF", save_all=True, append_images=[IMAGES["L"]]),
    "tiff RGB16 lzw": encoded(".tiff", RGB16),
    "tiff tiles": tiff(2, 8, 3, tiles(RGB, 16), compression=8, tile=16),
    "tiff tiles 16": tiff(2, 16, 3, tiles(RGB16, 16), compression=8, tile=16),
    **{
        f"tiff {name} {endian}": tiff(*layout, endian=endian, **more)  # type: ignore[arg-type]
        for endian in "<>"
        for name, (layout, more) in {
            "L": ((1, 8, 1, [raw(8, 1)]), {}),
            "L white is zero": ((0, 8, 1, [raw(8, 1)]), {}),
            "L16": ((1, 16, 1, [raw(16, 1)]), {}),
            "RGB16": ((2, 16, 3, [raw(16, 3)]), {}),
            "RGBA16": ((2, 16, 4, [raw(16, 4)]), {"t338": 2}),
            "RGBA plain": ((2, 8, 4, [raw(8, 4)]), {"t338": 2}),
            "RGBA unspecified": ((2, 8, 4, [raw(8, 4)]), {"t338": 0}),
            "RGBA without tag": ((2, 8, 4, [raw(8, 4)]), {}),
            "RGBA multiplied": ((2, 8, 4, [raw(8, 4)]), {"t338": 1}),
            "RGBA16 multiplied": ((2, 16, 4, [raw(16, 4)]), {"t338": 1}),
            "planes": ((2, 8, 3, [raw(8, 1)] * 3), {"t284": 2}),
            "planes RGBA": ((2, 8, 4, [raw(8, 1)] * 4), {"t284": 2, "t338": 2}),
            "P1": ((3, 1, 1, [raw(1, 1)]), {"t320": COLORS[2]}),
            "P4": ((3, 4, 1, [raw(4, 1)]), {"t320": COLORS[16]}),
            "P8": ((3, 8, 1, [raw(8, 1)]), {"t320": COLORS[256]}),
            "1 reversed bits": ((0, 1, 1, [raw(1, 1)]), {"t266": 2}),
        }.items()
    },
}

PNGS = {
    **{f"png {m}": saved(m, "PNG") for m in ("1", "L", "LA", "RGB", "RGBA", "I;16", "P2", "P4", "P13", "P200")},
    "png P with alpha": saved("P200", "PNG", transparency=bytes(range(200))),
    "png P with one clear color": saved("P13", "PNG", transparency=3),
    "png RGB with clear color": saved("RGB", "PNG", transparency=(1, 2, 3)),
    "png L with clear gray": saved("L", "PNG", transparency=7),
    "png RGB16": encoded(".png", RGB16),
    "png RGBA16": encoded(".png", noise(H, W, 4, top=65536)),
    "png interlaced": interlaced_png(RGB),
    "png animated": saved("RGB", "PNG", save_all=True, append_images=[IMAGES["RGB"].rotate(180)]),
    "png animated, picture apart": saved(
        "RGB", "PNG", save_all=True, append_images=[IMAGES["RGB"].rotate(180)] * 2, default_image=True
    ),
}

WEBPS = {
    **{f"webp {m} lossy": saved(m, "WEBP", quality=80) for m in ("L", "RGB", "RGBA")},
    **{f"webp {m} lossless": saved(m, "WEBP", lossless=True) for m in ("L", "RGB", "RGBA")},
    "webp exact": saved("RGBA", "WEBP", lossless=True, exact=True),
    "webp animated": saved("RGB", "WEBP", save_all=True, append_images=[IMAGES["RGB"].rotate(180)], lossless=True),
    "webp animated alpha": saved(
        "RGBA", "WEBP", save_all=True, append_images=[IMAGES["RGBA"].rotate(180)], lossless=True, exact=True
    ),
}

JPEGS = {
    **{f"jpeg {s}": saved("RGB", "JPEG", subsampling=s) for s in ("4:4:4", "4:2:2", "4:2:0", "4:1:1")},
    "jpeg gray": saved("L", "JPEG"),
    "jpeg progressive": saved("RGB", "JPEG", progressive=True),
    "jpeg RGB": saved("RGB", "JPEG", keep_rgb=True),
}

EXACT = {**PNGS, **WEBPS, **BMPS, **TIFFS, **JPEGS}


@pytest.mark.parametrize("name", EXACT)
def test_same_pixels_as_pillow(name: str) -> None:
    data = EXACT[name]
    pixels = decoded(data)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    np.testing.assert_array_equal(pixels, with_pillow(data))


@pytest.mark.parametrize(
    "data",
    [
        saved("CMYK", "TIFF", compression="raw"),
        saved("CMYK", "TIFF", compression="tiff_lzw"),
        saved("CMYK", "TIFF", compression="jpeg"),
    ],
)
def test_cmyk_tiff_within_one_of_pillow(data: bytes) -> None:
    np.testing.assert_allclose(decoded(data).astype(int), with_pillow(data), atol=1)


def test_white_is_zero_is_turned_round_in_16_bits_too() -> None:
    rows = raw(16, 1)
    turned = decoded(tiff(0, 16, 1, [rows]))
    np.testing.assert_array_equal(turned, 255 - decoded(tiff(1, 16, 1, [rows])))


@pytest.mark.parametrize("mode", ["RGB", "I;16", "RGBA"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_orientation_is_left_to_the_caller(mode: str, orientation: int) -> None:
    data = saved(mode, "TIFF", tiffinfo={274: orientation})
    np.testing.assert_array_equal(decoded(data), decoded(saved(mode, "TIFF")))
    if mode == "RGB":  # Pillow turns these upright by itself
        np.testing.assert_array_equal(apply_orientation(decoded(data), orientation), with_pillow(data))


@pytest.mark.parametrize("image_format", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_agrees_with_pillow(image_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = saved("RGB", image_format, exif=exif, **({"lossless": True} if image_format == "WEBP" else {}))
    np.testing.assert_array_equal(decoded(data), with_pillow(data))
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    turned = apply_orientation(decoded(data), probe(data).orientation)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(turned, upright)


def cmyk_jpegs() -> dict[str, bytes]:
    adobe = saved("CMYK", "JPEG", quality=95)
    at = adobe.index(b"\xff\xee")
    bare = adobe[:at] + adobe[at + 16 :]
    ycck = turbojpeg.TurboJPEG().encode(
        np.asarray(IMAGES["CMYK"]), pixel_format=turbojpeg.TJPF_CMYK, jpeg_subsample=turbojpeg.TJSAMP_420
    )
    return {"Adobe CMYK": adobe, "CMYK without Adobe": bare, "Adobe YCCK": bytes(ycck)}


@pytest.mark.parametrize("name", ["Adobe CMYK", "CMYK without Adobe", "Adobe YCCK"])
def test_cmyk_jpeg_same_as_pillow(name: str) -> None:
    data = cmyk_jpegs()[name]
    assert (b"Adobe" in data) == ("without" not in name)
    np.testing.assert_array_equal(decoded(data), with_pillow(data))


def test_all_cmyk_values_convert_as_in_pillow() -> None:
    from fastpipe.packing.picture.pixels import _cmyk_to_rgb

    c, k = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    stored = np.dstack([c, c[::-1], c[:, ::-1], k])
    pillow = Image.frombytes("CMYK", (256, 256), (255 - stored).tobytes()).convert("RGB")
    np.testing.assert_array_equal(_cmyk_to_rgb(stored), np.asarray(pillow))


def test_jpeg_with_sampling_that_turbojpeg_cannot_name() -> None:
    # One block of units, re-labelled: luma 2x2 times chroma becomes 1x4 times chroma.
    image = np.full((16, 16, 3), (200, 90, 30), np.uint8)
    one_mcu = bytearray(encode_jpeg(image, quality=90, subsampling="420"))
    frame = one_mcu.index(b"\xff\xc0")
    one_mcu[frame + 5 : frame + 9] = struct.pack(">HH", 32, 8)
    one_mcu[frame + 11] = 0x14  # luma four times as high as chroma
    np.testing.assert_array_equal(decoded(bytes(one_mcu)), with_pillow(bytes(one_mcu)))


def test_pixel_limit_comes_before_decoding() -> None:
    with pytest.raises(ImageError, match="300x200 is 60000 pixels, over the limit of 59999"):
        decode_rgb(b"not looked at", Probe("png", 300, 200, 1), max_pixels=59_999)
    data = PNGS["png RGB"]
    assert decode_rgb(data, probe(data), max_pixels=W * H).shape == (H, W, 3)


def test_decoded_size_must_be_the_probed_one() -> None:
    with pytest.raises(ImageError, match=f"decoded to {W}x{H}, its header says 5x6"):
        decode_rgb(PNGS["png RGB"], Probe("png", 5, 6, 1), max_pixels=LIMIT)


def test_png_with_too_few_rows_in_valid_chunks() -> None:
    head = struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in RGB)
    assert decoded(png(head, zlib.compress(rows))).shape == (H, W, 3)
    refused(png(head, zlib.compress(rows[: -W * 3])))
    refused(png(head, zlib.compress(rows)[:-100]))


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["L", "RGB", "1", "P200", "I;16"])
def test_tiff_with_too_little_in_a_strip(mode: str, compression: str) -> None:
    data = saved(mode, "TIFF", compression=compression)
    assert probe(data).width == W
    entries = {struct.unpack_from("<H", data, at)[0]: at for at in directory(data)}
    size = struct.unpack_from("<I", data, entries[279] + 8)[0]
    short = bytearray(data)
    struct.pack_into("<HHII", short, entries[279], 279, 4, 1, size * 3 // 4)
    assert "strip 0 of 1" in refused(bytes(short))


def directory(data: bytes) -> range:
    start = struct.unpack_from("<I", data, 4)[0]
    return range(start + 2, start + 2 + 12 * struct.unpack_from("<H", data, start)[0], 12)


@pytest.mark.parametrize("side", [40, 200])
@pytest.mark.parametrize("top", [2, 8, 256])
def test_long_lzw_streams(side: int, top: int) -> None:
    """Several tables, all code widths, long and short strings."""
    pixels = RNG.integers(0, top, (side, side, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF", compression="tiff_lzw")
    np.testing.assert_array_equal(decoded(file.getvalue()), pixels)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tiff(1, 4, 1, [raw(4, 1)]), "1 samples of 4 bits as gray"),
        (tiff(8, 8, 3, [raw(8, 3)]), "Lab"),
        (tiff(1, 32, 1, [raw(32, 1)], t339=3), "signed or float 32-bit"),
        (tiff(1, 8, 1, [raw(8, 1)], t339=2), "signed or float 8-bit"),
        (tiff(5, 16, 4, [raw(16, 4)]), "4 samples of 16 bits as CMYK"),
        (tiff(2, 16, 3, [raw(16, 1)] * 3, t284=2), "16-bit RGB in separate planes"),
        (tiff(2, 8, 3, [b"abc"], compression=50000), "compression 50000"),
        (tiff(6, 8, 3, [raw(8, 3)], t530=(2, 2)), "subsampled YCbCr outside JPEG"),
        (tiff(1, 8, 2, [raw(8, 2)], t338=1), "extra samples"),
    ],
)
def test_unsupported_tiffs_are_named(data: bytes, words: str) -> None:
    message = refused(data)
    assert words in message
    assert message.endswith("is not supported; save it as 8-bit RGB TIFF or PNG")


@pytest.mark.parametrize("name", EXACT)
def test_no_truncated_picture_is_accepted(name: str) -> None:
    data = EXACT[name]
    if name.startswith("jpeg"):
        # Up to the end marker; what stands after the scan is for the native validation.
        sizes = range(0, len(data) - 2, 7)
    else:
        sizes = range(0, len(data), 1 if len(data) < 400 else 1 + len(data) // 150)
    whole = decoded(data)
    for size in [*sizes, *range(max(0, len(data) - 30), len(data) - 2)]:
        try:
            pixels = decoded(data[:size])
        except ImageError:
            continue
        np.testing.assert_array_equal(pixels, whole)


def test_bad_files_leave_stderr_alone(capfd: pytest.CaptureFixture[str]) -> None:
    for data in EXACT.values():
        for size in (len(data) // 2, len(data) - 20):
            with contextlib.suppress(ImageError):
                decoded(data[:size])
        with contextlib.suppress(ImageError):
            decoded(data[: len(data) // 2] + bytes(9) + data[len(data) // 2 + 9 :])
    bad_profile = struct.pack(">I", 4) + b"iCCPx\0\0y" + struct.pack(">I", zlib.crc32(b"iCCPx\0\0y"))
    data = PNGS["png RGB"]
    np.testing.assert_array_equal(decoded(data[:33] + bad_profile + data[33:]), RGB)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(EXACT)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_mutated_files_decode_or_raise_image_error(name: str, changes: list[tuple[float, int]]) -> None:
    data = bytearray(EXACT[name])
    for where, value in changes:
        data[int(where * len(data))] = value
    try:
        found = probe(bytes(data))
        pixels = decode_rgb(bytes(data), found, max_pixels=LIMIT)
    except ImageError:
        return
    assert pixels.shape == (found.height, found.width, 3)


@pytest.mark.parametrize("subsampling", ["444", "420", "422", "440", "411", "gray"])
def test_encoded_jpeg(subsampling: str) -> None:
    smooth = cv2.resize(noise(4, 5, 3), (45, 37), interpolation=cv2.INTER_CUBIC)
    data = encode_jpeg(smooth, quality=92, subsampling=subsampling)
    assert data == encode_jpeg(np.ascontiguousarray(smooth.copy()), quality=92, subsampling=subsampling)
    assert data == encode_jpeg(np.asfortranarray(smooth), quality=92, subsampling=subsampling)
    assert b"\xff\xc0" in data
    assert b"\xff\xc2" not in data
    image = Image.open(io.BytesIO(data))
    assert image.size == (45, 37)
    assert image.mode == ("L" if subsampling == "gray" else "RGB")
    expected = np.asarray(Image.fromarray(smooth).convert("L").convert("RGB")) if image.mode == "L" else smooth
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - expected).mean() < 12
    header = turbojpeg.TurboJPEG().decode_header(data)
    assert header[2] == turbo.SUBSAMPLINGS[subsampling]


def test_quality_changes_the_size() -> None:
    sizes = [len(encode_jpeg(RGB, quality=q, subsampling="444")) for q in (10, 50, 95)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("image", "quality", "subsampling", "words"),
    [
        (RGB, 90, "4:2:0", "subsampling must be one of 444, 422, 420, 440, 411, gray, got '4:2:0'"),
        (RGB, 0, "420", "quality must be 1..100"),
        (RGB, 101, "420", "quality must be 1..100"),
        (RGB[:, :, 0], 90, "420", "image must be"),
        (RGB16, 90, "420", "image must be"),
        (RGB[:0], 90, "420", "image must be"),
    ],
)
def test_encode_refuses_wrong_arguments(image: Array, quality: int, subsampling: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        encode_jpeg(image, quality=quality, subsampling=subsampling)


def test_encode_refuses_sides_that_jpeg_cannot_have() -> None:
    with pytest.raises(ImageError, match="70000x1 pixels do not fit in a JPEG"):
        encode_jpeg(np.zeros((1, 70_000, 3), np.uint8), quality=90, subsampling="444")


def test_apply_orientation_refuses_other_numbers() -> None:
    assert apply_orientation(RGB, 1) is RGB
    with pytest.raises(ConfigError, match=r"1\.\.8, got 9"):
        apply_orientation(RGB, 9)


@pytest.mark.parametrize(
    ("shape", "max_size", "expected"),
    [
        ((40, 100), 50, (20, 50)),
        ((100, 40), 50, (50, 20)),
        ((1, 300), 100, (1, 100)),
        ((33, 100), 50, (17, 50)),
    ],
)
def test_shrink(shape: tuple[int, int], max_size: int, expected: tuple[int, int]) -> None:
    small = shrink(noise(*shape, 3), max_size)
    assert small.shape == (*expected, 3)
    assert small.dtype == np.uint8


def test_shrink_averages_and_leaves_small_pictures_alone() -> None:
    assert shrink(RGB, W) is RGB
    checkers = np.indices((8, 8)).sum(0) % 2 * 200
    np.testing.assert_array_equal(shrink(np.dstack([checkers.astype(np.uint8)] * 3), 4), 100)
    with pytest.raises(ConfigError, match="at least 1 pixel"):
        shrink(RGB, 0)


def test_damaged_jpeg_is_an_error_even_though_the_library_only_warns() -> None:
    data = JPEGS["jpeg 4:2:0"]
    assert "libjpeg-turbo: " in refused(data[:-40])


def test_stray_bytes_that_cost_no_pixel_pass_in_validated_files_only() -> None:
    data = JPEGS["jpeg 4:2:0"]
    stray = {
        "before the end": data[:-2] + b"\x12\x34\x56\x12\x34\x56" + data[-2:],
        "between segments": data[:20] + b"abc" + data[20:],
        "JFIF version": data[:11] + b"\x09" + data[12:],
    }
    for changed in stray.values():
        np.testing.assert_array_equal(decoded(changed), decoded(data))
        with pytest.raises(ImageError):
            turbo.decode_jpeg(changed, allow_stray_bytes=False)


def test_many_threads_give_the_same_pixels() -> None:
    names = sorted(EXACT) * 3
    alone = {name: decoded(EXACT[name]) for name in EXACT}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for name, pixels in zip(names, pool.map(lambda n: decoded(EXACT[n]), names), strict=True):
                np.testing.assert_array_equal(pixels, alone[name])
    finally:
        sys.setswitchinterval(before)
    assert cv2.getNumThreads() <= 1
