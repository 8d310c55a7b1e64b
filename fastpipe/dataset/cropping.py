"""Options of crops -> the crops and flips of single samples.

Note [draws of single samples]
A Dataset, or a WebDataset pipeline, does not know its epoch. Until `set_epoch` one number a sample
comes from torch's generator, as in torchvision's transforms: torch seeds each worker anew in each
epoch, and torch.manual_seed decides. After it, draws are named by (seed, epoch, sample), as a
loader's are, on any number of workers and in any order; the epoch lies in shared memory, since
workers may be older than the call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from fastpipe.arrays import Bools, Int64s, Records
from fastpipe.completion import PublicNames
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops, names_of_rows, plan_crops
from fastpipe.plan.crop_options import parse_crop, parse_flip_probability
from fastpipe.plan.crops import Crop, TenCrop, parse_size
from fastpipe.plan.draws import Stream, key, uniform

_NO_EPOCH = -1
_MOST_EPOCHS = 1.5  # that samples are read with one call of set_epoch


class Draws(NamedTuple):
    """The inputs, beside the seed, that the draws of samples are a hash of.

    See Note [draws of single samples].
    """

    epoch: int
    numbers: Int64s  # (n,)


class Cropping(PublicNames):
    """How single samples are cropped, to rows of `size`, (height, width).

    It can be pickled, and holds no thread, no lock and no open file.

    Args:
        crop, size, hflip, seed, exact: as of Dataset.cropped.
        train: the default of `crop` and `hflip`.
    """

    # Other folders of fastpipe use these.
    _NOT_PUBLIC = frozenset(
        [
            "count_read",
            "knows_epoch",
            "mirroring",
            "mirrors",
            "name_draws",
            "plan",
            "plan_rows",
        ]
    )

    def __init__(
        self,
        crop: Any,
        size: Any,
        *,
        hflip: Any,
        seed: Any,
        exact: Any,
        train: bool = False,
    ) -> None:
        self.size = parse_size(size)
        self.crop = parse_crop(crop, self.size, train=train)
        _check_single(self.crop)
        self._flip = parse_flip_probability(hflip, train=train)
        self._seed = whole("seed", seed, least=0, most=2**64 - 1)
        # Whether pictures are never decoded at a reduced size.
        self.exact = flag("exact", exact) or not self.crop.may_be_reduced
        self.mirrors = self._flip > 0
        # In shared memory, so that workers see set_epoch: Note [draws of single samples].
        epoch = torch.full((), _NO_EPOCH, device="cpu")
        self._epoch = epoch.share_memory_()  # type: ignore[no-untyped-call]
        # Samples that all workers have read since set_epoch.
        num_read = torch.zeros((), dtype=torch.int64, device="cpu")
        self._num_read = num_read.share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Makes crops and flips a function of (seed, epoch, key).

        Call it before each epoch, or not at all. Call it in the process that iterates over the
        DataLoader, before the iteration begins. Workers see it, also persistent ones. Without it,
        torch's generator decides: each epoch has new crops, and torch.manual_seed makes them
        repeatable for the same number of workers.

        Args:
            epoch: its number, from 0.
        """
        number = whole("epoch", epoch, least=0, most=2**63 - 1)
        self._epoch.fill_(number)
        self._num_read.zero_()

    @property
    def knows_epoch(self) -> bool:
        """Whether `set_epoch` has been called."""
        return int(self._epoch) != _NO_EPOCH

    def count_read(self, count: int, num_samples: int) -> bool:
        """Counts samples that are read; whether their crops repeat those of an epoch before.

        Args:
            count: how many more.
            num_samples: of the dataset.
        """
        is_random = self.mirrors or self.crop.is_random
        if not is_random or not self.knows_epoch:
            return False
        before = int(self._num_read)
        self._num_read += count
        # A program may also look at some samples beside its epoch.
        most = _MOST_EPOCHS * num_samples
        return before <= most < before + count

    def name_draws(self, numbers: Int64s) -> Draws:
        """The inputs of the draws of samples, (n,).

        After `set_epoch` the draws of a sample are named by its number, one of `numbers`.
        """
        is_random = self.mirrors or self.crop.is_random
        # Without draws, torch's generator must stay as it is.
        if is_random and not self.knows_epoch:
            random_numbers = torch.empty(len(numbers), dtype=torch.int64, device="cpu")
            numbers = random_numbers.random_().numpy()
        return Draws(max(int(self._epoch), 0), numbers)

    def plan_rows(
        self, widths: Int64s, heights: Int64s, draws: Draws, **options: Any
    ) -> tuple[Crops, Bools]:
        """The crops of pictures of these sizes, and which rows are mirrored.

        Args:
            widths, heights: (n,) of the pictures, in pixels.
            draws: of the samples.
            options: of plan_crops.
        """
        crops = plan_crops(
            self.crop,
            self.size,
            widths,
            heights,
            seed=self._seed,
            epoch=draws.epoch,
            samples=draws.numbers,
            **options,
        )
        if crops.mirrored is not None:  # a TenCrop mirrors half of its rows itself
            return crops, crops.mirrored
        flip_key = key(self._seed, draws.epoch, Stream.FLIP)
        row_names = names_of_rows(self.crop, draws.numbers)
        return crops, uniform(flip_key, row_names) < self._flip

    def plan(self, ids: Int64s, samples: Int64s, records: Records) -> BatchPlan:
        """The plan of n samples: (n,) their ids, numbers in the index, and records."""

        def name_sample(position: int) -> str:
            return f"sample {ids[position]}"

        draws = self.name_draws(samples)
        widths = records["width"].astype(np.int64)
        heights = records["height"].astype(np.int64)
        crops, flips = self.plan_rows(widths, heights, draws, name=name_sample)
        valid = np.ones(len(ids), np.bool_)
        row_names = names_of_rows(self.crop, draws.numbers)
        return BatchPlan(
            ids, samples, records, crops, flips, valid, draws.numbers, row_names
        )

    @property
    def mirroring(self) -> str:
        """The option that mirrors pictures, for messages; "" if none does."""
        if self.mirrors:
            return "hflip"
        return "TenCrop" if isinstance(self.crop, TenCrop) else ""

    def __repr__(self) -> str:
        flip = f", hflip={self._flip}" if self.mirrors else ""
        return f"crop={self.crop!r}, size={self.size}{flip}"


def _check_single(crop: Crop) -> None:
    """Raises ConfigError for a crop that only the batches of a loader can have."""
    name = type(crop).__name__
    if crop.is_per_part:
        raise ConfigError(
            f"crop: {name} gives as many rows as an image has parts; pass it to "
            f"fastpipe.loader(..., crop=fastpipe.{name}())"
        )
    if crop.objects_field is not None:
        raise ConfigError(
            f"crop: {name}(where={crop.objects_field!r}) needs the boxes of a dataset, and single "
            "samples are cropped without them. Pass it to fastpipe.loader(..., crop=), or leave "
            "where out"
        )
