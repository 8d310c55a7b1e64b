"""Supervisely's projects, as people have them."""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError


def item(name: str, kind: str, exterior: Any = (), **more: Any) -> dict[str, Any]:
    points = {"exterior": list(exterior), "interior": []}
    return {"classTitle": name, "geometryType": kind, "points": points, "tags": [], **more}


def annotation(*items: dict[str, Any]) -> dict[str, Any]:
    size = {"height": 30, "width": 40}
    return {"description": "", "tags": [], "size": size, "objects": list(items)}


def bitmap(size: tuple[int, int]) -> str:
    file = io.BytesIO()
    Image.new("1", size, 1).save(file, "PNG")
    return base64.b64encode(zlib.compress(file.getvalue())).decode()


CAR = item("car", "rectangle", [[12, 20], [2, 3]])


@becomes(
    "Supervisely: `meta.json`, `ds1/img`, `ds1/ann/a.jpg.json`, several datasets",
    "boxes; those around polygons and bitmaps are counted; the last pixels are inside",
)
def test_shapes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "ds1/img/a.jpg", "ds1/img/b.png", "ds2/img/a.jpg")
    write(source / "meta.json", {"classes": [{"title": "car"}], "tags": []})
    tree = item("tree", "bitmap", bitmap={"data": bitmap((6, 4)), "origin": [20, 10]})
    tagged = {**CAR, "tags": [{"name": "parked", "value": None}, {"name": "doors", "value": 4}]}
    items = [
        tagged,
        item("road", "polygon", [[5, 6], [39, 8], [18, 25]]),
        tree,
        item("x", "point", [[1, 2]]),
    ]
    write(source / "ds1/ann/a.jpg.json", annotation(*items))
    write(source / "ds1/ann/b.png.json", annotation())
    write(source / "ds2/ann/a.jpg.json", annotation(CAR))
    boxes, summary = packed_objects(source, tmp_path / "packed")
    assert boxes == {
        "ds1/img/a.jpg": [
            ("car", [2, 3, 13, 21]),
            ("road", [5, 6, 40, 26]),
            ("tree", [20, 10, 26, 14]),
        ],
        "ds1/img/b.png": [],
        "ds2/img/a.jpg": [("car", [2, 3, 13, 21])],
    }
    attributes = values(tmp_path, "attributes")["ds1/img/a.jpg"]
    assert attributes == [{"parked": True, "doors": 4}, {}, {}]
    assert assumed(summary) == [
        "boxes: those around bitmaps (1), polygons (1), cut off at the edge of the image; the option "
        "packs masks of them, too (--field boxes --field attributes --field mask=segmentation:mask)",
        "left out, because they give no box: points (1)",
        "boxes: 3; the right and lower pixels that Supervisely writes are inside, so these sides are 1 "
        "pixel larger than written",
    ]
    boxes, _ = packed_objects(source / "ds2", tmp_path / "packed")
    assert list(boxes) == ["img/a.jpg"]


@becomes("Supervisely: datasets `train` and `val`", "the split that is asked for", "--split train")
@becomes("Supervisely: a damaged bitmap", "the image is rejected")
def test_splits(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/img/a.jpg", "train/img/b.jpg", "val/img/a.jpg")
    write(source / "train/ann/a.jpg.json", annotation(CAR))
    broken = item("tree", "bitmap", bitmap={"data": "AAAA", "origin": [20, 10]})
    write(source / "train/ann/b.jpg.json", annotation(broken))
    write(source / "val/ann/a.jpg.json", annotation({**CAR, "classTitle": "bus"}))
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert objects(tmp_path / "packed") == {"train/img/a.jpg": [("car", [2, 3, 13, 21])]}
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("bus", "car")
    ((path, reason),) = summary.tally.rejected
    assert path == "train/img/b.jpg"
    assert "object 0: its bitmap is damaged" in reason
