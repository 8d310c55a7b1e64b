"""A sample that a program adds to a Writer -> a copy to convert, checked."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.format.fields import ARRAY_KINDS, FILE_KINDS, MAX_VALUE_BYTES
from fastpipe.dataset.format.layout import MAX_CLASSES, MAX_SAMPLE_BYTES, NO_LABEL
from fastpipe.errors import ImageError, did_you_mean, first_names, format_count
from fastpipe.packing.fields.mask import mask_of_array
from fastpipe.packing.fields.values import (
    check_picture_count,
    naming_field,
    naming_picture,
    parse_value,
)
from fastpipe.sources.files import LocalFile
from fastpipe.sources.picture.pillow import (
    OpenedImage,
    copy_array,
    open_pil,
    open_pixels,
)
from fastpipe.sources.picture.probe import image_format
from fastpipe.sources.source_bytes import START_BYTES

_EXPECTED_IMAGE = (
    "expected an image as a path, bytes, a PIL image, or (H, W) or (H, W, 1 to 4 channels) of "
    "uint8 or uint16"
)
_MAX_CLASSES_SHOWN = 5
_EXPECTED_MASK = "expected a mask as a path, bytes of a PNG, a PIL image or (H, W) of uint8 or uint16"


class NoImage:
    """In place of the image of a sample that has fields only. None is no such thing: a program that
    has failed to read an image often has None.
    """

    def __repr__(self) -> str:
        return "no image"


NO_IMAGE = NoImage()


@dataclass(frozen=True)
class Given:
    """A sample of a program.

    Attributes:
        name: its key.
        label: its label.
        size_bytes: of its image, as far as it is known.
        image: path, bytes or pixels of the image; None: the sample has none.
        values: the value of each field. Masks and images are paths, bytes or pixels.
        problem: why it cannot be packed, if that is known already.
    """

    name: str
    label: int
    size_bytes: int
    image: str | bytes | OpenedImage | None
    values: tuple[Any, ...]
    problem: str | None = None

    @property
    def total_bytes(self) -> int:
        """The size of its image and of the values of its fields, as far as it is known."""
        total = self.size_bytes
        for value in self.values:
            parts = value if isinstance(value, list) else [value]
            for part in parts:
                if isinstance(part, (bytes, OpenedImage)):
                    total += _size_of(part)
        return total

    def read_image(self) -> bytes | OpenedImage | None:
        """The bytes or pixels of the image; errors as of `read_file`."""
        if isinstance(self.image, str):
            return read_file(self.image)
        return self.image

    def read_values(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        """The value of each field; errors as of `read_file`."""
        for kind, value in zip(kinds.values(), self.values, strict=True):
            if kind == "images" and value is not None:
                yield [
                    read_file(picture) if isinstance(picture, str) else picture
                    for picture in value
                ]
            elif not isinstance(value, str) or kind not in FILE_KINDS:
                yield value
            elif kind in ARRAY_KINDS:
                yield read_array_file(value)
            else:
                yield read_file(value)


def parse_given(
    name: str,
    image: object,
    label: object,
    values: Mapping[str, object],
    kinds: Mapping[str, str],
    classes: Mapping[str, int] | None,
) -> Given:
    """A sample as a program gives it, checked as far as possible without reading a file.

    `classes` has the labels by the class names; None: the program has given no names.
    """
    try:
        picture = None
        if image is not NO_IMAGE:
            picture = _copy_picture("image", image)
        elif not values:
            raise ImageError("expected an image, or values of fields; got neither")
        field_values = tuple(
            _parse_value(field, kind, values.get(field))
            for field, kind in kinds.items()
        )
        return Given(
            name, _parse_label(label, classes), _size_of(picture), picture, field_values
        )
    except ImageError as problem:
        return Given(name, NO_LABEL, 0, b"", (), str(problem))


def _parse_value(field: str, kind: str, value: object) -> Any:
    with naming_field(field):
        if kind in ARRAY_KINDS and isinstance(value, (str, os.PathLike)):
            return os.fsdecode(value)
        if kind == "images":
            return _copy_pictures(value)
        if kind not in _PICTURE_KINDS:
            return parse_value(kind, value)
        if value is None:
            return None
        return _copy_picture(kind, value)


def _copy_pictures(values: object) -> list[Any] | None:
    """Copies of the pictures of a list, each as of `_copy_picture`."""
    if values is None:
        return None
    if not isinstance(values, (list, tuple)):
        raise ImageError(
            "expected a list of images, each a path, bytes, a PIL image or an array; got "
            f"{type(values).__name__}"
        )
    check_picture_count(len(values))
    pictures = []
    for number, value in enumerate(values):
        with naming_picture(number):
            pictures.append(_copy_picture("image", value))
    return pictures


def _copy_picture(kind: str, value: object) -> Any:
    """A path, bytes, or pixels that the program cannot change any more."""
    picture_kind = _PICTURE_KINDS[kind]
    # A PIL image is known by its methods, so that PIL need not be imported.
    if hasattr(value, "getbands") and hasattr(value, "tobytes"):
        return picture_kind.from_pil(value)
    if isinstance(value, np.ndarray):
        return picture_kind.from_array(value.copy())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    hint = ""
    if value is None:
        hint = ". For a sample that has fields only, leave image out"
    elif isinstance(value, (list, tuple)):
        hint = '. For a list of images give the field the kind "images"'
    elif hasattr(value, "permute"):
        hint = f". Pass the path of the file, which stays as it is; or {_advise_tensor(value)}"
    raise ImageError(f"{picture_kind.expected}; got {type(value).__name__}{hint}")


def _advise_tensor(tensor: Any) -> str:
    """How a torch tensor becomes pixels; torch need not be imported."""
    conversion = "tensor"
    if tensor.is_floating_point():
        conversion += ".mul(255).byte()"
    is_planes = tensor.ndim == 3 and tensor.shape[0] <= 4
    if is_planes:
        conversion += ".permute(1, 2, 0)"
    return f"{conversion}.numpy()"


def _image_from_array(pixels: NDArray[Any]) -> OpenedImage:
    # (H, W, C)
    samples = pixels
    if pixels.ndim == 2:
        samples = pixels[:, :, None]
    has_channels = samples.ndim == 3 and samples.shape[2] <= 4
    has_shape = has_channels and samples.size > 0
    if not has_shape or samples.dtype not in (np.uint8, np.uint16):
        raise ImageError(
            f"{_EXPECTED_IMAGE}; got an array of {pixels.shape} {pixels.dtype}"
            f"{_advise_conversion(pixels)}"
        )
    return open_pixels(np.ascontiguousarray(samples))


def _advise_conversion(pixels: NDArray[Any]) -> str:
    """The end of a message about an array that is no image: how it becomes one, if that is known."""
    conversion = "array"
    is_planes = pixels.ndim == 3 and pixels.shape[0] <= 4 < pixels.shape[2]
    if is_planes:
        conversion += ".transpose(1, 2, 0)"
    if pixels.dtype.kind == "f" and pixels.size:
        is_unit = pixels.min() >= 0 and pixels.max() <= 1
        if is_unit:
            conversion = f"({conversion} * 255)"
        conversion += ".round().astype(np.uint8)"
    return "" if conversion == "array" else f". Pass {conversion}"


def _mask_from_pil(image: Any) -> NDArray[Any]:
    return mask_of_array(copy_array(image))


class _PictureKind(NamedTuple):
    """How values of a kind that are pictures are read from objects of Python."""

    expected: str
    from_pil: Callable[[Any], Any]
    from_array: Callable[[Any], Any]


_PICTURE_KINDS = {
    "image": _PictureKind(_EXPECTED_IMAGE, open_pil, _image_from_array),
    "mask": _PictureKind(_EXPECTED_MASK, _mask_from_pil, mask_of_array),
}


def _parse_label(label: object, classes: Mapping[str, int] | None) -> int:
    if label is None:
        return NO_LABEL
    if isinstance(label, str):
        if classes is None:
            raise ImageError(
                f"label {label!r}: expected a number, or pass the Writer a list of all classes "
                "(classes=)"
            )
        if label not in classes:
            raise ImageError(
                f"label {label!r}: expected one of the {format_count(len(classes), 'class')} that "
                f"the Writer got: {first_names(list(classes), _MAX_CLASSES_SHOWN)}"
                f"{did_you_mean(label, classes)}"
            )
        return classes[label]

    class_count = MAX_CLASSES if classes is None else len(classes)
    try:
        number = operator.index(label)  # type: ignore[arg-type]
    except TypeError:
        raise ImageError(
            f"label: expected a whole number, a class name or None, got {type(label).__name__}"
        ) from None
    # True and False are numbers in Python, but hardly meant as labels.
    if isinstance(label, bool) or not 0 <= number < class_count:
        given = label if isinstance(label, bool) else number
        if classes is None:
            raise ImageError(f"label {given}: expected 0 to {class_count - 1:,}")
        raise ImageError(_describe_wrong_label(given, class_count))
    return number


def _describe_wrong_label(label: int, class_count: int) -> str:
    """Says that a number is no label of so many classes."""
    if class_count == 1:
        return f"label {label}: there is 1 class, so the only label is 0"
    return f"label {label}: there are {class_count:,} classes, so labels are 0 to {class_count - 1:,}"


def is_behind_last(label: object, class_count: int) -> bool:
    """Whether a label is the number behind the last class, which it is if labels count from 1."""
    if isinstance(label, (str, bool)):
        return False
    try:
        return operator.index(label) == class_count  # type: ignore[arg-type]
    except TypeError:
        return False  # no number


def _size_of(picture: str | bytes | OpenedImage | None) -> int:
    if picture is None:
        return 0
    if isinstance(picture, bytes):
        return len(picture)
    if isinstance(picture, str):
        try:
            return os.stat(picture).st_size
        except (OSError, ValueError):
            return 0  # the error of reading it will say what is wrong
    return picture.samples().nbytes


def read_file(path: str) -> bytes:
    """The content of a file. ImageError: it is missing, too large or no image."""
    with _open(path, MAX_SAMPLE_BYTES) as file:
        size_bytes = file.state.size_bytes
        # A film among the photos is refused without reading all of it.
        image_format(file.read_at(min(size_bytes, START_BYTES), 0))
        return file.read_at(size_bytes, 0)


def read_array_file(path: str) -> bytes:
    """The content of the file of an array. ImageError: it is missing or too large."""
    with _open(path, MAX_VALUE_BYTES) as file:
        return file.read_at(file.state.size_bytes, 0)


def _open(path: str, max_bytes: int) -> LocalFile:
    try:
        file = LocalFile(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ImageError(f"{path!r} does not exist") from None
    except ValueError as problem:
        raise ImageError(f"{path!r} cannot be read: {problem}") from None
    except IsADirectoryError:
        raise ImageError(f"{path!r} is a folder; expected a file") from None
    size_bytes = file.state.size_bytes
    if size_bytes > max_bytes:
        file.close()
        raise ImageError(
            f"{path!r} has {size_bytes:,} bytes; expected at most {max_bytes:,}"
        )
    return file
