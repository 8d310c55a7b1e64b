"""examples/train_imagenet.py with two processes on the CPU: they train one network, and resume on another number."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from support.checkout import SUPPORT
from support.examples.imagenet import QUICK, same, weights
from support.pictures.drawn import FLAT_IMAGES
from support.ranks.torchrun import torchrun
from support.ranks.train_imagenet_rank import FEW_BLOCKS

import train_imagenet
from resnet import DEPTHS


@pytest.fixture(scope="module")
def whole(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two epochs by two processes, under torchrun: the folder of what they left, and what they printed."""
    out = tmp_path_factory.mktemp("ranks")
    return out, torchrun(
        SUPPORT / "ranks" / "train_imagenet_rank.py",
        out,
        *QUICK,
        flat,
        flat,
        "--checkpoint",
        out / "made.pt",
    )


def test_two_processes_train_one_network_and_count_each_sample_once(
    whole: tuple[Path, str],
) -> None:
    out, printed = whole
    lines = [line for line in printed.splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    for line in lines:
        assert f"top-5 100.00 % of {FLAT_IMAGES} samples" in line
    first, second = (torch.load(out / f"rank-{rank}.pt", weights_only=True) for rank in (0, 1))
    learnt = [
        name for name in first if "running" not in name and "tracked" not in name
    ]  # a norm's counts are its own
    assert all(torch.equal(first[name], second[name]) for name in learnt)
    made = weights(out / "made.pt")
    assert all(torch.equal(first[f"module.{name}"], tensor) for name, tensor in made.items())
    assert not same(made, weights(out / "first.pt"))


def test_resumed_by_one_it_takes_the_same_steps(
    flat: Path, whole: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same global batches at the same rates; only the norms now see whole batches, so weights are near."""
    out, _ = whole
    shutil.copy(out / "first.pt", tmp_path / "again.pt")
    with mock.patch.dict(DEPTHS, FEW_BLOCKS):
        train_imagenet.main(
            [str(flat), str(flat), "--checkpoint", str(tmp_path / "again.pt"), "--resume", *QUICK]
        )
    printed = capsys.readouterr().out
    assert printed.startswith("epoch 2 of 2: ")
    assert f"of {FLAT_IMAGES} samples" in printed
    start, ours, theirs = (
        weights(path) for path in (out / "first.pt", tmp_path / "again.pt", out / "made.pt")
    )
    name = "fc.weight"
    ours_step, theirs_step = (end[name] - start[name] for end in (ours, theirs))
    assert (
        torch.nn.functional.cosine_similarity(ours_step.flatten(), theirs_step.flatten(), dim=0)
        > 0.8
    )
