"""Ids of samples -> (image, label) or a dict of fields for each, on the calling thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.arrays import ArrayReader
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.cropping import Cropping
from fastpipe.dataset.fields import (
    FieldReader,
    FieldRequest,
    check_mirrored,
    group_by_sample,
    split_by_row,
)
from fastpipe.dataset.format.columns import Ragged
from fastpipe.dataset.format.fields import NO_IMAGE
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.dataset.maps import MapReader
from fastpipe.dataset.picture_lists import PictureListReader
from fastpipe.dataset.tensors import as_image, tv_tensor
from fastpipe.dataset.transforms import adapt_transform
from fastpipe.engine.pictures import Pictures
from fastpipe.errors import ConfigError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.crops import FiveCrop
from fastpipe.plan.host_batch import Places
from fastpipe.plan.picture_lists import Images
from fastpipe.plan.placed import Boxes, Placed, Points, is_large_enough
from fastpipe.warnings_once import warn_once

if TYPE_CHECKING:
    from fastpipe.dataset.pixels import Pixels

_PIL_HINT = (
    "the transform got a uint8 tensor, (channels, height, width). One that expects Pillow's "
    'images, such as torchvision\'s ToTensor: data.with_transform(transform, images="pil")'
)
# A plan of whole pictures has these crops: none.
_NO_BOXES = np.empty((0, 4))
_NO_CROPS = Crops(_NO_BOXES, _NO_BOXES.astype(np.int32), (0, 0))


@dataclass(frozen=True)
class SampleFormat:
    """The form in which single samples come. ConfigError: the options do not go together."""

    transform: object = None  # of the user
    images: str = "tensor"  # the form of images that the transform gets, or "pil"
    # By key of a sample, in order, the field; None: a sample is (image, label).
    fields: Mapping[str, FieldRequest] | None = None
    cropping: Cropping | None = None  # of the images; None: they are whole
    pixels: Pixels | None = None  # of the images; None: as a loader has them by default

    def __post_init__(self) -> None:
        self.adapt_transform()  # checks the transform
        cropping = self.cropping
        if cropping is None:
            return
        if cropping.mirrors and isinstance(cropping.crop, FiveCrop):
            raise ConfigError(
                f"crop: {type(cropping.crop).__name__} is for evaluation, and mirrors by itself "
                "or not at all; leave hflip= out"
            )
        if self.fields is not None:
            check_mirrored(self.fields.values(), cropping.mirroring)
            for request in self.fields.values():
                if isinstance(request, Images):
                    raise ConfigError(
                        f"fields: {request.name!r} has lists of images, which a single sample has "
                        "whole; leave it out, or leave cropped(...) out"
                    )

    def adapt_transform(self) -> Callable[[Any], Any]:
        """A function that calls the transform with a sample in the form that it expects."""
        if self.fields is None:
            return adapt_transform(self.transform, images=self.images)
        # The image may come under several keys.
        image_keys = []
        for key, request in self.fields.items():
            if request == "image":
                image_keys.append(key)
        return adapt_transform(
            self.transform, dicts=True, images=self.images, keys=image_keys
        )

    def list_methods(self) -> list[str]:
        """The methods of a dataset that changed the form, such as with_transform."""
        values = {
            "with_transform": self.transform,
            "with_fields": self.fields,
            "cropped": self.cropping,
            "with_pixels": self.pixels,
        }
        methods = []
        for method, value in values.items():
            if value is not None:
                methods.append(method)
        return methods

    def __repr__(self) -> str:
        """The options that are not the default, each after a comma."""
        texts = []
        if self.transform is not None:
            texts.append(f"transform={self.transform!r}")
        if self.images != "tensor":
            texts.append(f"images={self.images!r}")
        if self.fields is not None:
            texts.append(f"fields={list(self.fields)}")
        if self.cropping is not None:
            texts.append(repr(self.cropping))
        if self.pixels is not None:
            texts.append(repr(self.pixels))
        return "".join(f", {text}" for text in texts)


class SampleReader:
    """Reads single samples of a dataset. It has open files, so each process has its own."""

    def __init__(self, data: BaseDataset, sample_format: SampleFormat) -> None:
        _keep_to_one_thread()
        self.process = os.getpid()  # a forked child makes a reader of its own
        self._content = data.content
        self._cropping = sample_format.cropping
        self._pixels = sample_format.pixels
        form = None
        if self._pixels is not None:
            form = self._pixels.form(data)
        self._pictures = Pictures(data.index, form)
        self._transform = sample_format.adapt_transform()
        # Shown with an error of the transform: it may expect Pillow's images.
        self._has_pil_hint = (
            sample_format.transform is not None and sample_format.images == "tensor"
        )
        self._fields: FieldReader | None = None
        if sample_format.fields is not None:
            crop = None
            if self._cropping is not None:
                crop = self._cropping.crop
            self._fields = FieldReader(data, sample_format.fields, [crop])

    def _warn_of_repeated_crops(self) -> None:
        path = self._content.index.path
        warn_once(
            f"repeated crops {path}",
            f"samples of {path} were read for more than an epoch after one set_epoch, so their crops and "
            "mirroring are those of the epoch before again. Call set_epoch(epoch) of the cropped dataset "
            "before each epoch; or never: then torch's generator decides",
        )

    def read(self, ids: Int64s) -> list[Any]:
        """Some samples of the dataset.

        The index is read once for all of them. The images are decoded one by one, and the
        transform is called while the image is in the CPU's cache; besides the results, only one
        image is in memory.
        """
        numbers = self._content.numbers(ids)
        records = self._content.read(ids)
        if self._cropping is not None:
            plan = self._cropping.plan(ids, numbers, records)
            if self._cropping.count_read(len(ids), len(self._content)):
                self._warn_of_repeated_crops()
        else:
            # A plan of whole pictures: nothing looks at its crops.
            plan = BatchPlan(
                ids=ids,
                samples=numbers,
                records=records,
                crops=_NO_CROPS,
                flips=np.zeros(len(ids), dtype=np.bool_),
                valid=np.ones(len(ids), dtype=np.bool_),
                names=numbers,
                row_names=numbers,
            )

        samples: list[Any] = []
        # Of a dataset behind a URL, all samples are fetched at the same time.
        with self._pictures.fetched(numbers):
            if self._fields is not None:
                dicts = self._read_dicts(plan, self._fields)
                for sample_id, sample in zip(ids, dicts, strict=True):
                    samples.append(self._apply_transform(sample, sample_id))
            else:
                for position, label in enumerate(plan.labels.tolist()):
                    image = self._decode(plan, position)
                    transformed = self._apply_transform(image, ids[position])
                    samples.append((transformed, label))
        return samples

    def _decode(self, plan: BatchPlan, position: int) -> NDArray[Any]:
        """(height, width, channels) of a sample; of several crops (K, height, width, channels)."""
        cropping = self._cropping
        sample = int(plan.samples[position])
        record = plan.records[position]
        if not has_images(record):
            raise ConfigError(
                f"{self._content.index.name_of(sample)}: it has no image of its own. Choose its "
                'fields: data.with_fields([...]) without "image"'
            )
        if cropping is None:
            image = self._pictures.decode(sample, record)
        else:
            part = plan.part(position, position + 1)
            rows = self._pictures.rows(part, cropping.size, exact=cropping.exact)
            # A single crop has no axis of crops.
            image = rows[0] if len(rows) == 1 else rows
        if self._pixels is None:
            return image
        return self._pixels.convert(image)

    def _apply_transform(self, value: Any, sample: int) -> Any:
        """Calls the transform; of several crops, with each, and stacks the results.

        `value` is a dict, or an image (height, width, channels), or crops (K, height, width,
        channels). An error gets a note that names the sample.
        """
        try:
            if not isinstance(value, np.ndarray) or value.ndim == 3:
                return self._transform(value)
            crops = [self._transform(row) for row in value]
        except Exception as problem:
            problem.add_note(
                f"in the transform of sample {sample} of {self._content.index.path}"
            )
            # These are the errors of a transform that gets another kind of image than it expects.
            is_of_wrong_kind = isinstance(
                problem, (TypeError, AttributeError, ValueError)
            )
            if self._has_pil_hint and is_of_wrong_kind:
                problem.add_note(_PIL_HINT)
            raise
        # A transform may return an array or a number for each crop.
        tensors = []
        for crop in crops:
            if not isinstance(crop, torch.Tensor):
                # Whatever the default device of the program is.
                crop = torch.as_tensor(crop, device="cpu")
            tensors.append(crop)
        return torch.stack(tensors)

    def _read_dicts(
        self, plan: BatchPlan, fields: FieldReader
    ) -> Iterator[dict[str, Any]]:
        """The dict of each sample of a plan. Its pictures are decoded when its turn comes."""
        values = fields.read(plan)
        # By entry, a function from a sample's position in the plan to its value. So a picture is
        # decoded when its sample's turn comes, and only if it is among the keys.
        makers: dict[str, Callable[[int], Any]] = {}
        makers["image"] = lambda position: as_image(self._decode(plan, position))
        makers["label"] = plan.labels.tolist().__getitem__
        makers["id"] = plan.ids.tolist().__getitem__
        for name, items in values.lists.items():
            makers[name] = items.__getitem__
        for name, array in values.arrays.items():
            # A single number becomes Python's, as labels are in torchvision's datasets.
            if array.ndim == 1:
                makers[name] = array.tolist().__getitem__
            else:
                makers[name] = torch.from_numpy(array).__getitem__
        for name, column in fields.pictures.items():
            is_mask = name in fields.masks
            records = column.take(plan.ids)
            makers[name] = partial(self._read_picture, plan, records, is_mask)
        for name, map_reader in fields.maps.items():
            map_records = map_reader.records_of(plan.ids)
            makers[name] = partial(self._read_map, plan, map_reader, map_records)
        for name, reader in fields.arrays.items():
            array_records = reader.records_of(plan.ids)
            makers[name] = partial(self._read_array, plan, reader, array_records)
        for name, list_reader in fields.picture_lists.items():
            ragged = list_reader.records_of(plan.ids)
            makers[name] = partial(self._read_pictures, plan, list_reader, ragged)
        for name, row_values in self._place_values(plan, values.places[0], fields):
            makers[name] = group_by_sample(row_values, plan).__getitem__

        entries = self._entries(fields)
        for position in range(len(plan)):
            yield {key: makers[entry](position) for key, entry in entries.items()}

    def _entries(self, fields: FieldReader) -> dict[str, str]:
        """Key of a sample -> its entry. Points have one more than in a batch, the visibility."""
        entries = {}
        for key, entry in fields.keys.items():
            entries[key] = entry
            if isinstance(fields.requests.get(entry), Points):
                entries[f"{key}_visibility"] = f"{entry}_visibility"
        return entries

    def _place_values(
        self, plan: BatchPlan, places: Places, fields: FieldReader
    ) -> Iterator[tuple[str, list[Any]]]:
        """The entries of boxes and points, with a tensor for each row of a plan."""
        # tv_tensors know the (height, width) of the picture that they lie on.
        if self._cropping is None:
            heights = plan.records["height"].tolist()
            widths = plan.records["width"].tolist()
            canvas_sizes = list(zip(heights, widths, strict=True))
        else:
            num_rows = len(plan.flips)
            canvas_sizes = [self._cropping.size] * num_rows
        for name, placed in places.items():
            request = fields.requests[name]
            if isinstance(request, Boxes):
                yield from self._box_values(plan, placed, request, canvas_sizes)
            else:
                # Of each row (M, K, 3): x, y and the visibility of the K points of M objects.
                values = split_by_row(placed.values, placed.rows, plan)
                points = []
                visibilities = []
                for row, canvas_size in zip(values, canvas_sizes, strict=True):
                    xy = row[..., :2]
                    points.append(tv_tensor("KeyPoints", xy, canvas_size))
                    visibilities.append(torch.from_numpy(row[..., 2]))
                yield name, points
                yield f"{name}_visibility", visibilities

    def _box_values(
        self,
        plan: BatchPlan,
        placed: Placed,
        options: Boxes,
        canvas_sizes: Sequence[tuple[int, int]],
    ) -> Iterator[tuple[str, list[Any]]]:
        """The entries of boxes, (M, 4) x0, y0, x1, y1 of each row, and of their labels."""
        # Boxes of whole pictures stay as they are stored. Only a crop can cut a box to a sliver.
        if self._cropping is not None:
            is_kept = is_large_enough(placed.values, options.min_size, options.min_area)
            placed = placed.take(is_kept)
        tensors = []
        values = split_by_row(placed.values, placed.rows, plan)
        for boxes, canvas_size in zip(values, canvas_sizes, strict=True):
            tensors.append(
                tv_tensor("BoundingBoxes", boxes, canvas_size, format="XYXY")
            )
        yield options.name, tensors
        if placed.labels is not None:
            labels_of_rows = split_by_row(placed.labels, placed.rows, plan)
            labels = [torch.from_numpy(row_labels) for row_labels in labels_of_rows]
            yield f"{options.name}_labels", labels

    def _read_array(
        self,
        plan: BatchPlan,
        reader: ArrayReader,
        array_records: NDArray[np.void],
        position: int,
    ) -> torch.Tensor:
        sample = int(plan.samples[position])
        return reader.read(
            self._pictures, sample, plan.records[position], array_records[position]
        )

    def _read_map(
        self,
        plan: BatchPlan,
        reader: MapReader,
        map_records: NDArray[np.void],
        position: int,
    ) -> torch.Tensor:
        """The map of a sample: (height, width), or (channels, height, width); of several crops
        (K, ...).
        """
        record = plan.records[position]
        map_record = map_records[position]
        if self._cropping is None:
            sample = int(plan.samples[position])
            values = reader.read(self._pictures, sample, record, map_record)
        else:
            part = plan.part(position, position + 1)
            size = self._cropping.size
            values = reader.read_rows(self._pictures, part, size, map_record)
        if reader.has_channels:
            values = np.moveaxis(values, -1, -3)
        # Of the kinds of tv_tensors that lie on an image, masks are resized by nearest.
        return tv_tensor("Mask", values)

    def _read_pictures(
        self, plan: BatchPlan, reader: PictureListReader, ragged: Ragged, position: int
    ) -> list[torch.Tensor]:
        """The pictures of a sample, each (channels, height, width). They are whole."""
        start, stop = ragged.offsets[position : position + 2].tolist()
        pictures = reader.read(
            self._pictures,
            int(plan.samples[position]),
            plan.records[position],
            ragged.values[start:stop],
        )
        return [as_image(picture) for picture in pictures]

    def _read_picture(
        self,
        plan: BatchPlan,
        field_records: Records,
        is_mask: bool,
        position: int,
    ) -> torch.Tensor:
        """The mask or second picture of a sample.

        (height, width) of ids, or (channels, height, width); of several crops (K, ...). It is
        filled with zeros, or with mask_fill, if the sample has none.
        """
        cropping = self._cropping
        record = plan.records[position]
        field_record = field_records[position]
        if field_record["format"] == NO_IMAGE:
            pixels = self._empty_picture(plan, record, is_mask)
        elif cropping is None:
            sample = int(plan.samples[position])
            pixels = self._pictures.whole_field(
                sample, record, field_record, mask=is_mask
            )
        else:
            part = plan.part(position, position + 1)
            pixels = self._pictures.field_row(
                part, cropping.size, field_record, exact=cropping.exact, mask=is_mask
            )
        if is_mask:
            return tv_tensor("Mask", pixels)
        return as_image(pixels)

    def _empty_picture(
        self, plan: BatchPlan, record: np.void, is_mask: bool
    ) -> NDArray[Any]:
        """The pixels in place of a mask or second picture that a sample does not have."""
        height = int(record["height"])
        width = int(record["width"])
        shape: tuple[int, ...] = (height, width)
        fill = 0
        if self._cropping is not None:
            shape = self._cropping.size
            fill = plan.crops.rendering.mask_fill
        if plan.rows_per_sample > 1:
            shape = (plan.rows_per_sample, *shape)
        if is_mask:
            return np.full(shape, fill, np.uint8)
        form = self._pictures.form
        return np.zeros((*shape, form.channels), form.dtype)


def _keep_to_one_thread() -> None:
    """In a worker process of a DataLoader, makes OpenCV work on the calling thread.

    Workers run side by side already, and OpenCV's threads do not live through a fork. OpenCV is
    not imported for this: before its import, a variable of the environment does the same.
    """
    if get_worker_info() is None:
        return
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)
