"""timm's `create_dataset` and `create_loader`, with their arguments, for packed datasets.

In a program that trains with timm, such as its train.py, change one import:

    from fastpipe.timm import create_dataset, create_loader

Arguments mean what they mean there, and so do `mixup_enabled` and `set_epoch`. Images are decoded
by threads. All draws follow from (seed, epoch, batch, sample), so a resumed run repeats them. The
differences:

- "rand-..." of `auto_augment` picks from torchvision's operations of RandAugment, with their ranges
  of magnitudes and black where nothing is; m, n, p, mstd and mmax mean what they mean in timm. inc
  has no effect: it selects operations that grow stronger with the magnitude, as these do anyway.
- `interpolation="random"` is bicubic for all images.
- `num_aug_repeats` also works in one process, and `num_batches` without sizes to choose from.

Source of names and defaults: timm 1.0, timm/data/loader.py, transforms_factory.py, mixup.py and
auto_augment.py.
"""

from fastpipe.timm.dataset import create_dataset as create_dataset
from fastpipe.timm.loader import TimmLoader as TimmLoader
from fastpipe.timm.loader import create_loader as create_loader

__all__ = ["TimmLoader", "create_dataset", "create_loader"]


def __dir__() -> list[str]:
    return list(__all__)
