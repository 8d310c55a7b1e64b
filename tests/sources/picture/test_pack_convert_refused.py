"""Tests of what packing refuses: a damaged or excessive picture is an ImageError with a plain reason, always."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sources.pack_sources import (
    EOI,
    assert_same_pixels,
    jpeg_bytes,
    jpegtran,
    one_scan_a_component,
    pillow,
    saved,
    segment,
    segments,
    twelve_bit,
)

from fastpipe import _engine
from fastpipe.dataset.format.sample_layout import picture_ending
from fastpipe.errors import ImageError
from fastpipe.sources.picture.convert import EncodeOptions, convert

PLAIN = EncodeOptions()
SIZE = (40, 30)
BASELINE = jpeg_bytes(SIZE)
PROGRESSIVE = saved(size=SIZE, progressive=True)
SOURCES = {
    "baseline": BASELINE,
    "progressive": PROGRESSIVE,
    "restarts": saved(size=SIZE, restart_marker_blocks=1),
    "scan a component": one_scan_a_component(size=SIZE),
    "12-bit": twelve_bit(BASELINE),
    "CMYK": saved(mode="CMYK", size=SIZE),
}


def reason(data: bytes, how: EncodeOptions = PLAIN) -> str:
    """Why a file is refused; the words are for people."""
    with pytest.raises(ImageError) as caught:
        convert(data, how)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert text.isprintable()
    return text


def converted_or_refused(data: bytes, how: EncodeOptions) -> None:
    try:
        packed = convert(data, how)
    except ImageError:
        return
    assert _engine.decode(packed.data).shape == (
        packed.height,
        packed.width,
        3,
    )  # refuses at any complaint of libjpeg


def test_truncated_anywhere() -> None:
    for source in SOURCES.values():
        for length in [
            *range(40),
            *range(40, len(source) - 8, 17),
            *range(len(source) - 8, len(source) - 2),
        ]:
            assert reason(source[:length])
            assert reason(source[:length], EncodeOptions(max_size=20))


def test_truncated_with_an_end_marker_put_behind() -> None:
    for source in SOURCES.values():
        first_scan = source.index(b"\xff\xda")
        for length in [*range(2, first_scan, 19), *range(first_scan, len(source) - 2, 7)]:
            if source[length - 1] != 0xFF:  # else the EOI would be read as two bytes of the picture
                assert reason(source[:length] + EOI)


def test_progressive_without_its_last_scans() -> None:
    """libjpeg itself decodes these without a word."""
    starts = [at for at in range(len(PROGRESSIVE)) if PROGRESSIVE.startswith(b"\xff\xda", at)]
    assert len(starts) >= 8
    for start in starts[1:]:
        table = PROGRESSIVE.rfind(
            b"\xff\xc4", 0, start
        )  # the scan's own Huffman table, if it has one
        for cut in {start, table if table > starts[starts.index(start) - 1] else start}:
            assert pillow(PROGRESSIVE[:cut] + EOI).shape == (SIZE[1], SIZE[0], 3)
            assert "missing" in reason(PROGRESSIVE[:cut] + EOI) or "truncated" in reason(
                PROGRESSIVE[:cut] + EOI
            )


def test_a_component_without_a_scan() -> None:
    for scans in ((1,), (1, 2), (2, 3), (1, 1, 3)):
        text = reason(one_scan_a_component(scans, SIZE))
        assert "truncated" in text
        assert "no scan of component" in text


def test_what_is_no_picture_of_ours() -> None:
    for data, words in {
        b"": "empty file",
        b"just some text, no picture": "not an image",
        b"8BPS\0\1": "PSD (Photoshop) is not supported; expected JPEG, PNG, WebP",
        b"\xff\xd8\xff\xd9": "before any image data",
        BASELINE.replace(b"\xff\xc0", b"\xff\xc3"): "unsupported format",
    }.items():
        assert words in reason(data)


def test_the_limit_of_pixels() -> None:
    for image_format in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "JPEG2000"):
        data = saved(image_format, size=SIZE)
        assert convert(data, EncodeOptions(max_pixels=1200)).width == 40
        refused = reason(data, EncodeOptions(max_pixels=1199))
        assert refused == "40 x 30 is over the limit of 1,199 pixels (--max-pixels)"


def test_a_side_too_long_for_a_jpeg_or_a_png() -> None:
    """It is stored in tiles, but not as a field."""
    data = saved("PNG", "L", (65_535, 1))
    assert picture_ending(convert(data, EncodeOptions()).data) == "png"
    quality = EncodeOptions(quality=90)
    assert picture_ending(convert(data, quality).data) == "tif"
    with pytest.raises(ImageError, match="a side over JPEG's 65,500 pixels; --max-size"):
        convert(data, quality, may_be_tiled=False)
    assert convert(data, EncodeOptions(max_size=100), may_be_tiled=False).width == 100
    data = saved("PNG", "L", (1, 65_536))
    assert picture_ending(convert(data, EncodeOptions()).data) == "tif"
    with pytest.raises(ImageError, match="a side over a PNG's 65,535 pixels; --max-size"):
        convert(data, EncodeOptions(), may_be_tiled=False)
    assert convert(data, EncodeOptions(max_size=100)).height == 100


def test_the_limit_of_scans() -> None:
    scans = [marker for marker, _ in segments(PROGRESSIVE)].count(0xDA)
    assert_same_pixels(convert(PROGRESSIVE, EncodeOptions(max_scans=scans)).data, PROGRESSIVE)
    assert "more progressive scans than allowed" in reason(
        PROGRESSIVE, EncodeOptions(max_scans=scans - 1)
    )
    assert "scans than allowed" in reason(
        one_scan_a_component((1, 2, 3) * 100, SIZE)
    )  # baseline ones, repeated


def test_a_long_progressive_script(tmp_path_factory: pytest.TempPathFactory) -> None:
    script = tmp_path_factory.mktemp("scans") / "script"
    bands = "".join(f"0: {k}-{k}, 0, 0;\n" for k in range(1, 64))
    script.write_text("0,1,2: 0-0, 0, 0;\n1: 1-63, 0, 0;\n2: 1-63, 0, 0;\n" + bands)
    source = jpegtran(BASELINE, "-scans", str(script))
    assert_same_pixels(convert(source, PLAIN).data, BASELINE)
    assert "over 65" in reason(source, EncodeOptions(max_scans=65))


def test_odd_numbers_of_components() -> None:
    frame = BASELINE.index(b"\xff\xc0")
    header = BASELINE[frame : frame + 9]
    for components in (2, 5):
        payload = bytes([components]) + b"".join(bytes([c + 1, 0x11, 0]) for c in range(components))
        length = (8 + 3 * components).to_bytes(2, "big")
        assert reason(
            BASELINE[:frame] + header[:2] + length + header[4:] + payload + BASELINE[frame + 19 :]
        )


@settings(max_examples=150)
@given(st.data())
def test_damage_of_any_kind(data: st.DataObject) -> None:
    source = SOURCES[data.draw(st.sampled_from(sorted(SOURCES)))]
    kind = data.draw(st.sampled_from(["flip", "cut out", "put in", "noise for the scan"]))
    at = data.draw(st.integers(0, len(source)))
    if kind == "flip":
        damaged = bytearray(source)
        for bit in data.draw(st.lists(st.integers(0, 8 * len(source) - 1), min_size=1, max_size=4)):
            damaged[bit // 8] ^= 1 << bit % 8
    elif kind == "cut out":
        damaged = bytearray(source[:at] + source[at + data.draw(st.integers(1, 40)) :])
    elif kind == "put in":
        damaged = bytearray(
            source[:at] + data.draw(st.binary(min_size=1, max_size=12)) + source[at:]
        )
    else:
        scan = source.index(b"\xff\xda") + 14
        damaged = bytearray(source[:scan] + data.draw(st.binary(max_size=200)) + EOI)
    # Flips may declare a larger picture.
    converted_or_refused(bytes(damaged), EncodeOptions(max_pixels=10**6))


def test_an_error_after_a_large_segment_was_written() -> None:
    """libjpeg finds a coefficient that it cannot write only after the segments are out and its buffer has grown."""

    bits = "0" + "1" * 12 + "0" + "0"  # the one DC code, category 13; its value; end of block
    bits += "1" * (-len(bits) % 8)
    jpeg = b"".join(
        (
            b"\xff\xd8",
            segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(20_000)),
            segment(0xDB, bytes([0]) + bytes([1] * 64)),
            segment(0xC0, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])),
            segment(0xC4, bytes([0x00, 1, *[0] * 15, 13])),
            segment(0xC4, bytes([0x10, 1, *[0] * 15, 0])),
            segment(0xDA, bytes([1, 1, 0, 0, 63, 0])),
            int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00"),
            b"\xff\xd9",
        )
    )
    for _ in range(20):
        packed = convert(jpeg, PLAIN)  # its pixels are sound and are encoded anew
        assert packed.change == "unusual JPEG structure"
        assert (packed.width, packed.height) == (8, 8)
