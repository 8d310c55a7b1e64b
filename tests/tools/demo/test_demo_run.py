"""Tests of `fastpipe demo`: the main job from end to end, and that a second run makes nothing anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from support.programs.cli_run import failed, fp, succeeded

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.tools.bench.measure import Figures, Result, Task
from fastpipe.tools.cli import demo


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, list[str]]]:
    """Keeps the demo from measuring, which test_bench.py does; notes what would be measured."""
    asked: list[tuple[Task, list[str]]] = []

    def compare(task: Task, contenders: list[str], **_: object) -> list[Result]:
        asked.append((task, contenders))
        return [Result(name, Figures(1.0, 1.0, None, None), 1.0, 1.0, 1.0) for name in contenders]

    monkeypatch.setattr(demo, "compare", compare)
    return asked


def modified(folder: Path) -> dict[str, int]:
    """When each file was written, but for the small ones that are written each time."""
    each_time = ("batch.png", ".fastpipe-demo.json")
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in each_time)
    return {str(file): file.stat().st_mtime_ns for file in files}


def test_a_demo_does_the_main_job(tmp_path: Path, quick: list[tuple[Task, list[str]]]) -> None:
    folder = tmp_path / "new" / "demo"
    said = succeeded("demo", folder, "--photos", 24)
    assert len(list((folder / "photos").rglob("*.jpg"))) == 24
    assert len(list((folder / "truth").rglob("*.png"))) == 24
    assert len(json.loads((folder / "truth" / "photos.json").read_text())["annotations"]) == 24
    index = PackedIndex(folder / "packed")
    assert len(index) == 24
    assert index.counts["rejected"] == 0
    assert len(index.classes) == 10
    assert "one epoch: 24 images in" in said
    packed = succeeded("pack", folder / "photos", tmp_path / "again")
    assert "not packed" not in packed, "the demo's own file is not reported"
    assert "assumed" not in packed, "nor taken for the labels of the photos"
    assert "not packed" not in said
    assert "packed" in [line.split()[0] for line in said.splitlines() if line.strip()]
    with Image.open(folder / "batch.png") as sheet:
        assert sheet.size == (8 * 166 + 6, 18 + 3 * 184 + 6)
    assert quick[0][1] == ["fastpipe", "torch-pil", "torch-cv2"]
    assert quick[0][0].data == str(folder / "packed")
    for word in (
        "photos",
        "packing",
        "epoch",
        "masks",
        "batch.png",
        "measuring",
        "DataLoader (PIL)",
    ):
        assert word in said

    before = modified(folder)
    again = succeeded("demo", folder, "--photos", 24)
    assert "one epoch: 24 images in" in again
    assert "packed" not in [line.split()[0] for line in again.splitlines() if line.strip()]
    assert modified(folder) == before


def test_more_photos_than_last_time(tmp_path: Path, quick: object) -> None:
    """An earlier demo's folder is used again."""
    succeeded("demo", tmp_path / "demo", "--photos", 10)
    before = modified(tmp_path / "demo" / "photos")
    assert "one epoch: 12 images" in succeeded("demo", tmp_path / "demo", "--photos", 12)
    after = modified(tmp_path / "demo" / "photos")
    assert len(after) == len(before) + 2
    assert before.items() <= after.items()


def test_fewer_photos_than_last_time_are_refused(tmp_path: Path, quick: object) -> None:
    succeeded("demo", tmp_path / "demo", "--photos", 11)
    before = modified(tmp_path)
    refused = fp("demo", tmp_path / "demo", "--photos", 5)
    said = " ".join(refused.stderr.split())
    assert refused.exit_code == 2
    assert "asked for 5 demo photos of seed 0, but" in said
    assert "holds 11" in said
    assert modified(tmp_path) == before


def test_what_a_user_has_in_the_folder_is_never_replaced(tmp_path: Path, quick: object) -> None:
    (tmp_path / "file").touch()
    assert "file is a file; pass a new folder" in failed(
        2, "demo", tmp_path / "file", "--photos", 10
    )
    for name in ("photos/mine.jpg", "packed/dataset.json"):
        mine = tmp_path / Path(name).stem / name
        mine.parent.mkdir(parents=True)
        mine.write_bytes(b"precious")
        folder = tmp_path / Path(name).stem
        assert "no earlier demo made it; pass a new folder" in failed(
            2, "demo", folder, "--photos", 5
        )
        assert mine.read_bytes() == b"precious"
