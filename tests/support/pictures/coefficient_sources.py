"""JPEGs of all kinds, and the KEY.fpc that packing makes of them."""

from __future__ import annotations

from support.pictures.jpegs import PICTURES, SUBSAMPLINGS, by_pillow, encoded, picture

from fastpipe import _engine

KERNELS = _engine.block_kernels()


def packed(
    source: bytes, tile: int = 32, segments: list[tuple[int, bytes]] | None = None
) -> tuple[bytes, bytes]:
    """The JPEG and the KEY.fpc that packing makes."""
    jpeg, _ = _engine.transcode(source, segments or [], tile=tile)
    coefficients, info = _engine.transcode(source, segments or [], tile=tile, coefficients=True)
    assert jpeg is not None
    assert coefficients is not None
    assert info["jpeg_bytes"] == len(jpeg)
    return jpeg, coefficients


def sources() -> dict[str, bytes]:
    """JPEGs with all that a block may have: values of all sizes, wide means, empty blocks, last places."""
    noise, stripes = picture(101, 75), picture(77, 90, "stripes")
    found = {f"{sampling} {kind}": encoded(picture(101, 75, kind), sampling) for sampling in SUBSAMPLINGS
             for kind in PICTURES}  # fmt: skip
    return found | {
        "steps of 1, noise": by_pillow(noise, qtables=[[1] * 64] * 2),
        "steps of 1, stripes": by_pillow(stripes, qtables=[[1] * 64] * 2, subsampling=0),
        "wide steps": by_pillow(noise, qtables=[[300 + step for step in range(64)]] * 2),
        "RGB": by_pillow(noise, keep_rgb=True),
        "progressive": by_pillow(stripes, progressive=True),
        "one pixel": encoded(picture(1, 1), "420"),
        "one row": encoded(picture(900, 1), "420"),
        "one column": encoded(picture(1, 900), "444"),
        "wide": encoded(picture(3000, 9), "422"),
        "quality 1": encoded(noise, "444", 1),
        "quality 100": encoded(noise, "444", 100),
    }


# Options of cjpeg for layouts that libjpeg-turbo alone decodes.
UNUSUAL = [
    ["-sample", "2x4"],
    ["-sample", "4x2"],
    ["-sample", "1x1,2x1,1x2"],
    ["-sample", "2x2,2x1,1x2"],
    ["-sample", "3x1"],
    ["-arithmetic"],
    ["-progressive", "-restart", "1"],
    ["-grayscale", "-sample", "2x2"],
]


def far_means(most: int) -> bytes:
    """A gray KEY.fpc of 8 blocks whose means climb by 1,000 each, through a JPEG written by hand."""
    categories = [0] * 16
    categories[3] = 12  # twelve codes of four bits: DC categories 0 to 11
    dc = bytes(categories) + bytes(range(12))
    ac = bytes([1] + [0] * 15) + b"\0"  # the end of a block: one bit
    bits, mean = "", 0
    for _ in range(8):
        step = 1000 if mean + 1000 <= most else 0
        category = step.bit_length()
        bits += f"{category:04b}" + (f"{step:0{category}b}" if category else "") + "0"
        mean += step
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)).replace(
        b"\xff", b"\xff\0"
    )
    parts = [
        (0xDB, b"\0" + bytes([1] * 64)),
        (0xC0, bytes([8, 0, 8, 0, 64, 1, 1, 0x11, 0])),
        (0xC4, b"\0" + dc),
        (0xC4, b"\x10" + ac),
        (0xDA, bytes([1, 1, 0, 0, 63, 0])),
    ]
    head = b"".join(
        bytes([0xFF, marker]) + (len(data) + 2).to_bytes(2, "big") + data for marker, data in parts
    )
    coefficients, _ = _engine.transcode(b"\xff\xd8" + head + scan + b"\xff\xd9", coefficients=True)
    assert coefficients is not None
    return coefficients
