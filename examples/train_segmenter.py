"""A dataset with masks -> a small U-Net that tells the class of each pixel.

    python examples/train_segmenter.py data/train --val data/val --classes 21

The datasets have a field `mask` of ids from 0 to classes - 1; 255 stands for pixels without a class (the page Fields).
The loader crops, resizes and mirrors masks with their images; kornia moves both again, in the same loader. What comes
from outside an image gets 255, too, and so does all of a sample without a mask. With --val, each epoch prints the mean
IoU: the shared area of what is found and what is there, by all the area of both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import kornia.augmentation as K  # noqa: N812
import torch
from torch import Tensor, nn
from torch.nn import functional

import fastpipe

FIELDS = ("image", "mask")
NO_CLASS = 255


def convolutions(channels_in: int, channels: int) -> nn.Sequential:
    """Two convolutions at one resolution."""
    layers: list[nn.Module] = []
    for before in (channels_in, channels):
        layers += [
            nn.Conv2d(before, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Halves the image four times, and doubles it again beside what it saw on the way (Ronneberger et al., 2015).

    Args:
        classes: of the pixels.
        width: channels at full resolution; each half has twice as many.
    """

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        before = [3, *widths]
        self.down = nn.ModuleList(convolutions(*pair) for pair in zip(before, widths, strict=False))
        pairs = list(pairwise(widths))[::-1]
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in pairs
        )
        self.join = nn.ModuleList(convolutions(2 * narrow, narrow) for narrow, _ in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, 3, height, width), sides multiples of 16 -> logits (N, classes, height, width)."""
        seen = []
        for level, convolve in enumerate(self.down):
            images = convolve(functional.max_pool2d(images, 2) if level else images)
            seen.append(images)
        for double, join, beside in zip(self.up, self.join, seen[-2::-1], strict=True):
            images = join(torch.cat([double(images), beside], dim=1))
        return self.head(images)


def augmentation() -> fastpipe.Augment:
    """Turns, shifts and scales images with their masks, changes colours, then normalises."""
    moved = K.AugmentationSequential(
        K.RandomAffine(10.0, (0.05, 0.05), (0.9, 1.1), p=0.5),
        K.ColorJitter(0.3, 0.3, 0.3, 0.05, p=0.8),
        data_keys=["input", "mask"],
    )
    return fastpipe.Augment(moved)


def train_epoch(
    model: nn.Module, batches: Iterable[dict[str, Any]], optimizer: torch.optim.Optimizer
) -> float:
    """Trains for an epoch; returns the mean loss."""
    model.train()
    losses = []
    for batch in batches:
        loss = functional.cross_entropy(
            model(batch["image"]), batch["mask"].long(), ignore_index=NO_CLASS
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@torch.no_grad()
def mean_iou(model: nn.Module, batches: Iterable[dict[str, Any]], classes: int) -> float:
    """The IoU of each class that is found or there, and of these the mean."""
    model.eval()
    pairs = torch.zeros(classes * classes, dtype=torch.int64)
    for batch in batches:
        found, there = model(batch["image"]).argmax(1), batch["mask"].long()
        known = there != NO_CLASS
        pairs += torch.bincount((there * classes + found)[known].cpu(), minlength=classes * classes)
    table = pairs.view(classes, classes)
    both, either = table.diagonal(), table.sum(0) + table.sum(1) - table.diagonal()
    return float((both[either > 0] / either[either > 0]).mean())


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints a line an epoch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset with the field mask")
    parser.add_argument("--val", help="another, to test with")
    parser.add_argument(
        "--classes", type=int, required=True, help="number of ids, with that of the background"
    )
    parser.add_argument(
        "--size", type=int, default=256, help="side of the images, a multiple of 16"
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    made = {"fields": FIELDS, "size": options.size, "device": options.device}
    crop = fastpipe.RandomResizedCrop(scale=(0.5, 1.0), mask_fill=NO_CLASS)
    train = fastpipe.loader(
        options.train,
        options.batch_size,
        crop=crop,
        seed=options.seed,
        augment=augmentation(),
        **made,
    )
    val = options.val and fastpipe.loader(
        options.val,
        options.batch_size,
        crop=fastpipe.Resize(mask_fill=NO_CLASS),
        train=False,
        augment=fastpipe.Augment.imagenet(),
        **made,
    )
    model = UNet(options.classes).to(options.device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=1e-4)
    for epoch in range(1, options.epochs + 1):
        line = f"epoch {epoch} of {options.epochs}: loss {train_epoch(model, train, optimizer):.3f}"
        print(
            line + (f", mean IoU {mean_iou(model, val, options.classes):.3f}" if val else ""),
            flush=True,
        )


if __name__ == "__main__":
    try:
        main()
    except fastpipe.FastpipeError as error:
        sys.exit(f"train_segmenter: {error}")
