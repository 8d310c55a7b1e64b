"""The crop that a loader has by default, and options that do not suit it -> warnings.

A loader with train=True takes a random part of each image, and one with train=False the centre.
Whoever passes crop= has decided it, so nothing is said then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastpipe.dataset.dataset import Dataset
from fastpipe.device.augment import Augment
from fastpipe.device.augment.contents import parts_of
from fastpipe.warnings_once import warn_once

# Modules of kornia and torchvision that crop or resize.
_CROPPING_CLASSES = frozenset(
    [
        "CenterCrop",
        "LongestMaxSize",
        "RandomCrop",
        "RandomResizedCrop",
        "RandomShortestSize",
        "Resize",
        "ScaleJitter",
        "SmallestMaxSize",
    ]
)

# The number of an image in its file of annotations.
_IMAGE_ID = "image_id"
_CROP_BOX = "crop_box"


def warn_cropped_twice(augments: Sequence[Augment | None], *, train: bool) -> None:
    """Says if a module of augment= crops or resizes what the loader has cropped by default."""
    for name in _cropping_modules(augments):
        default = "CenterCrop"
        if train:
            default = "RandomResizedCrop"
        warn_once(
            f"cropped twice {name} {train}",
            f"augment= has {name}, and the loader has cropped and resized each image before, by "
            f"fastpipe.{default}, the default of train={train}. Leave {name} out, and pass size= and "
            "crop= to the loader; or, to leave the cropping to the module, crop=fastpipe.Resize()",
        )
        return


def warn_cropped_objects(data: Dataset, names: Sequence[str]) -> None:
    """Says if an evaluation has boxes or points, and the default crop leaves some of them out.

    An evaluation by a file of annotations asks for the numbers of images, and the program has the
    boxes from there.

    `names`: of the fields that batches have.
    """
    asked = [name for name in names if name in data.fields]
    # Who asks for crop_box knows of the crop.
    if _IMAGE_ID in names and _CROP_BOX not in names:
        asked = list(data.fields)
    for name in asked:
        field = data.fields[name]
        if field.kind not in ("boxes", "keypoints"):
            continue
        warn_once(
            f"cropped objects {data.path}",
            f"train=False takes the centre of each image, by fastpipe.CenterCrop, the default, so {name} "
            "outside of it are left out, and others are cut. For whole images pass "
            "crop=fastpipe.Resize() or fastpipe.Letterbox(); to keep the centre, crop=fastpipe.CenterCrop()",
        )
        return


def _cropping_modules(augments: Sequence[Augment | None]) -> Iterator[str]:
    """The classes of modules that crop or resize."""
    for augment in augments:
        if augment is None:
            continue
        for operation in augment.all_operations:
            for part in parts_of(getattr(operation, "module", None)):
                name = type(part).__name__
                if name in _CROPPING_CLASSES and callable(part):
                    yield name
