"""The JSON of VGG's image annotator (VIA), as people have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values, write

import fastpipe
from fastpipe.errors import PackError

RECT = {"name": "rect", "x": 2, "y": 3, "width": 8, "height": 9}
POLYGON = {"name": "polygon", "all_points_x": [5, 20, 18], "all_points_y": [6, 8, 25]}
CIRCLE = {"name": "circle", "cx": 10, "cy": 10, "r": 4}


def region(shape: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"shape_attributes": shape, "region_attributes": attributes}


def entries(**regions: Any) -> dict[str, Any]:
    return {
        f"{name}.jpg123": {
            "filename": f"{name}.jpg",
            "size": 123,
            "regions": of_image,
            "file_attributes": {},
        }
        for name, of_image in regions.items()
    }


@becomes(
    "VGG's annotator (VIA): `via_region_data.json`, or a project, beside the images",
    "boxes, with the names that an attribute says",
)
def test_shapes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    regions = [
        region(RECT, type="dog", blurred={"yes": True}),
        region(POLYGON, type="cat"),
        region(CIRCLE, type="cat"),
        region({"name": "point", "cx": 1, "cy": 2}, type="cat"),
        region({"name": "polyline", "all_points_x": [1], "all_points_y": [2]}, type="cat"),
    ]
    content = entries(a=regions, b=[])
    for version in (content, {"_via_settings": {}, "_via_img_metadata": content}):
        file = write(source / "via.json", version)
        for root in (source, file):
            boxes, summary = packed_objects(root, tmp_path / "packed")
            assert boxes == {
                "a.jpg": [
                    ("dog", [2, 3, 10, 12]),
                    ("cat", [5, 6, 20, 25]),
                    ("cat", [6, 6, 14, 14]),
                ],
                "b.jpg": [],
            }
            assert values(tmp_path, "attributes")["a.jpg"][0] == {"blurred": {"yes": True}}
            assert assumed(summary) == [
                "boxes: those around circles (1), polygons (1), cut off at the edge of the image; the "
                "option packs masks of them, too (--field boxes --field attributes --field "
                "mask=segmentation:mask)",
                "left out, because they give no box: lines (1), points (1)",
                "images without a region: 1; they are packed as images without boxes",
            ]


@becomes(
    "balloon: VIA 1's regions without attributes in `train/` and `val/`",
    "one class `object`; this is said",
    "--split train",
)
def test_regions_without_a_class(tmp_path: Path) -> None:
    for split in ("train", "val"):
        source = photos(tmp_path / "balloon" / split, f"{split}.jpg")
        write(source / "via_region_data.json", entries(**{split: {"0": region(POLYGON)}}))
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(tmp_path / "balloon", tmp_path / "none")
    boxes, summary = packed_objects(tmp_path / "balloon", tmp_path / "packed", split="train")
    assert boxes == {"train.jpg": [("object", [5, 6, 20, 25])]}
    assert "regions without a class: 1; their class is called object" in assumed(summary)


@becomes("VIA: regions with several attributes, none of which has a name for classes", "refused")
@becomes("VIA: a region without the attribute of the others", "the image is rejected")
def test_what_cannot_be_read(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    file = write(source / "via.json", entries(a=[region(RECT, colour="red", size="big")]))
    with pytest.raises(PackError, match=r"the attributes colour, size.* rename the one with"):
        fastpipe.pack(file, tmp_path / "none")
    write(file, entries(a=[region(RECT, name="dog")], b=[region(RECT)]))
    summary = fastpipe.pack(source, tmp_path / "packed")
    ((path, reason),) = summary.tally.rejected
    assert path == "b.jpg"
    assert "region 0: expected the name of a class" in reason


@becomes("VIA: its CSV beside the images", "boxes, as from its JSON")
def test_table(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    head = (
        "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,"
        "region_attributes\n"
    )
    shape = '"{""name"":""rect"",""x"":2,""y"":3,""width"":8,""height"":9}"'
    rows = f'a.jpg,9,"{{}}",1,0,{shape},"{{""name"":""dog""}}"\nb.jpg,9,"{{}}",0,0,"{{}}","{{}}"\n'
    file = write(source / "via_export_csv.csv", head + rows)
    for root in (source, file):
        boxes, _ = packed_objects(root, tmp_path / "packed")
        assert boxes == {"a.jpg": [("dog", [2, 3, 10, 12])], "b.jpg": []}


def test_a_polygon_larger_than_csv_takes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    numbers = ",".join(["1"] * 80_000)
    shape = f'{{""name"":""polygon"",""all_points_x"":[{numbers}]}}'
    write(
        source / "via.csv",
        "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,"
        f'region_attributes\na.jpg,1,"{{}}",1,0,"{shape}","{{}}"\n',
    )
    with pytest.raises(PackError, match=r"via\.csv: field larger than field limit"):
        fastpipe.pack(source / "via.csv", tmp_path / "packed", format="annotations")
