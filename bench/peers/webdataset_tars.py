"""WebDataset: tar shards, decoded to Pillow's images, torchvision's transforms, batches made in the workers.

Shards are drawn anew for ever (resampled), as its documentation advises for training, so there is no epoch to end.
"""

from __future__ import annotations

import random
from pathlib import Path

import contender
import webdataset
from import_torchvision import training_transform

_SHARD_BYTES = 64_000_000


def write(making: contender.Making) -> None:
    """Tar shards of JPEG and class number, in random order; its writer has one process."""
    making.destination.mkdir(parents=True)
    files = contender.photo_files(making.photos)
    random.Random(0).shuffle(files)
    with webdataset.ShardWriter(str(making.destination / "%06d.tar"), maxsize=_SHARD_BYTES, verbose=0) as shards:
        for number, (path, label) in enumerate(files):
            shards.write({"__key__": f"{number:09d}", "jpg": Path(path).read_bytes(), "cls": label})


def read(task: contender.Task) -> contender.Loader:
    shards = sorted(str(path) for path in task.data.glob("*.tar"))
    samples = (
        webdataset.WebDataset(shards, resampled=True, shardshuffle=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(training_transform(task.size))
        .batched(task.batch_size, partial=False)
    )
    return webdataset.WebLoader(samples, batch_size=None, num_workers=task.workers)


if __name__ == "__main__":
    contender.main(("webdataset", "torch", "torchvision", "pillow"), read, write)
