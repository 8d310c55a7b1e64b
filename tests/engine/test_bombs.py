"""Tests of decompression bombs: a few bytes that announce hours of work or gigabytes are refused at a look."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import resource
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.datasets.field_columns import hash_index
from support.datasets.packed import packed_jpeg
from support.pictures.jpegs import by_cjpeg, by_pillow, encoded, picture
from support.pictures.pngs import GRAY, RGB, SIGNATURE, chunk, header
from support.running.patience import in_time
from support.running.soak import Tried

import fastpipe
from fastpipe import _engine
from fastpipe.dataset.format.layout import INDEX_FILE
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, DatasetError, ImageError
from fastpipe.sources.picture.convert import EncodeOptions, convert

REFUSED = "a named error within 10 ms and 8 MB"
MOST_S = 0.010  # of processor time
MOST_BYTES = 8 << 20  # of memory: address space, so that nothing large is even asked for
FRAMES = {"baseline": 0xC0, "progressive": 0xC2, "arithmetic": 0xC9}
SMALL = by_pillow(picture(24, 16, "smooth"), progressive=True)


def with_size(jpeg: bytes, width: int, height: int, frame: int | None = None) -> bytes:
    at = next(at for code in FRAMES.values() if (at := jpeg.find(bytes([0xFF, code, 0]))) > 0)
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return (
        jpeg[: at + 1]
        + bytes([frame or jpeg[at + 1]])
        + jpeg[at + 2 : at + 5]
        + size
        + jpeg[at + 9 :]
    )


def giant(kind: str, width: int, height: int) -> bytes:
    """About a kilobyte."""
    return with_size(encoded(picture(16, 16, "smooth"), "gray"), width, height, FRAMES[kind])


def refused_at_a_look(refuse: Callable[[], object], words: str) -> None:
    """In less processor time than MOST_S, and then with MOST_BYTES more memory than the process has."""
    times = []
    for _ in range(5):
        started = time.process_time()
        with pytest.raises((ValueError, DatasetError), match=words):
            refuse()
        times.append(time.process_time() - started)
    assert in_time(min(times), MOST_S)
    statm = Path("/proc/self/statm")
    if not statm.exists() or "san.so" in os.environ.get(
        "LD_PRELOAD", ""
    ):  # sanitizers need memory of their own
        return
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    try:
        with pytest.raises((ValueError, DatasetError), match=words):
            refuse()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


ENTRANCES: dict[str, Callable[[bytes], object]] = {
    "size": _engine.picture_size,
    "decode": _engine.decode,
    "transcode": _engine.transcode,
    "convert": functools.partial(convert, options=EncodeOptions()),
}


def test_a_header_that_lies(tried: Tried) -> None:
    cases = list(
        itertools.product(
            [(65535, 65535), (65500, 65500), (13000, 13000)], FRAMES, ENTRANCES.values()
        )
    )
    for size, kind, entrance in cases:
        bomb = giant(kind, *size)
        assert len(bomb) < 1024
        refused_at_a_look(
            functools.partial(entrance, bomb), "limit|big|truncated|cannot hold|unsupported format"
        )
    tried("a JPEG of 1 kB whose header says 169 to 4,295 megapixels", len(cases), REFUSED)


def png_of(deflated: bytes, width: int, height: int, color: int = GRAY) -> bytes:
    return (
        SIGNATURE + header(width, height, color=color) + chunk(b"IDAT", deflated) + chunk(b"IEND")
    )


def giant_png() -> bytes:
    return png_of(zlib.compress(bytes(10**5)), 65535, 65535, RGB)


def giant_bmp() -> bytes:
    head = struct.pack(
        "<IiiHHIIiiII", 40, 65535, 65535, 1, 8, 1, 0, 0, 0, 0, 0
    )  # run lengths: any size in few bytes
    return b"BM" + struct.pack("<III", 66, 0, 54) + head + b"\xff\x00" * 6


def giant_webp() -> bytes:
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes(4) + 2 * (2**24 - 1).to_bytes(3, "little")
    frame = (
        b"VP8L" + struct.pack("<I", 6) + b"\x2f" + struct.pack("<I", 0x3FFF | 0x3FFF << 14) + b"\0"
    )
    return b"RIFF" + struct.pack("<I", 4 + len(canvas + frame)) + b"WEBP" + canvas + frame


@pytest.mark.parametrize("make", [giant_png, giant_bmp, giant_webp])
def test_headers_of_other_formats_that_lie(make: Callable[[], bytes], tried: Tried) -> None:
    assert len(make()) < 1024
    refused_at_a_look(
        lambda: convert(make(), EncodeOptions()), "over the limit of 178,956,970 pixels"
    )
    tried("a PNG, BMP or WebP of 1 kB whose header says gigapixels", 1, REFUSED)


def test_the_limit_of_pixels_is_an_option(flat: Path) -> None:
    """Of pack and of open, for loaders and single samples; the same number unless another is given."""
    assert MAX_PIXELS == _engine.MAX_PIXELS == EncodeOptions().max_pixels == 178_956_970
    records = fastpipe.open(flat).index.records
    most = int((records["width"].astype(int) * records["height"]).max())
    options = {"batch_size": len(records), "size": 8, "train": False, "num_workers": 1}
    with fastpipe.loader(fastpipe.open(flat, max_pixels=most), **options) as loader:
        assert len(next(iter(loader))[1]) == len(records)
    with pytest.raises(
        DatasetError, match=f"pixels; expected at most {most - 1:,}. .*pass a larger max_pixels"
    ):
        fastpipe.loader(fastpipe.open(flat, max_pixels=most - 1), **options)
    largest = int(np.argmax(records["width"].astype(int) * records["height"]))
    assert len(fastpipe.open(flat, max_pixels=most)[largest]) == 2
    limited = fastpipe.open(flat, max_pixels=most - 1)
    for samples in (limited, pickle.loads(pickle.dumps(limited))):  # noqa: S301 - as a DataLoader's worker does
        with pytest.raises(DatasetError, match=rf"sample {largest} \(.*, in .*\) has"):
            samples[largest]
    for value in (0, -1, 2.5, True, 2**60 + 1):
        with pytest.raises(ConfigError, match="max_pixels"):
            fastpipe.open(flat, max_pixels=value)  # type: ignore[arg-type]


def rescanned(jpeg: bytes, times: int) -> bytes:
    """The last scan, with its tables, again and again."""
    tables = jpeg.rindex(b"\xff\xc4")
    return jpeg[:-2] + jpeg[tables:-2] * times + jpeg[-2:]


@pytest.mark.parametrize("jpeg", [SMALL, with_size(SMALL, 10_000, 10_000)], ids=["small", "giant"])
def test_thousands_of_scans(jpeg: bytes, tried: Tried) -> None:
    bomb = rescanned(jpeg, 5000)
    for name, entrance in ENTRANCES.items():
        packs = name in ("transcode", "convert")
        words = (
            "more progressive scans than allowed"
            if packs
            else "the JPEG has an unsupported format: progressive"
        )
        refused_at_a_look(functools.partial(entrance, bomb), words)
    tried("a progressive JPEG of 5,000 scans", len(ENTRANCES), REFUSED)


def test_many_scans_of_a_giant_picture() -> None:
    """Fewer than are allowed, and bytes enough, but minutes of work."""
    bomb = with_size(rescanned(SMALL, 60)[:-2], 13_000, 13_000) + b"\x55" * 1_500_000 + b"\xff\xd9"
    refused_at_a_look(
        lambda: _engine.transcode(bomb), r"scans than allowed: \d+ of 13000 x 13000 pixels"
    )


def test_scans_up_to_the_limit_are_taken() -> None:
    scans = SMALL.count(b"\xff\xda")
    packed, info = _engine.transcode(SMALL, max_scans=scans)
    assert packed is not None
    assert info["progressive"]
    with pytest.raises(ImageError, match=f"over {scans - 1}"):
        convert(SMALL, EncodeOptions(max_scans=scans - 1))


def test_flat_pictures_are_no_bombs() -> None:
    """They take the fewest bytes that a picture can."""
    flat = np.full((1500, 2000, 3), 200, np.uint8)
    for jpeg in (
        by_pillow(flat, optimize=True),
        by_pillow(flat, progressive=True),
        by_cjpeg(flat, "-arithmetic"),
        by_cjpeg(flat, "-arithmetic", "-progressive"),
    ):
        packed = convert(jpeg, EncodeOptions())
        assert (packed.width, packed.height) == (2000, 1500)


def test_rows_that_announce_giants(
    flat: Path, copied: Callable[[Path], Path], tried: Tried
) -> None:
    """Nothing is made for a picture that its bytes cannot hold, nor for more bytes than the shard has."""
    dataset = copied(flat)
    records = np.load(dataset / INDEX_FILE)
    for name, value in (("width", 65535), ("height", 65535)):
        records[name][3] = value
    np.save(dataset / INDEX_FILE, records)
    hash_index(dataset)
    samples = fastpipe.open(dataset)
    refused_at_a_look(lambda: samples[3], "record of sample 3 is impossible")
    index = fastpipe.open(flat).index
    shard, _, offset = index.where(3)
    jpeg = packed_jpeg(index, 3)
    opened = _engine.Shard(os.fsencode(shard), os.stat(shard).st_size)
    image = np.empty((4, 4, 3), np.uint8)
    for start, size in ((offset, 2**32 - 1), (2**63, len(jpeg)), (2**64 - 1, 2**32 - 1)):
        refused_at_a_look(
            functools.partial(opened.read_picture, start, size, image),
            "beyond the end of the shard",
        )
    tried("a row of the index that announces gigabytes", 4, REFUSED)


def test_a_mask_that_lies_about_its_size_makes_no_memory() -> None:
    for side, words in [
        (65_535, "larger than the size limit: 65535 x 65535"),
        (2**31 - 1, "larger than the size limit"),
        (13_000, "13000 x 13000 pixels cannot be in 11 compressed bytes"),
    ]:
        data = png_of(zlib.compress(bytes(20)), side, side)
        refused_at_a_look(functools.partial(_engine.decode_mask, data), words)


def test_a_mask_of_few_pixels_inflates_to_no_more() -> None:
    """20 MB of zeros in a file that says 4 x 4."""
    zeros = zlib.compress(bytes(20_000_000))
    refused_at_a_look(
        lambda: _engine.decode_mask(png_of(zeros, 4, 4)), "it has more pixels than it says"
    )


def test_a_mask_that_deflates_as_well_as_any_is_no_bomb() -> None:
    assert not _engine.decode_mask(png_of(zlib.compress(bytes(2001 * 2000), 9), 2000, 2000)).any()
