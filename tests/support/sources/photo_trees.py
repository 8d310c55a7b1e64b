"""Trees of small photos, and what a pack or a loader makes of them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

import fastpipe


def photos(root: Path, *paths: str) -> Path:
    """A photo of 16 x 16 at each path; each has a colour of its own."""
    for number, path in enumerate(paths):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (20 * number % 256, 90, 30)).save(file)
    return root


def labels_of(data: fastpipe.Dataset) -> dict[str, int]:
    """Sample -> its label."""
    return dict(zip(list(data["key"]), [int(label) for label in data["label"]], strict=True))


def packed_labels(
    source: Path, destination: Path, **options: str
) -> tuple[list[str], dict[str, int]]:
    """Packs; the classes, and the label of each sample. Nothing may be rejected."""
    assert not fastpipe.pack(source, destination, **options).tally.rejected  # type: ignore[arg-type]
    data = fastpipe.open(destination)
    return data.classes, labels_of(data)
