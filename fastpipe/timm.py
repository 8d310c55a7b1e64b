"""timm's `create_dataset` and `create_loader`, with their arguments, for packed datasets.

In a program that trains with timm, such as its train.py, change one import:

    from fastpipe.timm import create_dataset, create_loader

Arguments mean what they mean there, and so do `mixup_enabled` and `sampler.set_epoch`. Pictures are decoded by threads;
all that is random but crop and mirroring happens on the device, from (seed, epoch, batch, sample), so that a resumed
run repeats it. Different from timm:

- "rand-..." of `auto_augment` picks from torchvision's operations of RandAugment, with timm's m, n, p and mstd.
- Cutmix and mixup mix a row with the one before it, not with the one at the other end of the batch.
- `interpolation="random"` is bicubic.
- "pixel" and "rand" erasing draw other colours on a GPU than on a CPU.

Source of the names and defaults: timm 1.0, timm/data/loader.py and transforms_factory.py.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import kornia.augmentation
import torch
from torch import Tensor

from fastpipe.augment import Augment
from fastpipe.augment.normalised import Erasing, Mixing
from fastpipe.augment.options import PRESETS as PRESETS  # noqa: F401
from fastpipe.augment.presets import LAST_BIN, RANDAUGMENT, Blur, Grayscale, Policy
from fastpipe.errors import ConfigError
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.loading.samplers import Repeated
from fastpipe.plan.crops import CenterCrop, Crop, Letterbox, RandomResizedCrop, Resize
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.opening import open as open_dataset
