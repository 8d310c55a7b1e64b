"""Some masks and second images of a field -> the assumptions on their values.

Masks may hold no numbers of classes, and second images may hold such numbers, or more bits than a
loader gives. A listing cannot say it by itself: masks in other formats than PNG need Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.fields import PICTURE_KINDS
from fastpipe.dataset.format.layout import MAX_SAMPLE_BYTES
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ImageError
from fastpipe.packing.fields.mask import mask_of_png
from fastpipe.packing.pipeline.given import read_file
from fastpipe.sources.files import open_binary
from fastpipe.sources.listing import Assumption, Listing, SourceField, add_assumptions
from fastpipe.sources.picture import mask_file
from fastpipe.sources.picture.open_image import open_image
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.probe import image_format

# So many pictures are read: enough to see their kind, and quick.
_NUM_CHECKED = 16
# The note of a picture that is a file; see `_RowLister._describe_file`. Other masks are drawn, or
# have numbers of objects or of segments.
_KEYS_OF_FILE = {"file", "size_bytes"}
# Masks of VOC have this number around objects, and where nobody can tell the class.
_BORDER = 255
_WHITE_16_BIT = 65535
# Such masks have few classes with small numbers. Soft masks have grey levels up to 255 at edges.
_MAX_BORDERED_CLASS = 127
_MAX_BORDERED_VALUES = 64
# Gray images with no more values than this, and no larger ones, may be masks of classes. Photos have
# many, and drawings have 127 or 128 between black and white.
_MAX_CLASSES_IN_IMAGES = 32
_MAX_CLASS_IN_IMAGES = 100
_MAX_VALUES_SHOWN = 4


class PictureValues:
    """The values of the first pictures of a field that are shown to it.

    Args:
        name: of the field.
        kind: "mask" or "image".
    """

    def __init__(self, name: str, kind: str) -> None:
        self._name = name
        self._kind = kind
        self._num_shown = 0
        # Of masks, and of gray images.
        self._values: set[int] = set()
        # Whether an image has colours, loss or many values, so that it is no mask of classes.
        self._is_photo = False
        # Whether an image has several values, so that values between them can be made up.
        self._has_edges = False
        # Of the largest value of images of 16 bits a channel; 0: there is none.
        self._deep_bits = 0

    @property
    def is_full(self) -> bool:
        """Whether enough pictures were shown."""
        return self._num_shown >= _NUM_CHECKED

    def show(self, picture: bytes | OpenedImage | NDArray[Any]) -> None:
        """Takes the values of a picture.

        Raises:
            ImageError: the picture is damaged.
        """
        self._num_shown += 1
        if isinstance(picture, np.ndarray):
            self._values |= _distinct(picture)
        elif isinstance(picture, OpenedImage):
            self._show_image(picture)
        elif self._kind == "mask":
            pixels = mask_of_png(mask_file.as_png(picture))
            self._values |= _distinct(pixels)
        else:
            name = image_format(picture)
            opened = open_image(picture, name, max_pixels=MAX_PIXELS)
            # Only a picture from a file says its form without being decoded.
            if opened.form.bits == 8 and opened.form.channels > 1:
                self._is_photo = True
                return
            self._show_image(opened)

    def _show_image(self, image: OpenedImage) -> None:
        if not image.lossless:
            self._is_photo = True
            return
        samples = image.samples()
        if samples.dtype == np.uint16:
            bits = int(samples.max()).bit_length()
            self._deep_bits = max(self._deep_bits, bits)
        if self._is_photo or samples.shape[2] > 1:
            self._is_photo = True
            return
        values = _distinct(samples)
        self._has_edges = self._has_edges or len(values) > 1
        self._values |= values
        self._is_photo = len(self._values) > _MAX_CLASSES_IN_IMAGES

    def assumptions(self) -> Iterator[Assumption]:
        """What is assumed about all pictures of the field."""
        if self._kind == "mask":
            yield from _assume_masks(self._name, self._values)
        elif self._are_classes():
            values = sorted(self._values)
            yield Assumption(
                f"field {self._name}: gray images with {len(values)} values, {_list_values(values)}. An "
                "'image' is interpolated, so that other numbers come between them. If they are ids of "
                "classes, give the field the kind 'mask'"
            )
        elif self._deep_bits:
            yield _assume_deep_images(self._name, self._deep_bits)

    def _are_classes(self) -> bool:
        """Whether images have few values, and not only black and white."""
        if self._is_photo or not self._has_edges:
            return False
        max_class = max(self._values - {_BORDER}, default=0)
        return 0 < max_class <= _MAX_CLASS_IN_IMAGES


class AddedPictures:
    """The values of masks and second images that a program adds to a Writer.

    Args:
        kinds: name -> kind of all fields.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._fields: list[PictureValues | None] = [
            PictureValues(name, kind) if kind in PICTURE_KINDS else None
            for name, kind in kinds.items()
        ]

    def show(self, values: Sequence[Any]) -> None:
        """Takes the values of a sample, one for each field."""
        for field, value in zip(self._fields, values, strict=True):
            if field is None or value is None or field.is_full:
                continue
            try:
                picture = read_file(value) if isinstance(value, str) else value
                field.show(picture)
            except (OSError, ImageError):
                continue  # the sample is rejected with the reason

    def assumptions(self) -> list[Assumption]:
        """What is assumed about the pictures of all fields."""
        assumptions: list[Assumption] = []
        for field in self._fields:
            if field is not None:
                assumptions += field.assumptions()
        return assumptions


def assume_picture_values(listing: Listing) -> Listing:
    """The listing with the assumptions on the values of its masks and second images."""
    assumptions: list[Assumption] = []
    for field in listing.fields:
        has_other_numbers = (
            field.colours or field.has_object_numbers or field.has_two_levels
        )
        if field.kind in PICTURE_KINDS and not has_other_numbers:
            assumptions += _look_at(listing, field).assumptions()
    return add_assumptions(listing, assumptions) if assumptions else listing


def _look_at(listing: Listing, field: SourceField) -> PictureValues:
    """The values of a few pictures that are files."""
    values = PictureValues(field.name, field.kind)
    step = max(1, math.ceil(len(listing.sources) / _NUM_CHECKED))
    for source in listing.sources[::step]:
        values_of_row = listing.values_of_row(source) or {}
        value = values_of_row.get(field.name)
        if not isinstance(value, dict) or value.keys() != _KEYS_OF_FILE:
            continue
        if value["size_bytes"] > MAX_SAMPLE_BYTES:
            continue
        try:
            with open_binary(listing.root / value["file"]) as file:
                data = file.read()
            values.show(data)
        except (OSError, ImageError):
            continue  # the pack reports it with the reason
    return values


def _distinct(pixels: NDArray[Any]) -> set[int]:
    """The different values of whole numbers from 0."""
    return set(np.flatnonzero(np.bincount(pixels.ravel())).tolist())


def _list_values(values: Sequence[int]) -> str:
    """Numbers in ascending order, such as "0, 3 and 7"; of many the first and the last."""
    if len(values) > _MAX_VALUES_SHOWN:
        return f"{values[0]} to {values[-1]}"
    texts = [str(value) for value in values]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _assume_deep_images(name: str, bits: int) -> Assumption:
    """That images of 16 bits are pictures, of which a loader gives 8 by default.

    `bits`: of their largest value.
    """
    looks = "" if bits == 16 else ", so they are dark"
    return Assumption(
        f"field {name}: images of 16 bits a channel, with values of up to {bits} bits (below "
        f"{1 << bits:,}). A loader divides them by 256{looks}; its option dtype=torch.uint16 keeps all "
        "bits. Measured numbers, such as a depth, are better packed as kind 'map', by a "
        "fastpipe.Writer that gets arrays: np.asarray(PIL.Image.open(path))"
    )


def _assume_masks(name: str, values: set[int]) -> Iterator[Assumption]:
    """The assumptions on a field of masks. `values`: all that some of its masks have."""
    max_class = max(values - {_BORDER}, default=0)
    are_classes = (
        max_class <= _MAX_BORDERED_CLASS and len(values) <= _MAX_BORDERED_VALUES
    )
    if _BORDER in values and max_class > 0 and not are_classes:
        yield Assumption(
            f"field {name}: the masks hold {len(values)} values up to 255, which look like "
            "grey levels (probabilities), not like numbers of classes. If they are, write numbers "
            "before packing, such as 1 where a value is over 127; if 255 is a border, give losses "
            "ignore_index=255"
        )
    elif _BORDER in values and max_class > 0:
        yield Assumption(
            f"field {name}: the masks hold 255, as VOC's have it for borders, beside numbers "
            f"up to {max_class}; give losses ignore_index=255"
        )
    # White is the largest number of 8 or of 16 bits.
    white = max(values, default=0)
    if white in (_BORDER, _WHITE_16_BIT) and values <= {0, white}:
        text = (
            f"field {name}: the masks hold the values 0 and {white}, which stay; losses that "
            "take numbers of classes expect 0 and 1. In the training loop, write masks = "
            f"(batch[{name!r}] > {white // 2}).long()"
        )
        if white == _BORDER:
            text += ". Where ignore_index=255, as it often is, a loss leaves out all objects"
        yield Assumption(text)
