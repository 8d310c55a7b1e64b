"""Ids of samples -> (image, label) or a dict of fields for each, decoded on the calling thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from fastpipe.engine.pictures import Pictures
from fastpipe.samples.transform import applier, as_tensor, sample_applier

if TYPE_CHECKING:  # most programs load whole images without fields
    from fastpipe.plan.batch import BatchPlan
    from fastpipe.samples.cropping import Cropping
    from fastpipe.samples.data import Data
    from fastpipe.samples.fields import FieldValues


class Single:
    """How single samples come, and this process's open files for it. It can be pickled, without the files.

    Args:
        transform: of the user.
        fields: the keys of a sample, checked, and the field of each; None: a sample is (image, label).
        cropping: of the images; None: they are whole.
    """

    def __init__(
        self, transform: object = None, fields: Mapping[str, Any] | None = None, cropping: Cropping | None = None
    ) -> None:
        self.transform, self.fields, self.cropping = transform, fields, cropping
        self._begin()

    def _begin(self) -> None:
        self._apply: Callable[[Any], Any] = (applier if self.fields is None else sample_applier)(self.transform)
        self._opened: tuple[int, Pictures, FieldValues | None] | None = None  # with the process that opened them

    @property
    def form(self) -> tuple[Any, ...]:
        """What it was made of."""
        return self.transform, self.fields, self.cropping

    def __getstate__(self) -> tuple[object, ...]:
        return self.form

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.transform, self.fields, self.cropping = state
        self._begin()

    def of(self, data: Data, ids: NDArray[np.int64]) -> list[Any]:
        """The samples at some places of a dataset.

        The index is read once for all of them. The images are decoded one by one, and the transform is called while the
        image is in the CPU's cache; besides the results, only one image is in memory.
        """
        pictures, fields = self._own_files(data)
        content = data.content
        numbers = content.numbers(ids)
        records = pictures.records(numbers)
        if content.labels is not None:
            records["label"] = content.labels.take(ids)
        with pictures.fetched(numbers):
            if fields is not None:
                return self._with_fields(data, pictures, fields, ids, numbers, records)
            if self.cropping is not None:
                return [
                    (self._applied_to_rows(data, self._rows(pictures, plan), int(plan.ids[0])), int(plan.labels[0]))
                    for plan in self.cropping.plans(ids, numbers, records)
                ]
            return [
                (self._applied(data, pictures.decode(number, record), at), label)
                for at, number, record, label in zip(
                    ids.tolist(), numbers.tolist(), records, records["label"].tolist(), strict=True
                )
            ]

    def _with_fields(
        self,
        data: Data,
        pictures: Pictures,
        fields: FieldValues,
        ids: NDArray[np.int64],
        numbers: NDArray[np.int64],
        records: NDArray[np.void],
    ) -> list[Any]:
        from fastpipe.samples.fields import as_image

        plans = None if self.cropping is None else list(self.cropping.plans(ids, numbers, records))

        def image_of(row: int) -> torch.Tensor:
            if plans is None:
                return as_image(as_tensor(pictures.decode(int(numbers[row]), records[row])))
            rows = torch.from_numpy(self._rows(pictures, plans[row])).permute(0, 3, 1, 2)
            return as_image(rows[0] if len(rows) == 1 else rows)

        samples = fields.of(ids, numbers, records, image_of, plans)
        return [self._applied(data, sample, at) for at, sample in zip(ids.tolist(), samples, strict=True)]

    def _rows(self, pictures: Pictures, plan: BatchPlan) -> NDArray[np.uint8]:
        assert self.cropping is not None
        return pictures.rows(plan, self.cropping.size, exact=self.cropping.exact)

    def _applied_to_rows(self, data: Data, rows: NDArray[np.uint8], at: int) -> Any:
        if len(rows) == 1:
            return self._applied(data, rows[0], at)
        made = [self._applied(data, row, at) for row in rows]
        return torch.stack([x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu") for x in made])

    def _applied(self, data: Data, value: Any, at: int) -> Any:
        try:
            return self._apply(value)
        except Exception as problem:
            problem.add_note(f"in the transform of sample {at} of {data.path}")
            raise

    def _own_files(self, data: Data) -> tuple[Pictures, FieldValues | None]:
        """This process's open files."""
        process = os.getpid()
        if self._opened is None or self._opened[0] != process:
            _keep_to_one_thread()
            pictures, fields = Pictures(data.index), None
            if self.fields is not None:
                from fastpipe.samples.fields import FieldValues

                fields = FieldValues(data, self.fields, pictures, self.cropping)
            self._opened = process, pictures, fields
        return self._opened[1:]

    def __repr__(self) -> str:
        transform = "" if self.transform is None else f", transform={self.transform!r}"
        fields = "" if self.fields is None else f", fields={list(self.fields)}"
        return f"{transform}{fields}{'' if self.cropping is None else f', {self.cropping!r}'}"


def _keep_to_one_thread() -> None:
    """In a worker process, has OpenCV work on the calling thread; elsewhere does nothing.

    Workers run side by side already; and OpenCV's threads do not live through a fork. torch limits its own (OpenMP) to
    one when it starts a worker, and fastpipe's decoder has none. OpenCV is not imported for this: where it has not
    been, the variable that it reads at its import says the same.
    """
    if get_worker_info() is None:
        return
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)
