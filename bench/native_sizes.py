"""fastpipe.Native -> how far its images are from those of transformers' processors.

    python -m bench.native_sizes PHOTOS [--photos 100]

Needs transformers. Each processor gets single photos, without rescaling and normalising; its patches are put together
to an image again, and compared with the row that a loader of one photo a batch gives.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import bench.peers.import_torchvision  # noqa: F401  (transformers imports torchvision)
import fastpipe

MAX_PIXELS = 448 * 448
MERGED = 2  # patches of a side that Qwen-VL's models merge
QWEN = fastpipe.Native(max_pixels=MAX_PIXELS, min_pixels=56 * 56)
SIGLIP2 = fastpipe.Native(
    max_pixels=256 * 16**2, multiple=16, enlarge=True, interpolation="bilinear"
)
# Module and class of a processor, its options, and the same as a size.
PROCESSORS = [
    ("qwen2_vl.image_processing_pil_qwen2_vl", "Qwen2VLImageProcessorPil", QWEN),
    ("qwen2_vl.image_processing_qwen2_vl", "Qwen2VLImageProcessor", QWEN),
    ("siglip2.image_processing_pil_siglip2", "Siglip2ImageProcessorPil", SIGLIP2),
    ("siglip2.image_processing_siglip2", "Siglip2ImageProcessor", SIGLIP2),
]


def processor_of(module: str, name: str, size: fastpipe.Native) -> Any:
    kind = getattr(importlib.import_module(f"transformers.models.{module}"), name)
    options = {"do_rescale": False, "do_normalize": False}
    if size is QWEN:
        return kind(min_pixels=size.min_pixels, max_pixels=size.max_pixels, **options)
    return kind(max_num_patches=size.max_pixels // size.multiple**2, **options)


def image_of(output: Any, size: fastpipe.Native) -> torch.Tensor:
    """The image, (3, height, width), that a processor has cut into patches."""
    patches = output["pixel_values"].float()
    if size is QWEN:
        _, rows, columns = output["image_grid_thw"][0].tolist()
        side = size.multiple // MERGED
        # Patches come by groups that are merged; each has channels, two equal frames, and pixels.
        groups = (rows // MERGED, columns // MERGED, MERGED, MERGED, 3, 2, side, side)
        pixels = patches.reshape(groups)[:, :, :, :, :, 0]
        pixels = pixels.permute(4, 0, 2, 5, 1, 3, 6)
    else:
        rows, columns = output["spatial_shapes"][0].tolist()
        side = size.multiple
        pixels = patches[0, : rows * columns].reshape(rows, columns, side, side, 3)
        pixels = pixels.permute(4, 0, 2, 1, 3)
    return pixels.reshape(3, rows * side, columns * side)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--photos", type=int, default=100, dest="count")
    args = parser.parse_args()
    paths = sorted(path for path in args.photos.rglob("*") if path.is_file())[: args.count]
    with tempfile.TemporaryDirectory() as folder:
        with fastpipe.Writer(folder + "/data") as writer:
            for number, path in enumerate(paths):
                writer.add(path, key=str(number))
        for module, name, size in PROCESSORS:
            processor = processor_of(module, name, size)
            equal, worst = 0, 0.0
            with fastpipe.loader(folder + "/data", 1, size=size, train=False) as loader:
                for batch in loader:
                    with Image.open(paths[int(batch.ids)]) as image:
                        output = processor(image.convert("RGB"), return_tensors="pt")
                    expected = image_of(output, size)
                    (row,) = batch[0]
                    distance = float((row - expected).abs().max())
                    equal += distance == 0
                    worst = max(worst, distance)
            sys.stdout.write(
                f"{name}: {equal} of {len(paths)} equal, at most {worst:g} of 255 apart\n"
            )


if __name__ == "__main__":
    main()
