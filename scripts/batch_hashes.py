"""Photos -> packs and batches of many kinds, and a line with the SHA-256 of each, to compare two machines.

    python scripts/batch_hashes.py FOLDER --photos PHOTOS > here.txt     some photos, packed in FOLDER
    python scripts/batch_hashes.py FOLDER > there.txt                    on the other machine, with a copy of FOLDER
    diff here.txt there.txt

Lines that begin with `pack` tell whether both make the same shards of the same files. The batches are those of the
packs in FOLDER, so they can be compared even if the shards differ.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

import fastpipe

PHOTOS = 12
PACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": ("jpeg", {}),
    "coefficients": ("jpeg", {"storage": "coefficients"}),
    "encoded": ("png", {"quality": 90}),
    "shrunk": ("png", {"max_size": 200, "lossless": True}),
    "png": ("png", {}),
}
LOADERS: dict[str, dict[str, Any]] = {
    "train": {},
    "train-exact": {"exact": True},
    "train-bicubic": {
        "crop": fastpipe.RandomResizedCrop(interpolation="bicubic"),
        "channels": "rgba",
    },
    "train-plain": {"crop": fastpipe.RandomResizedCrop(antialias=False)},
    "train-nearest": {"crop": fastpipe.RandomResizedCrop(interpolation="nearest")},
    "train-small": {"size": 64},
    "normalised": {"augment": fastpipe.Augment.imagenet()},
    "normalised-bfloat16": {"augment": fastpipe.Augment.imagenet(dtype=torch.bfloat16)},
    "float32": {"dtype": torch.float32},
    "uint16": {"dtype": torch.uint16},
    "gray": {"channels": "gray"},
    "random-crop": {
        "crop": fastpipe.RandomCrop(padding=8, pad_if_needed=True, padding_mode="reflect")
    },
    "evaluation": {"train": False},
    "letterbox": {"train": False, "crop": fastpipe.Letterbox()},
    "resize": {"train": False, "crop": fastpipe.Resize(interpolation="bicubic")},
    "five-crop": {"train": False, "crop": fastpipe.FiveCrop()},
    "views": {"views": [fastpipe.View(count=2), fastpipe.View(size=96, count=4)]},
    "bucket": {"size": "bucket", "batch_size": 2},
}


def main() -> None:
    """Makes the packs in FOLDER if photos are given, then a line for each shard of another try and for each batch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--photos", type=Path, help="a folder with JPEGs: some of them are packed in FOLDER"
    )
    arguments = parser.parse_args()
    if arguments.photos:
        make_sources(arguments.photos, arguments.folder / "sources")
        pack_all(arguments.folder / "sources", arguments.folder / "packs")
    with tempfile.TemporaryDirectory() as folder:
        pack_all(arguments.folder / "sources", Path(folder))
        for shard in sorted(Path(folder).rglob("*.tar")):
            say(f"pack {shard.relative_to(folder)}", shard.read_bytes())
    for pack in PACKS:
        for name, options in LOADERS.items():
            for number, images in enumerate(batches(arguments.folder / "packs" / pack, options)):
                say(
                    f"{pack} {name} {number}",
                    images.contiguous().view(torch.uint8).numpy().tobytes(),
                )


def say(name: str, data: bytes) -> None:
    sys.stdout.write(f"{name} {hashlib.sha256(data).hexdigest()}\n")
    sys.stdout.flush()


def make_sources(photos: Path, sources: Path) -> None:
    """JPEGs as they are; PNGs of them with RGB, gray, with alpha, and with 16 bits of which all vary, in turn."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    chosen = found[:: max(1, len(found) // PHOTOS)][:PHOTOS]
    for kind in ("jpeg", "png"):
        (sources / kind).mkdir(parents=True)
    for number, path in enumerate(chosen):
        (sources / "jpeg" / f"{number}.jpg").write_bytes(path.read_bytes())
        pixels = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE if number % 2 else cv2.IMREAD_COLOR)
        if number % 4 == 2:
            pixels = np.dstack([pixels, 255 - pixels[:, :, 0]])
        if number % 6 > 3:
            noise = np.random.default_rng(number).integers(0, 256, pixels.shape)
            pixels = (pixels.astype(np.uint16) << 8) + noise.astype(np.uint16)
        assert cv2.imwrite(str(sources / "png" / f"{number}.png"), pixels)


def pack_all(sources: Path, packs: Path) -> None:
    for name, (kind, options) in PACKS.items():
        fastpipe.pack(sources / kind, packs / name, **options)


def batches(packed: Path, options: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The images of two epochs, those of each view alone."""
    with fastpipe.loader(
        packed, **{"batch_size": 6, "seed": 3, "num_workers": 2} | options
    ) as loader:
        for _ in range(2):
            for batch in loader:
                yield from batch.images if isinstance(batch.images, list) else [batch.images]


if __name__ == "__main__":
    main()
