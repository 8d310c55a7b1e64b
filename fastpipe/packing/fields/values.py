"""The value that a program gives for a field -> a checked copy, as the field's kind has it."""

from __future__ import annotations

import contextlib
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float32s, Int64s
from fastpipe.dataset.format.array_file import encode_array
from fastpipe.dataset.format.fields import ARRAY_KINDS, MAX_PICTURES, MAX_VALUE_BYTES
from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.errors import ImageError

# Pixels that a box may end outside: annotations are rounded, often to whole pixels.
_TOLERANCE = 1.0
# The shorter side, in pixels, of an image whose boxes are surely not in pixels if they are below 1.
_LEAST_SIDE = 8
# A message shows so much of a value.
_MAX_SHOWN_ENTRIES = 8
_MAX_SHOWN_CHARACTERS = 62
_EXPECTED_POINTS = "points x, y, visibility of shape (M, K, 3)"


@contextlib.contextmanager
def naming_field(name: str) -> Iterator[None]:
    """Names the field in an ImageError about its value."""
    try:
        yield
    except ImageError as problem:
        raise ImageError(f"field {name}: {problem}") from None


@contextlib.contextmanager
def naming_picture(number: int) -> Iterator[None]:
    """Names the picture of a list in an ImageError about it."""
    try:
        yield
    except ImageError as problem:
        raise ImageError(f"image {number}: {problem}") from None


class Boxes(NamedTuple):
    """(M, 4) float32 x0, y0, x1, y1, and (M,) int64 labels, if there are any.

    Attributes:
        may_leave_image: the source has such boxes, and they are cut off at the border.
        num_cut, num_dropped: boxes that were cut or dropped as the user wants it.
    """

    boxes: Float32s
    labels: Int64s | None
    may_leave_image: bool = False
    num_cut: int = 0
    num_dropped: int = 0


def clamp_boxes(value: Boxes, width: int, height: int) -> Boxes:
    """Moves each edge that is at most a pixel outside the image to its border."""
    limits = np.array([width, height, width, height], dtype=np.float32)
    is_near_start = value.boxes >= -_TOLERANCE
    is_near_end = value.boxes <= limits + _TOLERANCE
    clipped = np.clip(value.boxes, 0, limits)
    boxes = np.where(is_near_start & is_near_end, clipped, value.boxes)
    return value._replace(boxes=boxes)


def cut_boxes(value: Boxes, width: int, height: int) -> Boxes:
    """Cuts boxes off at the border of the image. A box that lies wholly outside stays as it is."""
    limits = np.array([width, height, width, height], dtype=np.float32)
    cut = np.clip(value.boxes, 0, limits)
    x0, y0, x1, y1 = cut.T
    is_inside = (x1 > x0) & (y1 > y0)
    boxes = np.where(is_inside[:, None], cut, value.boxes)
    return value._replace(boxes=boxes)


def find_outside(value: Boxes, width: int, height: int) -> NDArray[np.bool_]:
    """(M,) whether each box does not lie inside the image, or has its edges exchanged."""
    x0, y0, x1, y1 = value.boxes.T
    is_exchanged = (x1 < x0) | (y1 < y0)
    is_before = (x0 < 0) | (y0 < 0)
    is_beyond = (x1 > width) | (y1 > height)
    is_outside: NDArray[np.bool_] = is_exchanged | is_before | is_beyond
    return is_outside


def check_boxes_are_pixels(value: Boxes, width: int, height: int) -> None:
    """Raises ImageError if boxes look like shares of the image's width and height."""
    advice = (
        "For x0, y0, x1, y1 multiply x by the width, and y by the height. For YOLO's center and "
        "size, x, y, w, h, write (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, "
        "(y + h / 2) * height"
    )
    _check_no_shares("boxes x0, y0, x1, y1", advice, value.boxes, width, height)


def check_points_are_pixels(points: Float32s, width: int, height: int) -> None:
    """The same for points, (M, K, 3). Those without visibility are often 0, 0."""
    visible = points[points[..., 2] > 0]
    advice = "Multiply x by the width, and y by the height"
    _check_no_shares("points x, y", advice, visible[:, :2], width, height)


def _check_no_shares(
    expected: str, advice: str, coordinates: Float32s, width: int, height: int
) -> None:
    """Raises ImageError if coordinates, (n, 2 or 4), are all in [0, 1], and not all whole.

    Nobody draws all boxes or points of a larger image into its first pixel. `advice` says how to
    make pixels of shares.
    """
    if min(width, height) < _LEAST_SIDE or not len(coordinates):
        return
    greatest = coordinates.max()
    is_share = coordinates.min() >= 0 and 0 < greatest <= 1
    fractions = coordinates % 1
    has_fractions = bool(fractions.any())
    if is_share and has_fractions:
        numbers = ", ".join(str(number) for number in coordinates[0])
        raise ImageError(
            f"expected {expected} in pixels of an image of {width} x {height}, got "
            f"normalised coordinates (0 to 1), {numbers}. {advice}"
        )


def describe_outside(value: Boxes, width: int, height: int) -> str:
    """The message about the first box that does not lie inside the image."""
    is_outside = find_outside(value, width, height)
    box_index = int(np.flatnonzero(is_outside)[0])
    box = value.boxes[box_index]
    numbers = ", ".join(str(number) for number in box)
    x0, y0, x1, y1 = box.tolist()
    hint = ""
    is_reversed = x1 < x0 or y1 < y0
    fits_as_size = x0 + x1 <= width and y0 + y1 <= height
    if is_reversed and fits_as_size:
        hint = ". If these are x, y, width, height, write x, y, x + width, y + height"
    return (
        f"expected boxes x0, y0, x1, y1 inside the image, x0 <= x1 <= {width} and "
        f"y0 <= y1 <= {height}; got {numbers} (box {box_index}){hint}"
    )


def parse_value(kind: str, value: object) -> Any:
    """A checked value of any kind but "mask" and "image"; None if the sample has none.

    Returns int; (k,) float32; list of int or of str; str; what json.loads gives; bytes; Boxes;
    (M, K, 3) float32; the .npy file of an array. ImageError: the value is impossible.
    """
    if value is not None:
        return _PARSERS[kind](value)
    if kind in ("int", "floats", *ARRAY_KINDS):
        raise ImageError(f"expected a value of kind {kind}, got none")
    return None


def _parse_int(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    is_flag = isinstance(value, (bool, np.bool_))
    if number is None or is_flag or not -(2**63) <= number < 2**63:
        raise ImageError(f"expected a whole number of 64 bits, got {_shown(value)}")
    return int(number)


def _parse_array(value: object, expected: str, *shape: int) -> Float32s:
    """(M, *shape), in which a length of 0 may be any length but 0; M may be 0.

    `expected` says for a message what the value should be.
    """
    try:
        with np.errstate(over="ignore"):
            # Such numbers become infinite, and are refused below.
            array = np.array(value)
            if array.size and array.dtype.kind not in "iuf":
                raise ValueError
            numbers = array.astype(np.float32)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        # A torch tensor that needs its gradient raises RuntimeError.
        raise ImageError(f"expected {expected}, got {_shown(value)}") from None
    if not np.isfinite(numbers).all():
        raise ImageError(
            f"expected {expected}, each finite as a float32, got {_shown(value)}"
        )

    if numbers.ndim and not len(numbers):
        return numbers.reshape(0, *shape)
    num_axes = 1 + len(shape)
    fits = numbers.size > 0 and numbers.ndim == num_axes
    if fits:
        for length, actual_length in zip(shape, numbers.shape[1:], strict=True):
            fits = fits and length in (0, actual_length)
    if not fits:
        raise ImageError(f"expected {expected}, got an array of shape {numbers.shape}")
    return numbers


def _parse_floats(value: object) -> Float32s:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ImageError(f"expected a list of numbers, got {value}; pass [{value}]")
    numbers = _parse_array(value, "a list of numbers")
    if not len(numbers):
        raise ImageError("expected a list of one or more numbers, got none")
    return numbers


def _parse_classes(value: Any) -> list[int] | list[str]:
    entries = None
    if not isinstance(value, (str, bytes, Mapping)):
        with contextlib.suppress(TypeError):  # it cannot be iterated
            entries = list(value)
    if entries is None:
        raise ImageError(
            f"expected a list of class numbers or class names, got {_shown(value)}"
        )
    if all(isinstance(entry, str) for entry in entries):
        for name in entries:
            _check_utf8(name)
    else:
        _check_no_flags(entries)
        entries = [_parse_int(entry) for entry in entries]
        for number in entries:
            if not 0 <= number < MAX_CLASSES:
                raise ImageError(
                    f"expected class numbers of 0 to {MAX_CLASSES - 1:,}, got {number}"
                )
    if len(set(entries)) != len(entries):
        raise ImageError(f"expected each class once, got {_shown(entries)}")
    # A set of texts has another order in each run of Python.
    if isinstance(value, (set, frozenset)):
        entries.sort()
    return entries


def is_zero_and_one(value: Any) -> bool:
    """Whether a value of kind "classes" has the numbers 0 and 1, and no others."""
    try:
        return len(value) == 2 and sorted(int(entry) for entry in value) == [0, 1]
    except (TypeError, ValueError):  # no list of numbers
        return False


def _check_no_flags(entries: list[Any]) -> None:
    """Raises ImageError if entries are a zero or a one for each class.

    Two whole numbers, 0 and 1, may be classes: `add` of a Writer looks at all samples.
    """
    if len(entries) < 2:
        return
    for entry in entries:
        if getattr(entry, "ndim", 0) or entry not in (0, 1):
            return
    numbers = [float(entry) for entry in entries]
    are_whole = all(hasattr(entry, "__index__") for entry in entries)
    are_flags = any(isinstance(entry, (bool, np.bool_)) for entry in entries)
    if are_whole and not are_flags and len(set(numbers)) == len(numbers):
        return
    classes = [number for number, flag in enumerate(numbers) if flag]
    raise ImageError(
        f"expected each class once, as a list of the numbers of the sample's classes, got "
        f"{_shown(entries)}; if that is a zero or a one for each class, pass {_shown(classes)}"
    )


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ImageError(
            f"expected a text (str), got {_shown(value)}{_advise_text(value)}"
        )
    _check_utf8(value)
    return value


def _advise_text(value: object) -> str:
    """The end of a message about a value that is no text: what to write, or nothing."""
    if isinstance(value, (list, tuple)) and all(
        isinstance(text, str) for text in value
    ):
        return (
            ". Several texts of a sample are a field of kind json; fastpipe.Text(name) in fields= of "
            "a loader draws one of them in each epoch"
        )
    if isinstance(value, bytes):
        return "; pass value.decode()"
    if isinstance(value, os.PathLike):
        return "; pass the text of the file, path.read_text()"
    return ""


def _check_utf8(text: str) -> None:
    try:
        check_value_size(len(text.encode()), MAX_VALUE_BYTES)
    except UnicodeEncodeError:
        raise ImageError(
            f"expected text that can be UTF-8, got {_shown(text)}"
        ) from None


def _parse_json(value: object) -> Any:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as problem:
        raise ImageError(
            f"expected a value that JSON can hold ({problem}), got {_shown(value)}"
        ) from None
    _check_utf8(text)
    return json.loads(text)


def _parse_bytes(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ImageError(f"expected bytes, got {_shown(value)}")
    check_value_size(memoryview(value).nbytes, MAX_VALUE_BYTES)
    return bytes(value)


def _parse_boxes(value: Any) -> Boxes:
    labels: Any = None
    if isinstance(value, Mapping):
        if not {"boxes"} <= value.keys() <= {"boxes", "labels"}:
            entries = ", ".join(sorted(str(name) for name in value))
            raise ImageError(f"expected boxes and labels in the dict, got {entries}")
        labels = value.get("labels")
        value = value["boxes"]
    boxes = _parse_array(value, "boxes x0, y0, x1, y1 of shape (M, 4)", 4)
    if labels is None:
        return Boxes(boxes, None)
    try:
        numbers = [_parse_int(label) for label in labels]
    except TypeError:
        raise ImageError(f"expected a list of labels, got {_shown(labels)}") from None
    if len(numbers) != len(boxes):
        raise ImageError(
            f"expected a label for each of {len(boxes)} boxes, got {len(numbers)}"
        )
    return Boxes(boxes, np.array(numbers, dtype=np.int64))


def _describe_points(value: Any) -> str:
    """What the axes of keypoints are, and how a list of COCO gets them; "" if that is no help."""
    axes = ". M is the number of objects, K that of points of each"
    with contextlib.suppress(ValueError, TypeError, RuntimeError):
        shape = np.shape(value)
        # One object, or a row for each: K points as 3 K numbers.
        if 1 <= len(shape) <= 2 and shape[-1] % 3 == 0:
            return f"{axes}. With K points, COCO's flat lists become this by np.reshape(points, (-1, K, 3))"
        if len(shape) == 0:
            return ""
        # Else the numbers are at fault, not the shape.
        if len(shape) != 3 or shape[-1] != 3:
            return axes
    return ""


def _parse_keypoints(value: object) -> Float32s:
    try:
        points = _parse_array(value, _EXPECTED_POINTS, 0, 3)
    except ImageError as problem:
        raise ImageError(f"{problem}{_describe_points(value)}") from None
    visibilities = points[..., 2]
    if (visibilities < 0).any():
        raise ImageError(
            f"expected a visibility of 0 or more, got {visibilities.min()}"
        )
    return points


def _parse_file_of_array(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _parse_bytes(value)  # of a .npy file, which is read when it is stored
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        array = _array_of_tensor(value)
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    elif isinstance(value, list):
        array = _array_of_list(value)
    else:
        raise ImageError(
            "expected a numpy array, a torch tensor, lists of numbers, or the path of a .npy file, "
            f"got {_shown(value)}"
        )
    check_value_size(array.nbytes, MAX_VALUE_BYTES)
    try:
        return encode_array(array)
    except ValueError as problem:
        raise ImageError(
            f"an array of {array.shape} {array.dtype}: {problem}"
        ) from None


def _array_of_list(numbers: list[Any]) -> NDArray[Any]:
    """int64 or float32, as tables have numbers without a dtype."""
    try:
        array = np.array(numbers)
    except (ValueError, OverflowError):
        array = np.array("")  # lists of different lengths, or a number beyond 64 bits
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype != np.int64:
        raise ImageError(
            f"expected lists of numbers, of one length on each axis, got {_shown(numbers)}"
        )
    return array


def _array_of_tensor(tensor: Any) -> NDArray[Any]:
    """The values of a torch tensor; of bfloat16, which numpy does not have, its bytes."""
    values = tensor.detach().cpu().contiguous()
    if str(values.dtype) != "torch.bfloat16":
        try:
            return np.asarray(values.numpy())
        except TypeError as problem:  # numpy has no such dtype
            raise ImageError(str(problem)) from None
    import torch  # the program has imported it

    bits: NDArray[Any] = values.view(torch.int16).numpy()
    return bits.view("V2")


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "int": _parse_int,
    "floats": _parse_floats,
    "classes": _parse_classes,
    "text": _parse_text,
    "json": _parse_json,
    "bytes": _parse_bytes,
    "boxes": _parse_boxes,
    "keypoints": _parse_keypoints,
    "array": _parse_file_of_array,
    "map": _parse_file_of_array,
}


def check_picture_count(count: int) -> None:
    """Raises ImageError if a list has too many pictures."""
    if count > MAX_PICTURES:
        raise ImageError(f"expected at most {MAX_PICTURES:,} images, got {count:,}")


def check_value_size(size_bytes: int, most: int) -> None:
    """Raises ImageError if a value has more than `most` bytes."""
    if size_bytes > most:
        raise ImageError(f"expected at most {most:,} bytes, got {size_bytes:,}")


def _shown(value: object) -> str:
    """A value of any type in a few characters."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.shape} {value.dtype}"
    if isinstance(value, (list, tuple)) and len(value) > _MAX_SHOWN_ENTRIES:
        return f"a {type(value).__name__} of {len(value)}"
    text = type(value).__name__
    # The text of an int may have too many digits for Python, and a list may be nested too deep.
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value, (str, bytes, bytearray)):
            text = ascii(value[: _MAX_SHOWN_CHARACTERS - 1])
        elif isinstance(value, (int, float, list, tuple)):
            text = ascii(value)
    if len(text) > _MAX_SHOWN_CHARACTERS:
        return text[: _MAX_SHOWN_CHARACTERS - 2] + "..."
    return text
