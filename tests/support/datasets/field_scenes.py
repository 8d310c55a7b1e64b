"""Pictures of one coloured shape each, with its box, mask and caption: small networks learn them in seconds."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

import fastpipe

SHAPES = ("square", "disc", "triangle")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 60),
    "blue": (50, 70, 230),
    "yellow": (230, 220, 50),
}
HEIGHT, WIDTH = 96, 128


def write_scenes(folder: Path, count: int, *, seed: int = 0) -> Path:
    """Packs pictures with the fields boxes, mask and caption; box labels count shapes from 0, masks from 1."""
    rng = np.random.default_rng(seed)
    fields = {"boxes": "boxes", "mask": "mask", "caption": "text"}
    with fastpipe.Writer(folder, fields=fields, classes=list(SHAPES)) as writer:
        for _ in range(count):
            shape, colour = int(rng.integers(len(SHAPES))), str(rng.choice(list(COLOURS)))
            side = int(rng.integers(30, 60))
            x, y = int(rng.integers(WIDTH - side)), int(rng.integers(HEIGHT - side))
            inside = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
            corners = [(x, y), (x + side - 1, y), (x + side - 1, y + side - 1), (x, y + side - 1)]
            if SHAPES[shape] == "disc":
                cv2.circle(inside, (x + side // 2, y + side // 2), side // 2 - 1, 1, cv2.FILLED)
            else:
                triangle = [(x + side // 2, y), *corners[2:]]
                outline = triangle if SHAPES[shape] == "triangle" else corners
                cv2.fillPoly(inside, [np.array(outline, dtype=np.int32)], 1)
            picture = rng.integers(60, 150, (HEIGHT, WIDTH, 3), dtype=np.uint8)
            picture[inside > 0] = COLOURS[colour]
            rows, columns = np.nonzero(inside)
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            writer.add(
                picture,
                label=shape,
                boxes={"boxes": [box], "labels": [shape]},
                mask=inside * (1 + shape),
                caption=f"a {colour} {SHAPES[shape]}",
            )
    return folder
