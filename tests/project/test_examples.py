"""Tests of examples/: they train, evaluate and resume as they say, and their network is torchvision's."""

from __future__ import annotations

import ast
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from support.checkout import ROOT
from support.examples.imagenet import same, trained, weights
from support.pictures.drawn import FLAT_IMAGES

import fastpipe

sys.path.append(str(ROOT / "examples"))

import train_imagenet
from resnet import ResNet

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_block_begins_as_the_identity() -> None:
    block = ResNet("resnet50", 10).layer1[1].eval()
    images = torch.rand(1, 256, 8, 8)
    assert torch.equal(block(images), images)


def test_resumed_it_ends_as_if_never_interrupted(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(flat, "--checkpoint", tmp_path / "whole.pt")
    save = train_imagenet.save

    def save_and_stop(*arguments: object) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(train_imagenet, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        trained(flat, "--checkpoint", tmp_path / "halves.pt")
    monkeypatch.setattr(train_imagenet, "save", save)
    assert not same(weights(tmp_path / "halves.pt"), weights(tmp_path / "whole.pt"))
    capsys.readouterr()
    trained(flat, "--checkpoint", tmp_path / "halves.pt", "--resume")
    assert capsys.readouterr().out.startswith("epoch 2 of 2: ")
    assert same(weights(tmp_path / "halves.pt"), weights(tmp_path / "whole.pt"))


def test_it_trains_and_evaluates_every_sample_once(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(flat, flat, "--checkpoint", tmp_path / "made.pt")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    for line in lines:
        assert re.search(
            r"loss \d+\.\d+, [\d,]+ images/s, [\d.]+ ms a step, [\d.]+ % of it waiting for data",
            line,
        )
        assert f"top-5 100.00 % of {FLAT_IMAGES} samples" in line  # three classes
    assert list(tmp_path.iterdir()) == [tmp_path / "made.pt"]


def test_one_resident_batch(flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[fastpipe.Loader] = []
    make = train_imagenet.opened

    def note(*arguments: object, **options: object) -> fastpipe.Loader:
        opened.append(make(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(train_imagenet, "opened", note)
    trained(flat, "--resident-batch", "--checkpoint", tmp_path / "made.pt")
    assert opened[0].stats().batches == 1


def test_the_rate_rises_then_falls_to_nothing() -> None:
    rates = [train_imagenet.learning_rate(step, 100, 10, 0.4) for step in range(100)]
    assert rates[:11] == sorted(rates[:11])
    assert rates[0] == pytest.approx(0.4 / 11)
    assert rates[10] == max(rates) == 0.4
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.2)
    assert 0 < rates[-1] < 0.001


def test_norms_and_biases_do_not_decay() -> None:
    model = ResNet("resnet50", 10)
    decaying, others = train_imagenet.grouped(model, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {id(p) for p in decaying["params"]} == {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear))
    }
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_a_loss_that_is_no_number(flat: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the loss became (nan|inf); try a smaller --lr"):
        trained(flat, "--lr", math.inf, "--checkpoint", tmp_path / "made.pt")
    assert not (tmp_path / "made.pt").exists()


def test_mistakes(
    flat: Path, textured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made.pt"
    with pytest.raises(
        SystemExit, match=r"has other classes than .*; pack both from the same folders"
    ):
        trained(flat, textured, "--checkpoint", made)
    with pytest.raises(SystemExit, match=r"no checkpoint to go on from: .*made\.pt"):
        trained(flat, "--resume", "--checkpoint", made)
    trained(flat, "--checkpoint", made)
    with pytest.raises(
        SystemExit,
        match=r"made with other options: --lr was 0\.1, now 3\.0; --label-smoothing was 0\.1, now 0\.0\.",
    ):
        trained(flat, "--resume", "--checkpoint", made, "--lr", 3, "--label-smoothing", 0)
    with pytest.raises(
        SystemExit, match=r"--epochs was 2, now 3\. They decide the learning rate of every step"
    ):
        trained(flat, "--resume", "--checkpoint", made, "--epochs", 3)
    capsys.readouterr()
    trained(flat, "--resume", "--checkpoint", made)
    assert capsys.readouterr().out == f"{made} has all 2 epochs: nothing to do\n"
    for arguments, said in (
        (
            ["--checkpoint", made],
            "is there already; pass --resume to go on from it, or another --checkpoint",
        ),
        (["--amp", "fp16"], "--amp fp16 needs a GPU"),
    ):
        with pytest.raises(SystemExit, match="2"):
            trained(flat, *arguments)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        train_imagenet.main([str(flat), "--epochs", "0"])
    assert "must be at least 1" in capsys.readouterr().err


def test_examples_use_public_names_alone() -> None:
    for file in (ROOT / "examples").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            internal = [name for name in modules if name.startswith("fastpipe.")]
            assert set(internal) <= {"fastpipe.timm", "fastpipe.wds", "fastpipe.prometheus"}, file
