"""A checked value and the place of its picture -> an entry of KEY.json or a member -> its piece of each column."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import size_of
from fastpipe.errors import ImageError
from fastpipe.format.columns import row_dtype
from fastpipe.format.fields import FIELD_IMAGE_DTYPE, Field, image_format_of, sidecars
from fastpipe.format.layout import JPEG_STORAGE
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.mask import mask_of_png, mask_size
from fastpipe.packing.fields.placement import (
    MOVING,
    Frame,
    Placement,
    Size,
    after,
    frame_of_file,
    turned_size,
)
from fastpipe.packing.fields.values import Boxes
from fastpipe.sources.listing import SHOWN
from fastpipe.sources.picture.convert import EncodeOptions, Packed, convert
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.png import encode_png


class FieldValues:
    """Lays out the values of one sample, moved as its picture was moved; `frame` is that of boxes, points and masks.

    Attributes:
        assumed: a value was moved by the rule of the source's format; nothing says that it is so. Note [frames]
    """

    def __init__(self, packed: Packed, how: EncodeOptions, frame: Frame) -> None:
        self.assumed = False
        self._packed, self._how, self._frame = packed, how, frame

    def store(self, kind: str, value: Any) -> Stored:
        """ImageError says why a value does not fit the picture."""
        if value is None:
            return Stored()
        if kind in ("text", "bytes"):
            return Stored(member=value.encode() if kind == "text" else value)
        if kind not in MOVING:
            return Stored(short(value) if kind == "floats" else value)
        if kind == "image":
            return Stored(member=self._second_picture(value))
        if kind == "mask":
            return Stored(member=self._mask(value))
        place = self._placement(self._frame)
        if kind == "boxes":
            return Stored(_boxes(value, place))
        return Stored(short(place.points(value)))

    def _placement(self, frame: Frame) -> Placement:
        self.assumed |= not frame.certain and self._packed.orientation != 1
        return Placement.of(frame, self._packed, self._how)

    def _mask(self, value: bytes | NDArray[Any]) -> bytes:
        if isinstance(value, bytes):
            frame = frame_of_file(mask_size(value), self._packed, self._frame)
            mask = mask_of_png(value)
        else:
            mask = value
            frame = frame_of_file((mask.shape[1], mask.shape[0]), self._packed, self._frame)
        # No filter: masks repeat themselves, and deflate finds that alone.
        return encode_png(self._placement(frame).mask(mask), filters=False)

    def _second_picture(self, value: bytes | OpenedImage) -> bytes:
        """Packed as the first one, and turned so that it lies on it."""
        first = self._packed

        def turn(size: Size, own: int) -> int:
            shown_size = turned_size(first.source_size, first.orientation)
            if (
                own != 1 and turned_size(size, own) == shown_size
            ):  # both are shown by their own EXIF
                return after(own, Placement.of(Frame(SHOWN), first, self._how).turn)
            return self._placement(frame_of_file(size, first, self._frame)).turn

        how = replace(self._how, storage=JPEG_STORAGE, apply_exif=True)
        return convert(value, how, turn).data


def short(numbers: NDArray[np.float32]) -> Any:
    """Nested lists of floats that are written with few digits, and are the same float32 when they are read."""
    flat = list(map(float, numbers.ravel().astype(str)))
    return np.array(flat).reshape(numbers.shape).tolist()


def _boxes(value: Boxes, place: Placement) -> dict[str, Any]:
    width, height = place.size
    x0, y0, x1, y1 = value.boxes.T
    wrong = (x0 < 0) | (y0 < 0) | (x1 < x0) | (y1 < y0) | (x1 > width) | (y1 > height)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ImageError(
            f"expected boxes x0, y0, x1, y1 inside the image, x0 <= x1 <= {width} and y0 <= y1 <= {height}; got "
            f"{', '.join(map(str, value.boxes[at]))} (box {at})"
        )
    found = {"boxes": short(place.boxes(value.boxes))}
    return found if value.labels is None else {**found, "labels": value.labels.tolist()}


VALUES, LENGTHS, LABELS = "values", "lengths", "labels"
_INTEGERS = np.dtype("<i8")
_BITS_AT = 24  # of a sample, in a PNG


class Column(NamedTuple):
    """A sidecar file: of which pieces it is made, VALUES, LENGTHS or LABELS; its dtype; trailing axes of a value."""

    part: str
    dtype: np.dtype[Any]
    width: tuple[int, ...] = ()


def columns(field: Field) -> tuple[Column, ...]:
    """The columns of a field, in the order of `fastpipe.format.fields.sidecars`."""
    row = row_dtype(field)
    values = Column(VALUES, row.base, row.shape)
    return (values, Column(LENGTHS, _INTEGERS), Column(LABELS, _INTEGERS))[: len(sidecars(field))]


def parts_of(kind: str) -> tuple[str, ...]:
    """Of which parts the columns of a kind are made; boxes may have labels."""
    return (VALUES, LENGTHS, LABELS)[: len(sidecars(Field("", kind, labelled=True)))]


@cache
def _dtype(kind: str) -> np.dtype[Any]:
    return row_dtype(Field("", kind, width=1)).base


def piece(kind: str, value: Stored, offset: int) -> dict[str, bytes]:
    """What a value, with a member at `offset`, adds to each part; KeyError, TypeError, ValueError: a damaged shard."""
    note, values, labels = value.note, value.member or b"", b""
    if kind == "json":
        values = json.dumps(note, ensure_ascii=False, separators=(",", ":")).encode()
    elif kind == "boxes" and note:
        note, labels = note["boxes"], np.array(note.get("labels", []), _INTEGERS).tobytes()
    length = len(values)
    if kind in ("mask", "image"):
        values, length = _record(kind, value.member, offset), 1
    elif kind not in ("text", "json", "bytes"):
        numbers = np.array([note] if kind == "int" else note or [], _dtype(kind))
        values, length = numbers.tobytes(), len(numbers)
    return {VALUES: values, LENGTHS: length.to_bytes(8, "little"), LABELS: labels}


def _record(kind: str, data: bytes | None, offset: int) -> bytes:
    record = np.zeros((), FIELD_IMAGE_DTYPE)
    if data is not None:
        bits = data[_BITS_AT] if kind == "mask" else 8
        record[()] = (
            offset,
            len(data),
            *size_of(data),
            bits,
            image_format_of(data),
            xxhash.xxh3_64_intdigest(data),
        )
    return record.tobytes()
