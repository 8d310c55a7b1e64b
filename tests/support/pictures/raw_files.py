"""BMP, TIFF and ICO files, field by field, so that any field may say what no encoder writes."""

from __future__ import annotations

import struct

from support.pictures.jpegs import by_pillow, picture

W, H = 21, 11  # pixels of a TIFF


def bmp(
    bits: int, rows: bytes, *, height: int = 3, compression: int = 0, palette: int = 0, header: int = 40,
    masks: tuple[int, ...] = (),
) -> bytes:  # fmt: skip
    """A BMP 5 pixels wide."""
    if header == 12:
        info = struct.pack("<IHHHH", 12, 5, height, 1, bits)
    else:
        info = struct.pack(
            "<IiiHHIIiiII", header, 5, height, 1, bits, compression, len(rows), 0, 0, palette, 0
        )
        info = (info + struct.pack(f"<{len(masks)}I", *masks)).ljust(header, b"\0")
    colors = bytes(
        (37 * i * (k + 1) + 11) % 256
        for i in range(palette)
        for k in range(3 if header == 12 else 4)
    )
    offset = 14 + len(info) + len(colors)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + info + colors + rows


def tiff(
    photometric: int, bits: int, samples: int, segments: list[bytes], *, endian: str = "<",
    compression: int = 1, tile: int = 0, **more: int | tuple[int, ...],
) -> bytes:  # fmt: skip
    """A TIFF of W x H pixels in one strip (or plane), or in square tiles; `more` is tNNN=value."""
    tags: dict[int, tuple[int, ...]] = {
        256: (W,),
        257: (H,),
        258: (bits,) * samples,
        259: (compression,),
    }
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


def announcing(jpeg: bytes, width: int, height: int) -> bytes:
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + struct.pack(">HH", height, width) + jpeg[at + 4 :]


def huge_ico() -> bytes:
    dib = struct.pack("<IiiHHIIiiII", 40, 30_000, 60_000, 1, 8, 1, 0, 0, 0, 0, 0) + bytes(50)
    return b"\0\0\1\0\1\0" + struct.pack("<BBBBHHII", 32, 32, 0, 0, 1, 8, len(dib), 22) + dib


# Files of less than 2,000 bytes that announce pictures of gigabytes, by what they are.
BOMBS = {
    "tiff whose JPEG announces more": tiff(
        6, 8, 3, [announcing(by_pillow(picture(W, H)), 65_000, 65_000)], compression=7
    ),
    "tiff of a giant tile": tiff(2, 8, 3, [b"123"], compression=8, tile=30_000),
    "ico whose picture announces more": huge_ico(),
}
