"""Operations of an augmentation: each draws a step of a plan, and carries it out.

(seed, epoch, batch, samples) -> Draws -> Operation.plan -> Step -> AugmentPlan -> Operation.run
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.arrays import Float64s, Int64s, Uint64s
from fastpipe.device.augment.blurs import Blur
from fastpipe.device.augment.pixel_steps import PixelStep
from fastpipe.device.augment.warps import Sampling, Warp
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import bits, key, uniform, uniform_one

# Classes that change values and move no pixel: kornia's base of such augmentations, and
# torchvision's transforms.
_COLOUR_CLASSES = frozenset(
    [
        "IntensityAugmentationBase2D",
        "ColorJitter",
        "ConvertImageDtype",
        "GaussianBlur",
        "Grayscale",
        "Normalize",
        "RandomAdjustSharpness",
        "RandomAutocontrast",
        "RandomChannelPermutation",
        "RandomEqualize",
        "RandomErasing",
        "RandomGrayscale",
        "RandomInvert",
        "RandomPhotometricDistort",
        "RandomPosterize",
        "RandomSolarize",
        "ToDtype",
    ]
)

Function = Callable[..., Tensor]
Array = NDArray[Any]
T = TypeVar("T")
Tensors = Mapping[str, Tensor]  # the arrays of a step, on the device
# The pixel steps of one stage: for some rows of the batch each, or for all (None).
StageSteps = list[tuple[Int64s | None, list[PixelStep]]]
# The same for a stage that only moves pixels, and for one that blurs.
StageWarps = list[tuple[Int64s | None, Warp]]
StageBlurs = list[tuple[Int64s | None, Blur]]


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The random draws of one batch of n samples."""

    samples: Int64s = field(kw_only=False)  # (n,) names of the draws
    seed: int
    epoch: int
    batch: int
    # (n, 2) the parts of a row's height and width that the image at its top left fills; None: all.
    image_shares: Float64s | None = None
    # The images' number of channels. fastpipe's own operations draw the same for any number.
    channels: int = 3

    def __len__(self) -> int:
        return len(self.samples)

    def each(self, stream: int) -> Float64s:
        """(n,) in [0, 1): a draw for each sample, the same in whatever batch the sample comes."""
        stream_key = key(self.seed, self.epoch, stream)
        return uniform(stream_key, self.samples)

    def once(self, stream: int) -> float:
        """In [0, 1): one draw for the batch, the same on every rank."""
        stream_key = key(self.seed, self.epoch, stream)
        return uniform_one(stream_key, self.batch)

    def generator_seed(self, stream: int, position: int) -> int:
        """A 64-bit seed of a generator for the operation at `position`.

        It depends on the batch and on its first sample, so that ranks that share a batch do not
        repeat one another.
        """
        stream_key = key(self.seed, self.epoch, stream)
        batch_key = key(stream_key, self.batch, position)
        return int(bits(batch_key, self.samples[:1])[0])

    def sample_bits(self, stream: int, position: int) -> Uint64s:
        """(n,) seeds, one a sample, the same in whatever batch the sample comes."""
        stream_key = key(self.seed, self.epoch, stream)
        return bits(key(stream_key, position, 0), self.samples)

    def group_seed(self, stream: int, position: int, group: int | None) -> int:
        """In [0, 2**64): a seed that the samples of a group share in an epoch.

        Without a group, `generator_seed`.
        """
        if group is None:
            return self.generator_seed(stream, position)
        stream_key = key(self.seed, self.epoch, stream)
        return key(stream_key, position, 1 + group)


class Step(NamedTuple):
    """What one operation does to a batch."""

    # What the host needs without asking the device, such as the sizes of groups.
    host: Any
    arrays: dict[str, Array]  # what the device needs, float32 or int64, by name


@dataclass(frozen=True)
class Run:
    """Stages [first, end) of a plan that are one pass over the images.

    Attributes:
        first, end: numbers of stages.
        arrays: what the pass needs, for the whole batch.
    """

    first: int
    end: int
    arrays: dict[str, Array]


@dataclass(frozen=True)
class LaunchedRun(Run):
    """Stages that kernels of Triton carry out, where the device has it."""


@dataclass(frozen=True)
class ColourRun(LaunchedRun):
    """Stages that change each pixel by itself.

    Attributes:
        arrays: "codes" (n, steps) int64; "values" (n, steps, NUM_VALUES) float32; "flips" (n, 2)
            int64, 1 for an image that is mirrored across, and down; "contrast_at" (n,) int64, the
            number of the step that needs the mean grey, or the number of all steps.
        has_contrast: whether a step needs the mean grey of its image, which is summed up before.
    """

    has_contrast: bool


@dataclass(frozen=True)
class BlurRun(LaunchedRun):
    """One stage that blurs along rows and then along columns.

    Attributes:
        arrays: "across" and "down" (n, taps) float32 weights; "changed" (n,) int64, 1 for a sample
            that is blurred.
        border: as of a Blur.
    """

    border: str


@dataclass(frozen=True)
class WarpRun(Run):
    """Stages that only move pixels, as one sampling.

    Attributes:
        arrays: "matrices" (n, 3, 3) float32, as of a Warp.
        sampling: of all of them.
    """

    sampling: Sampling


@dataclass(frozen=True)
class AugmentPlan:
    """The augmentation of one batch, drawn.

    Attributes:
        count: samples of the batch.
        sizes: (height, width) in pixels, before each stage and after the last one.
        channels, bits: of the images.
        hosts: `Step.host` of each stage, in order.
        arrays: the arrays of all stages, by "stage.name"; small. Augment.carry_out wants them as
            tensors on its device.
        runs: the stages that are carried out in one pass, those of colours only on a GPU. The
            arrays of a run belong to its first stage, by "stage.run.name".
    """

    count: int
    sizes: tuple[Size, ...]
    channels: int
    bits: int
    hosts: tuple[Any, ...]
    arrays: dict[str, Array]
    runs: tuple[Run, ...] = ()

    def split(self, arrays: Mapping[str, T]) -> list[dict[str, T]]:
        """The arrays, or tensors made of them, of each stage, by the names of the stage."""
        stages: list[dict[str, T]] = [{} for _ in self.hosts]
        for full_name in self.arrays:
            stage, name = full_name.split(".", 1)
            stages[int(stage)][name] = arrays[full_name]
        return stages


class Operation(torch.nn.Module, ABC):
    """One stage of an augmentation: float32 images in [0, 1] in, the same out.

    `move` does the same to what belongs to the images. Its kinds are the fields "mask", "boxes",
    "keypoints" and "image" (second images), and "shown": planes that say where a row shows its
    image, and not padding.
    """

    by_rows = True  # False: `run` needs the whole batch, True: parts of it will do
    moves: frozenset[str] = frozenset()  # the kinds that `move` changes
    # The kinds that it would move in a container of kornia with data_keys.
    could_move: frozenset[str] = frozenset()
    mixes = False  # it mixes images. Then it has `mixed_labels`, and labels become soft
    in_pairs = False  # it mixes each image with exactly one other
    compiles = False  # its functions run through torch.compile

    @property
    def name(self) -> str:
        """The class that a user passed, for messages."""
        return type(getattr(self, "module", self)).__name__

    @property
    def memory_format(self) -> torch.memory_format | None:
        """The format in which it gets images: planes, or the loader's channels_last; None: any."""
        return torch.contiguous_format if self.by_rows else torch.channels_last

    @property
    def mirrors(self) -> bool:
        """Whether its purpose is to make mirror images."""
        return self.name in ("RandomHorizontalFlip", "RandomVerticalFlip")

    @property
    def may_move(self) -> bool:
        """Whether it moves pixels. An unknown module may."""
        return "shown" in self.moves or not _changes_values_only(
            getattr(self, "module", None)
        )

    def interpolates_masks(self, size: Size, channels: int) -> bool:
        """Whether masks of `size` would get numbers that are no ids, such as means of two ids."""
        return False

    @abstractmethod
    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Draws a step of this operation, at `position`, for images of `size` (height, width)."""

    @abstractmethod
    def run(
        self, images: Tensor, first_row: int, host: Any, tensors: Tensors
    ) -> Tensor:
        """Carries a step out on the rows of a batch from `first_row` on; may overwrite the images.

        Args:
            images: (n, c, height, width) float32 in [0, 1].
            first: the batch's row that images[0] is.
            host, tensors: of the step, for the whole batch; the tensors are on the images' device.
        """

    def pixel_steps(self, step: Step, channels: int) -> StageSteps | None:
        """What a step does to images of so many channels, as steps of single pixels; None: it is no
        such thing.
        """
        return None

    def warps(self, step: Step) -> StageWarps | None:
        """What a step does, as matrices; None: it does not only move pixels."""
        return None

    def blurs(self, step: Step) -> StageBlurs | None:
        """What a step does, as weights of neighbours; None: it does not blur."""
        return None

    def size_after(self, size: Size, channels: int) -> Size:
        """(height, width) of its results for images of `size`."""
        return size

    def move(self, kind: str, values: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Moves float32 values of one kind of `moves`, for the whole batch, as `run` moves pixels;
        may overwrite them.

        Args:
            kind: "keypoints" stands for boxes, too.
            values: planes (N, c, height, width), of "shown" 1 for pixels of the image and 0 for
                padding; or points (N, P, 2) x, y of boxes and keypoints, counted from the centre of
                the first pixel.
            host, tensors: as for `run`; the tensors are on the CPU for points.
        """
        return values

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Mixes soft labels, (n, classes) float32, as `run` mixes images."""
        raise NotImplementedError(f"{type(self).__name__} mixes no labels")

    def fast(self, function: Function) -> Function:
        """The function, or its compiled form if this operation `compiles`."""
        return compiled(function) if self.compiles else function


class ModuleOperation(Operation):
    """Calls a module that is not its child: moving the operation does not move the module."""

    by_rows = False
    module: Any

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        # Past torch, which would register it.
        object.__setattr__(self, "module", module)

    def extra_repr(self) -> str:
        return repr(self.module)


def _changes_values_only(module: torch.nn.Module | None) -> bool:
    """Whether a module of another library changes values and moves no pixel; None: one of our
    operations.
    """
    if module is None or isinstance(module, torch.nn.Identity):
        return True
    if type(module) is torch.nn.Sequential:
        return all(map(_changes_values_only, module))
    for kind in type(module).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("kornia", "torchvision") and kind.__name__ in _COLOUR_CLASSES:
            return True
    return False


@cache
def compiled(function: Function) -> Function:
    """torch.compile's form of a function of images; it serves any number of rows."""
    return torch.compile(function, dynamic=True)


def on_colour(function: Function) -> Function:
    """The function, applied to all channels but alpha."""

    def changed(images: Tensor, *parameters: Tensor) -> Tensor:
        if images.shape[1] < 4:
            return function(images, *parameters)
        colour = images[:, :3]
        images[:, :3] = function(colour, *parameters)
        return images

    return changed


def on_rows(
    function: Function,
    images: Tensor,
    first_row: int,
    rows: Int64s,
    index: Tensor,
    *parameters: Tensor,
) -> Tensor:
    """Applies a function of images to some rows of a batch.

    Args:
        function: of images, which it may overwrite, and parameters with one entry a row.
        images: the batch's rows from `first_row` on.
        first: the batch's row that images[0] is.
        rows: (m,) rows of the batch to change, ascending, on the host.
        index: (m,) the same on the images' device, so that the host need not wait for it.
        parameters: (m, ...) of these rows.
    """
    count = len(images)
    low = bisect_left(rows, first_row)
    high = bisect_left(rows, first_row + count)
    if low == high:
        return images
    parameters = tuple(parameter[low:high] for parameter in parameters)
    if high - low == count:
        return function(images, *parameters)
    # The rows on the device, counted from the first image of this part.
    row_indices = index[low:high]
    if first_row:
        row_indices = row_indices - first_row
    return images.index_copy_(
        0, row_indices, function(images.index_select(0, row_indices), *parameters)
    )


def with_prefix(values: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The values whose names have the prefix, by the rest of their names."""
    inner: dict[str, T] = {}
    for name, value in values.items():
        if name.startswith(prefix):
            inner[name.removeprefix(prefix)] = value
    return inner


def number_rows(rows: Int64s | None, count: int) -> Int64s:
    """The rows of `count` that a call changes; None: all. A single image is there twice."""
    if rows is None:
        return np.arange(count)
    return rows[rows < count]
