"""An augmentation -> what it does to boxes, masks and points: nothing, unless it mixes images or moves pixels."""

from __future__ import annotations

import torch

from fastpipe.augment.module import Augment
from fastpipe.augment.operation import Operation
from fastpipe.augment.policy import Policy

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
    stages = [operation for operation in augment.operations if getattr(operation, "mixes", False)]
    return bool(stages) or augment._chain.mixing is not None


def moving_parts(augment: Augment) -> list[str]:
    """The names of its operations that move pixels, or that may, as far as one can know."""
    found = []
    for operation in augment.operations:
        if isinstance(operation, Policy):
            found.append("RandAugment or TrivialAugment")
        elif not isinstance(operation, Operation) or hasattr(operation, "module"):
            module = getattr(operation, "module", operation)
            if not _keeps_places(module):
                found.append(type(module).__name__)
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
