"""Tests of sources.picture.convert: JPEGs keep their pixels, other pictures nearly, options do what they say."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageOps
from support.sources.pack_sources import (
    assert_near,
    assert_same_pixels,
    exif,
    jpeg_bytes,
    jpegtran,
    luma,
    one_scan_a_component,
    pillow,
    pixels,
    saved,
    segments,
    turbo,
    twelve_bit,
    unusual_sampling,
    with_segments,
    ycck,
)

from fastpipe import _engine
from fastpipe.errors import ImageError
from fastpipe.sources.picture.convert import EncodeOptions, Packed, convert
from fastpipe.sources.picture.png import encode_png

PLAIN = EncodeOptions(tile=0)
SOF0, DHT, SOS, DRI, EOI = 0xC0, 0xC4, 0xDA, 0xDD, 0xD9
APP1, APP2, APP13, COMMENT = 0xE1, 0xE2, 0xED, 0xFE
METADATA = frozenset([*range(0xE1, 0xEE), 0xEF, COMMENT])  # without JFIF's APP0 and Adobe's APP14


def assert_plain_baseline(packed: Packed) -> None:
    """Baseline, one scan, no restart markers, nothing that is damaged, and the size that is noted."""
    found = [marker for marker, _ in segments(packed.data)]
    assert found.count(SOF0) == found.count(SOS) == found.count(EOI) == 1
    assert DRI not in found
    assert segments(packed.data)[-1] == (EOI, b"")
    assert _engine.decode(packed.data).shape == (packed.height, packed.width, 3)


# Some of those that test_transcode_bytes.py compares byte for byte.
KINDS = {
    "baseline": jpeg_bytes(),
    "one pixel": jpeg_bytes((1, 1)),
    "gray": jpeg_bytes(sampling="gray"),
    "progressive": saved(progressive=True),
    "restart markers": saved(restart_marker_blocks=2),
    "RGB": saved(keep_rgb=True),
    "not interleaved": one_scan_a_component((3, 1, 2)),
    "arithmetic progressive": jpegtran(jpeg_bytes(sampling="422"), "-arithmetic", "-progressive"),
}


def test_a_jpeg_keeps_its_pixels() -> None:
    for name, source in KINDS.items():
        packed = convert(source, PLAIN)
        assert_plain_baseline(packed)
        for tiled in (
            packed,
            *(convert(source, EncodeOptions(tile=tile)) for tile in (1, 32, 65500)),
        ):
            assert_same_pixels(tiled.data, source)
            np.testing.assert_array_equal(_engine.decode(tiled.data), turbo(source), err_msg=name)
            assert (tiled.change, tiled.orientation) == (None, 1), name


def test_pictures_are_tiled_if_not_told_otherwise() -> None:
    sources = {
        "JPEG": jpeg_bytes((256, 100)),
        "WebP": saved("WEBP", size=(256, 100)),
        "large JPEG": jpeg_bytes((512, 200), quality=95),
        "CMYK": saved(mode="CMYK", size=(256, 100)),
        "12-bit": twelve_bit(jpeg_bytes((256, 100))),
    }
    for name, source in sources.items():
        shrinks = EncodeOptions(max_size=256 if name == "large JPEG" else None)
        packed, plain = convert(source, shrinks), convert(source, replace(shrinks, tile=0))
        assert DRI in [marker for marker, _ in segments(packed.data)], name
        assert DRI not in [marker for marker, _ in segments(plain.data)]
        assert_same_pixels(packed.data, plain.data)


def test_a_jpeg_of_unusual_subsampling_keeps_its_pixels() -> None:
    source = unusual_sampling()
    packed = convert(source, PLAIN)
    assert packed.change is None
    np.testing.assert_array_equal(pillow(packed.data), pillow(source))
    np.testing.assert_array_equal(_engine.decode(packed.data), pillow(source))
    shrunk = convert(source, EncodeOptions(tile=0, max_size=32))
    assert (shrunk.width, shrunk.height, shrunk.change) == (32, 24, "shrunk")


ICC = b"a color profile " * 9000  # 144 kB: three segments


def test_the_color_profile_is_kept_and_all_metadata_where_that_is_asked_for() -> None:
    more = [(APP13, b"Photoshop 3.0\0stuff"), (COMMENT, b"a comment")]
    source = with_segments(saved(icc_profile=ICC, exif=exif(6)), *more)
    packed, whole = convert(source, PLAIN), convert(source, replace(PLAIN, keep_metadata=True))

    def metadata(jpeg: bytes) -> list[tuple[int, bytes]]:
        return [one for one in segments(jpeg) if one[0] in METADATA]

    assert [marker for marker, _ in metadata(packed.data)] == [APP2, APP2, APP2]
    assert Image.open(io.BytesIO(packed.data)).info["icc_profile"] == ICC
    assert metadata(whole.data) == metadata(source)
    assert [marker for marker, _ in segments(whole.data)].count(
        0xE0
    ) == 1  # JFIF is not there twice
    for each in (packed, whole):
        assert_same_pixels(each.data, source)


def test_cmyk_is_encoded_anew() -> None:
    """And a CMYK profile is not put into an RGB picture."""
    cmyk = saved(
        mode="CMYK", quality=92, icc_profile=b"\0\0\0\x80lcms\x04\0\0\0prtrCMYKLab " + bytes(104)
    )
    for source in (cmyk, ycck(cmyk)):
        packed = convert(source, PLAIN)
        assert packed.change == "CMYK"
        assert_plain_baseline(packed)
        assert_near(pillow(packed.data), pillow(source), 2)
        assert APP2 not in [marker for marker, _ in segments(packed.data)]


def test_12_bit_is_brought_to_8() -> None:
    for sampling in ("444", "420", "gray"):
        eight = jpeg_bytes(sampling=sampling)
        packed = convert(twelve_bit(eight), PLAIN)
        assert packed.change == "12-bit"
        assert_plain_baseline(packed)
        assert_near(turbo(packed.data), turbo(eight), 2)
    eight, profile = jpeg_bytes((200, 100)), (APP2, b"ICC_PROFILE\0\1\1abc")
    packed = convert(with_segments(twelve_bit(eight), profile), EncodeOptions(tile=0, max_size=50))
    assert (packed.width, packed.height, packed.change) == (50, 25, "shrunk")
    expected = Image.fromarray(turbo(eight)).resize((50, 25), Image.Resampling.BOX)
    assert_near(luma(turbo(packed.data)), luma(np.asarray(expected)), 4)
    assert profile in segments(packed.data)


LOSSLESS = {
    **{
        name: saved(name) for name in ("PNG", "BMP", "TIFF", "GIF", "PPM", "TGA", "ICO", "JPEG2000")
    },
    "WEBP": saved("WEBP", lossless=True),
}
NAMES = {"WEBP": "WebP", "JPEG2000": "JPEG 2000"}


def test_formats_without_loss_become_pngs_of_the_same_pixels() -> None:
    for name, source in LOSSLESS.items():
        packed = convert(source, PLAIN)
        assert (packed.change, packed.png_of) == (None, NAMES.get(name, name))
        assert packed.data.startswith(b"\x89PNG")
        assert packed.jpeg_bytes == len(packed.data)
        np.testing.assert_array_equal(pillow(packed.data), pillow(source), err_msg=name)
        np.testing.assert_array_equal(_engine.decode(packed.data), pillow(source), err_msg=name)


LOSSY = {
    "WebP": saved("WEBP", quality=90),
    "AVIF": saved("AVIF"),
    "JPEG 2000": saved("JPEG2000", irreversible=True),
    "TIFF": saved("TIFF", compression="jpeg"),
    "CMYK": saved(mode="CMYK"),
}


def test_formats_with_loss_become_jpegs_of_full_color() -> None:
    for name, source in LOSSY.items():
        packed = convert(source, PLAIN)
        assert (packed.change, packed.png_of) == (name, None)
        assert_plain_baseline(packed)
        frame = next(payload for marker, payload in segments(packed.data) if marker == SOF0)
        assert frame[5:] == bytes([3, 1, 0x11, 0, 2, 0x11, 1, 3, 0x11, 1])  # 4:4:4
        assert luma_steps(packed.data) == luma_steps(of_quality(95))
        assert_near(pillow(packed.data), pillow(source), 2)

        packed = convert(source, replace(PLAIN, lossless=True))
        assert (packed.change, packed.png_of) == (None, name)
        np.testing.assert_array_equal(pillow(packed.data), pillow(source), err_msg=name)


def luma_steps(jpeg: bytes) -> bytes:
    return next(payload for marker, payload in segments(jpeg) if marker == 0xDB)[1:65]


def of_quality(quality: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def test_an_avif_without_a_matrix_is_without_loss() -> None:
    source = saved("AVIF", subsampling="4:4:4")
    at = source.index(b"colrnclx") + 12
    identity = source[:at] + b"\0\0" + source[at + 2 :]
    packed = convert(identity, PLAIN)
    assert packed.png_of == "AVIF"
    np.testing.assert_array_equal(pillow(packed.data), pillow(identity))


def test_with_a_quality_all_but_jpegs_become_jpegs_of_it() -> None:
    for source in (*LOSSLESS.values(), *LOSSY.values()):
        for quality in (30, 80):
            packed = convert(source, replace(PLAIN, quality=quality))
            assert packed.png_of is None
            assert_plain_baseline(packed)
            assert luma_steps(packed.data) == luma_steps(of_quality(quality))
    assert (
        convert(jpeg_bytes(), replace(PLAIN, quality=30)).data == convert(jpeg_bytes(), PLAIN).data
    )


def test_a_png_of_ours_stays_as_it_is() -> None:
    ours = encode_png(pixels(400, 300), strip_rows=40)  # as no other options make it
    for how in (PLAIN, replace(PLAIN, lossless=True), replace(PLAIN, storage="coefficients")):
        assert convert(ours, how).data == ours != convert(saved("PNG", size=(400, 300)), how).data
        small = convert(saved("PNG"), how).data
        assert convert(small, how).data == small


def test_a_damaged_png_of_ours_is_refused() -> None:
    ours = bytearray(encode_png(pixels(400, 300)))
    ours[len(ours) // 2] ^= 1
    with pytest.raises(ImageError, match="the PNG is corrupt"):
        convert(bytes(ours), PLAIN)


def test_samples_of_every_kind_are_shrunk_as_pngs() -> None:
    rng = np.random.default_rng(6)
    for channels in (1, 2, 3, 4):
        for kind in (np.uint8, np.uint16):
            samples = rng.integers(
                0, np.iinfo(kind).max, (60, 90, channels), dtype=kind, endpoint=True
            )
            packed = convert(encode_png(samples), replace(PLAIN, max_size=30))
            assert (packed.change, packed.png_of, packed.width, packed.height) == (
                "shrunk",
                "PNG",
                30,
                20,
            )
            areas = samples.reshape(20, 3, 30, 3, channels).mean(axis=(1, 3))
            small = _engine.png_samples(packed.data)
            assert (small.dtype, small.shape) == (kind, areas.shape)
            np.testing.assert_allclose(small, areas, atol=1)


def test_without_loss_a_jpeg_is_shrunk_and_turned_into_a_png() -> None:
    for options in ({"max_size": 30}, {"apply_exif": True}):
        source = saved(exif=exif(6))
        packed = convert(source, replace(PLAIN, lossless=True, **options))
        assert packed.png_of == "JPEG"
        if "apply_exif" in options:
            upright = ImageOps.exif_transpose(Image.open(io.BytesIO(source)))
            np.testing.assert_array_equal(
                _engine.decode(packed.data), np.rot90(_engine.decode(source), -1)
            )
            assert (packed.width, packed.height) == upright.size
    gray = convert(jpeg_bytes(sampling="gray"), replace(PLAIN, lossless=True, max_size=30))
    assert _engine.png_samples(gray.data).shape[2] == 1
    assert (
        convert(jpeg_bytes(), replace(PLAIN, lossless=True)).data
        == convert(jpeg_bytes(), PLAIN).data
    )


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "TIFF"])
def test_exif_orientation_is_ignored_or_applied(image_format: str) -> None:
    for orientation in range(1, 9):
        source = saved(image_format, exif=exif(orientation))
        # Not from the source: Pillow turns a TIFF upright by itself, and nothing else.
        upright = ImageOps.exif_transpose(
            Image.open(io.BytesIO(saved("PNG", exif=exif(orientation))))
        )

        # As Pillow loads it: a TIFF upright, the others as stored.
        ignored = convert(source, PLAIN)
        assert ignored.orientation == (1 if image_format == "TIFF" else orientation)
        assert_near(
            luma(pillow(ignored.data)),
            luma(np.asarray(Image.open(io.BytesIO(source)).convert("RGB"))),
            2,
        )
        assert ignored.change is None
        assert (ignored.png_of is None) == (image_format == "JPEG")

        applied = convert(source, EncodeOptions(tile=0, apply_exif=True))
        assert (applied.width, applied.height) == upright.size
        assert_near(luma(pillow(applied.data)), luma(np.asarray(upright)), 2)
        if image_format != "JPEG":
            np.testing.assert_array_equal(pillow(applied.data), np.asarray(upright))
        if orientation == 1 or image_format == "TIFF":
            assert applied == ignored
        else:
            assert applied.change == "turned upright"


def test_kept_exif_never_turns_a_picture_twice() -> None:
    for orientation in range(1, 9):
        source = saved(exif=exif(orientation))
        kept = EncodeOptions(tile=0, keep_metadata=True)
        applied = Image.open(io.BytesIO(convert(source, replace(kept, apply_exif=True)).data))
        assert applied.getexif()[274] == 1
        assert applied.getexif()[271] == "A camera"
        ignored = Image.open(io.BytesIO(convert(source, kept).data))
        assert ignored.getexif()[274] == orientation


def test_large_pictures_shrink_in_proportion() -> None:
    sizes = {
        (200, 100): (50, 25),
        (100, 200): (25, 50),
        (333, 77): (50, 12),
        (60, 1): (50, 1),
        (51, 51): (50, 50),
    }
    for size, expected in sizes.items():
        source = saved(size=size, icc_profile=b"a color profile", quality=95)
        packed = convert(source, EncodeOptions(tile=0, max_size=50))
        assert (packed.width, packed.height, packed.change) == (*expected, "shrunk")
        assert_plain_baseline(packed)
        box = Image.fromarray(pixels(*size)).resize(expected, Image.Resampling.BOX)
        assert_near(luma(pillow(packed.data)), luma(np.asarray(box)), 4)
        assert Image.open(io.BytesIO(packed.data)).info["icc_profile"] == b"a color profile"


def test_only_what_is_shrunk_has_the_quality_of_shrunk_pictures() -> None:
    """And turning comes before shrinking."""
    small = EncodeOptions(tile=0, max_size=70)
    for source in (saved("PNG"), saved("WEBP")):
        assert convert(source, small) == convert(source, PLAIN)
    for size in [(70, 70), (70, 3), (1, 1)]:
        assert convert(jpeg_bytes(size), replace(small, quality=1)) == convert(
            jpeg_bytes(size), PLAIN
        )
    shrunk = convert(saved("WEBP"), replace(small, max_size=69))
    assert luma_steps(shrunk.data) == luma_steps(of_quality(90))
    low, high = (
        convert(jpeg_bytes((300, 200)), replace(small, quality=quality)) for quality in (20, 95)
    )
    assert len(low.data) < len(high.data) / 2
    turned = convert(saved(size=(200, 100), exif=exif(6)), replace(small, apply_exif=True))
    assert (turned.width, turned.height, turned.change) == (35, 70, "shrunk")


def test_stray_bytes_are_left_out_and_noted() -> None:
    clean = jpeg_bytes()
    tables = clean.index(b"\xff\xdb")
    stray = (clean[:-2] + b"stray" + clean[-2:], clean[:tables] + b"stray" + clean[tables:])
    unknown_version = clean.replace(b"JFIF\0\x01", b"JFIF\0\x09")
    for source in (*stray, unknown_version, clean + b"a trailer"):
        for how in (PLAIN, EncodeOptions(tile=0, max_size=30)):
            packed = convert(source, how)
            assert packed.data == convert(clean, how).data
            assert packed.stray_bytes or source not in stray
    assert not convert(clean, PLAIN).stray_bytes


def test_a_lone_marker_does_not_cost_the_profile() -> None:
    clean = with_segments(jpeg_bytes(), (APP2, b"ICC_PROFILE\0\1\1abc"))
    at = clean.index(b"\xff\xe2")
    for between in (b"\xff\xd0", b"\xff\x01", b"stray"):
        for how in (PLAIN, EncodeOptions(tile=0, max_size=30)):
            packed = convert(clean[:at] + between + clean[at:], how)
            assert (APP2, b"ICC_PROFILE\0\1\1abc") in segments(packed.data)


def test_of_several_frames_the_first_is_packed_and_that_is_told() -> None:
    first, second = (Image.fromarray(pixels(seed=seed)) for seed in (0, 1))
    packed = convert(saved("TIFF", save_all=True, append_images=[second]), PLAIN)
    assert packed.multi_frame
    np.testing.assert_array_equal(pillow(packed.data), np.asarray(first))
    assert not convert(saved("GIF"), PLAIN).multi_frame
