"""A batch of samples of a WebDataset -> the same with its pictures cropped, decoded on native threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, SampleError
from fastpipe.errors.checks import whole
from fastpipe.loading.ranks import launched_here
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.crops import Crop
from fastpipe.wds.cropping import Cropping, Draws
from fastpipe.wds.samples import name_of, pictures_of, sample_error

Handler = Callable[[Exception], bool]


def batch_crop(
    size: int | tuple[int, int] = 224,
    *,
    train: bool = True,
    crop: Crop | None = None,
    hflip: bool | float | None = None,
    seed: int = 0,
    exact: bool = False,
    max_pixels: int = MAX_PIXELS,
    num_workers: int | None = None,
    handler: Handler | None = None,
) -> BatchCrop:
    """A function for `.batched(N).map(...)` or `.listed(N).map(...)` that makes crops of a batch of raw samples.

    The pictures of a batch become one uint8 tensor (N, 3, height, width) in torch.channels_last, as fastpipe.loader
    gives them. The pixels are those of `fastpipe.wds.crop` with the same options. Other entries stay as they are; after
    `.listed(N)` webdataset's own default_collation_fn collates them.

    Args:
        size, train, crop, hflip, seed, exact, max_pixels: see fastpipe.wds.crop.
        num_workers: C++ threads that decode; they end with each batch. None: the CPUs granted to this process, divided
            by the ranks on this machine and by the workers of the DataLoader.
        handler: called with the SampleError of each sample whose picture cannot be decoded, or that has other pictures
            than most of its batch, as webdataset calls handlers. True: the batch goes on without that sample; a batch
            without samples is left out. Else, or without a handler, the error is raised.

    Returns:
        A BatchCrop: a function, with `set_epoch`.

    Raises:
        ConfigError: an argument is wrong.
    """
    if num_workers is not None:
        whole("num_workers", num_workers, least=1, most=1024)
    if handler is not None and not callable(handler):
        raise ConfigError(
            f"handler: expected None or a function, such as webdataset.warn_and_continue, got {handler!r}"
        )
    options = {"train": train, "crop": crop, "hflip": hflip, "seed": seed, "exact": exact, "max_pixels": max_pixels}
    return BatchCrop(num_workers, handler, size=size, **options)


class BatchCrop(Cropping):
    """What `fastpipe.wds.batch_crop` returns. Use it in any process and thread; it can be pickled."""

    def __init__(self, num_workers: int | None, handler: Handler | None, **options: Any) -> None:
        super().__init__(**options)
        self._num_workers = num_workers
        self._handler = handler

    def __call__(self, batch: Any) -> dict[str, Any] | None:
        """The batch with its pictures cropped; None if no sample is left.

        Args:
            batch: a dict of lists (`.batched`), or a list of samples (`.listed`).

        Raises:
            SampleError: a picture cannot be decoded, or a sample has other pictures than most.
        """
        listed = isinstance(batch, list) and batch and all(isinstance(sample, dict) for sample in batch)
        if not listed and not (isinstance(batch, dict) and isinstance(batch.get("__key__"), (list, tuple))):
            raise ConfigError(
                f"fastpipe.wds.batch_crop: expected a batch of samples with __key__, got {type(batch).__name__}; use "
                "it as webdataset.WebDataset(...).batched(N).map(CROP), before .to_tuple(...); for single samples: "
                "fastpipe.wds.crop"
            )
        samples = batch
        if not listed:
            samples = [{name: of[row] for name, of in batch.items()} for row in range(len(batch["__key__"]))]
        images, left = self._images(samples)
        if not left:
            return None
        if listed:
            from webdataset.filters import default_collation_fn

            others = [{name: value for name, value in samples[row].items() if name not in images} for row in left]
            return {**default_collation_fn(others), **images}
        rest = {name: column for name, column in batch.items() if name not in images}
        if len(left) < len(samples):
            rest = {name: _some(column, left) for name, column in rest.items()}
            batch["__key__"] = rest["__key__"]  # webdataset's map takes it from the batch that came
        return {**rest, **images}

    def _images(self, samples: Sequence[dict[str, Any]]) -> tuple[dict[str, torch.Tensor], list[int]]:
        """By extension, the batch of crops; and the samples that are in it."""
        pictures = [pictures_of(sample) for sample in samples]
        names = _usual(pictures)
        bad = {
            row: _unlike(samples[row], found, names) for row, found in enumerate(pictures) if found.keys() != set(names)
        }
        fitting = [row for row in range(len(samples)) if row not in bad]
        epoch, numbers = self.draws([name_of(sample) for sample in samples])
        made = {}
        for name in names:
            data = [pictures[row][name] for row in fitting]
            made[name], failed = self.rows(data, Draws(epoch, numbers[fitting]), threads=self._threads())
            for place, reason in failed.items():
                row = fitting[place]
                bad.setdefault(row, sample_error(samples[row], reason, name))
        for row in sorted(bad):
            if self._handler is None or not self._handler(bad[row]):
                raise bad[row]
        kept = [place for place, row in enumerate(fitting) if row not in bad]
        left = [fitting[place] for place in kept]
        images = {name: rows if len(kept) == len(rows) else rows[kept] for name, rows in made.items()}
        return {name: torch.from_numpy(rows).permute(0, 3, 1, 2) for name, rows in images.items()}, left

    def _threads(self) -> int:
        if self._num_workers is not None:
            return self._num_workers
        worker = get_worker_info()
        sharing = (launched_here() or 1) * (1 if worker is None else worker.num_workers)
        return max(1, granted_cpus() // sharing)


def _usual(pictures: Sequence[dict[str, bytes]]) -> tuple[str, ...]:
    """The extensions of the pictures that most samples of a batch have; of samples without a picture, if all are."""
    counted = Counter(tuple(sorted(found)) for found in pictures if found)
    return counted.most_common(1)[0][0] if counted else ()


def _unlike(sample: dict[str, Any], found: Collection[str], names: Collection[str]) -> SampleError:
    """The error for a sample that cannot be in a batch with the others."""
    has = f"the pictures {sorted(found)}" if found else "no picture"
    reason = f"it has {has}; expected {sorted(names)}, as most samples of its batch have"
    advice = "if the extensions differ, rename them before: .rename(jpg='jpg;jpeg;png;webp'); "
    return sample_error(sample, reason, advice=advice)


def _some(column: Any, rows: list[int]) -> Any:
    """Some rows of what webdataset has collated."""
    if isinstance(column, (np.ndarray, torch.Tensor)):
        return column[rows]
    return [column[row] for row in rows]
