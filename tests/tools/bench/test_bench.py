"""Tests of fastpipe.tools.bench: contenders do one and the same task, and the figures follow from the measurements."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures.drawn import flat_number

from fastpipe.errors import FastpipeError
from fastpipe.packing.job.threads import pack
from fastpipe.tools.bench import child, measure
from fastpipe.tools.bench.child import Batch, iterate_torch, make_fastpipe_loader
from fastpipe.tools.bench.measure import GROUPS, NAMES, Figures, Result, Task, compare

BATCH, SIZE = 9, 24


def task(data: Path) -> Task:
    return Task(str(data), BATCH, workers=1, size=SIZE)


Start = Callable[[Path], Iterator[Batch]]


@pytest.fixture(params=["fastpipe", "torch-pil", "torch-cv2"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts one of the contenders on a dataset."""
    with contextlib.ExitStack() as stack:

        def of(data: Path) -> Iterator[Batch]:
            if request.param == "fastpipe":
                return chain.from_iterable(
                    repeat(stack.enter_context(make_fastpipe_loader(task(data))))
                )
            return iterate_torch(request.param, task(data))

        yield of


def test_every_contender_makes_the_same_kind_of_batch(start: Start, flat: Path) -> None:
    batches = start(flat)
    numbers = set()
    for _ in range(8):  # two epochs: nobody stops
        images, labels = next(batches)
        assert images.shape == (BATCH, 3, SIZE, SIZE)
        assert images.dtype == torch.uint8
        assert labels.shape == (BATCH,)
        assert labels.dtype == torch.int64
        assert images.device.type == "cpu"
        colours = images.float().mean((2, 3)).numpy().round().astype(np.uint8)
        found = [flat_number(colour) for colour in colours]
        assert [number % 3 for number in found] == labels.tolist()
        numbers.update(found)
    assert len(numbers) == 37, "all samples come"


def test_every_contender_takes_a_folder_of_other_formats(start: Start, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(BATCH):
        Image.new("RGB", (40, 30), (200, 100, 20)).save(
            tmp_path / "a" / f"{number}.{'webp' if number % 2 else 'png'}"
        )
    images, _ = next(start(tmp_path))
    colours = images.float().mean((2, 3))
    assert (colours - torch.tensor([200, 100, 20])).abs().max() < 8


def test_every_contender_crops_and_mirrors(start: Start, tmp_path: Path) -> None:
    """One picture, red on the left and blue on the right, again and again."""
    pixels = np.zeros((80, 100, 3), np.uint8)
    pixels[:, :50, 0] = pixels[:, 50:, 2] = 255
    for number in range(BATCH):
        (tmp_path / "source" / "only").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(
            tmp_path / "source" / "only" / f"{number}.jpg", quality=95, subsampling=0
        )
    pack(tmp_path / "source", tmp_path / "packed")
    batches = start(tmp_path / "packed")
    rows = torch.cat([next(batches)[0] for _ in range(30)]).float()
    red, blue = rows[:, 0], rows[:, 2]
    both = (red.amax((1, 2)) > 200) & (blue.amax((1, 2)) > 200)
    mirrored = (red[both][:, :, 0] < blue[both][:, :, 0]).float().mean()
    assert 0.3 < mirrored < 0.7
    shares = red.mean((1, 2)) / 255
    assert shares.std() > 0.1
    assert 0.4 < shares.mean() < 0.6


def test_random_crops_are_torchvisions(torchvision: object) -> None:
    """The same law: moments of area and shape over many draws."""
    import random

    from torchvision.transforms import RandomResizedCrop

    random.seed(0)
    torch.manual_seed(0)
    width, height = 500, 375
    ours = np.array([child._draw_crop(width, height) for _ in range(4000)], float)
    theirs = [
        RandomResizedCrop.get_params(torch.empty(3, height, width), (0.08, 1), (3 / 4, 4 / 3))
        for _ in range(4000)
    ]
    x, y, w, h = ours.T
    top, left, tall, wide = np.array(theirs, float).T
    assert (x >= 0).all()
    assert (y >= 0).all()
    assert (x + w <= width).all()
    assert (y + h <= height).all()
    for width, height in ((1, 1), (1000, 3), (3, 1000), (2, 2)):
        for _ in range(200):
            x0, y0, across, down = child._draw_crop(width, height)
            assert 0 <= x0 < x0 + across <= width
            assert 0 <= y0 < y0 + down <= height
    for one, other in ((x, left), (y, top), (w, wide), (h, tall)):
        assert one.mean() == pytest.approx(other.mean(), rel=0.05)
        assert one.std() == pytest.approx(other.std(), rel=0.08)


def test_names_and_groups_agree() -> None:
    assert {"fastpipe", *(name for group in GROUPS.values() for name in group)} == set(NAMES)


Play = Callable[[dict[str, list[float]]], list[Result]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Feeds `compare` with given images/s instead of measuring."""

    def run(speeds: dict[str, list[float]]) -> list[Result]:
        order: list[str] = []
        left = {name: list(values) for name, values in speeds.items()}

        def fake(contender: str, *_: object) -> Figures:
            order.append(contender)
            speed = left[contender].pop(0)
            return Figures(speed, 1 / speed, None if speed == 13 else speed / 100, 7.0)

        monkeypatch.setattr(measure, "_run_child", fake)
        repeats = len(speeds["fastpipe"])
        told: list[tuple[int, str]] = []
        options = {
            "repeats": repeats,
            "seconds": 1,
            "on_run": lambda number, name, _: told.append((number, name)),
        }
        results = compare(Task("x", 1, 1, 1), list(speeds), **options)
        assert order == list(speeds) * repeats, "contenders take turns"
        assert told == [(number, name) for number in range(repeats) for name in speeds]
        return results

    return run


def test_medians_and_ratios(play: Play) -> None:
    ours, theirs = play({"fastpipe": [100.0, 400.0, 300.0], "torch-pil": [50.0, 100.0, 300.0]})
    assert (ours.median.images_per_s, ours.slowest, ours.fastest, ours.ratio) == (300, 100, 400, 1)
    # Pairs measured next to each other: 2, 4 and 1.
    assert (theirs.median.images_per_s, theirs.slowest, theirs.fastest, theirs.ratio) == (
        100,
        50,
        300,
        2,
    )
    assert ours.median.first_batch_s == pytest.approx(1 / 300)
    assert (ours.median.cpus, ours.median.memory_mb, ours.median.read_us) == (3, 7, None)


def test_the_median_of_an_even_number_and_of_missing_figures(play: Play) -> None:
    ours, theirs = play({"fastpipe": [10.0, 20.0], "torch-cv2": [13.0, 5.0]})
    assert ours.median.images_per_s == 15
    assert theirs.ratio == pytest.approx((10 / 13 + 20 / 5) / 2)
    assert theirs.median.cpus is None, "not known in each round"


@pytest.mark.parametrize("contender", ["fastpipe", "torch-cv2"])
def test_a_contender_is_measured_by_its_order(
    contender: str, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that is measured, in this process."""

    def run(command: list[str], *, input: str, timeout: float, **_: object) -> SimpleNamespace:
        assert command == [sys.executable, "-m", "fastpipe.tools.bench.child"]
        assert timeout == 10 * (0.01 + 0.02) + 120
        said = io.StringIO("words of a library\n")
        said.seek(0, io.SEEK_END)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(input))
            patch.setattr(sys, "stdout", said)
            child.main()
        return SimpleNamespace(returncode=0, stdout=said.getvalue())

    monkeypatch.setattr(measure.subprocess, "run", run)
    (result,) = compare(task(flat), [contender], repeats=1, seconds=0.02, warmup_s=0.01)
    figures = result.median
    assert result.slowest == result.fastest == figures.images_per_s > 10
    assert figures.first_batch_s > 0
    assert figures.memory_mb is None or figures.memory_mb > 50
    stages = [getattr(figures, stage) for stage in ("read_us", "decode_us", "resize_us", "plan_us")]
    if contender == "fastpipe":
        assert all(0 < stage < 1e5 for stage in stages)
    else:
        assert stages == [None] * 4


def test_a_contender_that_fails_or_is_stuck(
    tmp_path: Path, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = {
        "contender": "torch-cv2",
        "warmup_s": 0,
        "seconds": 1,
        "task": vars(task(tmp_path / "nowhere")),
    }
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    with pytest.raises(SystemExit, match="nowhere does not exist"):
        child.main()
    failed = SimpleNamespace(returncode=1, stderr="  Traceback: no such thing\n")
    monkeypatch.setattr(measure.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        FastpipeError, match=r"^bench: torch-cv2 failed:\nTraceback: no such thing$"
    ):
        compare(task(flat), ["torch-cv2"], repeats=1, seconds=0.1)

    def never(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(measure.subprocess, "run", never)
    with pytest.raises(
        FastpipeError, match="fastpipe gave no results within 131 s and may be stuck"
    ):
        compare(task(flat), ["fastpipe"], repeats=1, seconds=0.1)
