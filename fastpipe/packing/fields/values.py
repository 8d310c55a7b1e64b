"""What a program gives for a field -> a value of the field's kind, checked, and a copy of its own."""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.format.fields import MOST_VALUE_BYTES
from fastpipe.format.layout import MOST_CLASSES

_TOLERANCE = (
    1.0  # pixels that a box may end outside: annotations are rounded, often to whole pixels
)


@contextlib.contextmanager
def of_field(name: str) -> Iterator[None]:
    """Names the field whose value cannot be."""
    try:
        yield
    except ImageError as problem:
        raise ImageError(f"field {name}: {problem}") from None


class Boxes(NamedTuple):
    """(M, 4) float32 x0, y0, x1, y1, and (M,) int64 labels, if there are any."""

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64] | None


def clamped(value: Boxes, width: int, height: int) -> Boxes:
    """Boxes with each edge that is at most a pixel outside the image moved to its border; all others as they are."""
    most = np.array([width, height, width, height], dtype=np.float32)
    near = (value.boxes >= -_TOLERANCE) & (value.boxes <= most + _TOLERANCE)
    return value._replace(boxes=np.where(near, np.clip(value.boxes, 0, most), value.boxes))


def take(kind: str, value: object) -> Any:
    """Checks a value of any kind but "mask" and "image"; None where the sample has none. ImageError: it cannot be.

    Gives int; (k,) float32; list of int or of str; str; what json.loads gives; bytes; Boxes; (M, K, 3) float32.
    """
    if value is not None:
        return _TAKE[kind](value)
    if kind in ("int", "floats"):
        raise ImageError(f"expected a value of kind {kind}, got none")
    return None


def _int(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or not -(2**63) <= number < 2**63:
        raise ImageError(f"expected a whole number of 64 bits, got {_shown(value)}")
    return int(number)


def _numbers(value: object, expected: str, *shape: int) -> NDArray[np.float32]:
    """(M, *shape), where 0 stands for any length; M may be 0, and nothing else."""
    try:
        with np.errstate(over="ignore"):
            array = np.array(value)
            if array.size and array.dtype.kind not in "iuf":
                raise ValueError
            numbers = array.astype(np.float32)
    except (
        ValueError,
        TypeError,
        OverflowError,
        RuntimeError,
    ):  # the last of a tensor that needs its gradient
        raise ImageError(f"expected {expected}, got {_shown(value)}") from None
    if not np.isfinite(numbers).all():
        raise ImageError(f"expected {expected}, each finite as a float32, got {_shown(value)}")
    if numbers.ndim and not len(numbers):
        return numbers.reshape(0, *shape)
    fits = numbers.size and numbers.ndim == 1 + len(shape)
    if not fits or any(
        length not in (0, found) for length, found in zip(shape, numbers.shape[1:], strict=True)
    ):
        raise ImageError(f"expected {expected}, got an array of shape {numbers.shape}")
    return numbers


def _floats(value: object) -> NDArray[np.float32]:
    numbers = _numbers(value, "a list of numbers")
    if not len(numbers):
        raise ImageError("expected a list of one or more numbers, got none")
    return numbers


def _classes(value: Any) -> list[int] | list[str]:
    found = None
    with contextlib.suppress(TypeError):
        found = None if isinstance(value, (str, bytes, Mapping)) else list(value)
    if found is None:
        raise ImageError(f"expected a list of class numbers or class names, got {_shown(value)}")
    if all(isinstance(each, str) for each in found):
        for name in found:
            _check_utf8(name)
    else:
        found = [_int(each) for each in found]
        if wrong := [number for number in found if not 0 <= number < MOST_CLASSES]:
            raise ImageError(f"expected class numbers of 0 to {MOST_CLASSES - 1:,}, got {wrong[0]}")
    if len(set(found)) != len(found):
        raise ImageError(f"expected each class once, got {_shown(found)}")
    return (
        sorted(found) if isinstance(value, (set, frozenset)) else found
    )  # a set of texts has another order each run


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ImageError(f"expected a text (str), got {_shown(value)}")
    _check_utf8(value)
    return value


def _check_utf8(text: str) -> None:
    try:
        check_value_size(len(text.encode()), MOST_VALUE_BYTES)
    except UnicodeEncodeError:
        raise ImageError(f"expected text that can be UTF-8, got {_shown(text)}") from None


def _json(value: object) -> Any:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as problem:
        raise ImageError(
            f"expected a value that JSON can hold ({problem}), got {_shown(value)}"
        ) from None
    _check_utf8(text)
    return json.loads(text)


def _bytes(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ImageError(f"expected bytes, got {_shown(value)}")
    check_value_size(memoryview(value).nbytes, MOST_VALUE_BYTES)
    return bytes(value)


def _boxes(value: Any) -> Boxes:
    labels: Any = None
    if isinstance(value, Mapping):
        if not {"boxes"} <= value.keys() <= {"boxes", "labels"}:
            raise ImageError(
                f"expected boxes and labels in the dict, got {', '.join(sorted(map(str, value)))}"
            )
        value, labels = value["boxes"], value.get("labels")
    boxes = _numbers(value, "boxes x0, y0, x1, y1 of shape (M, 4)", 4)
    if labels is None:
        return Boxes(boxes, None)
    try:
        numbers = [_int(each) for each in labels]
    except TypeError:
        raise ImageError(f"expected a list of labels, got {_shown(labels)}") from None
    if len(numbers) != len(boxes):
        raise ImageError(f"expected a label for each of {len(boxes)} boxes, got {len(numbers)}")
    return Boxes(boxes, np.array(numbers, dtype=np.int64))


def _keypoints(value: object) -> NDArray[np.float32]:
    points = _numbers(value, "points x, y, visibility of shape (M, K, 3)", 0, 3)
    if (points[..., 2] < 0).any():
        raise ImageError(f"expected a visibility of 0 or more, got {points[..., 2].min()}")
    return points


_TAKE: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "floats": _floats,
    "classes": _classes,
    "text": _text,
    "json": _json,
    "bytes": _bytes,
    "boxes": _boxes,
    "keypoints": _keypoints,
}


def check_value_size(size_bytes: int, most: int) -> None:
    """Raises ImageError if a value has more bytes."""
    if size_bytes > most:
        raise ImageError(f"expected at most {most:,} bytes, got {size_bytes:,}")


def _shown(value: object) -> str:
    """A value in a few characters, whatever it is."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.shape} {value.dtype}"
    if isinstance(value, (list, tuple)) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    words = type(value).__name__
    with contextlib.suppress(ValueError, RecursionError):  # too many digits, or too deep
        if isinstance(value, (str, bytes, bytearray)):
            words = ascii(value[:61])
        elif isinstance(value, (int, float, list, tuple)):
            words = ascii(value)
    return words if len(words) <= 62 else words[:60] + "..."
