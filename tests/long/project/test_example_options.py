"""examples/train_imagenet.py with each of its options, and its whole network; examples/train_demo.py as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.checkout import ROOT
from support.examples.imagenet import same, trained, weights

sys.path.append(str(ROOT / "examples"))

from resnet import DEPTHS, ResNet

pytestmark = pytest.mark.usefixtures("one_thread")


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
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda model: compiled.append(model)
    )  # it takes long
    trained(flat, "--epochs", 1, "--compile", "--checkpoint", tmp_path / "other.pt")
    assert [type(model) for model in compiled] == [ResNet]
    assert same(weights(tmp_path / "other.pt"), learnt)


def test_the_demo_reaches_what_it_states(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "fastpipe", "demo", str(tmp_path / "demo"), "--photos", "1200"]
    subprocess.run(demo, check=True, capture_output=True, timeout=1800)
    script = ROOT / "examples" / "train_demo.py"
    command = [sys.executable, "-W", "error", str(script), str(tmp_path / "demo" / "packed")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reached = re.search(
        r"accuracy ([\d.]+) % of 200 photos that it has not seen; expected 80 % or more",
        done.stdout,
    )
    assert reached is not None
    assert float(reached[1]) >= 80
