"""Tests of `--damaged decode`: of damaged JPEGs those are packed that Pillow loads, as Pillow shows them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.programs.cli_run import succeeded
from support.sources.pack_sources import (
    EOI,
    assert_near,
    exif,
    jpeg_bytes,
    luma,
    pillow,
    pixels,
    saved,
    segments,
    with_segments,
    write_folder,
)

from fastpipe import _engine
from fastpipe.errors import ImageError
from fastpipe.sources.picture.convert import EncodeOptions, convert

REJECT = EncodeOptions(max_pixels=10**6, max_scans=64)
DECODE = EncodeOptions(max_pixels=10**6, max_scans=64, damaged="decode")
SIZE = (48, 40)
WHOLE = jpeg_bytes(SIZE, "444", quality=95)
SCAN = WHOLE.index(b"\xff\xda") + 14
HALF = (SCAN + len(WHOLE)) // 2
ICC = (0xE2, b"ICC_PROFILE\0\1\1abc")


def packs(data: bytes, how: EncodeOptions) -> bool:
    try:
        convert(data, how)
    except ImageError:
        return False
    return True


def pillow_loads(data: bytes) -> bool:
    try:
        return pillow(data).size > 0
    except (OSError, SyntaxError, ValueError):
        return False


def flipped(at: int) -> bytes:
    return WHOLE[:at] + bytes([WHOLE[at] ^ 0x10]) + WHOLE[at + 1 :]


# Pillow loads these, with a part that is gray or shifted.
LOADED = {
    "scan cut short before the end marker": WHOLE[:HALF].rstrip(b"\xff") + EOI,
    "bytes left over in the scan": WHOLE[:HALF] + b"\xff\xd3\x12\x34" + WHOLE[HALF:],
    "bytes cut out of the scan": next(
        data
        for at in range(HALF, len(WHOLE))
        if not packs(data := WHOLE[:at] + WHOLE[at + 7 :], REJECT)
    ),
    "a bit flipped": next(
        data for at in range(SCAN, HALF) if not packs(data := flipped(at), REJECT)
    ),
    "last scans missing": (lambda jpeg: jpeg[: jpeg.rindex(b"\xff\xc4")] + EOI)(
        saved(size=SIZE, progressive=True)
    ),
}
# Pillow refuses these, too.
NOT_LOADED = {
    "cut short": WHOLE[:HALF],
    "no scan": WHOLE[: SCAN - 14] + EOI,
    "no header": WHOLE[:2] + WHOLE[SCAN - 14 :],
    "empty": b"",
    "a text": b"a text",
}


def test_what_pillow_loads_is_packed_as_it_shows_it() -> None:
    for name, data in LOADED.items():
        assert not packs(data, REJECT), name
        packed = convert(data, DECODE)
        assert packed.change == "damaged JPEG"
        assert_near(pillow(packed.data), pillow(data), 2)
        assert (
            _engine.decode(packed.data).shape
            == (packed.height, packed.width, 3)
            == (SIZE[1], SIZE[0], 3)
        )


def test_what_pillow_refuses_keeps_its_reason() -> None:
    for name, data in NOT_LOADED.items():
        assert not pillow_loads(data), name
        reasons = []
        for how in (REJECT, DECODE):
            with pytest.raises(ImageError) as caught:
                convert(data, how)
            reasons.append(str(caught.value))
        assert reasons[0] == reasons[1]


@settings(max_examples=100)
@given(st.data())
def test_exactly_the_samples_of_an_image_folder(data: st.DataObject) -> None:
    source = bytearray(
        data.draw(st.sampled_from([WHOLE, saved(size=SIZE, progressive=True), saved(mode="L")]))
    )
    kind = data.draw(st.sampled_from(["flip", "cut out", "put in", "end early"]))
    at = data.draw(st.integers(20, len(source) - 3))
    if kind == "flip":
        source[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut out":
        del source[at : at + data.draw(st.integers(1, 40))]
    elif kind == "put in":
        source[at:at] = data.draw(st.binary(min_size=1, max_size=12))
    else:
        source[at:-2] = b""
    damaged = bytes(source)
    try:
        image = Image.open(io.BytesIO(damaged))
        width, height = image.size
    except (OSError, SyntaxError, ValueError):
        width = height = 0
    if width * height > 10**6:
        return
    # Sound files that Pillow refuses are packed as ever: of 12 bits, or with stray bytes before a segment.
    assert packs(damaged, DECODE) == (pillow_loads(damaged) or packs(damaged, REJECT))


def test_sound_jpegs_are_packed_as_ever() -> None:
    for source in (WHOLE, saved(progressive=True), saved(mode="CMYK")):
        assert convert(source, DECODE) == convert(source, REJECT)


def test_gray_stays_gray_and_the_profile_stays() -> None:
    gray = jpeg_bytes(SIZE, "gray")
    packed = convert(with_segments(gray[:-60].rstrip(b"\xff") + EOI, ICC), DECODE)
    assert (packed.change, _engine.transcode(packed.data)[1]["components"]) == ("damaged JPEG", 1)
    assert ICC in segments(packed.data)


def test_damaged_jpegs_are_turned_and_shrunk() -> None:
    source = saved(size=(200, 100), exif=exif(6), quality=95)
    damaged = source[:-40].rstrip(b"\xff") + EOI
    packed = convert(damaged, EncodeOptions(damaged="decode", apply_exif=True, max_size=50))
    assert (packed.width, packed.height, packed.change, packed.orientation) == (
        25,
        50,
        "damaged JPEG",
        6,
    )
    expected = (
        Image.fromarray(pixels(200, 100))
        .resize((50, 25), Image.Resampling.BOX)
        .rotate(-90, expand=True)
    )
    assert_near(luma(pillow(packed.data)), luma(np.asarray(expected)), 8)


def test_limits_hold_for_damaged_jpegs() -> None:
    damaged = LOADED["scan cut short before the end marker"]
    with pytest.raises(ImageError, match="over the limit of 100 pixels"):
        convert(damaged, EncodeOptions(damaged="decode", max_pixels=100))
    progressive = saved(size=SIZE, progressive=True)
    tables = progressive.rindex(b"\xff\xc4")
    with pytest.raises(ImageError, match="more progressive scans than allowed"):
        convert(progressive[:-2] + progressive[tables:-2] * 100 + EOI, DECODE)


def test_they_are_counted(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", images=4)
    (source / "ant" / "damaged.jpg").write_bytes(LOADED["a bit flipped"])
    rejected = json.loads(succeeded("pack", source, tmp_path / "reject", "--json"))
    assert (rejected["samples"], rejected["counts"]["rejected"]) == (4, 1)
    packed = json.loads(
        succeeded("pack", source, tmp_path / "decode", "--damaged", "decode", "--json")
    )
    assert (packed["samples"], packed["counts"]["rejected"]) == (5, 0)
    assert packed["counts"]["reencoded"] == {"damaged JPEG": 1}
    assert packed["packs"][0]["options"]["damaged"] == "decode"
