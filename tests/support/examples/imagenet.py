"""examples/train_imagenet.py on a small task: a run of it in this process, and what it has learnt."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import torch
from support.checkout import ROOT

sys.path.append(str(ROOT / "examples"))

import train_imagenet
from resnet import DEPTHS

QUICK = [
    "--model=resnet18",
    "--size=32",
    "--batch-size=16",
    "--epochs=2",
    "--warmup=1",
    "--device=cpu",
]


def trained(*arguments: object, blocks: tuple[int, ...] = (1, 1, 0, 0)) -> None:
    """Runs train_imagenet's main in this process, on a small task, with two blocks of resnet18's eight."""
    with mock.patch.dict(DEPTHS, resnet18=blocks):
        train_imagenet.main([*QUICK, *map(str, arguments)])


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(checkpoint, weights_only=True)["model"])


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )
