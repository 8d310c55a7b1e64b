"""(seed, epoch, batch, samples) -> every random choice of a batch's augmentation, in numpy; what an operation is, which
draws a step of it and carries it out; how it is applied to some rows of a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.plan.draws import Float64s, Int64s, bits, key, uniform

# What changes values and moves nothing: kornia's base of such augmentations, and transforms of torchvision.
_COLOUR = frozenset(
    [
        "IntensityAugmentationBase2D",
        *("ColorJitter", "ConvertImageDtype", "GaussianBlur", "Grayscale", "Normalize", "RandomAdjustSharpness"),
        *("RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize", "RandomErasing", "RandomGrayscale"),
        *("RandomInvert", "RandomPhotometricDistort", "RandomPosterize", "RandomSolarize", "ToDtype"),
    ]
)

Function = Callable[..., Tensor]
Array = NDArray[Any]
T = TypeVar("T")
Tensors = Mapping[str, Tensor]  # the arrays of a step, on the device


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The draws of one batch, of (n,) samples. `shown` (n, 2) are the parts of the height and the width of each row
    that have the image, at the top left, where the rest is padding; None: rows are full.
    """

    samples: Int64s = field(kw_only=False)
    seed: int
    epoch: int
    batch: int
    shown: Float64s | None = None
    channels: int = 3  # no draw of fastpipe's own operations depends on them

    def __len__(self) -> int:
        return len(self.samples)

    def each(self, stream: int) -> Float64s:
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
        sizes: (height, width) in pixels, before each stage and after the last one.
        channels, bits: of the images.
        hosts: a Step's `host` for each stage, in order.
        arrays: the arrays of all stages, by "stage.name"; small. Augment.carry_out wants them as tensors on its device.
    """

    count: int
    sizes: tuple[tuple[int, int], ...]
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


class Operation(torch.nn.Module, ABC):
    """One stage between uint8 and normalising: images float32 in [0, 1] in, the same out.

    `moves` are the kinds of what `move` changes: of fields, "mask", "boxes", "keypoints" and "image", of second
    pictures; "shown", of what says where rows have an image.
    """

    by_rows = True  # a batch may be given in parts; False: only whole
    moves: frozenset[str] = frozenset()
    could_move: frozenset[str] = frozenset()  # those that it would move in a container that names them
    mixes = False  # images, so it also has `mixed_labels`, and labels become soft
    in_pairs = False  # it mixes each image with one other image
    compiles = False  # functions, before they run

    @property
    def name(self) -> str:
        """What its user passed, for messages."""
        return type(getattr(self, "module", self)).__name__

    @property
    def mirrors(self) -> bool:
        """Whether it is there to make mirror images."""
        return self.name in ("RandomHorizontalFlip", "RandomVerticalFlip")

    @property
    def may_move(self) -> bool:
        """Whether it moves pixels, as far as can be told."""
        return "shown" in self.moves or not _keeps_places(getattr(self, "module", None))

    def mixes_ids(self, size: tuple[int, int], channels: int) -> bool:
        """Whether it would make numbers in masks that are no ids, of images of `size` with so many channels."""
        return False

    @abstractmethod
    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws what this operation, the one at `position`, does to a batch of images of `size` (height, width)."""

    @abstractmethod
    def run(self, images: Tensor, first: int, host: Any, tensors: Tensors) -> Tensor:
        """Does that to images (n, c, height, width) float32 in [0, 1], the batch's rows from `first` on; may overwrite
        them. The host's part and the tensors, on the images' device, are the whole batch's.
        """

    def size_after(self, size: tuple[int, int], channels: int) -> tuple[int, int]:
        """(height, width) of what it returns for images of `size`, with so many channels."""
        return size

    def move(self, kind: str, values: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Moves float32 values of the whole batch, of a kind in `moves`, as `run` moves pixels; may overwrite them:
        planes (N, c, height, width), in which "shown" is 1 for pixels of the image and 0 for padding; or points (N, P,
        2) x, y of boxes and keypoints, from the centre of the first pixel, on the CPU as the tensors.
        """
        return values

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Mixes soft labels, (n, classes) float32, as `run` mixes images."""
        raise NotImplementedError(f"{type(self).__name__} mixes no labels")

    def fast(self, function: Function) -> Function:
        """The function, or its compiled form."""
        return compiled(function) if self.compiles else function


class Apart(Operation):
    """Has a module that is no child of it, and so stays where it is when the operation is moved."""

    by_rows = False
    module: Any

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "module", module)

    def extra_repr(self) -> str:
        return repr(self.module)


def _keeps_places(module: torch.nn.Module | None) -> bool:
    """Whether a module of others, None: an operation of ours, changes values only."""
    if module is None or isinstance(module, torch.nn.Identity):
        return True
    if type(module) is torch.nn.Sequential:
        return all(map(_keeps_places, module))
    kinds = type(module).__mro__
    library = [kind for kind in kinds if kind.__module__.partition(".")[0] in ("kornia", "torchvision")]
    return any(kind.__name__ in _COLOUR for kind in library)


@cache
def compiled(function: Function) -> Function:
    """torch.compile's form of a function of images; it serves any number of rows."""
    return torch.compile(function, dynamic=True)


def on_colour(function: Function) -> Function:
    """The function, of all channels but alpha, which stays as it is: only what moves pixels changes it."""

    def changed(images: Tensor, *parameters: Tensor) -> Tensor:
        if images.shape[1] < 4:
            return function(images, *parameters)
        images[:, :3] = function(images[:, :3], *parameters)
        return images

    return changed


def on_rows(function: Function, images: Tensor, first: int, rows: Int64s, index: Tensor, *parameters: Tensor) -> Tensor:
    """Applies a function of images, which it may overwrite, and parameters, one a row, to some rows of a batch.

    The images are its rows from `first` on. `rows` (m,) are numbers in the batch, ascending; `index` the same on the
    device, which the host need not ask for sizes.
    """
    count = len(images)
    low, high = bisect_left(rows, first), bisect_left(rows, first + count)
    if low == high:
        return images
    mine = [parameter[low:high] for parameter in parameters]
    if high - low == count:
        return function(images, *mine)
    places = index[low:high] - first if first else index[low:high]
    return images.index_copy_(0, places, function(images.index_select(0, places), *mine))
