"""An augmentation -> what it does to boxes, masks and points: which it moves, and which it would make wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fastpipe.augment.inputs import unaffected
from fastpipe.augment.kornia_fields import movable
from fastpipe.augment.kornia_operation import Kornia
from fastpipe.augment.module import Augment
from fastpipe.augment.policy import Policy

# kornia's base of augmentations that change values and move nothing.
_KORNIA_COLOUR = "IntensityAugmentationBase2D"
_MIRRORING = ("RandomHorizontalFlip", "RandomVerticalFlip")
_TORCHVISION_COLOUR = frozenset(
    [
        *("ColorJitter", "ConvertImageDtype", "GaussianBlur", "Grayscale", "Normalize", "RandomAdjustSharpness"),
        *("RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize", "RandomErasing", "RandomGrayscale"),
        *("RandomInvert", "RandomPhotometricDistort", "RandomPosterize", "RandomSolarize", "ToDtype"),
    ]
)


def mixes(augment: Augment) -> bool:
    """Whether an image of a batch becomes the mixture of two."""
    return bool(augment.mixers)


def pasted(augment: Augment) -> frozenset[str]:
    """The kinds of fields that all that mixes images also mixes, by pasting: cutmix pastes masks."""
    mixing = [stage.moves for stage in augment.mixers]
    return frozenset[str].intersection(*mixing) if mixing else frozenset()


@dataclass(frozen=True)
class Moving:
    """An operation that moves pixels, or that may, as far as one can know.

    Attributes:
        moves: the kinds of fields that it moves with the pixels.
        could_move: those that it would move in a container that names them.
        mirrors: it is there to make mirror images.
        shows: it moves what says where an image is in its row, too.
    """

    name: str
    moves: frozenset[str] = frozenset()
    could_move: frozenset[str] = frozenset()
    mirrors: bool = False
    shows: bool = False


def moving_parts(augment: Augment) -> list[Moving]:
    """Its operations that move pixels, or may; without those that mix images."""
    found = []
    for stage in augment.stages:
        module = getattr(stage, "module", None)
        if isinstance(stage, Policy):
            found.append(Moving("RandAugment or TrivialAugment", shows=True))
        elif module is not None and not stage.mixes and not _keeps_places(module):
            name = type(module).__name__
            found.append(Moving(name, stage.moves, movable(module), name in _MIRRORING, stage.moves_shown))
    return found


@unaffected(torch.device("cpu"))
def mixing_ids(augment: Augment, size: tuple[int, int], channels: int = 3) -> list[str]:
    """The names of its operations that would make numbers in masks that are no ids, of images of `size`, (h, w)."""
    found = []
    for operation in augment.stages:
        if isinstance(operation, Kornia) and operation.mixes_ids(size, channels):
            found.append(type(operation.module).__name__)
        size = operation.size_after(size, channels)
    return found


def _keeps_places(module: torch.nn.Module) -> bool:
    """Whether a module of others changes values only."""
    if isinstance(module, torch.nn.Identity):
        return True
    if type(module) is torch.nn.Sequential:
        return all(map(_keeps_places, module))
    kinds = type(module).__mro__
    library = [kind for kind in kinds if kind.__module__.partition(".")[0] in ("kornia", "torchvision")]
    return any(kind.__name__ == _KORNIA_COLOUR or kind.__name__ in _TORCHVISION_COLOUR for kind in library)
