"""Tests of fastpipe.demo.run: the main job from end to end, and that a second run makes nothing anew."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from PIL import Image

from fastpipe.bench.measure import Result
from fastpipe.bench.task import Figures, Task
from fastpipe.demo import run
from fastpipe.demo.run import run_demo
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, list[str]]]:
    """Keeps the demo from measuring, which test_bench.py does; notes what would be measured."""
    asked: list[tuple[Task, list[str]]] = []

    def compare(task: Task, contenders: list[str], **_: object) -> list[Result]:
        asked.append((task, contenders))
        return [Result(name, Figures(1.0, 1.0, None, None), 1.0, 1.0, 1.0) for name in contenders]

    monkeypatch.setattr(run, "compare", compare)
    return asked


def modified(folder: Path) -> dict[str, int]:
    """When each file was written, but for the small ones that are written each time."""
    each_time = ("batch.png", "photos.json")
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in each_time)
    return {str(file): file.stat().st_mtime_ns for file in files}


def test_a_demo_does_the_main_job(tmp_path: Path, quick: list[tuple[Task, list[str]]]) -> None:
    said: list[str] = []
    seen: list[int] = []
    folder = tmp_path / "new" / "demo"
    done = run_demo(folder, photos=40, say=said.append, packing=lambda: nullcontext(lambda now: seen.append(now.files)))
    assert done.written == 40
    assert len(list((folder / "truth").rglob("*.png"))) == 40
    assert len(json.loads((folder / "truth" / "photos.json").read_text())["annotations"]) == 40
    assert done.summary.info["samples"] == done.epoch_images == len(Index(done.data)) == 40
    assert done.summary.info["counts"]["rejected"] == 0
    assert len(Index(done.data).classes) == 10
    assert done.epoch_s > 0
    assert seen[-1] == 40
    with Image.open(done.sheet) as sheet:
        assert sheet.size == (8 * 166 + 6, 5 * 184 + 6)
    assert [result.contender for result in done.results] == ["fastpipe", "torch-pil", "torch-cv2"]
    assert quick[0][0].data == str(done.data)
    for word in ("photos", "packing", "epoch", "masks", "batch.png", "measuring"):
        assert any(word in line for line in said)

    before = modified(folder)
    again = run_demo(folder, photos=40)
    assert (again.written, again.summary.already_packed, again.epoch_images) == (0, True, 40)
    assert modified(folder) == before


def test_more_photos_than_last_time(tmp_path: Path, quick: object) -> None:
    """An earlier demo's folder is used again, as its docstring says."""
    run_demo(tmp_path / "demo", photos=10)
    done = run_demo(tmp_path / "demo", photos=12)
    assert done.written == 2
    assert done.epoch_images == 12


def test_fewer_photos_than_last_time_are_refused(tmp_path: Path, quick: object) -> None:
    run_demo(tmp_path / "demo", photos=11)
    with pytest.raises(ConfigError, match=r"asked for 5 demo photos of seed 0, but .* holds 11"):
        run_demo(tmp_path / "demo", photos=5)


def test_a_folder_that_holds_something_else(tmp_path: Path, quick: object) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.jpg").write_bytes(b"precious")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file; pass a new folder"):
        run_demo(tmp_path / "file", photos=10)
    with pytest.raises(ConfigError, match="no earlier demo made it; pass a new folder"):
        run_demo(tmp_path, photos=5)
    assert (tmp_path / "photos" / "mine.jpg").read_bytes() == b"precious"


def test_a_users_dataset_in_the_folder_is_never_replaced(tmp_path: Path, quick: object) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "dataset.json").write_text("precious")
    with pytest.raises(ConfigError, match="no earlier demo made it"):
        run_demo(tmp_path, photos=5)
    assert (tmp_path / "packed" / "dataset.json").read_text() == "precious"
