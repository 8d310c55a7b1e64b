"""Tests of examples/: they train, evaluate and resume as they say, and their network is torchvision's."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
from support.checkout import ROOT
from support.pictures.drawn import FLAT_IMAGES

import fastpipe

sys.path.append(str(ROOT / "examples"))

import train_demo
import train_imagenet
from resnet import DEPTHS, ResNet

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ["--model=resnet18", "--size=32", "--batch-size=16", "--epochs=2", "--warmup=1", "--device=cpu"]


def trained(*arguments: object, blocks: tuple[int, ...] = (1, 1, 0, 0)) -> None:
    """Runs train_imagenet's main in this process, on a small task, with two blocks of resnet18's eight."""
    with mock.patch.dict(DEPTHS, resnet18=blocks):
        train_imagenet.main([*QUICK, *map(str, arguments)])


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(checkpoint, weights_only=True)["model"])


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", DEPTHS)
def test_the_network_is_torchvisions(name: str, torchvision: ModuleType) -> None:
    from torchvision import models

    torch.manual_seed(0)
    reference = getattr(models, name)(num_classes=1000)
    ours = ResNet(name, 1000)
    for module in reference.modules():  # so that every block does something
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
    ours.load_state_dict(reference.state_dict())
    images = torch.rand(2, 3, 64, 48)
    for mode in (True, False):
        torch.testing.assert_close(ours.train(mode)(images), reference.train(mode)(images))
    if name == "resnet50":
        assert sum(parameter.numel() for parameter in ours.parameters()) == 25_557_032


def test_a_block_begins_as_the_identity() -> None:
    block = ResNet("resnet50", 10).layer1[1].eval()
    images = torch.rand(1, 256, 8, 8)
    assert torch.equal(block(images), images)


def test_it_trains_and_evaluates_every_sample_once(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(flat, flat, "--size", 64, "--checkpoint", tmp_path / "made.pt", blocks=DEPTHS["resnet18"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    for line in lines:
        assert re.search(r"loss \d+\.\d+, [\d,]+ images/s, [\d.]+ ms a step, [\d.]+ % of it waiting for data", line)
        assert f"top-5 100.00 % of {FLAT_IMAGES} samples" in line  # three classes
    assert list(tmp_path.iterdir()) == [tmp_path / "made.pt"]


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


@pytest.mark.parametrize(
    "option",
    [
        ("--amp", "bf16"),
        ("--label-smoothing", 0.3),
        ("--lr", 0.2),
        ("--weight-decay", 0.1),
        ("--seed", 1),
        ("--augment", "kornia"),
        ("--augment", "randaugment"),
        ("--mixup", 0.2),
        ("--cutmix", 1),
        ("--erasing", 1),
        ("--warmup", 0),
    ],
    ids=lambda option: f"{option[0]} {option[1]}",
)
def test_an_option_changes_what_is_learnt(
    option: tuple[object, ...], learnt: dict[str, torch.Tensor], flat: Path, tmp_path: Path
) -> None:
    trained(flat, "--epochs", 1, "--checkpoint", tmp_path / "other.pt", *option)
    assert not same(weights(tmp_path / "other.pt"), learnt)


@pytest.fixture(scope="module")
def learnt(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights after an epoch with the options as they are."""
    checkpoint = tmp_path_factory.mktemp("learnt") / "one.pt"
    trained(flat, "--epochs", 1, "--checkpoint", checkpoint)
    return weights(checkpoint)


def test_a_compiled_model_has_the_same_checkpoint(
    flat: Path, learnt: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled.append(model))  # it takes long
    trained(flat, "--epochs", 1, "--compile", "--checkpoint", tmp_path / "other.pt")
    assert [type(model) for model in compiled] == [ResNet]
    assert same(weights(tmp_path / "other.pt"), learnt)


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
        id(module.weight) for module in model.modules() if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear))
    }
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_a_loss_that_is_no_number(flat: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the loss became (nan|inf); try a smaller --lr"):
        trained(flat, "--lr", math.inf, "--checkpoint", tmp_path / "made.pt")
    assert not (tmp_path / "made.pt").exists()


def test_mistakes(flat: Path, textured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made.pt"
    with pytest.raises(SystemExit, match=r"has other classes than .*; pack both from the same folders"):
        trained(flat, textured, "--checkpoint", made)
    with pytest.raises(SystemExit, match=r"no checkpoint to go on from: .*made\.pt"):
        trained(flat, "--resume", "--checkpoint", made)
    trained(flat, "--checkpoint", made)
    with pytest.raises(
        SystemExit, match=r"made with other options: --lr was 0\.1, now 3\.0; --label-smoothing was 0\.1, now 0\.0\."
    ):
        trained(flat, "--resume", "--checkpoint", made, "--lr", 3, "--label-smoothing", 0)
    with pytest.raises(SystemExit, match=r"--epochs was 2, now 3\. They decide the learning rate of every step"):
        trained(flat, "--resume", "--checkpoint", made, "--epochs", 3)
    capsys.readouterr()
    trained(flat, "--resume", "--checkpoint", made)
    assert capsys.readouterr().out == f"{made} has all 2 epochs: nothing to do\n"
    for arguments, said in (
        (["--checkpoint", made], "is there already; pass --resume to go on from it, or another --checkpoint"),
        (["--amp", "fp16"], "--amp fp16 needs a GPU"),
    ):
        with pytest.raises(SystemExit, match="2"):
            trained(flat, *arguments)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        train_imagenet.main([str(flat), "--epochs", "0"])
    assert "must be at least 1" in capsys.readouterr().err


def test_the_demo_reaches_what_it_states(tmp_path: Path) -> None:
    script = ROOT / "examples" / "train_demo.py"
    command = [sys.executable, "-W", "error", str(script), str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reached = re.search(r"accuracy ([\d.]+) % of 200 photos that it has not seen; expected 80 % or more", done.stdout)
    assert reached is not None
    assert float(reached[1]) >= 80


def test_a_demo_that_learns_too_little_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"LEARN": 40, "TEST": 10, "EPOCHS": 5}.items():
        monkeypatch.setattr(train_demo, name, value)
    with pytest.raises(SystemExit, match="1"):
        train_demo.main([str(tmp_path)])
    assert re.search(r"accuracy [0-7]\d?\.0 % of 10 photos", capsys.readouterr().out)
    monkeypatch.setattr(train_demo, "LEAST", 0.0)
    train_demo.main([str(tmp_path)])  # the photos are there
