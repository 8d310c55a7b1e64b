"""A list of sizes -> a packed dataset of pictures of these sizes, whose fields move with a crop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.pictures.drawn import smooth_noise

import fastpipe


def write_shapes(
    folder: Path, sizes: Sequence[tuple[int, int]], count: int, *, with_pages: bool = False
) -> Path:
    """Packs pictures of each (width, height) in turn, with a box, a point at its corner and a mask of it.

    With pages, the field `pages` has none to two pictures of each sample.
    """
    fields = {"boxes": "boxes", "mask": "mask", "points": "keypoints"}
    if with_pages:
        fields["pages"] = "images"
    with fastpipe.Writer(folder, fields=fields, classes=["a", "b"]) as writer:
        for number in range(count):
            width, height = sizes[number % len(sizes)]
            x, y = width // 4, height // 3
            right, bottom = x + width // 2, y + height // 2
            mask = np.zeros((height, width), dtype=np.uint8)
            mask[y:bottom, x:right] = 1 + number % 5
            pages: dict[str, Any] = {}
            if with_pages:
                page = smooth_noise(30 + number % 50, 60, seed=number)
                pages["pages"] = [page] * (number % 3)
            writer.add(
                smooth_noise(width, height, seed=number),
                label=number % 2,
                boxes={"boxes": [(x, y, right, bottom)], "labels": [number % 5]},
                points=[[(x, y, 2)]],
                mask=mask,
                **pages,
            )
    return folder
