"""A packed dataset -> (image, label), or a dict of fields, by number: for DataLoader, and for looking at one sample."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from fastpipe.checks import whole
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.engine.pictures import Pictures
from fastpipe.errors import ConfigError
from fastpipe.format.folder import Url, dataset_folder
from fastpipe.format.index import Index, refuse_other
from fastpipe.remote.urls import place_of
from fastpipe.samples.transform import applier, as_tensor, sample_applier
from fastpipe.scan.opening import open_data

if TYPE_CHECKING:  # most programs load whole images without fields
    from fastpipe.plan.batch import BatchPlan
    from fastpipe.plan.crops import Crop
    from fastpipe.plan.placed import Boxes, Points
    from fastpipe.samples.fields import FieldValues


class Dataset(torch.utils.data.Dataset[Any]):
    """Samples of a dataset by number, in shard order; a map-style dataset like torchvision's ImageFolder.

    `dataset[n]` is (image, label): the image, decoded on the calling thread, and its label, an int. Without a
    transform the image is a uint8 tensor of shape (3, height, width), RGB, 0 to 255, in its own memory, with the
    strides of torch.channels_last: resizing is fastest with them, and `image.permute(1, 2, 0).numpy()` copies nothing.

    With `crop`, the image is one crop of it, (3, *size), or several, (K, 3, *size). Only what it needs is decoded,
    as fastpipe.loader does it, and resized: for samplers of your own this takes less time than a whole image alone.

    With `fields`, `dataset[n]` is a dict of these. Where torchvision is installed, the image, boxes and points in it
    are tv_tensors, so that the transforms of torchvision.transforms.v2 move them together.

    You can use it in several threads, in forked children and in DataLoader workers of every start method. Its pickle
    contains the path, the fingerprint, the transform, the fields and max_pixels. Each process opens the files again at
    its first read.

    Args:
        data: the folder that `fastpipe pack` wrote, or its URL, or what is not packed; see fastpipe.loader. In
            DataLoader workers a URL needs multiprocessing_context="forkserver" (or "spawn"): requests cannot be made in
            a forked child.
        transform: a function of the stored image that returns the image of the sample; None: no change. It is called as
            transform(tensor), with the tensor described above. If it is an albumentations transform, or has a
            keyword-only parameter `image`, it is called as transform(image=array), with (height, width, 3) uint8, and
            the dataset takes "image" from the returned dict. If that is an array of shape (height, width, 3), it
            becomes a tensor of shape (3, height, width), also without ToTensorV2. It may change its input. With
            `fields` it is called as transform(sample), with the dict. Of several crops, without `fields`, it is called
            with each.
        crop: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize, Letterbox, FiveCrop or TenCrop; None: whole
            images. Boxes, points, masks and second images are cropped with the image. Until `set_epoch`, torch's
            generator decides on random crops, as it does for torchvision's transforms.
        size: size of the crops in pixels: a number for a square, or (height, width); None: 224.
        hflip: mirror crops left to right: True (half of them), False, or a probability.
        seed: seed of crops and mirroring after `set_epoch`.
        exact: True: always decode at full size. See fastpipe.loader.
        fields: keys of a sample, in this order: "image", "label", "id", "key", and names of the dataset's fields, or
            fastpipe.Boxes (with form="list") and fastpipe.Points; see fastpipe.loader. Without crop= no box is
            dropped. Labels of boxes come as NAME_labels; points as (M, K, 2), and NAME_visibility (M, K). Without
            "image" nothing is decoded. Or a dict: {"pixel_values": "image"}. None: a sample is (image, label).
        max_pixels: an image with more pixels is a DatasetError before memory is allocated for it. A dataset that was
            packed with a larger --max-pixels needs the same value here.
        cache_dir, cache_limit, storage_options, read_timeout: for a URL; see fastpipe.loader. Samples are fetched when
            they are asked for.

    Raises:
        ConfigError: an argument is wrong, or the dataset has no samples.
        DatasetError: `data` holds no finished dataset, and no images.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        transform: object = None,
        *,
        crop: Crop | None = None,
        size: int | tuple[int, int] | None = None,
        hflip: bool | float = False,
        seed: int = 0,
        exact: bool = False,
        fields: Sequence[str | Boxes | Points] | Mapping[str, str | Boxes | Points] | None = None,
        max_pixels: int = MAX_PIXELS,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str = "200GB",
        storage_options: Mapping[str, Any] | None = None,
        read_timeout: float = 20.0,
    ) -> None:
        place = place_of(data)
        # It is opened again in other processes, and programs change their folder.
        path = place if isinstance(place, Url) else Path(os.path.abspath(dataset_folder(place)))
        from fastpipe.remote.options import remote_options

        remote = remote_options(cache_dir, cache_limit, storage_options, read_timeout, data)
        self._remote = remote if isinstance(path, Url) else None
        whole("max_pixels", max_pixels, least=1, most=65535 * 65535)
        index = open_data(path, max_pixels=max_pixels, remote=self._remote, fields=fields)
        if len(index) == 0:
            raise ConfigError(f"{path} has no samples; pack a source that contains images")
        names = None
        if fields is not None:
            from fastpipe.samples.fields import sample_fields

            names = sample_fields(index, fields)
        cropping = None
        if crop is not None:
            from fastpipe.samples.cropping import Cropping

            cropping = Cropping(crop, 224 if size is None else size, hflip=hflip, seed=seed, exact=exact)
            if names is not None:
                from fastpipe.samples.fields import check_croppable

                check_croppable(names.values(), cropping)
        elif size is not None or hflip is not False or exact is not False or type(seed) is not int or seed:
            raise ConfigError(
                "size, hflip, seed and exact work only with crop=; pass crop=fastpipe.RandomResizedCrop() or another, "
                "or leave them out"
            )
        self._path, self._fingerprint, self._max_pixels = path, index.fingerprint, max_pixels
        self._version = index.version or None  # the dataset may grow while it is in use
        self._transform, self._fields, self._cropping = transform, names, cropping
        self._begin(index)

    def _begin(self, index: Index | None) -> None:
        """Adds to what is pickled what each process has of its own."""
        self._apply: Callable[[Any], Any] = (applier if self._fields is None else sample_applier)(self._transform)
        self._index = index
        self._opened_files: tuple[int, Pictures, FieldValues | None] | None = None  # with the process that opened them

    @property
    def transform(self) -> Any:
        """The transform, as it was passed."""
        return self._transform

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return list(self._opened().classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return self._opened().class_to_idx

    @property
    def targets(self) -> NDArray[np.int64]:
        """(samples,) int64: the label of each sample. A read-only view of the memory-mapped index, without a copy.

        The distance between its elements is 52 bytes, which torch does not support. For a tensor, use
        torch.from_numpy(dataset.targets.copy()).
        """
        labels: NDArray[np.int64] = self._opened().records["label"].view(np.ndarray)
        return labels

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._opened())

    def __getitem__(self, sample: int) -> Any:
        """(image, label) of a sample, or a dict of its fields; negative numbers count from the end.

        Raises:
            IndexError: there is no such sample.
            SampleError: it cannot be read or decoded.
            DatasetError: the index is damaged, or the folder now holds a different dataset.
        """
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[Any]:
        """Several samples at once; DataLoader calls this for its batches. Raises the errors of `dataset[n]`.

        It reads the index once for all of them. It decodes the images one by one, and calls the transform while the
        image is in the CPU's cache; besides the results, only one image is in memory.
        """
        numbers = np.array([self._number(sample) for sample in samples], dtype=np.int64)
        pictures, fields = self._own_files()
        records = pictures.records(numbers)
        with pictures.fetched(numbers):
            if fields is not None:
                return self._with_fields(pictures, fields, numbers, records)
            if self._cropping is not None:
                return [
                    (self._applied_to_rows(self._rows(pictures, plan), int(plan.samples[0])), int(plan.labels[0]))
                    for plan in self._cropping.plans(numbers, records)
                ]
            return [
                (self._applied(pictures.decode(sample, record), sample), label)
                for sample, record, label in zip(numbers.tolist(), records, records["label"].tolist(), strict=True)
            ]

    def set_epoch(self, epoch: int) -> None:
        """Makes crops and mirroring a function of (seed, epoch, sample): those of fastpipe.loader with the same seed
        and options. Call it before each epoch, in the process that iterates over the DataLoader, or not at all. Workers
        see it, also persistent ones.

        Raises:
            ConfigError: the dataset has no crop.
        """
        if self._cropping is None:
            raise ConfigError("set_epoch: this dataset gives whole images; pass crop= for random crops by epoch")
        self._cropping.set_epoch(epoch)

    def _with_fields(
        self, pictures: Pictures, fields: FieldValues, numbers: NDArray[np.int64], records: NDArray[np.void]
    ) -> list[Any]:
        from fastpipe.samples.fields import as_image

        plans = None if self._cropping is None else list(self._cropping.plans(numbers, records))

        def image_of(row: int) -> torch.Tensor:
            if plans is None:
                return as_image(as_tensor(pictures.decode(int(numbers[row]), records[row])))
            rows = torch.from_numpy(self._rows(pictures, plans[row])).permute(0, 3, 1, 2)
            return as_image(rows[0] if len(rows) == 1 else rows)

        samples = fields.of(numbers, records, image_of, plans)
        return [self._applied(sample, number) for number, sample in zip(numbers.tolist(), samples, strict=True)]

    def _rows(self, pictures: Pictures, plan: BatchPlan) -> NDArray[np.uint8]:
        assert self._cropping is not None
        return pictures.rows(plan, self._cropping.size, exact=self._cropping.exact)

    def _applied_to_rows(self, rows: NDArray[np.uint8], sample: int) -> Any:
        if len(rows) == 1:
            return self._applied(rows[0], sample)
        made = [self._applied(row, sample) for row in rows]
        return torch.stack([x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu") for x in made])

    def _applied(self, value: Any, sample: int) -> Any:
        try:
            return self._apply(value)
        except Exception as problem:
            problem.add_note(f"in the transform of sample {sample} of {self._path}")
            raise

    def _number(self, sample: object) -> int:
        if isinstance(sample, slice):
            raise ConfigError(
                f"expected the number of one sample, got {sample!r}; "
                "for a part of the dataset: torch.utils.data.Subset(dataset, range(start, stop))"
            )
        try:
            number = operator.index(sample)  # type: ignore[arg-type]
        except TypeError:
            raise ConfigError(
                f"expected the number of one sample, a whole number, got {sample!r}; "
                "for several: torch.utils.data.Subset(dataset, numbers)"
            ) from None
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"there is no sample {number}: {self._path} has {count}, numbered 0 to {count - 1}")
        return number % count

    def _opened(self) -> Index:
        """The index. A forked child goes on with its parent's, which is memory alone; others open theirs."""
        if self._index is None:
            index = open_data(
                self._path,
                max_pixels=self._max_pixels,
                fingerprint=self._fingerprint,
                remote=self._remote,
                fields=self._fields,
                version=self._version,
            )
            refuse_other(self._path, self._fingerprint, index.fingerprint)
            self._index = index
        return self._index

    def _own_files(self) -> tuple[Pictures, FieldValues | None]:
        """This process's open files."""
        process = os.getpid()
        if self._opened_files is None or self._opened_files[0] != process:
            _keep_to_one_thread()
            index = self._opened()
            pictures = Pictures(index)
            fields = None
            if self._fields is not None:
                from fastpipe.samples.fields import FieldValues

                fields = FieldValues(index, self._fields, pictures, self._cropping)
            self._opened_files = process, pictures, fields
        return self._opened_files[1:]

    def __getstate__(self) -> dict[str, Any]:
        own = ("_apply", "_index", "_opened_files")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin(None)

    def __repr__(self) -> str:
        crop = "" if self._cropping is None else f", {self._cropping!r}"
        return f"fastpipe.Dataset({os.fspath(self._path)!r}, transform={self._transform!r}{crop}): {len(self)} samples"


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
