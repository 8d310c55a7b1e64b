"""SPDL on the photos' own files: FFmpeg decodes, and its filters crop, resize and mirror; threads make whole batches.

FFmpeg crops before it turns YCbCr into RGB, so corners of subsampled photos fall on even pixels.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import contender
import spdl.io
import torch
from crop_law import random_crop
from spdl.pipeline import PipelineBuilder

Sample = tuple[str, int]


def batch(samples: list[Sample], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs in a thread; none of the calls into FFmpeg holds Python's lock."""
    frames = [picture(path, size) for path, _ in samples]
    pictures = spdl.io.to_torch(spdl.io.convert_frames(frames))
    return pictures.permute(0, 3, 1, 2), torch.tensor([label for _, label in samples])


def picture(path: str, size: int) -> spdl.io.ImageFrames:
    """A photo's crop; the header tells its size before it is decoded."""
    packets = spdl.io.demux_image(path)
    x, y, w, h = random_crop(packets.codec.width, packets.codec.height)
    mirror = ",hflip" if random.random() < 0.5 else ""
    filters = f"crop={w}:{h}:{x}:{y},scale={size}:{size}:flags=bilinear,format=rgb24{mirror}"
    return spdl.io.decode_packets(packets, filter_desc=filters)


class Epochs:
    """Every epoch is a pipeline of its own, as its documentation builds it."""

    def __init__(self, task: contender.Task) -> None:
        self._files = contender.photo_files(task.data)
        self._task = task

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        pipeline = (
            PipelineBuilder()
            .add_source(random.sample(self._files, len(self._files)))
            .aggregate(self._task.batch_size, drop_last=True)
            .pipe(functools.partial(batch, size=self._task.size), concurrency=self._task.workers)
            .add_sink(buffer_size=2)
            .build(num_threads=self._task.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline


if __name__ == "__main__":
    contender.main(("spdl", "spdl_io", "torch"), Epochs)
