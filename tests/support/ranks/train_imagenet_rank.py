"""A process of examples/train_imagenet.py under torchrun; it keeps the first epoch's checkpoint, and its own weights.
Its resnet18 has two blocks of the eight.

torchrun ... train_imagenet_rank.py OUT ARGUMENTS...
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[3] / "examples"))

import train_imagenet
from resnet import DEPTHS

FEW_BLOCKS = {"resnet18": (1, 1, 0, 0)}


def main(out: Path, arguments: list[str]) -> None:
    models: list[torch.nn.Module] = []
    train_epoch, save = train_imagenet.train_epoch, train_imagenet.save

    def train_and_keep(model: torch.nn.Module, *rest: Any) -> str:
        models.append(model)
        return train_epoch(model, *rest)

    def save_and_keep(options: Any, parts: Any, epoch: int) -> None:
        save(options, parts, epoch)
        if epoch == 0:
            shutil.copy(options.checkpoint, out / "first.pt")

    DEPTHS.update(FEW_BLOCKS)
    train_imagenet.train_epoch, train_imagenet.save = train_and_keep, save_and_keep
    train_imagenet.main(arguments)
    torch.save(models[-1].state_dict(), out / f"rank-{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
