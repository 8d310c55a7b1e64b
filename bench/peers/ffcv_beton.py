"""FFCV: a beton file written by its own writer, its random-crop decoder, its flip; variants "jpg" and "raw" store that.

The variant "small" stores raw pixels, and moves whole pictures by up to 4, as its own recipe for CIFAR does.

Its decoder takes libjpeg-turbo's fast inverse DCT, which is less exact, and resizes with OpenCV's INTER_AREA.
"""

from __future__ import annotations

import contender
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, RandomTranslate, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image


class Photos:
    """Samples as its writer wants them."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        path, label = self._files[number]
        return Image.open(path).convert("RGB"), label


def write(making: contender.Making) -> None:
    """All photos at most 500 pixels long; as JPEG they are encoded again with quality 90."""
    making.destination.mkdir(parents=True)
    image = RGBImageField(
        write_mode=making.variant.replace("small", "raw"), max_resolution=500, jpeg_quality=90
    )
    path = str(making.destination / "photos.beton")
    writer = DatasetWriter(path, {"image": image, "label": IntField()}, num_workers=making.workers)
    writer.from_indexed_dataset(Photos(contender.photo_files(making.photos)))


def read(task: contender.Task) -> contender.Loader:
    steps = [RandomResizedCropRGBImageDecoder((task.size, task.size)), RandomHorizontalFlip()]
    if task.variant == "small":
        steps = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=4)]
    return Loader(
        str(task.data / "photos.beton"),
        batch_size=task.batch_size,
        num_workers=task.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={
            "image": [*steps, ToTensor(), ToTorchImage()],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )


if __name__ == "__main__":
    contender.main(("ffcv", "numba", "torch"), read, write)
