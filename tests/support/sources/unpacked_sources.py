"""Sources that are loaded without packing: files of every kind, and what loaders make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.sources.pack_sources import (
    jpeg_bytes,
    one_scan_a_component,
    saved,
    twelve_bit,
    unusual_sampling,
    write_folder,
)
from support.sources.tars import write_tar

import fastpipe

CROPS = {"crop": fastpipe.RandomResizedCrop(), "hflip": True, "size": 48, "num_workers": 2}

# It looks usual in its header, and the engine refuses it: that is found when it is read.
LATE = "version.jpg"


def odd_pictures() -> dict[str, bytes]:
    """By name: pictures that the engine does not decode as they lie, all of which packing takes."""
    plain = jpeg_bytes((90, 70), seed=3)
    tables = plain.index(b"\xff\xdb")
    return {
        "progressive.jpg": saved("JPEG", size=(120, 90), progressive=True, quality=85),
        "cmyk.jpg": saved("JPEG", "CMYK", (64, 80), quality=90),
        "twelve.jpg": twelve_bit(jpeg_bytes((61, 45), seed=4)),
        "scans.jpg": one_scan_a_component(),
        "unusual.jpg": unusual_sampling(),
        "stray.jpg": plain[:tables] + b"stray" + plain[tables:],
        LATE: plain[:11] + b"\x07" + plain[12:],  # JFIF of version 7
        "alpha.webp": saved("WebP", "RGBA", (50, 66), lossless=True),
        "picture.bmp": saved("BMP", size=(33, 47)),
        "picture.gif": saved("GIF", size=(52, 41)),
    }


def plain_pictures() -> dict[str, bytes]:
    """By name: pictures that it does decode."""
    return {
        "gray.jpg": saved("JPEG", "L", (77, 58), quality=88),
        "full.jpg": jpeg_bytes((101, 67), "444"),
        "half.jpg": jpeg_bytes((66, 97), "422"),
        "rgb.jpg": saved("JPEG", size=(80, 60), quality=91, keep_rgb=True),
        "exif.jpg": saved("JPEG", size=(70, 90), exif=b"Exif\0\0" + bytes(30_000)),
        "stray-end.jpg": jpeg_bytes()[:-2] + b"stray" + jpeg_bytes()[-2:],
        "small.jpg": jpeg_bytes((3, 2)),
        "picture.png": saved("PNG", size=(75, 50)),
        "palette.png": saved("PNG", "P", (40, 44)),
        "alpha.png": saved("PNG", "RGBA", (63, 39)),
        "bits.png": saved("PNG", "1", (41, 35)),
        "deep.png": saved("PNG", "I;16", (57, 43)),
    }


def bad_files() -> dict[str, bytes]:
    """By name: files that packing rejects, which their first bytes tell."""
    plain = jpeg_bytes()
    return {
        "notes.txt": b"no picture at all, and long enough",
        "empty.jpg": b"",
        "cut.jpg": plain[:200],
        "cut.png": saved("PNG")[:30],
        "unknown.jxl": b"\xff\x0a" + bytes(40),
    }


def write_mixed(root: Path, files: dict[str, bytes]) -> Path:
    """Two classes of usual pictures, and the files among them."""
    write_folder(root, classes=("ant", "bee"), images=14)
    for number, (name, data) in enumerate(files.items()):
        (root / ("ant", "bee")[number % 2] / name).write_bytes(data)
    return root


def web_tars(
    folder: Path, *, tars: int = 3, samples: int = 40, classes: int = 4, in_order: bool = False
) -> Path:
    """WebDataset tars with captions; the classes mixed, or one after the other."""
    folder.mkdir(parents=True)
    for tar in range(tars):
        members = {}
        for number in range(samples):
            sample = tar * samples + number
            label = sample * classes // (tars * samples) if in_order else sample * 7 % classes
            members[f"{sample:04d}.jpg"] = jpeg_bytes(
                (30 + sample % 40, 40 + sample % 13), seed=sample
            )
            members[f"{sample:04d}.cls"] = str(label).encode()
            members[f"{sample:04d}.txt"] = b"a caption"
        write_tar(folder / f"train-{tar:03d}.tar", members)
    return folder


def packed(source: Path, destination: Path) -> Path:
    """In the source's order."""
    fastpipe.pack(source, destination, shuffle=False, workers=2)
    return destination


def epoch(data: object, batch_size: int = 7, **options: Any) -> list[dict[str, Any]]:
    """Batches of one epoch, in order, cropped as in training."""
    options = {"train": False, "fields": ("image", "label", "id", "key"), **CROPS, **options}
    with fastpipe.loader(data, batch_size, **options) as loader:  # type: ignore[arg-type]
        return [{**batch, "image": batch["image"].clone()} for batch in loader]


def assert_same_epochs(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other) > 0
    for mine, theirs in zip(one, other, strict=True):
        assert mine["key"] == theirs["key"]
        assert torch.equal(mine["label"], theirs["label"])
        assert torch.equal(mine["id"], theirs["id"])
        for key, a, b in zip(mine["key"], mine["image"], theirs["image"], strict=True):
            assert torch.equal(a, b), f"the rows of {key} differ"
