"""A batch of samples of a WebDataset -> the same with its pictures cropped, decoded on native threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastpipe.checks import whole
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, SampleError
from fastpipe.loading.ranks import launched_here
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.crops import Crop
from fastpipe.wds.cropping import Cropping
from fastpipe.wds.samples import pictures_of, sample_error

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
        handler: called with the SampleError of each picture that cannot be decoded, as webdataset calls handlers. True:
            the batch goes on without that sample; a batch without samples is left out. Else, or without a handler, the
            error is raised.

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
    )


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
            SampleError: a picture cannot be decoded.
        """
        if isinstance(batch, list) and batch and all(isinstance(sample, dict) for sample in batch):
            return self._listed(batch)
        if isinstance(batch, dict) and isinstance(batch.get("__key__"), (list, tuple)):
            return self._batched(batch)
        raise ConfigError(
            f"fastpipe.wds.batch_crop: expected a batch of samples with __key__, got {type(batch).__name__}; use it as "
            "webdataset.WebDataset(...).batched(N).map(CROP), before .to_tuple(...); for single samples: "
            "fastpipe.wds.crop"
        )

    def _listed(self, samples: list[dict[str, Any]]) -> dict[str, Any] | None:
        images, left = self._images(samples)
        if not left:
            return None
        from webdataset.filters import default_collation_fn

        rest = [{name: value for name, value in samples[row].items() if name not in images} for row in left]
        return {**default_collation_fn(rest), **images}

    def _batched(self, batch: dict[str, Any]) -> dict[str, Any] | None:
        count = len(batch["__key__"])
        samples = [{name: column[row] for name, column in batch.items()} for row in range(count)]
        images, left = self._images(samples)
        if not left:
            return None
        rest = {name: column for name, column in batch.items() if name not in images}
        if len(left) < count:
            rest = {name: _some(column, left) for name, column in rest.items()}
            batch["__key__"] = rest["__key__"]  # webdataset's map takes it from the batch that came
        return {**rest, **images}

    def _images(self, samples: Sequence[dict[str, Any]]) -> tuple[dict[str, torch.Tensor], list[int]]:
        """By extension, the batch of crops; and the samples that are in it."""
        pictures = [pictures_of(sample) for sample in samples]
        names = list(pictures[0])
        for sample, found in zip(samples, pictures, strict=True):
            if found.keys() != set(names):
                raise SampleError(
                    f"the sample {sample.get('__key__')!r} has the pictures {sorted(found)}, the first of its batch "
                    f"{sorted(names)}; expected the same; rename them before: .rename(jpg='jpg;jpeg;png;webp')",
                    key=str(sample.get("__key__")),
                )
        keys = [str(sample.get("__key__", "")).encode(errors="surrogateescape") for sample in samples]
        epoch, numbers = self.named(keys)
        made, bad = {}, dict[int, SampleError]()
        for name in names:
            rows, failed = self.rows([each[name] for each in pictures], epoch, numbers, threads=self._threads())
            made[name] = rows
            for row, reason in failed.items():
                bad.setdefault(row, sample_error(samples[row], name, reason))
        for row in sorted(bad):
            if self._handler is None or not self._handler(bad[row]):
                raise bad[row]
        left = [row for row in range(len(samples)) if row not in bad]
        whole_batch = len(left) == len(samples)
        images = {name: rows if whole_batch else rows[left] for name, rows in made.items()}
        return {name: torch.from_numpy(rows).permute(0, 3, 1, 2) for name, rows in images.items()}, left

    def _threads(self) -> int:
        if self._num_workers is not None:
            return self._num_workers
        worker = get_worker_info()
        sharing = (launched_here() or 1) * (1 if worker is None else worker.num_workers)
        return max(1, granted_cpus() // sharing)


def _some(column: Any, rows: list[int]) -> Any:
    """Some rows of what webdataset has collated."""
    if isinstance(column, (np.ndarray, torch.Tensor)):
        return column[rows]
    return [column[row] for row in rows]
