"""(seed, epoch, batch, samples) -> every random choice of a batch's augmentation, as numpy arrays; no torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.draws import bits, key, uniform

Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The draws of one batch, of (n,) samples. `shown` (n, 2) are the parts of the height and the width of each row
    that have the image, at the top left, where the rest is padding; None: rows are full.
    """

    samples: NDArray[np.int64] = field(kw_only=False)
    seed: int
    epoch: int
    batch: int
    shown: NDArray[np.float64] | None = None
    channels: int = 3  # no draw of fastpipe's own operations depends on them

    def __len__(self) -> int:
        return len(self.samples)

    def each(self, stream: int) -> NDArray[np.float64]:
        """(n,) in [0, 1): a draw a sample, the same in whatever batch the sample comes."""
        return uniform(key(self.seed, self.epoch, stream), self.samples)

    def once(self, stream: int) -> float:
        """In [0, 1): one draw for the batch, the same on every rank."""
        return float(uniform(key(self.seed, self.epoch, stream), np.array([self.batch]))[0])

    def generator_seed(self, stream: int, position: int) -> int:
        """A 64-bit seed of the batch, and of its first sample: ranks that share a batch must not repeat one another."""
        batch_key = key(key(self.seed, self.epoch, stream), self.batch, position)
        return int(bits(batch_key, self.samples[:1])[0])

    def sample_bits(self, stream: int, position: int) -> NDArray[np.uint64]:
        """(n,) seeds, one a sample, the same in whatever batch the sample comes."""
        return bits(key(key(self.seed, self.epoch, stream), position, 0), self.samples)

    def group_of(self, stream: int, position: int, groups: int) -> NDArray[np.int64]:
        """(n,) in [0, groups): the group of each sample, the same in whatever batch the sample comes."""
        return (self.sample_bits(stream, position) % np.uint64(groups)).astype(np.int64)

    def group_seed(self, stream: int, position: int, group: int | None) -> int:
        """In [0, 2**64): a seed that the samples of a group share in an epoch; of no group: `generator_seed`."""
        if group is None:
            return self.generator_seed(stream, position)
        return key(key(self.seed, self.epoch, stream), position, 1 + group)


@dataclass(frozen=True)
class Step:
    """What one stage does to a batch: what the host must know without asking the device, such as sizes of groups, and
    the arrays, float32 or int64 by name, that the device needs.
    """

    host: Any
    arrays: dict[str, Array]


@dataclass(frozen=True)
class AugmentPlan:
    """The augmentation of one batch, decided.

    Attributes:
        count: samples of the batch.
        size: (height, width) in pixels.
        channels, bits: of the images.
        hosts: a Step's `host` for each stage, in order.
        arrays: the arrays of all stages, by "stage.name"; small. Augment.carry_out wants them as tensors on its device.
    """

    count: int
    size: tuple[int, int]
    channels: int
    bits: int
    hosts: tuple[Any, ...]
    arrays: dict[str, Array]

    def split(self, arrays: Mapping[str, T]) -> list[dict[str, T]]:
        """The arrays, or the tensors made of them, stage by stage, by their own names."""
        stages: list[dict[str, T]] = [{} for _ in self.hosts]
        for full in self.arrays:
            number, name = full.split(".", 1)
            stages[int(number)][name] = arrays[full]
        return stages
