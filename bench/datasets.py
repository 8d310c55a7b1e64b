"""A folder of photos -> every peer's own form of them, in the work folder.

Peers' are kept from run to run; fastpipe's are packed anew in each, since its engine is what changes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench import contest
from bench.roster import (
    COEFFICIENTS,
    COEFFICIENTS_500,
    COEFFICIENTS_GRAY,
    PACKED,
    PACKED_500,
    PACKED_GRAY,
    PACKED_PNGS,
    PACKED_SHRUNK,
    PACKED_SMALL,
    PHOTOS,
    PNGS,
    SCRIPTS,
    SHRUNK_PHOTOS,
    SMALL,
    Peer,
)

_LIMITED, _STORED = ("--max-size", "500", "--quality", "90"), ("--storage", "coefficients")
PACKING = {
    PACKED: (PHOTOS, ()),
    PACKED_500: (PHOTOS, _LIMITED),
    PACKED_SHRUNK: (SHRUNK_PHOTOS, ()),
    COEFFICIENTS: (PHOTOS, _STORED),
    COEFFICIENTS_500: (PHOTOS, (*_LIMITED, *_STORED)),
    PACKED_PNGS: (PNGS, ()),
    PACKED_SMALL: (SMALL, ()),
    PACKED_GRAY: (PHOTOS, ()),
    COEFFICIENTS_GRAY: (PHOTOS, _STORED),
}
_EACH = 8  # small images of a photo


def gather(source: Path, work: Path, samples: int) -> int:
    """Copies photos into the work folder, each as often as makes `samples` of them, or every so many-th of a large set.

    Copies, not links: a loader of files shall find as many bytes in the page cache as one of shards.
    """
    found = sorted(path for path in source.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(
            f"expected JPEG files in one folder for each class, in {source}; found none"
        )
    found = found[:: max(1, len(found) // samples)]
    copies = -(-samples // len(found))
    listing = hashlib.sha256(
        repr([(str(path), path.stat().st_size) for path in found]).encode()
    ).hexdigest()

    def make(destination: Path) -> None:
        for path in found:
            folder = destination / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            for copy in range(copies):
                shutil.copyfile(path, folder / f"{path.stem}-{copy:03d}.jpg")

    _once(work / PHOTOS, f"{listing} {copies}", make)
    return copies * len(found)


def shrink(work: Path) -> None:
    """The photos as FFCV's writer stores them: at most 500 pixels long, all encoded again with quality 90."""
    script = SCRIPTS / "shrink_photos.py"

    def make(destination: Path) -> None:
        python = contest.python("ffcv")
        contest.run(
            [python, str(script), str(work / PHOTOS), str(destination)], "ffcv", work, 24 * 3600
        )

    _once(work / SHRUNK_PHOTOS, _stamp(work / PHOTOS) + _hash(script), make)


def as_pngs(work: Path) -> None:
    """The photos' pixels as Pillow writes them."""

    def make(destination: Path) -> None:
        for path in sorted((work / PHOTOS).glob("*/*.jpg")):
            png = destination / path.parent.name / f"{path.stem}.png"
            png.parent.mkdir(parents=True, exist_ok=True)
            if path.stem.endswith("-000"):
                Image.open(path).convert("RGB").save(png)
            else:  # copies stay copies
                shutil.copyfile(png.with_stem(f"{path.stem[:-4]}-000"), png)

    _once(work / PNGS, _stamp(work / PHOTOS) + _hash(Path(__file__)), make)


def small_images(work: Path) -> None:
    """Random squares of the photos at 32 x 32 pixels, all different, as PNGs."""

    def make(destination: Path) -> None:
        draws = np.random.default_rng(0)
        for path in sorted((work / PHOTOS).glob("*/*.jpg")):
            folder = destination / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            photo = Image.open(path).convert("RGB")
            for number in range(_EACH):
                side = draws.uniform(0.5, 1.0) * min(photo.size)
                x, y = (draws.uniform(0, length - side) for length in photo.size)
                square = photo.resize(
                    (32, 32), Image.Resampling.BILINEAR, (x, y, x + side, y + side)
                )
                square.save(folder / f"{path.stem}-{number}.png")

    _once(work / SMALL, _stamp(work / PHOTOS) + _hash(Path(__file__)), make)


_DERIVED = {SHRUNK_PHOTOS: shrink, PNGS: as_pngs, SMALL: small_images}


def of_peer(peer: Peer, work: Path, workers: int) -> None:
    """What a peer reads, made by its own writer; nothing to do where it reads the photos."""
    if peer.data == PHOTOS or peer.data in PACKING:
        return
    if peer.data in _DERIVED:
        _DERIVED[peer.data](work)
        return
    if peer.small:
        small_images(work)
    photos = SMALL if peer.small else PHOTOS
    _once(
        work / peer.data, _made_of(peer, work), lambda _: contest.write(peer, work, photos, workers)
    )


def rewrite(peer: Peer, work: Path, workers: int) -> dict[str, Any]:
    """What a peer reads, made anew; returns what its writer says."""
    shutil.rmtree(work / peer.data, ignore_errors=True)
    said = contest.write(peer, work, PHOTOS, workers)
    _stamp_file(work / peer.data).write_text(_made_of(peer, work))
    return said


def pack(name: str, work: Path, workers: int) -> dict[str, Any]:
    """Packs one of fastpipe's datasets, always from nothing, and returns what `fastpipe pack --json` says."""
    photos, options = PACKING[name]
    shutil.rmtree(work / name, ignore_errors=True)
    if photos in _DERIVED:
        _DERIVED[photos](work)
    program = "from fastpipe.tools.cli import main; main()"
    command = [
        contest.python(""),
        "-P",
        "-c",
        program,
        "pack",
        str(work / photos),
        str(work / name),
    ]
    return contest.run(
        [*command, "--workers", str(workers), "--json", *options], "", work, 24 * 3600
    )


def warm(folder: Path) -> int:
    """Reads every file, so that all are in the page cache; returns their bytes."""
    total = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while block := file.read(1 << 22):
                    total += len(block)
    return total


def size(folder: Path) -> int:
    """Bytes of its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _once(destination: Path, made_of: str, make: Callable[[Path], Any]) -> None:
    stamp = _stamp_file(destination)
    if destination.exists() and stamp.exists() and stamp.read_text() == made_of:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(destination, ignore_errors=True)
    make(destination)
    stamp.write_text(made_of)


def _made_of(peer: Peer, work: Path) -> str:
    requirements = SCRIPTS / "requirements" / f"{peer.environment}.txt"
    return _stamp(work / PHOTOS) + _hash(SCRIPTS / peer.script) + _hash(requirements)


def _stamp_file(dataset: Path) -> Path:
    return dataset.parent / f"{dataset.name}.stamp"


def _stamp(dataset: Path) -> str:
    return _stamp_file(dataset).read_text()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
