"""A dataset with boxes -> torchvision's SSDLite detector, trained.

    python examples/train_detector.py data/train --val data/val

The datasets have a field `boxes` with labels (the page Fields). The loader crops, resizes and mirrors boxes with their
images; kornia moves both again, in the same loader. With --val, each epoch prints how many photos' surest box is right:
it has the label of a true box, and shares at least half of their common area with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import kornia.augmentation as K  # noqa: N812
import torch
from torch import Tensor, nn
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.ops import box_iou

import fastpipe

FIELDS = ("image", "boxes")
SIZE = 320  # SSDLite's own


def augmentation() -> fastpipe.Augment:
    """Turns, shifts and scales images with their boxes, then changes colours; the network normalises by itself."""
    return fastpipe.Augment(
        K.AugmentationSequential(
            K.RandomAffine(5.0, (0.05, 0.05), (0.9, 1.1), p=0.5),
            K.ColorJitter(0.3, 0.3, 0.3, 0.05, p=0.8),
            data_keys=["input", "bbox_xyxy"],
        ),
        mean=None,
        std=None,
    )


def targets_of(batch: dict[str, Any]) -> list[dict[str, Tensor]]:
    """What torchvision's detectors train with; their class 0 is the background."""
    return [
        {"boxes": boxes, "labels": labels + 1}
        for boxes, labels in zip(batch["boxes"], batch["boxes_labels"], strict=True)
    ]


def train_epoch(
    model: nn.Module, batches: Iterable[dict[str, Any]], optimizer: torch.optim.Optimizer
) -> float:
    """Trains for an epoch; returns the mean loss."""
    model.train()
    losses = []
    for batch in batches:
        loss = sum(model(list(batch["image"]), targets_of(batch)).values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@torch.no_grad()
def found(model: nn.Module, batches: Iterable[dict[str, Any]]) -> float:
    """The share of photos whose surest box is right."""
    model.eval()
    right = photos = 0
    for batch in batches:
        for made, target in zip(
            model(list(batch["image"].float() / 255)), targets_of(batch), strict=True
        ):
            photos += 1
            if len(made["boxes"]) and len(target["boxes"]):
                surest = int(made["scores"].argmax())
                same = target["labels"] == made["labels"][surest]
                right += bool(
                    (
                        same & (box_iou(target["boxes"], made["boxes"][surest, None])[:, 0] >= 0.5)
                    ).any()
                )
    return right / max(photos, 1)


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints a line an epoch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset with the field boxes")
    parser.add_argument("--val", help="another, to test with")
    parser.add_argument(
        "--classes", type=int, help="number of box labels; without it, that of the image labels"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    made = {"fields": FIELDS, "size": SIZE, "device": options.device}
    crop = fastpipe.RandomResizedCrop(scale=(0.5, 1.0))
    train = fastpipe.loader(
        options.train,
        options.batch_size,
        crop=crop,
        seed=options.seed,
        augment=augmentation(),
        **made,
    )
    val = options.val and fastpipe.loader(
        options.val, options.batch_size, crop=fastpipe.Resize(), train=False, **made
    )
    classes = options.classes or len(train.classes)
    model = ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=classes + 1
    )
    model.to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=1e-4)
    for epoch in range(1, options.epochs + 1):
        line = f"epoch {epoch} of {options.epochs}: loss {train_epoch(model, train, optimizer):.3f}"
        print(line + (f", {100 * found(model, val):.1f} % right" if val else ""), flush=True)


if __name__ == "__main__":
    try:
        main()
    except fastpipe.FastpipeError as error:
        sys.exit(f"train_detector: {error}")
