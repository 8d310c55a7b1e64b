"""Ids of samples -> (image, label) or a dict of fields for each, decoded and transformed on the calling thread.

Note [draws of single samples]
A Dataset, or a WebDataset pipeline, does not know its epoch. Until `set_epoch` one number a sample comes from torch's
generator, as in torchvision's transforms: torch seeds each worker anew in each epoch, and torch.manual_seed decides.
After it, draws are named by (seed, epoch, sample), as a loader's are, on any number of workers and in any order; the
epoch lies in shared memory, since workers may be older.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from fastpipe.engine.pictures import Pictures
from fastpipe.errors import ConfigError, choice, flag, whole
from fastpipe.format.fields import NO_IMAGE
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops, plan_crops
from fastpipe.plan.crop_options import checked_crop, flip_probability, output_size
from fastpipe.plan.crops import TenCrop
from fastpipe.plan.draws import Bools, Int64s, Stream, key, uniform
from fastpipe.plan.host_batch import Places
from fastpipe.plan.placed import Boxes, Points, large_enough
from fastpipe.samples.fields import Asked, Fields, by_sample, check_mirrored, split

if TYPE_CHECKING:
    from fastpipe.samples.data import Data
    from fastpipe.samples.pixels import Pixels

_ALBUMENTATIONS = ("albumentations", "albumentationsx")
_NO_EPOCH = -1
_PIL_HINT = (
    "the transform got a uint8 tensor, (channels, height, width). One that expects Pillow's images, such as "
    'torchvision\'s ToTensor: data.with_transform(transform, images="pil")'
)
_NO_CROPS = Crops(np.empty((0, 4)), np.empty((0, 4), dtype=np.int32), (0, 0))  # of whole pictures


class Draws(NamedTuple):
    """What the draws of samples are a hash of, beside the seed; Note [draws of single samples]."""

    epoch: int
    numbers: Int64s  # (n,)


class Cropping:
    """How single samples are cropped: to rows of `size`, (height, width); if `exact`, never decoded at reduced size. It
    can be pickled, and holds no thread, no lock and no open file.
    """

    def __init__(self, crop: Any, size: Any, *, hflip: Any, seed: Any, exact: Any, train: bool = False) -> None:
        self.size = output_size(size)
        self.crop = checked_crop(crop, self.size, train=train)
        self._flip = flip_probability(hflip, train=train)
        self._seed = whole("seed", seed, least=0, most=2**64 - 1)
        self.exact = flag("exact", exact) or not self.crop.may_be_reduced
        self.mirrors = self._flip > 0
        self._epoch = torch.full((), _NO_EPOCH, device="cpu").share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Makes crops and flips a function of (seed, epoch, key). Call it before each epoch, or not at all.

        Call it in the process that iterates over the DataLoader, before the iteration begins. Workers see it, also
        persistent ones. Without it, torch's generator decides: each epoch has new crops, and torch.manual_seed makes
        them repeatable for the same number of workers.

        Args:
            epoch: its number, from 0.
        """
        self._epoch.fill_(whole("epoch", epoch, least=0, most=2**63 - 1))

    @property
    def knows_epoch(self) -> bool:
        """Whether `set_epoch` has been called."""
        return int(self._epoch) != _NO_EPOCH

    def draws(self, named: Int64s) -> Draws:
        """What the draws of samples are a hash of; `named` names them after `set_epoch`."""
        if not self.knows_epoch and (self.mirrors or self.crop.is_random):
            named = torch.empty(len(named), dtype=torch.int64, device="cpu").random_().numpy()
        return Draws(max(int(self._epoch), 0), named)

    def crops_of(self, widths: Int64s, heights: Int64s, draws: Draws, **how: Any) -> tuple[Crops, Bools]:
        """The crops of pictures of these sizes, and which rows are mirrored."""
        named: dict[str, Any] = {"seed": self._seed, "epoch": draws.epoch, "samples": draws.numbers}
        crops = plan_crops(self.crop, self.size, widths, heights, **named, **how)
        flips = uniform(key(self._seed, draws.epoch, Stream.FLIP), draws.numbers) < self._flip
        return crops, np.repeat(flips, self.crop.rows) if crops.mirrored is None else crops.mirrored

    def plan(self, ids: Int64s, samples: Int64s, records: NDArray[np.void]) -> BatchPlan:
        draws, sizes = self.draws(samples), (records["width"].astype(np.int64), records["height"].astype(np.int64))
        crops, flips = self.crops_of(*sizes, draws, name=lambda at: f"sample {ids[at]}")
        return BatchPlan(ids, samples, records, crops, flips, np.ones(len(ids), np.bool_), draws.numbers)

    @property
    def mirroring(self) -> str:
        """What mirrors pictures; empty: nothing."""
        return "hflip" if self.mirrors else "TenCrop" * isinstance(self.crop, TenCrop)

    def __repr__(self) -> str:
        flip = f", hflip={self._flip}" if self.mirrors else ""
        return f"crop={self.crop!r}, size={self.size}{flip}"


@dataclass(frozen=True)
class Single:
    """How single samples come. ConfigError where the three do not go together."""

    transform: object = None  # of the user
    images: str = "tensor"  # what it gets, or "pil"
    fields: Mapping[str, Any] | None = None  # the keys of a sample, and the field of each; None: (image, label)
    cropping: Cropping | None = None  # of the images; None: they are whole
    pixels: Pixels | None = None  # of the images; None: as a loader has them

    def __post_init__(self) -> None:
        self.applier()
        if self.cropping is not None and self.cropping.mirrors and self.cropping.crop.rows > 1:
            raise ConfigError(
                f"crop: {type(self.cropping.crop).__name__} is for evaluation, and mirrors by itself or not at all; "
                "leave hflip= out"
            )
        if self.fields is not None and self.cropping is not None:
            check_mirrored(self.fields.values(), self.cropping.mirroring)

    def applier(self) -> Callable[[Any], Any]:
        """What gives the transform what it takes."""
        fields = self.fields or {}
        keys = [key for key, field in fields.items() if field == "image"]
        return applier(self.transform, dicts=self.fields is not None, images=self.images, keys=keys)

    def __repr__(self) -> str:
        transform = "" if self.transform is None else f", transform={self.transform!r}"
        transform += "" if self.images == "tensor" else f", images={self.images!r}"
        fields = "" if self.fields is None else f", fields={list(self.fields)}"
        more = "".join(f", {each!r}" for each in (self.cropping, self.pixels) if each is not None)
        return f"{transform}{fields}{more}"


class FieldValues(Fields):
    """Reads the dicts of single samples. One process's: it has open files."""

    def __init__(
        self, data: Data, chosen: Mapping[str, Asked], pictures: Pictures, cropping: Cropping | None = None
    ) -> None:
        super().__init__(data, chosen, [None if cropping is None else cropping.crop])
        self._pictures, self._cropping = pictures, cropping
        self._ends = {name: ("", "_visibility") for name, asked in self._options.items() if isinstance(asked, Points)}

    def of(self, plan: BatchPlan, pixels_of: Callable[[int], Any]) -> Iterator[dict[str, Any]]:
        """The dict of each sample of a plan, whose crops are those of `cropping`. `pixels_of` makes the image of the
        sample at a place of it, (..., height, width, channels), when its dict is asked for.
        """
        values = self.read(plan)
        columns: dict[str, Any] = {"label": plan.labels, "id": plan.ids, **values.arrays, **values.lists}
        makers: dict[str, Callable[[int], Any]] = {"image": lambda at: as_image(pixels_of(at))}
        for name, column in columns.items():
            if isinstance(column, np.ndarray):
                column = column.tolist() if column.ndim == 1 else torch.from_numpy(column)
            makers[name] = column.__getitem__
        for name, (records, mask) in self._stored.items():
            makers[name] = partial(self._picture, plan, records.take(plan.ids), mask)
        for name, of_rows in self._of_rows(plan, values.places[0]):
            makers[name] = by_sample(list(of_rows), plan).__getitem__
        for at in range(len(plan)):
            yield {
                key + end: makers[own + end](at)
                for key, own in self._keys.items()
                for end in self._ends.get(own, ("",))
            }

    def _of_rows(self, plan: BatchPlan, places: Places) -> Iterator[tuple[str, Iterable[Any]]]:
        """The entries of boxes and points, with the value of each row."""
        cut = self._cropping
        rows = zip(plan.records["height"].tolist(), plan.records["width"].tolist(), strict=True)
        canvases = list(rows) if cut is None else [cut.size] * len(plan.flips)
        for name, placed in places.items():
            asked = self._options[name]
            if cut is not None and isinstance(asked, Boxes):
                placed = placed.take(large_enough(placed.values, asked.min_size, asked.min_area))
            values = split(placed.values, placed.rows, plan)
            if placed.are_boxes:
                yield name, map(partial(tv_tensor, "BoundingBoxes", format="XYXY"), values, canvases)
            else:
                yield name, map(partial(tv_tensor, "KeyPoints"), [each[..., :2] for each in values], canvases)
                yield f"{name}_visibility", [torch.from_numpy(each[..., 2]) for each in values]
            if placed.labels is not None:
                yield f"{name}_labels", map(torch.from_numpy, split(placed.labels, placed.rows, plan))

    def _picture(self, plan: BatchPlan, stored: NDArray[np.void], mask: bool, at: int) -> torch.Tensor:
        """(height, width) of ids, or (channels, height, width); of several crops (K, ...). Filled if there is none."""
        cut, record, field = self._cropping, plan.records[at], stored[at]
        if field["format"] == NO_IMAGE:
            size: tuple[int, ...] = (int(record["height"]), int(record["width"])) if cut is None else cut.size
            size = size if plan.rows_per_sample == 1 else (plan.rows_per_sample, *size)
            fill = plan.crops.rendering.mask_fill if mask and cut is not None else 0
            form = self._pictures.form
            pixels: NDArray[Any] = (
                np.full(size, fill, np.uint8) if mask else np.zeros((*size, form.channels), form.dtype)
            )
        elif cut is not None:
            pixels = self._pictures.field_row(plan.part(at, at + 1), cut.size, field, exact=cut.exact, mask=mask)
        else:
            pixels = self._pictures.whole_field(int(plan.samples[at]), record, field, mask=mask)
        return tv_tensor("Mask", pixels) if mask else as_image(pixels)


class SampleReader:
    """Reads single samples of a dataset: one process's, with open files."""

    def __init__(self, data: Data, single: Single) -> None:
        _keep_to_one_thread()
        self.process = os.getpid()
        self._content, self._cropping, self._asked = data.content, single.cropping, single.pixels
        self._pictures = Pictures(data.index, None if single.pixels is None else single.pixels.form(data))
        self._apply = single.applier()
        # A transform that fails may be one of single images of Pillow's.
        self._hints = single.transform is not None and single.images == "tensor"
        self._fields: FieldValues | None = None
        if single.fields is not None:
            self._fields = FieldValues(data, single.fields, self._pictures, single.cropping)

    def of(self, ids: Int64s) -> list[Any]:
        """The samples at some places of the dataset.

        The index is read once for all of them. The images are decoded one by one, and the transform is called while the
        image is in the CPU's cache; besides the results, only one image is in memory.
        """
        numbers, records = self._content.numbers(ids), self._content.read(ids)
        if self._cropping is not None:
            plan = self._cropping.plan(ids, numbers, records)
        else:
            nothing = np.zeros(len(ids), dtype=np.bool_)
            plan = BatchPlan(ids, numbers, records, _NO_CROPS, nothing, ~nothing, numbers)
        pixels = partial(self._pixels, plan)
        with self._pictures.fetched(numbers):
            if self._fields is None:
                return [(self._applied(pixels(at), ids[at]), label) for at, label in enumerate(plan.labels.tolist())]
            return [self._applied(sample, ids[at]) for at, sample in enumerate(self._fields.of(plan, pixels))]

    def _pixels(self, plan: BatchPlan, at: int) -> NDArray[Any]:
        """(height, width, channels) of a sample of the plan; of several crops (K, height, width, channels)."""
        if (cut := self._cropping) is None:
            found = self._pictures.decode(int(plan.samples[at]), plan.records[at])
        else:
            rows = self._pictures.rows(plan.part(at, at + 1), cut.size, exact=cut.exact)
            found = rows[0] if len(rows) == 1 else rows
        return found if self._asked is None else self._asked.of(found)

    def _applied(self, value: Any, number: int) -> Any:
        try:
            if not isinstance(value, np.ndarray) or value.ndim == 3:
                return self._apply(value)
            made = [self._apply(row) for row in value]
        except Exception as problem:
            problem.add_note(f"in the transform of sample {number} of {self._content.index.path}")
            if self._hints and isinstance(problem, (TypeError, AttributeError, ValueError)):
                problem.add_note(_PIL_HINT)
            raise
        return torch.stack([x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu") for x in made])


def as_image(pixels: NDArray[Any]) -> torch.Tensor:
    """(..., height, width, channels) -> an Image of the same memory, (..., channels, height, width)."""
    return tv_tensor("Image", np.moveaxis(pixels, -1, -3))


def tv_tensor(kind: str, values: NDArray[Any], canvas_size: tuple[int, int] | None = None, **more: Any) -> torch.Tensor:
    """A tv_tensor of this kind, of the same memory; where torchvision is not installed, a tensor."""
    tensor, kinds = torch.from_numpy(values), _tv_tensors()
    if canvas_size is not None:
        more["canvas_size"] = canvas_size
    return tensor if kinds is None else getattr(kinds, kind)(tensor, device=tensor.device, **more)


@cache
def _tv_tensors() -> Any:
    """torchvision's module; None where there is none, or one that does not work with this torch."""
    try:
        from torchvision import tv_tensors
    except (ImportError, RuntimeError):
        return None
    return tv_tensors if hasattr(tv_tensors, "KeyPoints") else None


def as_tensor(picture: NDArray[Any]) -> torch.Tensor:
    """(height, width, channels) -> a (channels, height, width) view of the same memory, in channels_last order."""
    return torch.from_numpy(picture).permute(2, 0, 1)


def applier(
    transform: object, *, dicts: bool = False, images: str = "tensor", keys: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Checks `transform`; returns what gives it a picture, or, where samples are dicts of fields, a dict. `keys` are
    those of the image in a dict. See Dataset.with_transform.
    """
    pil = choice("images", images, ("tensor", "pil")) == "pil"
    if transform is None:
        if pil:
            raise ConfigError('images="pil": there is no transform that gets them; a sample itself has a tensor')
        return (lambda sample: sample) if dicts else as_tensor
    if isinstance(transform, type):
        raise ConfigError(
            f"transform: expected an object that can be called with an image, got the class {transform.__name__}; "
            f"create an object of it: {transform.__name__}(...)"
        )
    if not callable(transform):
        raise ConfigError(f"transform: expected None or a callable, got {transform!r}")
    named = _takes_image_by_name(transform)
    if dicts and named:
        raise ConfigError(
            "transform: expected a function of the sample, a dict with the fields, got one that takes image=...; pass "
            "a function that calls it with what it needs: lambda sample: transform(image=sample['image'].permute(1, 2, "
            "0).numpy(), bboxes=sample['boxes'])"
        )
    if named and pil:
        raise ConfigError('images="pil": a transform that takes image=... gets an array; leave images= out')
    if dicts and pil:
        return lambda sample: transform({**sample, **{key: _as_pil(sample[key]) for key in keys}})
    if pil:
        from fastpipe.sources.picture.pillow import picture_of

        return lambda picture: transform(picture_of(picture))
    if not named:
        return transform if dicts else lambda picture: transform(as_tensor(picture))

    def by_name(picture: NDArray[Any]) -> Any:
        made = transform(image=picture)
        try:
            image = made["image"]
        except (TypeError, KeyError, IndexError):
            raise ConfigError(
                "transform: expected transform(image=...) to return a dict with 'image', as albumentations' "
                f"transforms do, got {type(made).__name__}"
            ) from None
        if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] in (1, 3, 4):
            return as_tensor(np.ascontiguousarray(image))
        return image

    return by_name


def _as_pil(image: Any) -> Any:
    """(channels, height, width) of a dict, or several crops -> Pillow's image, or a list of them."""
    from fastpipe.sources.picture.pillow import picture_of

    array = np.moveaxis(image.numpy(), -3, -1)
    return picture_of(array) if array.ndim == 3 else [picture_of(row) for row in array]


def _takes_image_by_name(transform: object) -> bool:
    """Whether it is one of albumentations' transforms, or its signature says that `image` is passed by name."""
    if any(kind.__module__.partition(".")[0] in _ALBUMENTATIONS for kind in type(transform).__mro__):
        return True
    try:
        image = inspect.signature(transform).parameters.get("image")  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some functions written in C have none
        return False
    return image is not None and image.kind is inspect.Parameter.KEYWORD_ONLY


def _keep_to_one_thread() -> None:
    """In a worker process, has OpenCV work on the calling thread; elsewhere does nothing. Workers run side by side
    already; and OpenCV's threads do not live through a fork. OpenCV is not imported for this: where it has not been,
    the variable that it reads at its import says the same.
    """
    if get_worker_info() is None:
        return
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)
