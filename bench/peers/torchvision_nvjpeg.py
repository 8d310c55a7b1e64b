"""torchvision's decode_jpeg on a GPU (nvJPEG): threads read the files, the GPU decodes whole photos and crops each."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import contender
import import_torchvision  # noqa: F401 (first: it makes torchvision importable)
import torch
from crop_law import random_crop
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms.v2 import functional


class Batches:
    """An epoch in random order; the files of the next two batches are read ahead."""

    def __init__(self, task: contender.Task) -> None:
        self._task = task
        self._files = contender.photo_files(task.data)

    def __iter__(self):
        order = random.sample(self._files, len(self._files))
        size = self._task.batch_size
        runs = [order[first : first + size] for first in range(0, len(order) - size + 1, size)]
        with ThreadPoolExecutor(self._task.workers) as pool:
            ahead = [[pool.submit(read_file, path) for path, _ in run] for run in runs[:2]]
            for number, run in enumerate(runs):
                files = [file.result() for file in ahead.pop(0)]
                ahead += [
                    [pool.submit(read_file, path) for path, _ in run]
                    for run in runs[number + 2 : number + 3]
                ]
                yield (
                    self._on_the_gpu(files),
                    torch.tensor([label for _, label in run], device="cuda"),
                )

    def _on_the_gpu(self, files):
        crops = []
        for photo in decode_jpeg(files, ImageReadMode.RGB, device="cuda"):
            left, top, width, height = random_crop(photo.shape[2], photo.shape[1])
            crop = functional.resized_crop(
                photo, top, left, height, width, [self._task.size] * 2, antialias=True
            )
            crops.append(crop.flip(-1) if random.random() < 0.5 else crop)
        batch = torch.stack(crops)
        torch.cuda.synchronize()  # the clock is the host's
        return batch


if __name__ == "__main__":
    contender.main(("torch", "torchvision"), Batches, device="cuda")
