"""A kind of crop, and sample numbers -> the plan of single samples' rows.

Note [draws of single samples]
A Dataset does not know its epoch. Until `set_epoch` one number a sample comes from torch's generator, as in
torchvision's transforms: torch seeds each worker anew in each epoch. After it, draws are named by (seed, epoch,
sample), as a loader's are, on any number of workers; the epoch lies in shared memory, since workers may be older.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.checks import flag, whole
from fastpipe.errors import ConfigError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import check_room, plan_crops
from fastpipe.plan.crop_options import checked_crop, flip_probability, output_size
from fastpipe.plan.crops import TenCrop
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.plan.geometry import Geometry, geometry_of

_NO_EPOCH = -1
_VALID = np.ones(1, dtype=np.bool_)


class Cropping:
    """How a Dataset crops. It can be pickled.

    Attributes:
        size: (height, width) of a row.
        rows: of each sample.
        exact: never decode at reduced size.
        mirrors: whether pictures may be mirrored.
    """

    def __init__(self, crop: Any, size: Any, *, hflip: Any, seed: Any, exact: Any) -> None:
        self.size = output_size(size)
        self._crop = checked_crop(crop, self.size, train=False)
        self._flip = flip_probability(hflip, train=False)
        self._seed = whole("seed", seed, least=0, most=2**64 - 1)
        self.rows = self._crop.rows
        self.exact = flag("exact", exact) or not self._crop.may_be_reduced
        self.mirrors = self._flip > 0
        if self.rows > 1 and self.mirrors:
            raise ConfigError(
                f"crop: {type(self._crop).__name__} is for evaluation, and mirrors by itself or not at all; leave "
                "hflip= out"
            )
        self._epoch = torch.full((), _NO_EPOCH, device="cpu").share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: object) -> None:
        """See Note [draws of single samples]."""
        self._epoch.fill_(whole("epoch", epoch, least=0, most=2**63 - 1))

    def plans(
        self, ids: NDArray[np.int64], samples: NDArray[np.int64], records: NDArray[np.void]
    ) -> Iterator[BatchPlan]:
        """The plan of each sample."""
        epoch, named = int(self._epoch), samples
        if epoch == _NO_EPOCH:
            epoch = 0
            if self.mirrors or self._crop.is_random:
                named = torch.empty(len(samples), dtype=torch.int64, device="cpu").random_().numpy()
        sides = records["width"].astype(np.int64), records["height"].astype(np.int64)
        check_room(self._crop, self.size, *sides, lambda at: f"sample {ids[at]}")
        drawn = uniform(key(self._seed, epoch, Stream.FLIP), named) < self._flip
        for at in range(len(samples)):
            one = slice(at, at + 1)
            widths, heights = (side[one] for side in sides)
            crops = plan_crops(self._crop, self.size, widths, heights, seed=self._seed, epoch=epoch, samples=named[one])
            flips = np.repeat(drawn[one], self.rows) if crops.mirrored is None else crops.mirrored
            yield BatchPlan(ids[one], samples[one], records[one], crops, flips, _VALID, named[one])

    @property
    def mirroring(self) -> str:
        """What mirrors pictures; empty: nothing."""
        return "hflip" if self.mirrors else "TenCrop" * isinstance(self._crop, TenCrop)

    def geometry(self, plan: BatchPlan) -> Geometry:
        """Where boxes and points go, by row."""
        widths, heights = (plan.by_row().records[side].astype(np.int64) for side in ("width", "height"))
        return geometry_of(self._crop, plan.crops, widths, heights, plan.flips)

    def __repr__(self) -> str:
        flip = f", hflip={self._flip}" if self.mirrors else ""
        return f"crop={self._crop!r}, size={self.size}{flip}"
