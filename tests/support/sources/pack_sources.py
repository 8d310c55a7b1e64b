"""Source files for the tests of packing: JPEGs of every kind, other formats, and folders of them."""

from __future__ import annotations

import hashlib
import io
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import turbojpeg
from PIL import Image
from support.pictures.jpegs import SUBSAMPLINGS, Pixels, by_pillow

_TURBO = turbojpeg.TurboJPEG()
EOI = b"\xff\xd9"


def pixels(width: int = 70, height: int = 45, seed: int = 0) -> Pixels:
    """(height, width, 3) RGB: soft shapes with some grain, so that a turn, a shift or a wrong colour shows."""
    rng = np.random.default_rng([seed, width, height])
    coarse = rng.integers(0, 256, (height // 20 + 2, width // 20 + 2, 3), dtype=np.uint8)
    soft = np.asarray(
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.int16
    )
    return np.clip(soft + rng.integers(-3, 4, soft.shape), 0, 255).astype(np.uint8)


def jpeg_bytes(
    size: tuple[int, int] = (70, 45), sampling: str = "420", *, quality: int = 88, seed: int = 0
) -> bytes:
    """A baseline JPEG with the standard's Huffman tables."""
    rgb = pixels(*size, seed=seed)
    encoded: bytes = _TURBO.encode(
        rgb, quality=quality, pixel_format=turbojpeg.TJPF_RGB, jpeg_subsample=SUBSAMPLINGS[sampling]
    )
    return encoded


def saved(
    image_format: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (70, 45), **options: Any
) -> bytes:
    """A picture in any format, mode and with any option of Pillow."""
    file = io.BytesIO()
    Image.fromarray(pixels(*size)).convert(mode).save(file, image_format, **options)
    return file.getvalue()


def exif(orientation: int) -> Image.Exif:
    """EXIF data that says how to turn the picture, and who made it."""
    block = Image.Exif()
    block[274] = orientation
    block[271] = "A camera"
    return block


def segments(jpeg: bytes) -> list[tuple[int, bytes]]:
    """(marker, payload) of all segments, EOI included; the scans' data are passed over."""
    found, at = [], 2
    while at < len(jpeg):
        assert jpeg[at] == 0xFF, f"no marker at byte {at}"
        marker = jpeg[at + 1]
        if marker == 0xD9:
            return [*found, (marker, jpeg[at + 2 :])]
        (length,) = struct.unpack_from(">H", jpeg, at + 2)
        found.append((marker, jpeg[at + 4 : at + 2 + length]))
        at += 2 + length
        if marker == 0xDA:
            while jpeg[at] != 0xFF or jpeg[at + 1] in (0, *range(0xD0, 0xD8)):
                at += 1
    raise AssertionError("no EOI")


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def with_segments(jpeg: bytes, *added: tuple[int, bytes]) -> bytes:
    """The JPEG with segments added after SOI and JFIF's APP0."""
    at = 4 + struct.unpack_from(">H", jpeg, 4)[0] if jpeg[3] == 0xE0 else 2
    return jpeg[:at] + b"".join(segment(*one) for one in added) + jpeg[at:]


def _scan_data(jpeg: bytes) -> bytes:
    at = jpeg.index(b"\xff\xda")
    return jpeg[at + 2 + struct.unpack_from(">H", jpeg, at + 2)[0] : -2]


def one_scan_a_component(
    scans: Sequence[int] = (1, 2, 3), size: tuple[int, int] = (70, 45)
) -> bytes:
    """A baseline 4:4:4 JPEG that is not interleaved: each component in a scan of its own, in the given order."""
    ycbcr = Image.fromarray(pixels(*size)).convert("YCbCr")
    return _from_planes(ycbcr.split(), (0x11, 0x11, 0x11), scans, size)


def unusual_sampling() -> bytes:
    """A JPEG whose two chroma planes are halved in different directions: legal, and without a name."""
    luma, blue, red = Image.fromarray(pixels(64, 48)).convert("YCbCr").split()
    planes = (luma, blue.resize((64, 24)), red.resize((32, 48)))
    return _from_planes(planes, (0x22, 0x21, 0x12), (1, 2, 3), (64, 48))


def _from_planes(
    planes: Sequence[Image.Image],
    factors: Sequence[int],
    scans: Sequence[int],
    size: tuple[int, int],
) -> bytes:
    grays = [by_pillow(np.asarray(plane), quality=88) for plane in planes]
    tables = [(marker, payload) for marker, payload in segments(grays[0]) if marker in (0xDB, 0xC4)]
    frame = struct.pack(">BHHB", 8, size[1], size[0], 3)
    frame += b"".join(bytes([number, factor, 0]) for number, factor in enumerate(factors, start=1))
    out = b"\xff\xd8" + b"".join(segment(*one) for one in tables) + segment(0xC0, frame)
    for component in scans:
        out += segment(0xDA, bytes([1, component, 0, 0, 63, 0])) + _scan_data(grays[component - 1])
    return out + EOI


def twelve_bit(jpeg: bytes) -> bytes:
    """A 12-bit JPEG of the same picture: 12-bit samples are 16 times the 8-bit ones, and so are the steps."""
    out, at = bytearray(b"\xff\xd8"), 2
    for marker, payload in segments(jpeg):
        at += 4 + len(payload)
        if marker == 0xDB:
            wide = b""
            for table in range(0, len(payload), 65):
                steps = [16 * step for step in payload[table + 1 : table + 65]]
                wide += struct.pack(">B64H", 0x10 | payload[table], *steps)
            payload = wide
        elif marker == 0xC0:
            marker, payload = 0xC1, b"\x0c" + payload[1:]
        out += segment(marker, payload)
        if marker == 0xDA:
            return bytes(out + jpeg[at:])
    raise AssertionError("no scan")


def ycck(jpeg_cmyk: bytes) -> bytes:
    """The four planes of a CMYK JPEG, declared to be YCCK."""
    at = jpeg_cmyk.index(b"Adobe")
    return jpeg_cmyk[: at + 11] + b"\x02" + jpeg_cmyk[at + 12 :]


def jpegtran(jpeg: bytes, *options: str) -> bytes:
    """What libjpeg-turbo's tool makes of a JPEG; skips the test where the tool is absent."""
    tool = shutil.which("jpegtran")
    if tool is None:
        pytest.skip("jpegtran is not installed (Debian: libjpeg-turbo-progs)")
    return subprocess.run(
        [tool, *options], input=jpeg, capture_output=True, check=True, timeout=300
    ).stdout


def pillow(data: bytes) -> Pixels:
    """Decoded by Pillow, RGB."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def luma(rgb: Pixels) -> Pixels:
    """Brightness only: what subsampling of the chroma leaves alone."""
    return np.array(Image.fromarray(rgb).convert("L"))


def turbo(jpeg: bytes) -> Pixels:
    """Decoded by PyTurboJPEG, RGB."""
    decoded: Pixels = _TURBO.decode(jpeg, pixel_format=turbojpeg.TJPF_RGB)
    return decoded


def assert_same_pixels(packed: bytes, source: bytes) -> None:
    """Both decoders see the same picture in both files."""
    np.testing.assert_array_equal(pillow(packed), pillow(source))
    np.testing.assert_array_equal(turbo(packed), turbo(source))


def assert_near(one: Pixels, other: Pixels, mean: float) -> None:
    """Two pictures of one size differ by less than `mean` levels of 255 on average."""
    assert one.shape == other.shape, f"{one.shape} and {other.shape}"
    difference = float(np.abs(one.astype(int) - other.astype(int)).mean())
    assert difference < mean, f"differ by {difference:.2f} on average"


def write_files(root: Path, contents: Mapping[str, bytes]) -> Path:
    """Files by their paths below a folder."""
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def write_folder(
    root: Path, *, classes: Sequence[str] = ("ant", "bee", "cow"), images: int = 24
) -> Path:
    """An image folder of small JPEGs, `root/CLASS/NN.jpg`."""
    for number in range(images):
        folder = root / classes[number % len(classes)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02d}.jpg").write_bytes(
            jpeg_bytes((30 + number, 50 - number % 20), seed=number)
        )
    return root


def write_large_folder(root: Path, *, images: int = 24) -> Path:
    """An image folder of noisy JPEGs of 30 kB: three or so fill the smallest shard."""
    rng = np.random.default_rng(3)
    for number in range(images):
        folder = root / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        noise = rng.integers(0, 256, (128, 140, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number:02d}.jpg", quality=85, subsampling=0)
    return root


def files(folder: Path) -> dict[str, bytes]:
    """Path below the folder -> content, of every file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def digests(folder: Path) -> dict[str, str]:
    """Path below the folder -> a short digest; a difference is readable."""
    return {name: hashlib.sha256(data).hexdigest()[:12] for name, data in files(folder).items()}


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """What a file system tells of the files in a folder: another inode or time, and one was written anew."""
    found = {file.name: file.stat() for file in folder.iterdir() if file.is_file()}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in found.items()}
