"""Ids of samples -> (image, label) or a dict of fields for each, decoded and transformed on the calling thread."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from fastpipe.engine.pictures import Pictures
from fastpipe.errors import ConfigError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops

if TYPE_CHECKING:  # most programs load whole images without fields
    from fastpipe.samples.cropping import Cropping
    from fastpipe.samples.data import Data
    from fastpipe.samples.fields import FieldValues
    from fastpipe.samples.pixels import Pixels

_ALBUMENTATIONS = ("albumentations", "albumentationsx")
_NO_CROPS = Crops(np.empty((0, 4)), np.empty((0, 4), dtype=np.int32), (0, 0))  # of whole pictures


@dataclass(frozen=True)
class Single:
    """How single samples come. ConfigError where the three do not go together."""

    transform: object = None  # of the user
    fields: Mapping[str, Any] | None = None  # the keys of a sample, and the field of each; None: (image, label)
    cropping: Cropping | None = None  # of the images; None: they are whole
    pixels: Pixels | None = None  # of the images; None: as a loader has them

    def __post_init__(self) -> None:
        applier(self.transform, dicts=self.fields is not None)
        if self.fields is not None and self.cropping is not None:
            from fastpipe.samples.field_names import check_mirrored

            check_mirrored(self.fields.values(), self.cropping.mirroring)

    def __repr__(self) -> str:
        transform = "" if self.transform is None else f", transform={self.transform!r}"
        fields = "" if self.fields is None else f", fields={list(self.fields)}"
        more = "".join(f", {each!r}" for each in (self.cropping, self.pixels) if each is not None)
        return f"{transform}{fields}{more}"


class SampleReader:
    """Reads single samples of a dataset: one process's, with open files."""

    def __init__(self, data: Data, single: Single) -> None:
        _keep_to_one_thread()
        self.process = os.getpid()
        self._content, self._cropping, self._asked = data.content, single.cropping, single.pixels
        self._pictures = Pictures(data.index, None if single.pixels is None else single.pixels.form(data))
        self._apply = applier(single.transform, dicts=single.fields is not None)
        self._fields: FieldValues | None = None
        if single.fields is not None:
            from fastpipe.samples.fields import FieldValues

            self._fields = FieldValues(data, single.fields, self._pictures, single.cropping)

    def of(self, ids: NDArray[np.int64]) -> list[Any]:
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
            raise
        return torch.stack([x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu") for x in made])


def as_tensor(picture: NDArray[Any]) -> torch.Tensor:
    """(height, width, channels) -> a (channels, height, width) view of the same memory, in channels_last order."""
    return torch.from_numpy(picture).permute(2, 0, 1)


def applier(transform: object, *, dicts: bool = False) -> Callable[[Any], Any]:
    """Checks `transform`; returns what gives it a picture, or, where samples are dicts of fields, a dict."""
    if transform is None:
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
