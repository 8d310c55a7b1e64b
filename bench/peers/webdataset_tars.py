"""WebDataset: tar shards, decoded to Pillow's images, torchvision's transforms, batches made in the workers.

Variants decode and crop in other ways: "v2" (Pillow's images, torchvision's v2), "torchrgb8" (tensors, v2), "crop" and
"batch_crop" (fastpipe.wds).

Shards are drawn anew for ever (resampled), as its documentation advises for training, so there is no epoch to end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contender
import webdataset
from import_torchvision import training_transform, training_transform_v2

_SHARD_BYTES = 64_000_000


def write(making: contender.Making) -> None:
    """Tar shards of JPEG and class number, in random order; its writer has one process."""
    making.destination.mkdir(parents=True)
    files = contender.photo_files(making.photos)
    random.Random(0).shuffle(files)
    with webdataset.ShardWriter(
        str(making.destination / "%06d.tar"), maxsize=_SHARD_BYTES, verbose=0
    ) as shards:
        for number, (path, label) in enumerate(files):
            shards.write({"__key__": f"{number:09d}", "jpg": Path(path).read_bytes(), "cls": label})


def read(task: contender.Task) -> contender.Loader:
    shards = sorted(str(path) for path in task.data.glob("*.tar"))
    samples = _WAYS[task.variant](
        webdataset.WebDataset(shards, resampled=True, shardshuffle=False).shuffle(1000), task
    )
    return webdataset.WebLoader(samples, batch_size=None, num_workers=task.workers)


def _batched(samples: Any, task: contender.Task) -> Any:
    return samples.to_tuple("jpg", "cls").batched(task.batch_size, partial=False)


def _transformed(kind: str, make: Callable[[int], Any]) -> Callable[[Any, contender.Task], Any]:
    def way(samples: Any, task: contender.Task) -> Any:
        transform = make(task.size)
        return _batched(samples.decode(kind).map_dict(jpg=transform), task)

    return way


def _crop(samples: Any, task: contender.Task) -> Any:
    from fastpipe import wds

    return _batched(samples.decode(wds.crop(task.size)), task)


def _batch_crop(samples: Any, task: contender.Task) -> Any:
    from fastpipe import wds

    raw = samples.decode(only="cls").batched(task.batch_size, partial=False)
    return raw.map(wds.batch_crop(task.size, num_workers=1)).to_tuple("jpg", "cls")


_WAYS = {
    "": _transformed("pil", training_transform),
    "v2": _transformed("pil", training_transform_v2),
    "torchrgb8": _transformed("torchrgb8", training_transform_v2),
    "crop": _crop,
    "batch_crop": _batch_crop,
}


if __name__ == "__main__":
    contender.main(("webdataset", "torch", "torchvision", "pillow"), read, write)
