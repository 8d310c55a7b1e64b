"""The ground truth of the demo photos: COCO's file, masks and captions say what is in the photos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.tools.demo import photos
from fastpipe.tools.demo.photos import CLASSES, COCO_FILE, MANIFEST, make_photo, write_photos
from fastpipe.tools.demo.render import DemoPhoto
from fastpipe.tools.demo.truth import describe_object, measure_run_lengths

COUNT, SEED = 20, 4


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ and truth/ that tests only read."""
    path = tmp_path_factory.mktemp("demo")
    assert write_photos(path / "photos", COUNT, seed=SEED, workers=3, truth=path / "truth") == COUNT
    return path


@pytest.fixture(scope="module")
def coco(demo: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((demo / "truth" / COCO_FILE).read_text())
    return content


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def stored_mask(demo: Path, name: str) -> NDArray[np.uint8]:
    ids = cv2.imread(str(demo / "truth" / Path(name).with_suffix(".png")), cv2.IMREAD_UNCHANGED)
    assert ids is not None
    return np.asarray(ids, dtype=np.uint8)


def filled(segmentation: dict[str, Any]) -> NDArray[np.bool_]:
    """COCO's uncompressed run lengths -> a mask, a run at a time."""
    height, width = segmentation["size"]
    flat = np.zeros(height * width, dtype=np.bool_)
    at, inside = 0, False
    for length in segmentation["counts"]:
        flat[at : at + length] = inside
        at, inside = at + length, not inside
    assert at == flat.size
    return flat.reshape(width, height).T


def described(coco: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The file's name, the image and the annotation of each photo."""
    entries = {entry["image_id"]: entry for entry in coco["annotations"]}
    assert len(entries) == len(coco["annotations"]) == len(coco["images"]) == COUNT
    return [(image["file_name"], image, entries[image["id"]]) for image in coco["images"]]


def test_the_runs_of_each_photo_are_its_mask(demo: Path, coco: dict[str, Any]) -> None:
    for name, image, entry in described(coco):
        ids, mask = stored_mask(demo, name), filled(entry["segmentation"])
        assert ids.shape == (image["height"], image["width"])
        assert np.array_equal(ids, mask * np.uint8(entry["category_id"]))


def test_boxes_hold_the_mask_and_no_more(demo: Path, coco: dict[str, Any]) -> None:
    for name, _, entry in described(coco):
        mask = stored_mask(demo, name) > 0
        x, y, width, height = entry["bbox"]
        inside = mask[y : y + height, x : x + width]
        assert inside.shape == (height, width)
        assert inside.sum() == mask.sum() == entry["area"]
        for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]):
            assert edge.any()
        assert entry["iscrowd"] == 0


def test_images_and_categories_are_those_of_the_photos(demo: Path, coco: dict[str, Any]) -> None:
    names = {category["id"]: category["name"] for category in coco["categories"]}
    assert names == {label + 1: name for label, name in enumerate(CLASSES)}
    for name, image, entry in described(coco):
        assert names[entry["category_id"]] == name.split("/")[0]
        photo = cv2.imread(str(demo / "photos" / name))
        assert photo is not None
        assert photo.shape[:2] == (image["height"], image["width"])
    assert len({entry["id"] for entry in coco["annotations"]} - {0}) == COUNT
    assert (coco["info"]["seed"], coco["info"]["count"]) == (SEED, COUNT)


def test_masks_are_where_the_objects_are(demo: Path, coco: dict[str, Any]) -> None:
    """An object differs from what lies close around it; as much as its mask is moved, the less."""

    def contrast(photo: NDArray[np.float32], mask: NDArray[np.uint8]) -> float:
        wide = np.ones((13, 13), np.uint8)
        inside = cv2.erode(mask, wide) > 0
        around = (cv2.dilate(mask, wide) > 0) & (mask == 0)
        return float(abs(photo[inside].mean() - photo[around].mean()))

    for name, _, entry in described(coco):
        if CLASSES[entry["category_id"] - 1] in ("checks", "stripes"):
            continue
        photo = cv2.imread(str(demo / "photos" / name), cv2.IMREAD_GRAYSCALE)
        assert photo is not None
        pixels = cv2.GaussianBlur(photo.astype(np.float32), (0, 0), 1.5)
        mask = (stored_mask(demo, name) > 0).astype(np.uint8)
        shift = 0.5 * entry["area"] ** 0.5
        moved = [
            cv2.warpAffine(
                mask, np.array([[1, 0, x], [0, 1, y]], dtype=np.float64), mask.shape[::-1]
            )
            for x, y in ((shift, 0), (-shift, 0), (0, shift), (0, -shift))
        ]
        here = contrast(pixels, mask)
        assert here > 12, name
        assert here > 1.2 * np.mean(
            [contrast(pixels, np.asarray(other, np.uint8)) for other in moved]
        ), name


def test_captions_name_the_object_its_colour_and_its_place(
    demo: Path, coco: dict[str, Any]
) -> None:
    for name, image, entry in described(coco):
        assert (demo / "truth" / Path(name).with_suffix(".txt")).read_text() == entry["caption"]
        assert name.split("/")[0] in entry["caption"].split()
        columns = np.nonzero(stored_mask(demo, name))[1].mean() / image["width"]
        assert (" left" in entry["caption"]) == (columns < 1 / 3)
        assert (" right" in entry["caption"]) == (columns >= 2 / 3)
    assert len({entry["caption"] for entry in coco["annotations"]}) > COUNT / 2


@pytest.mark.parametrize(
    ("name", "bgr", "gray", "row", "column", "caption"),
    [
        ("disc", [(110, 60, 40)], False, 0, 0, "a dark blue disc at the top left"),
        ("disc", [(220, 120, 60)], False, 1, 2, "a blue disc on the right"),
        ("disc", [(220, 120, 60)], True, 2, 1, "a gray disc at the bottom"),
        ("arrow", [(20, 140, 250)], False, 1, 1, "an orange arrow in the middle"),
        ("ring", [(20, 60, 100)], False, 0, 1, "a dark brown ring at the top"),
        (
            "stripes",
            [(30, 30, 200), (235, 235, 235)],
            False,
            2,
            1,
            "a pebble with red and white stripes at the bottom",
        ),
        (
            "checks",
            [(100, 102, 104), (120, 121, 122)],
            False,
            2,
            0,
            "a pebble with gray checks at the bottom left",
        ),
    ],
)
def test_captions_of_known_objects(
    name: str, bgr: list[tuple[int, int, int]], gray: bool, row: int, column: int, caption: str
) -> None:
    mask = np.zeros((90, 120), dtype=np.bool_)
    mask[30 * row + 5 : 30 * row + 25, 40 * column + 10 : 40 * column + 30] = True
    assert (
        describe_object(
            name, [np.array(colour, dtype=np.float64) for colour in bgr], mask, gray=gray
        )
        == caption
    )


def test_photos_are_the_same_with_and_without_ground_truth(demo: Path, tmp_path: Path) -> None:
    write_photos(tmp_path, COUNT, seed=SEED)
    assert contents(tmp_path) == contents(demo / "photos")


def test_ground_truth_does_not_depend_on_threads_or_earlier_calls(
    demo: Path, tmp_path: Path
) -> None:
    """Photos without ground truth, then some with it, then the rest."""
    source, truth = tmp_path / "photos", tmp_path / "truth"
    write_photos(source, 5, seed=SEED)
    before = contents(source)
    assert write_photos(source, 12, seed=SEED, truth=truth) == 7
    assert {name: contents(source)[name] for name in before if name != MANIFEST} == {
        name: before[name] for name in before if name != MANIFEST
    }
    write_photos(source, COUNT, seed=SEED, workers=2, truth=truth)
    assert contents(truth) == contents(demo / "truth")
    (truth / CLASSES[3] / "00003.png").unlink()
    assert write_photos(source, COUNT, seed=SEED, truth=truth) == 0
    assert contents(truth) == contents(demo / "truth")
    before = {path: path.stat().st_mtime_ns for path in truth.rglob("*")}
    assert write_photos(source, COUNT, seed=SEED, truth=truth) == 0
    assert {path: path.stat().st_mtime_ns for path in truth.rglob("*")} == before


def test_an_interrupted_call_has_no_coco_file_and_goes_on(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_six(seed: int, index: int, label: int, scale: float) -> DemoPhoto:
        if index == 6:
            raise KeyboardInterrupt
        return make_photo(seed, index, label, scale)

    source, truth = tmp_path / "photos", tmp_path / "truth"
    with monkeypatch.context() as patch:
        patch.setattr(photos, "make_photo", stop_at_six)
        with pytest.raises(KeyboardInterrupt):
            write_photos(source, COUNT, seed=SEED, truth=truth)
    assert not (truth / COCO_FILE).exists()
    write_photos(source, COUNT, seed=SEED, truth=truth)
    assert contents(truth) == contents(demo / "truth")


def test_ground_truth_of_other_photos_is_refused(demo: Path, tmp_path: Path) -> None:
    before = contents(demo / "truth")
    with pytest.raises(ConfigError, match="holds 20 of seed 4"):
        write_photos(tmp_path / "photos", COUNT, seed=5, truth=demo / "truth")
    assert contents(demo / "truth") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="other files"):
        write_photos(tmp_path / "others", COUNT, seed=SEED, truth=tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"notes.txt": b"mine"}


def test_a_damaged_mask_is_named(demo: Path, tmp_path: Path) -> None:
    source, truth = tmp_path / "photos", tmp_path / "truth"
    write_photos(source, 3, seed=SEED, truth=truth)
    mask = truth / CLASSES[2] / "00002.png"
    mask.write_bytes(b"no PNG")
    with pytest.raises(
        ConfigError, match=f"expected the mask of a demo photo in {mask}; delete {mask}"
    ):
        write_photos(source, 4, seed=SEED, truth=truth)
    mask.unlink()
    write_photos(source, 4, seed=SEED, truth=truth)
    assert len(json.loads((truth / COCO_FILE).read_text())["images"]) == 4


def test_run_lengths_begin_with_what_is_no_object() -> None:
    for corner, lengths in ((True, [0, 1, 3, 2]), (False, [4, 2])):
        assert (
            measure_run_lengths(np.array([[corner, False, True], [False, False, True]])) == lengths
        )
