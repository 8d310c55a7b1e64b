"""Samples or batches of a WebDataset pipeline -> the same with their images cropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, SampleError, whole
from fastpipe.loading.ranks import launched_here
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.plan.crops import Crop
from fastpipe.wds.cropping import Handler, PipelineCropping, is_picture, pictures_of


def crop(
    size: int | tuple[int, int] = 224,
    *,
    train: bool = True,
    crop: Crop | None = None,
    hflip: bool | float | None = None,
    seed: int = 0,
    exact: bool = False,
    max_pixels: int = MAX_PIXELS,
    background: str | Sequence[int] | None = None,
) -> SampleCrop:
    """A function for webdataset's `.map`, `.decode` and `.map_dict` that makes crops of images.

    An image becomes a uint8 tensor (3, height, width), RGB, 0 to 255, contiguous, as `torch.stack`
    likes it. JPEGs and PNGs are decoded by fastpipe's engine, as far as the crop needs; progressive
    and CMYK JPEGs as `fastpipe pack` stores them; WebP and others by Pillow. JPEGs under any
    name and PNGs called `png` are cropped; `seg.png` and the like, which may be masks, and all
    other members stay as they are.

    In `.map(CROP)` crop and flip are drawn from seed, epoch and the sample's `__key__`; so several
    JPEGs of a sample that have one size get the same crop and flip. In `.decode(CROP)` and
    `.map_dict(jpg=CROP)` the key is not known, and the hash of the bytes stands for it.

    Args:
        size: size of the output in pixels: a number for a square, or (height, width).
        train: True: RandomResizedCrop and mirroring. False: CenterCrop.
        crop: how an image becomes a row: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize
            or Letterbox; None: `train` decides.
        hflip: mirror images left to right: True (half of them), False, or a probability; None:
            `train` decides.
        seed: seed of crops and flips; whole number in [0, 2**64).
        exact: True: always decode at full size. See fastpipe.loader.
        max_pixels: largest number of pixels of one stored image; a larger one cannot be decoded.
        background: the colour that transparent images are put on, such as "white", "#ffffff" or
            [255, 255, 255]; None: alpha is dropped, so the colours under transparent pixels become
            visible, and the log says so once.

    Returns:
        A SampleCrop: a function, with `set_epoch`.

    Raises:
        ConfigError: an argument is wrong.

    Example:
        >>> import webdataset
        >>> samples = webdataset.WebDataset("data/train/shard-000000.tar", shardshuffle=False)
        >>> image, label = next(iter(samples.decode(fastpipe.wds.crop(32)).to_tuple("jpg", "cls")))
        >>> image.shape
        torch.Size([3, 32, 32])
    """
    return SampleCrop(
        size,
        train=train,
        crop=crop,
        hflip=hflip,
        seed=seed,
        exact=exact,
        max_pixels=max_pixels,
        background=background,
    )


class SampleCrop(PipelineCropping):
    """The result of `fastpipe.wds.crop`. Use it in any process and thread; it can be pickled."""

    def __call__(self, *given: Any) -> Any:
        """The sample with its images cropped; or the crop of one member.

        Args:
            *given: a sample, a dict (`.map`); an extension and bytes (`.decode`); or bytes
                (`.map_dict`).

        Returns:
            A dict, or a tensor; None in `.decode` for a member that is no image, so that others
            decode it.

        Raises:
            SampleError: an image cannot be decoded.
        """
        # webdataset calls a function in three ways.
        match given:
            case (dict() as sample,):  # .map
                return self._crop_sample(sample)
            case (bytes() as data,):  # .map_dict
                return self._crop_member("", data)
            case (str() as extension, bytes() as data):  # .decode
                extension = extension.removeprefix(".")
                return (
                    self._crop_member(extension, data)
                    if is_picture(extension, data)
                    else None
                )
        kinds = ", ".join(type(value).__name__ for value in given)
        raise ConfigError(
            f"fastpipe.wds.crop: expected a sample, or a member's bytes, got {kinds}; use it as "
            "webdataset.WebDataset(...).map(CROP), .decode(CROP) or .map_dict(jpg=CROP)"
        )

    def _crop_sample(self, sample: dict[str, Any]) -> dict[str, Any]:
        if not pictures_of(sample):
            return sample
        images, _ = self.images([sample], planar=True)
        cropped = dict(sample)
        for extension, rows in images.items():
            cropped[extension] = torch.from_numpy(rows[0])
        return cropped

    def _crop_member(self, extension: str, data: bytes) -> torch.Tensor:
        draws = self.named_draws([data])
        rows, reasons = self.rows([data], draws, planar=True)
        if reasons:
            member = f"a member {extension}".rstrip()
            raise SampleError(
                f"{member} of {len(data):,} bytes cannot be decoded: {reasons[0]}",
                reason=reasons[0],
            )
        return torch.from_numpy(rows[0])


def batch_crop(
    size: int | tuple[int, int] = 224,
    *,
    train: bool = True,
    crop: Crop | None = None,
    hflip: bool | float | None = None,
    seed: int = 0,
    exact: bool = False,
    max_pixels: int = MAX_PIXELS,
    background: str | Sequence[int] | None = None,
    num_workers: int | None = None,
    handler: Handler | None = None,
) -> BatchCrop:
    """A function for `.batched(N).map(...)` or `.listed(N).map(...)` that makes crops of a batch of
    raw samples.

    The images of a batch become one uint8 tensor (N, 3, height, width) in torch.channels_last, as
    fastpipe.loader gives them. The pixels are those of `fastpipe.wds.crop` with the same options.
    Other entries stay as they are; after `.listed(N)` webdataset's own default_collation_fn
    collates them.

    Args:
        size, train, crop, hflip, seed, exact, max_pixels, background: see
            fastpipe.wds.crop.
        num_workers: C++ threads that decode; they end with each batch. None: the CPUs granted to
            this process, divided by the ranks on this machine and by the workers of the DataLoader.
        handler: called with the SampleError of each sample whose image cannot be decoded, or that
            has other images than most of its batch, as webdataset calls handlers. If it returns
            True, the batch goes on without that sample; a batch without samples is left out. Else,
            or without a handler, the error is raised.

    Returns:
        A BatchCrop: a function, with `set_epoch`.

    Raises:
        ConfigError: an argument is wrong.

    Example:
        >>> import webdataset
        >>> samples = webdataset.WebDataset("data/train/shard-000000.tar", shardshuffle=False)
        >>> batch = next(iter(samples.batched(8).map(fastpipe.wds.batch_crop(32))))
    """
    if num_workers is not None:
        whole("num_workers", num_workers, least=1, most=1024)
    if handler is not None and not callable(handler):
        raise ConfigError(
            "handler: expected None or a function, such as webdataset.warn_and_continue, got "
            f"{handler!r}"
        )
    return BatchCrop(
        num_workers,
        handler,
        size=size,
        train=train,
        crop=crop,
        hflip=hflip,
        seed=seed,
        exact=exact,
        max_pixels=max_pixels,
        background=background,
    )


class BatchCrop(PipelineCropping):
    """The result of `fastpipe.wds.batch_crop`.

    Use it in any process and thread; it can be pickled.
    """

    def __init__(
        self, num_workers: int | None, handler: Handler | None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._num_workers = num_workers
        self._handler = handler

    def __call__(self, batch: Any) -> dict[str, Any] | None:
        """The batch with its images cropped; None if no sample is left.

        Args:
            batch: a dict of lists (`.batched`), or a list of samples (`.listed`).

        Raises:
            SampleError: an image cannot be decoded, or a sample has other images than most.
        """
        if _is_list_of_samples(batch):
            return self._crop_listed(batch)
        if isinstance(batch, dict):
            keys = batch.get("__key__")
            if isinstance(keys, (list, tuple)):
                return self._crop_batched(batch)
        raise ConfigError(
            "fastpipe.wds.batch_crop: expected a batch of samples with __key__, got "
            f"{type(batch).__name__}; use it as webdataset.WebDataset(...).batched(N).map(CROP), "
            "before .to_tuple(...); for single samples: fastpipe.wds.crop"
        )

    def _crop_listed(self, samples: list[dict[str, Any]]) -> dict[str, Any] | None:
        """A batch of `.listed(N)`, collated as webdataset does it."""
        images, kept = self._crop_images(samples)
        if not kept:
            return None
        from webdataset.filters import default_collation_fn

        others = [_without(samples[number], images) for number in kept]
        return {**default_collation_fn(others), **images}

    def _crop_batched(self, batch: dict[str, Any]) -> dict[str, Any] | None:
        """A batch of `.batched(N)`."""
        # Back to samples: the pictures of a batch are known only by looking at each of them.
        count = len(batch["__key__"])
        samples = []
        for row in range(count):
            sample = {}
            for name, column in batch.items():
                sample[name] = column[row]
            samples.append(sample)
        images, kept = self._crop_images(samples)
        if not kept:
            return None
        others = _without(batch, images)
        if len(kept) < count:
            for name, column in others.items():
                others[name] = _take_rows(column, kept)
            # webdataset's map copies __key__ from the batch that it passed to this function.
            batch["__key__"] = others["__key__"]
        return {**others, **images}

    def _crop_images(
        self, samples: list[dict[str, Any]]
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """By extension, the images (n, 3, height, width); and the numbers of their samples."""
        threads = self._threads()
        rows_by_name, kept = self.images(samples, self._handler, threads)
        images = {}
        for name, rows in rows_by_name.items():
            images[name] = torch.from_numpy(rows).permute(0, 3, 1, 2)
        return images, kept

    def _threads(self) -> int:
        """How many threads decode: its share of the CPUs, unless the user has said it."""
        if self._num_workers is not None:
            return self._num_workers
        # Each rank on this machine, and each worker of its DataLoader, runs a pipeline of its own.
        worker = get_worker_info()
        workers = 1 if worker is None else worker.num_workers
        processes = (launched_here() or 1) * workers
        return max(1, count_granted_cpus() // processes)


def _is_list_of_samples(batch: Any) -> bool:
    if not isinstance(batch, list) or not batch:
        return False
    return all(isinstance(sample, dict) for sample in batch)


def _without(entries: dict[str, Any], images: Mapping[str, object]) -> dict[str, Any]:
    """The entries of a sample or a batch that are not among its images."""
    others = {}
    for name, value in entries.items():
        if name not in images:
            others[name] = value
    return others


def _take_rows(column: Any, rows: list[int]) -> Any:
    """Some rows of a column that webdataset has collated."""
    if isinstance(column, (np.ndarray, torch.Tensor)):
        return column[rows]
    return [column[row] for row in rows]
