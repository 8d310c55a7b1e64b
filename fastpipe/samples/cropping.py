"""A kind of crop, and sample numbers -> the plan of single samples' rows.

Note [draws of single samples]
A Dataset does not know its epoch. Until `set_epoch` one number a sample comes from torch's generator, as in
torchvision's transforms: torch seeds each worker anew in each epoch. After it, draws are named by (seed, epoch,
sample), as a loader's are, on any number of workers; the epoch lies in shared memory, since workers may be older.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.errors.checks import flag, whole
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crop_options import checked_crop, flip_probability, output_size
from fastpipe.plan.crops import TenCrop
from fastpipe.plan.draws import Stream, key, uniform

_NO_EPOCH = -1


class Cropping:
    """How a Dataset crops: to rows of `size`, (height, width); if `exact`, never decoded at reduced size. It can be
    pickled.
    """

    def __init__(self, crop: Any, size: Any, *, hflip: Any, seed: Any, exact: Any) -> None:
        self.size = output_size(size)
        self.crop = checked_crop(crop, self.size, train=False)
        self._flip = flip_probability(hflip, train=False)
        self._seed = whole("seed", seed, least=0, most=2**64 - 1)
        self.exact = flag("exact", exact) or not self.crop.may_be_reduced
        self.mirrors = self._flip > 0
        if self.crop.rows > 1 and self.mirrors:
            raise ConfigError(
                f"crop: {type(self.crop).__name__} is for evaluation, and mirrors by itself or not at all; leave "
                "hflip= out"
            )
        self._epoch = torch.full((), _NO_EPOCH, device="cpu").share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: object) -> None:
        """See Note [draws of single samples]."""
        self._epoch.fill_(whole("epoch", epoch, least=0, most=2**63 - 1))

    def plan(self, ids: NDArray[np.int64], samples: NDArray[np.int64], records: NDArray[np.void]) -> BatchPlan:
        """Of some samples."""
        epoch, named = int(self._epoch), samples
        if epoch == _NO_EPOCH:
            epoch = 0
            if self.mirrors or self.crop.is_random:
                named = torch.empty(len(samples), dtype=torch.int64, device="cpu").random_().numpy()
        widths, heights = (records[side].astype(np.int64) for side in ("width", "height"))
        name, seed = (lambda at: f"sample {ids[at]}"), self._seed
        crops = plan_crops(self.crop, self.size, widths, heights, seed=seed, epoch=epoch, samples=named, name=name)
        flips = uniform(key(seed, epoch, Stream.FLIP), named) < self._flip
        flips = np.repeat(flips, self.crop.rows) if crops.mirrored is None else crops.mirrored
        return BatchPlan(ids, samples, records, crops, flips, np.ones(len(ids), np.bool_), named)

    @property
    def mirroring(self) -> str:
        """What mirrors pictures; empty: nothing."""
        return "hflip" if self.mirrors else "TenCrop" * isinstance(self.crop, TenCrop)

    def __repr__(self) -> str:
        flip = f", hflip={self._flip}" if self.mirrors else ""
        return f"crop={self.crop!r}, size={self.size}{flip}"
