"""Fields with a value for each box: a loader that may drop boxes says that these values stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe

pytestmark = pytest.mark.usefixtures("warned_anew")
WORDS = "a value for each box of 'boxes'"
FIELDS = {
    "boxes": "boxes",
    "difficult": "json",
    "tags": "json",
    "joints": "keypoints",
    "objects": "mask",
    "areas": "mask",
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two or three boxes in each image, with lists, points, a mask that numbers them, and another one."""
    folder = tmp_path_factory.mktemp("objects") / "packed"
    rng = np.random.default_rng(0)
    with fastpipe.Writer(folder, FIELDS) as writer:
        for number in range(6):
            count = 2 + number % 2
            mask = np.zeros((40, 60), np.uint8)
            boxes = []
            for box in range(count):
                mask[5:20, 20 * box : 20 * box + 15] = box + 1
                boxes.append([20 * box, 5, 20 * box + 15, 20])
            writer.add(
                rng.integers(0, 256, (40, 60, 3), dtype=np.uint8),
                key=f"{number}.png",
                boxes=boxes,
                difficult=[0] * count,
                tags=["street"] * (number + 1),
                joints=[[[1, 2, 1], [3, 4, 1]]] * count,
                objects=mask,
                areas=np.full((40, 60), 7, np.uint8),
            )
    return folder


def warned_fields(log: pytest.LogCaptureFixture) -> Iterator[str]:
    for text in log.messages:
        if WORDS in text:
            yield text.partition(" ha")[0]


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        (("image", "boxes", "difficult"), ["difficult"]),
        (("image", "boxes", "objects", "areas", "tags"), ["objects"]),
        (("image", "boxes", fastpipe.Points("joints", flip_pairs=[])), ["joints"]),
        ({"image": "image", "target": "boxes", "hard": "difficult"}, ["difficult"]),
        (("image", "boxes", "tags", "areas"), []),
        (("image", "difficult", "objects"), []),
        (("image", fastpipe.Boxes("boxes", min_size=0), "difficult", "objects"), []),
    ],
)
def test_which_fields_belong_to_the_boxes(
    objects: Path, log: pytest.LogCaptureFixture, fields: Any, warned: list[str]
) -> None:
    with fastpipe.loader(objects, 2, size=16, fields=fields) as loader:
        next(iter(loader))
    assert list(warned_fields(log)) == warned


def test_the_advice_keeps_values_and_boxes_together(
    objects: Path, log: pytest.LogCaptureFixture
) -> None:
    def lengths_differ(boxes: Any) -> bool:
        fields = ("image", boxes, "difficult")
        with fastpipe.loader(objects, 2, size=16, fields=fields) as loader:
            pairs = [
                (len(row), len(values))
                for _ in range(5)
                for batch in loader
                for row, values in zip(batch["boxes"], batch["difficult"], strict=True)
            ]
        return any(count != number for count, number in pairs)

    assert lengths_differ("boxes")
    assert "Pass fastpipe.Boxes('boxes', min_size=0), which keeps all boxes" in log.text
    assert not lengths_differ(fastpipe.Boxes("boxes", min_size=0))


@pytest.mark.parametrize("options", [{"crop": fastpipe.Resize()}, {"size": fastpipe.Buckets()}])
def test_whole_images_lose_no_box(
    objects: Path, log: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    fields = ("image", "boxes", "difficult")
    fastpipe.loader(objects, 2, fields=fields, **options).close()
    assert list(warned_fields(log)) == []


def test_a_mask_that_cannot_be_read_stops_no_loader(
    objects: Path, copied: Callable[[Path], Path], log: pytest.LogCaptureFixture
) -> None:
    dataset = copied(objects)
    shard = dataset / "shard-000000.tar"
    content = bytearray(shard.read_bytes())
    for start in (found.start() for found in re.finditer(b"IDAT", bytes(content))):
        content[start + 10] ^= 0xFF
    shard.write_bytes(content)
    fields = ("image", "boxes", "objects")
    fastpipe.loader(dataset, 2, size=16, fields=fields, on_error="replace").close()
    assert list(warned_fields(log)) == []
