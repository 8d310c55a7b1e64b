"""NVIDIA DALI without a GPU, on the photos' own files: its reader, its decoder of random crops, its resize and flip.

Its static executor is a little quicker here than the dynamic one, which is the default.
"""

from __future__ import annotations

import contender
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy


@pipeline_def(device_id=None, exec_dynamic=False)
def photos(folder: str, size: int):
    jpegs, labels = fn.readers.file(
        file_root=folder, random_shuffle=True, initial_fill=4096, name="photos"
    )
    images = fn.decoders.image_random_crop(
        jpegs,
        device="cpu",
        output_type=types.RGB,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
    )
    images = fn.resize(images, resize_x=size, resize_y=size, interp_type=types.INTERP_LINEAR)
    images = fn.flip(images, horizontal=fn.random.coin_flip())
    return images, labels


def read(task: contender.Task) -> contender.Loader:
    pipeline = photos(
        str(task.data), task.size, batch_size=task.batch_size, num_threads=task.workers
    )
    batches = DALIGenericIterator(
        [pipeline],
        ["images", "labels"],
        reader_name="photos",
        last_batch_policy=LastBatchPolicy.DROP,
        auto_reset=True,
    )
    return _Batches(batches)


class _Batches:
    """Its batches are (N, size, size, 3) and seen as (N, 3, size, size)."""

    def __init__(self, batches: DALIGenericIterator) -> None:
        self._batches = batches

    def __iter__(self):
        for (batch,) in self._batches:
            yield batch["images"].permute(0, 3, 1, 2), batch["labels"]


if __name__ == "__main__":
    contender.main(("nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12", "torch"), read)
