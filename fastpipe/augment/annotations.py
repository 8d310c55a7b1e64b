"""An augmentation -> what it does to boxes, masks and points: which it moves, and which it would make wrong."""

from __future__ import annotations

import torch

from fastpipe.augment.inputs import unaffected
from fastpipe.augment.kornia_operation import Kornia
from fastpipe.augment.module import Augment
from fastpipe.augment.operation import Operation

# kornia's base of augmentations that change values and move nothing.
_KORNIA_COLOUR = "IntensityAugmentationBase2D"
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


def moving_parts(augment: Augment) -> list[Operation]:
    """Its operations that move pixels, or may; without those that mix images."""
    others = [stage for stage in augment.stages if not stage.mixes]
    return [stage for stage in others if "shown" in stage.moves or not _keeps_places(getattr(stage, "module", None))]


@unaffected(torch.device("cpu"))
def mixing_ids(augment: Augment, size: tuple[int, int], channels: int = 3) -> list[str]:
    """The names of its operations that would make numbers in masks that are no ids, of images of `size`, (h, w)."""
    found = []
    for operation in augment.stages:
        if isinstance(operation, Kornia) and operation.mixes_ids(size, channels):
            found.append(operation.name)
        size = operation.size_after(size, channels)
    return found


def _keeps_places(module: torch.nn.Module | None) -> bool:
    """Whether a module of others, None: an operation of ours, changes values only."""
    if module is None or isinstance(module, torch.nn.Identity):
        return True
    if type(module) is torch.nn.Sequential:
        return all(map(_keeps_places, module))
    kinds = type(module).__mro__
    library = [kind for kind in kinds if kind.__module__.partition(".")[0] in ("kornia", "torchvision")]
    return any(kind.__name__ == _KORNIA_COLOUR or kind.__name__ in _TORCHVISION_COLOUR for kind in library)
