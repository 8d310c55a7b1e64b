"""What a program adds to a Writer -> a sample to be converted, with copies of all that the program may change."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.layout import MAX_SAMPLE_BYTES, MOST_CLASSES, NO_LABEL
from fastpipe.packing.fields.mask import mask_of_array
from fastpipe.packing.fields.values import of_field, take
from fastpipe.sources.files import LocalFile
from fastpipe.sources.listing import START_BYTES
from fastpipe.sources.picture.pillow import OpenedImage, array_of, opened_pil, opened_pixels
from fastpipe.sources.picture.probe import image_format

_IMAGE = "expected an image as a path, bytes, a PIL image, or (H, W) or (H, W, 1 to 4 channels) of uint8 or uint16"


@dataclass(frozen=True)
class Given:
    """A sample; pictures are files, their bytes or pixels. `problem`: why it cannot be packed, if that is known."""

    name: str
    label: int
    size_bytes: int
    image: str | bytes | OpenedImage
    values: tuple[Any, ...]
    problem: str | None = None

    def read_image(self) -> bytes | OpenedImage:
        """The image's bytes or pixels; errors as of `read_file`."""
        return read_file(self.image) if isinstance(self.image, str) else self.image

    def read_values(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        """The value of each field; errors as of `read_file`."""
        for kind, value in zip(kinds.values(), self.values, strict=True):
            yield read_file(value) if kind in _PICTURES and isinstance(value, str) else value


def given(
    name: str,
    image: object,
    label: object,
    values: Mapping[str, object],
    kinds: Mapping[str, str],
    classes: Mapping[str, int] | None,
) -> Given:
    """A sample as a program gives it, checked as far as possible without reading; `classes` are labels by name."""
    try:
        picture = _picture("image", image)
        taken = tuple(_value(each, kind, values.get(each)) for each, kind in kinds.items())
        return Given(name, _label(label, classes), _size(picture), picture, taken)
    except ImageError as problem:
        return Given(name, NO_LABEL, 0, b"", (), str(problem))


def _value(name: str, kind: str, value: object) -> Any:
    with of_field(name):
        if kind not in _PICTURES:
            return take(kind, value)
        return None if value is None else _picture(kind, value)


def _picture(kind: str, value: object) -> Any:
    """A path, bytes, or pixels of its own."""
    expected, of_pil, of_array = _PICTURES[kind]
    if hasattr(value, "getbands") and hasattr(value, "tobytes"):  # of PIL, which need not be imported
        return of_pil(value)
    if isinstance(value, np.ndarray):
        return of_array(value.copy())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    raise ImageError(f"{expected}; got {type(value).__name__}")


def _pixels(pixels: NDArray[Any]) -> OpenedImage:
    samples = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if samples.ndim != 3 or samples.shape[2] > 4 or samples.dtype not in (np.uint8, np.uint16) or not samples.size:
        raise ImageError(f"{_IMAGE}; got an array of {pixels.shape} {pixels.dtype}")
    return opened_pixels(np.ascontiguousarray(samples))


_PICTURES: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "image": (_IMAGE, opened_pil, _pixels),
    "mask": (
        "expected a mask as a path, bytes of a PNG, a PIL image or (H, W) of uint8 or uint16",
        lambda image: mask_of_array(array_of(image)),
        mask_of_array,
    ),
}


def _label(label: object, classes: Mapping[str, int] | None) -> int:
    if label is None:
        return NO_LABEL
    if isinstance(label, str):
        if classes is None:
            raise ImageError(f"label {label!r}: expected a number, or pass the Writer a list of all classes (classes=)")
        if label not in classes:
            raise ImageError(f"label {label!r}: expected one of the {len(classes)} classes that the Writer got")
        return classes[label]
    most = MOST_CLASSES if classes is None else len(classes)
    try:
        number = -1 if isinstance(label, bool) else operator.index(label)  # type: ignore[arg-type]
    except TypeError:
        raise ImageError(f"label: expected a number, a class name or None, got {type(label).__name__}") from None
    if not 0 <= number < most:
        raise ImageError(f"label: expected 0 to {most - 1:,}, got {label!r}")
    return number


def _size(picture: str | bytes | OpenedImage) -> int:
    if isinstance(picture, str):
        try:
            return os.stat(picture).st_size
        except (OSError, ValueError):
            return 0  # reading it says what is wrong
    return len(picture) if isinstance(picture, bytes) else picture.samples().nbytes


def read_file(path: str) -> bytes:
    """The content of a file; ImageError: there is none, or it is no image, or too large; OSError: it cannot be read."""
    try:
        file = LocalFile(path)
    except (FileNotFoundError, NotADirectoryError, ValueError) as problem:
        raise ImageError(f"{path!r} cannot be read: {problem}") from None
    except IsADirectoryError:
        raise ImageError(f"{path!r} is a folder; expected a file") from None
    with file:
        if (size := file.state.size_bytes) > MAX_SAMPLE_BYTES:
            raise ImageError(f"{path!r} has {size:,} bytes; expected at most {MAX_SAMPLE_BYTES:,}")
        image_format(file.read_at(min(size, START_BYTES), 0))  # a film among the images need not be read
        return file.read_at(size, 0)
