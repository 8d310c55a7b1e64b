"""SA-1B of Segment Anything, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe


def annotation(number: int, bbox: list[float]) -> dict[str, Any]:
    return {
        "bbox": bbox,
        "area": 60,
        "segmentation": {"size": [30, 40], "counts": "Zk0"},
        "predicted_iou": 0.9,
        "point_coords": [[5.0, 6.0]],
        "crop_box": [0.0, 0.0, 40.0, 30.0],
        "id": number,
        "stability_score": 0.95,
    }


@becomes(
    "SA-1B: `sa_1.json` (masks as runs, bbox, no classes) beside `sa_1.jpg`",
    "boxes of the class `object`, with the scores as attributes; that masks are left out is said",
)
def test_masks_without_classes(tmp_path: Path) -> None:
    root = photos(tmp_path / "sa", "sa_1.jpg", "sa_2.jpg")
    for number, boxes in ((1, [[2.0, 3.0, 10.0, 6.0], [0.0, 0.0, 40.0, 30.0]]), (2, [])):
        image = {"image_id": number, "width": 40, "height": 30, "file_name": f"sa_{number}.jpg"}
        annotations = [annotation(index, box) for index, box in enumerate(boxes)]
        write(root / f"sa_{number}.json", {"image": image, "annotations": annotations})
    boxes, summary = packed_objects(root, tmp_path / "packed")
    assert boxes == {
        "sa_1.jpg": [("object", [2, 3, 12, 9]), ("object", [0, 0, 40, 30])],
        "sa_2.jpg": [],
    }
    scores = {"area": 60, "predicted_iou": 0.9, "stability_score": 0.95}
    assert values(tmp_path, "attributes")["sa_1.jpg"] == [scores, scores]
    without_class, without_masks = assumed(summary)
    assert without_class.startswith("boxes: 2, those of the masks; SA-1B has no classes")
    assert without_masks.startswith("masks of objects that are not packed: 2")
    assert fastpipe.open(tmp_path / "packed").classes == []
