"""A loader -> what one epoch of it holds."""

from __future__ import annotations

import torch
from support.pictures.drawn import flat_number

import fastpipe


def epoch_of(loader: fastpipe.Loader) -> tuple[torch.Tensor, torch.Tensor]:
    """All of an epoch's images and labels."""
    batches = list(loader)
    return torch.cat([images for images, _ in batches]), torch.cat(
        [labels for _, labels in batches]
    )


def numbers_of(images: torch.Tensor) -> list[int]:
    """Which of the flat pictures each row is of."""
    return [flat_number(image[:, 2, 2].numpy()) for image in images]


def same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
