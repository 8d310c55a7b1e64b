"""The GPU benchmark, run: what it measures without a GPU, and with one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.gpu import __main__ as gpu
from bench.gpu import training

pytestmark = pytest.mark.usefixtures("one_thread")


SMALL = [
    "--batch-size",
    "8",
    "--size",
    "32",
    "--threads",
    "1,2",
    "--seconds",
    "0.1",
    "--rounds",
    "2",
]
SMALL += ["--model", "resnet18", "--steps", "2", "--operations-batch", "4"]


def answers_to(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    gpu.main([*arguments, *SMALL])
    return dict(json.loads(capsys.readouterr().out))


def test_without_a_gpu_the_rest_is_measured(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        training, "_READY", 1
    )  # a step of a network takes seconds on a CPU without bfloat16
    written = ["--modes", "eager,graph", "--json", str(tmp_path / "out.json")]
    answers = answers_to(capsys, str(flat), "--device", "cpu", *written)
    assert answers == json.loads((tmp_path / "out.json").read_text())
    assert answers["rates"]["images_per_s_by_threads"].keys() == {"1", "2"}
    assert all(rate > 0 for rate in answers["rates"]["images_per_s_by_threads"].values())
    assert answers["peers"] == {
        "not asked": "pass --photos, a folder with one folder of JPEG files for each class"
    }
    assert answers["training"].keys() == {"eager"}, "a graph needs a GPU"
    assert answers["training"]["eager"].keys() == {"imagenet", "kornia", "randaugment"}
    for found in answers["training"]["eager"].values():
        assert len(found["loader_ms"]) == len(found["resident_ms"]) == 2
        assert found["ratio"] > 0
        assert found["host_ms"] > 0
    hue = answers["operations"]["hue"]
    assert hue.keys() == {"kornia module", "kornia function", "torchvision v2", "ours"}
    assert all(ms > 0 for ms in hue.values())
    assert answers["operations"]["randaugment"]["kornia function"] is None


def test_peers_read_the_photos_themselves(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = flat.parent / "source"
    arguments = ["--device", "cpu", "--only", "peers", "--photos", str(photos)]
    gpu.main([str(flat), *arguments, *SMALL, "--batch-size", "4", "--threads", "1"])
    answers = json.loads(capsys.readouterr().out)
    pillow = answers["peers"]["DataLoader, torchvision, Pillow"]
    assert all(rate > 0 for rate in pillow.values()), pillow
    assert answers["peers"]["DALI on the CPU"].keys() == {"1"}  # figures, or why there are none


@pytest.mark.gpu
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # of Inductor
def test_all_questions(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [name for name in gpu.QUESTIONS if name != "tests"]  # it would call itself
    answers = answers_to(capsys, str(flat), "--only", ",".join(questions))
    assert not [name for name in questions if str(answers[name]).startswith("failed")], answers
    for found in answers["overlap"].values():
        assert 0 <= found["hidden"] <= 1
        assert found["launches"] > 0
    memory = answers["memory"]
    assert memory["after_1000_batches"] <= 1.1 * memory["after_100_batches"] + 2**26
    assert memory["pinned_bytes"] > 0
    assert answers["training"].keys() == {"eager", "compile", "graph"}
