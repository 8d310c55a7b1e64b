"""Boxes, points and masks of photos that EXIF turns: of the picture as its tool shows it, or as it is stored."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from support.programs.cli_run import succeeded
from support.ray.tasks_here import Cluster
from support.sources.becomes import becomes
from support.sources.turned import (
    BOX,
    SHOWN,
    as_stored,
    bright_box,
    check_boxes,
    photo,
    photos,
    rectangle,
    samples,
    stored_size,
)

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, PackError

ASSUMED = "boxes, points and masks of {} images that EXIF turns: of the image as it is shown, not as it is stored"
OPTION = "--coordinates shown or stored"
IN_BOTH = pytest.mark.parametrize("exif", ["ignore", "apply"])
SQUARE = 24, 24


def assumed(summary: fastpipe.Summary) -> list[tuple[str, ...]]:
    return [tuple(each) for each in summary.assumed]


def write_yolo(root: Path) -> Path:
    photos(root / "images")
    (root / "labels").mkdir()
    (root / "classes.txt").write_text("cat\n")
    for orientation in range(1, 9):  # the box as shares of the photo as shown
        (root / "labels" / f"{orientation}.txt").write_text("0 0.25 0.125 0.5 0.25\n")
    return root


@IN_BOTH
@becomes(
    "YOLO, photos with an EXIF orientation",
    "boxes of the photo as it is shown",
    "--coordinates stored",
)
def test_yolo(tmp_path: Path, exif: str) -> None:
    summary = fastpipe.pack(write_yolo(tmp_path / "yolo"), tmp_path / "packed", exif=exif)
    check_boxes(tmp_path / "packed", exif=exif)
    assert assumed(summary) == [(ASSUMED.format(7), OPTION)]
    again = fastpipe.pack(tmp_path / "yolo", tmp_path / "packed", exif=exif)
    assert again.already_packed
    assert again.assumed == summary.assumed
    of_6 = samples(tmp_path / "packed", "boxes")[6]["boxes"].tolist()
    assert of_6 == ([[0, 0, 10, 10]] if exif == "apply" else [[0, 10, 10, 20]])


@IN_BOTH
@becomes(
    "YOLO with kpt_shape, photos with an EXIF orientation",
    "points of the photo as it is shown; those at the corners of a box stay there; 0 0 with visibility 0 stays",
    "--coordinates stored",
)
def test_points_of_yolo(tmp_path: Path, exif: str) -> None:
    yolo = write_yolo(tmp_path / "yolo")
    (yolo / "classes.txt").unlink()
    (yolo / "data.yaml").write_text("names: [cat]\nkpt_shape: [3, 3]\n")
    # The left top and right bottom of the box of `write_yolo`.
    for orientation in range(1, 9):
        line = "0 0.25 0.125 0.5 0.25 0 0 2 0.5 0.25 1 0 0 0\n"
        (yolo / "labels" / f"{orientation}.txt").write_text(line)
    fastpipe.pack(yolo, tmp_path / "packed", exif=exif)
    for orientation, sample in samples(tmp_path / "packed", "boxes", "keypoints").items():
        left, top, right, bottom = sample["boxes"][0].tolist()
        first, second, missing = sample["keypoints"][0].tolist()
        corners = [{left, right}, {top, bottom}]
        assert [{first[0], second[0]}, {first[1], second[1]}] == corners, orientation
        assert missing == [0, 0], orientation


def test_the_command_shows_it_whole_and_takes_the_option(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo")
    shown = succeeded("pack", yolo, tmp_path / "packed")
    words = " ".join(shown.replace("│", " ").split())
    assert f"{ASSUMED.format(7)} ({OPTION})" in words
    said = succeeded("pack", yolo, tmp_path / "stored", "--coordinates", "stored")
    assert "assumed" not in said
    assert samples(tmp_path / "stored", "boxes")[6]["boxes"].tolist() == [[0, 0, 20, 5]]


def test_the_user_says_that_coordinates_are_of_stored_photos(tmp_path: Path) -> None:
    """Shares of the photo of 40 x 20 pixels as stored."""
    yolo = write_yolo(tmp_path / "yolo")
    expected = {"ignore": [0, 0, 20, 5], "apply": [15, 0, 20, 20]}
    for exif, box in expected.items():
        summary = fastpipe.pack(yolo, tmp_path / exif, exif=exif, coordinates="stored")
        assert assumed(summary) == []
        assert samples(tmp_path / exif, "boxes")[6]["boxes"].tolist() == [box]
        assert summary.info["packs"][0]["options"]["source"] == {"coordinates": "stored"}
    with pytest.raises(
        ConfigError, match=r"^coordinates: expected 'shown' or 'stored', got 'upright'"
    ):
        fastpipe.pack(yolo, tmp_path / "other", coordinates="upright")
    photos(tmp_path / "alone")
    with pytest.raises(PackError, match=r"^coordinates: it has no effect on a folder of images"):
        fastpipe.pack(tmp_path / "alone", tmp_path / "other", coordinates="shown")


def write_coco(
    root: Path,
    *,
    size: tuple[int, int] = SHOWN,
    stored: bool = False,
    sizes: bool = True,
    box: tuple[int, ...] = BOX,
) -> Path:
    """A box, a polygon, two runs and a point for each photo; of the photos as shown, or as `stored`."""
    photos(root, size, box)
    images, notes = [], []
    for orientation in range(1, 9):
        mask = rectangle(size, box, 1)
        x0, y0, x1, y1 = box
        if stored:
            mask = as_stored(mask, orientation)
            x0, y0, x1, y1 = bright_box(255 * mask)
        image = {"id": orientation, "file_name": f"{orientation}.jpg"}
        images.append(image | ({"width": mask.shape[1], "height": mask.shape[0]} if sizes else {}))
        runs = coco_mask.encode(np.asfortranarray(mask))
        polygon = [x0, y0, x1, y0, x1, y1, x0, y1]
        shapes: list[Any] = [
            [polygon],
            {"size": list(mask.shape), "counts": runs["counts"].decode()},
        ]
        for number, shape in enumerate(shapes):
            note = {
                "image_id": orientation,
                "category_id": 1 + number,
                "bbox": [x0, y0, x1 - x0, y1 - y0],
            }
            note |= {
                "id": 2 * orientation + number,
                "segmentation": shape,
                "keypoints": [x0, y0, 2],
            }
            notes.append(note)
    categories = [
        {"id": number, "name": f"c{number}", "keypoints": ["corner"]} for number in (1, 2)
    ]
    (root / "all.json").write_text(
        json.dumps({"images": images, "annotations": notes, "categories": categories})
    )
    return root / "all.json"


FIELDS = ["boxes=bbox", "points=keypoints", "objects=instances:mask"]


def check_coco(packed: Path, *, exif: str, stored: bool, size: tuple[int, int] = SHOWN) -> None:
    """Boxes and masks are those of the bright pixels; a point is the corner pixel of the rectangle."""
    for orientation, sample in samples(packed, "boxes", "points", "objects").items():
        image = np.asarray(sample["image"])
        expected = size if exif == "apply" else stored_size(orientation, size)
        assert image.shape[:0:-1] == expected, orientation
        box = bright_box(image)
        assert sample["boxes"].tolist() == [box, box], orientation
        mask = np.asarray(sample["objects"])
        assert bright_box(255 * (mask == 2)) == box, (
            orientation
        )  # the runs cover the polygon, which has the same box
        first = rectangle(stored_size(orientation, size) if stored else size, (0, 0, 1, 1))
        (x, y) = sample["points"][0, 0].tolist()
        assert box[0] <= x < box[2], orientation
        assert box[1] <= y < box[3], orientation
        if not stored:  # the point is at the corner of the picture as shown
            first = first if exif == "apply" else as_stored(first, orientation)
            assert [x, y] == bright_box(first)[:2], orientation


@IN_BOTH
@becomes(
    "COCO, photos with an EXIF orientation; width and height as shown, or as stored",
    "boxes, points, polygons and runs of the image that has this size; orientations 2 to 4: as shown",
    "--coordinates stored",
)
def test_coco(tmp_path: Path, exif: str) -> None:
    summary = fastpipe.pack(
        write_coco(tmp_path / "shown"), tmp_path / "packed", exif=exif, fields=FIELDS
    )
    check_coco(tmp_path / "packed", exif=exif, stored=False)
    assert assumed(summary) == [(ASSUMED.format(3), OPTION)]
    assert not summary.tally.rejected


@IN_BOTH
def test_coco_of_stored_photos(tmp_path: Path, exif: str) -> None:
    """The sizes tell it of orientations 5 to 8, the user of all."""
    coco = write_coco(tmp_path / "coco", stored=True)
    fastpipe.pack(coco, tmp_path / "packed", exif=exif, fields=FIELDS)
    found = samples(tmp_path / "packed", "boxes")
    wrong = {
        each
        for each, sample in found.items()
        if sample["boxes"].tolist()[0] != bright_box(sample["image"])
    }
    assert wrong == {2, 3, 4}
    summary = fastpipe.pack(coco, tmp_path / "said", exif=exif, fields=FIELDS, coordinates="stored")
    check_coco(tmp_path / "said", exif=exif, stored=True)
    assert assumed(summary) == []


@IN_BOTH
@becomes(
    "COCO without width and height, or of square photos, with an EXIF orientation",
    "boxes, points and masks of the photo as it is shown",
    "--coordinates stored",
)
def test_coco_where_no_size_tells(tmp_path: Path, exif: str) -> None:
    summary = fastpipe.pack(
        write_coco(tmp_path / "square", size=SQUARE), tmp_path / "packed", exif=exif, fields=FIELDS
    )
    check_coco(tmp_path / "packed", exif=exif, stored=False, size=SQUARE)
    assert assumed(summary) == [(ASSUMED.format(7), OPTION)]
    coco = write_coco(tmp_path / "unsized", sizes=False)
    summary = fastpipe.pack(coco, tmp_path / "more", exif=exif, fields=FIELDS)
    check_coco(tmp_path / "more", exif=exif, stored=False)
    assert assumed(summary) == [(ASSUMED.format(7), OPTION)]


def write_label_studio(root: Path, box: tuple[int, ...]) -> Path:
    """COCO as Label Studio exports it: sizes as stored, and a box of each photo as shown."""
    coco = write_coco(root, box=box)
    exported = json.loads(coco.read_text())
    for image in exported["images"]:
        image["width"], image["height"] = stored_size(image["id"])
    notes = [note for note in exported["annotations"] if note["category_id"] == 1]
    for note in notes:
        del note["segmentation"], note["keypoints"]
    coco.write_text(json.dumps(exported | {"annotations": notes}))
    return coco


STORED_BY_SIZE = (
    "boxes and points of 4 images that EXIF turns: of the image as it is stored, for the "
    "annotations have its width and height; if they were drawn on the image as it is shown, they "
    "are wrong"
)


@IN_BOTH
@becomes(
    "COCO of Label Studio, photos with an EXIF orientation: width and height as stored, boxes as shown",
    "rejected where the boxes do not fit, with the option; else of the photo as stored, which is said",
    "--coordinates shown",
)
def test_coco_with_sizes_as_stored_and_boxes_as_shown(tmp_path: Path, exif: str) -> None:
    below = 0, 22, 10, 32  # below the border of a photo as stored, which is 20 pixels high
    coco = write_label_studio(tmp_path / "below", below)
    summary = fastpipe.pack(coco, tmp_path / "packed", exif=exif)
    rejected = summary.tally.rejected
    assert sorted(path for path, _ in rejected) == [f"{turned}.jpg" for turned in (5, 6, 7, 8)]
    for _, reason in rejected:
        assert reason.endswith(
            "they lie inside the image as it is shown by its EXIF orientation: --coordinates shown "
            "packs them so"
        )
    coco = write_label_studio(tmp_path / "inside", BOX)
    summary = fastpipe.pack(coco, tmp_path / "inside_packed", exif=exif)
    assert (STORED_BY_SIZE, "--coordinates stored or shown") in assumed(summary)
    assert summary.info["counts"]["assumed_stored"] == 4

    for name in ("below", "inside"):
        packed = tmp_path / f"{name}_shown"
        summary = fastpipe.pack(
            tmp_path / name / "all.json", packed, exif=exif, coordinates="shown"
        )
        assert assumed(summary) == []
        check_boxes(packed, exif=exif)


def test_boxes_that_fit_the_stored_photo_alone_are_certain(tmp_path: Path) -> None:
    """The box is wider than the photo as shown."""
    coco = write_coco(tmp_path / "coco", stored=True)
    exported = json.loads(coco.read_text())
    for note in exported["annotations"]:
        note["bbox"] = [0, 0, *stored_size(note["image_id"])]
        del note["segmentation"], note["keypoints"]
    coco.write_text(json.dumps(exported))
    summary = fastpipe.pack(coco, tmp_path / "packed")
    assert "assumed_stored" not in summary.info["counts"]


@IN_BOTH
def test_the_users_word_counts_more_than_a_size(tmp_path: Path, exif: str) -> None:
    """A program writes the size that Pillow tells, and boxes of a tool."""
    coco = write_coco(tmp_path / "coco")
    said = json.loads(coco.read_text())
    for image in said["images"]:
        image["width"], image["height"] = stored_size(image["id"])
    said["annotations"] = [note for note in said["annotations"] if note["category_id"] == 1]
    coco.write_text(json.dumps(said))
    summary = fastpipe.pack(
        coco, tmp_path / "packed", exif=exif, fields=["boxes=bbox"], coordinates="shown"
    )
    check_boxes(tmp_path / "packed", exif=exif)
    assert not summary.tally.rejected
    assert assumed(summary) == []


@IN_BOTH
def test_values_of_shrunk_photos(tmp_path: Path, exif: str) -> None:
    summary = fastpipe.pack(
        write_coco(tmp_path / "coco"), tmp_path / "packed", exif=exif, fields=FIELDS, max_size=20
    )
    assert not summary.tally.rejected
    found = samples(tmp_path / "packed", "boxes", "objects")
    assert {tuple(sorted(sample["image"].shape[1:])) for sample in found.values()} == {(10, 20)}
    for orientation, sample in found.items():
        box = bright_box(sample["image"])
        assert sample["boxes"].tolist() == [box, box], orientation
        assert bright_box(255 * (np.asarray(sample["objects"]) == 2)) == box, orientation


def test_runs_that_contradict_the_users_word_are_refused(tmp_path: Path) -> None:
    """They say the size themselves."""
    coco = write_coco(tmp_path / "coco")
    summary = fastpipe.pack(coco, tmp_path / "packed", fields=FIELDS, coordinates="stored")
    assert sorted(path for path, _ in summary.tally.rejected) == [
        "5.jpg",
        "6.jpg",
        "7.jpg",
        "8.jpg",
    ]
    assert "runs of size [20, 40]" in summary.tally.rejected[0][1]


def test_other_sizes_are_refused(tmp_path: Path) -> None:
    coco = write_coco(tmp_path / "coco")
    said = json.loads(coco.read_text())
    said["images"][5]["width"] = 21
    coco.write_text(json.dumps(said))
    reasons = fastpipe.pack(coco, tmp_path / "packed").tally.rejected
    got = "20 x 40 (as shown) or 40 x 20 (as stored)"
    assert reasons == [("6.jpg", f"expected 21 x 40 pixels, as its annotations say; got {got}")]


@IN_BOTH
@pytest.mark.parametrize("sized", [True, False])
@becomes(
    "Pascal VOC, photos with an EXIF orientation",
    "boxes of the photo that has the size in <size>; else as shown",
)
def test_voc(tmp_path: Path, exif: str, *, sized: bool) -> None:
    photos(tmp_path / "voc/JPEGImages")
    (tmp_path / "voc/Annotations").mkdir()
    size = "<size><width>20</width><height>40</height></size>" if sized else ""
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>10</xmax><ymax>10</ymax></bndbox>"
    for orientation in range(1, 9):
        annotated = f"<object><name>a</name>{box}</object>"
        text = f"<annotation><filename>{orientation}.jpg</filename>{size}{annotated}</annotation>"
        (tmp_path / f"voc/Annotations/{orientation}.xml").write_text(text)
    summary = fastpipe.pack(tmp_path / "voc", tmp_path / "packed", exif=exif)
    check_boxes(tmp_path / "packed", exif=exif)
    (counted_from, _), turned = assumed(summary)
    assert counted_from.startswith("boxes: pixels are counted from 1, as VOC counts them")
    assert turned == (ASSUMED.format(3 if sized else 7), OPTION)


@IN_BOTH
@becomes(
    "JSONL or a table with boxes, photos with an EXIF orientation",
    "boxes of the photo as it is shown",
    OPTION,
)
def test_jsonl(tmp_path: Path, exif: str) -> None:
    photos(tmp_path / "src")
    rows = [{"path": f"{number}.jpg", "boxes": [BOX]} for number in range(1, 9)]
    (tmp_path / "src/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = tmp_path / "src/rows.jsonl"
    summary = fastpipe.pack(source, tmp_path / "packed", exif=exif, fields={"boxes": "boxes:boxes"})
    check_boxes(tmp_path / "packed", exif=exif)
    assert assumed(summary) == [(ASSUMED.format(7), OPTION)]


@IN_BOTH
@becomes(
    "Parquet with boxes, photos with an EXIF orientation",
    "boxes of the photo as it is shown",
    OPTION,
)
def test_parquet(tmp_path: Path, exif: str) -> None:
    rows = [
        {"image": photo(number), "boxes": [[float(edge) for edge in BOX]]} for number in range(1, 9)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    fields = {"boxes": "boxes:boxes"}
    summary = fastpipe.pack(
        tmp_path / "rows.parquet", tmp_path / "packed", exif=exif, fields=fields
    )
    for sample in fastpipe.open(tmp_path / "packed").with_fields(("image", "boxes")):  # type: ignore[attr-defined]
        assert sample["boxes"].tolist() == [bright_box(sample["image"])]
    assert assumed(summary) == [(ASSUMED.format(7), OPTION)]


def png(mask: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(mask).save(file, "PNG")
    return file.getvalue()


@IN_BOTH
@pytest.mark.parametrize("stored", [False, True])
@becomes(
    "mask PNGs beside photos with an EXIF orientation",
    "the mask lies on the photo as shown, or as stored, whichever has its size",
    OPTION,
)
def test_masks_of_tars(tmp_path: Path, exif: str, *, stored: bool) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for orientation in range(1, 9):
            mask = rectangle()
            members = {
                f"{orientation}.jpg": photo(orientation),
                f"{orientation}.seg.png": png(as_stored(mask, orientation) if stored else mask),
            }
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    said = {"coordinates": "stored"} if stored else {}
    summary = fastpipe.pack(tmp_path / "a.tar", tmp_path / "packed", exif=exif, **said)
    for orientation, sample in samples(tmp_path / "packed", "seg").items():
        assert bright_box(sample["seg"]) == bright_box(sample["image"]), orientation
    assert assumed(summary) == ([] if stored else [(ASSUMED.format(3), OPTION)])


SECOND = {
    "as shown, without EXIF": lambda orientation: png(rectangle()),
    "as stored, without EXIF": lambda orientation: png(as_stored(rectangle(), orientation)),
    "turned by the same EXIF": photo,
    "turned by another EXIF": lambda orientation: photo(9 - orientation),
}


@IN_BOTH
@pytest.mark.parametrize("how", SECOND)
def test_second_pictures_lie_on_the_first(tmp_path: Path, exif: str, how: str) -> None:
    """They are shown by their own EXIF; without one, their size tells what they lie on."""
    said = "stored" if how.startswith("as stored") else "shown"
    with fastpipe.Writer(
        tmp_path / "packed", {"second": "image"}, exif=exif, coordinates=said
    ) as writer:
        for orientation in range(1, 9):
            writer.add(
                photo(orientation), key=f"{orientation}.jpg", second=SECOND[how](orientation)
            )
    found = samples(tmp_path / "packed", "second")
    assert len(found) == 8
    for orientation, sample in found.items():
        assert sample["second"].shape[1:] == sample["image"].shape[1:]
        assert bright_box(sample["second"]) == bright_box(sample["image"]), orientation


@IN_BOTH
def test_a_writer_has_coordinates_of_stored_images_unless_it_says_otherwise(
    tmp_path: Path, exif: str
) -> None:
    for said in ("stored", "shown", None):
        with fastpipe.Writer(
            tmp_path / str(said), {"boxes": "boxes"}, exif=exif, coordinates=said
        ) as writer:
            for orientation in range(1, 9):
                box = BOX if said == "shown" else bright_box(as_stored(rectangle(), orientation))
                writer.add(photo(orientation), key=f"{orientation}.jpg", boxes=[box])
        check_boxes(tmp_path / str(said), exif=exif)


@becomes(
    "a packed dataset of turned photos, packed again",
    "its fields as they are, moved if --exif apply turns them",
)
def test_packed_again(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo")
    fastpipe.pack(yolo, tmp_path / "packed", keep_metadata=True)  # so EXIF stays in the pictures
    summary = fastpipe.pack(tmp_path / "packed", tmp_path / "upright", exif="apply")
    check_boxes(tmp_path / "upright", exif="apply")
    assert assumed(summary) == []


def test_what_add_assumes_is_told(tmp_path: Path) -> None:
    """As by `pack`, of the images that it adds."""
    yolo = write_yolo(tmp_path / "yolo")
    (yolo / "images/6.jpg").rename(tmp_path / "6.jpg")
    (yolo / "labels/6.txt").rename(tmp_path / "6.txt")
    fastpipe.pack(yolo, tmp_path / "packed")
    (tmp_path / "6.jpg").rename(yolo / "images/6.jpg")
    (tmp_path / "6.txt").rename(yolo / "labels/6.txt")
    grown = fastpipe.add(yolo, tmp_path / "packed")
    assert grown.added == 1
    assert [each.text for each in grown.assumed] == [
        ASSUMED.format(1).replace("1 images", "1 image")
    ]
    check_boxes(tmp_path / "packed", exif="ignore")
    assert grown.info["counts"]["assumed_shown"] == 7


def test_tasks_of_a_cluster_know_of_which_picture_values_are(
    tasks_here: Cluster, tmp_path: Path
) -> None:
    """Of a packed dataset, whose fields are as its pictures; and of a source whose fields are as shown."""
    yolo = write_yolo(tmp_path / "yolo")
    fastpipe.pack(yolo, tmp_path / "packed", keep_metadata=True)
    for number, source in enumerate((yolo, tmp_path / "packed")):
        here, there = tmp_path / f"threads{number}", tmp_path / f"tasks{number}"
        fastpipe.pack(source, here, exif="apply")
        summary = fastpipe.pack(source, there, exif="apply", executor="ray")
        assumed = [assumption.text for assumption in summary.assumed]
        assert (ASSUMED.format(7) in assumed) == (source == yolo)
        check_boxes(there, exif="apply")
        assert PackedIndex(there).info["content"] == PackedIndex(here).info["content"]
