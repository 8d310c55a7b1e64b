"""The GeoJSON of xView, as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe
from fastpipe.errors import PackError


def feature(image: str, box: str, type_id: int) -> dict[str, Any]:
    properties = {"bounds_imcoords": box, "type_id": type_id, "image_id": image}
    degrees = {"type": "Polygon", "coordinates": [[[36.8, -1.2], [36.8, -1.1], [36.9, -1.2]]]}
    return {"type": "Feature", "properties": properties, "geometry": degrees}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = photos(tmp_path / "src", "train_images/5.tif", "train_images/88.tif")
    features = [
        feature("88.tif", "4,5,14,20", 73),
        feature("5.tif", "-7,2,9,12", 18),
        feature("88.tif", "1,2,3,4", 75),
    ]
    content = {"type": "FeatureCollection", "crs": {"type": "name"}, "features": features}
    write(root / "train_labels/xView_train.geojson", content)
    write(root / "xview_class_labels.txt", "18:Small Car\n73:Building\n")
    return root


@becomes(
    "xView: `train_images/*.tif`, `train_labels/xView_train.geojson`, `xview_class_labels.txt`",
    "boxes in pixels, cut off at the edge, with the names of the list; a number without a name is its own",
)
def test_features(tmp_path: Path, source: Path) -> None:
    for root in (source, source / "train_labels/xView_train.geojson"):
        boxes, summary = packed_objects(root, tmp_path / "packed")
        assert {Path(key).name: objects for key, objects in boxes.items()} == {
            "5.tif": [("Small Car", [0, 2, 9, 12])],
            "88.tif": [("Building", [4, 5, 14, 20]), ("75", [1, 2, 3, 4])],
        }
        assert len(assumed(summary)) == 2
        assert "objects whose type_id has no name: 1" in assumed(summary)[1]


def test_the_images_alone(tmp_path: Path, source: Path) -> None:
    (said,) = assumed(fastpipe.pack(source / "train_images", tmp_path / "packed"))
    file = source / "train_labels/xView_train.geojson"
    root = source / "train_images"
    assert f"To pack both: fastpipe pack {file} DST --image-root {root}" in said
    boxes, _ = packed_objects(file, tmp_path / "packed", image_root=root)
    assert set(boxes) == {"5.tif", "88.tif"}


def test_other_geojson(tmp_path: Path) -> None:
    file = write(tmp_path / "roads.geojson", {"type": "FeatureCollection", "features": []})
    with pytest.raises(PackError, match=r"roads.geojson is a file of GeoJSON.*does not read"):
        fastpipe.pack(file, tmp_path / "packed")
