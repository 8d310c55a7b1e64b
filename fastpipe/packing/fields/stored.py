"""A checked value and the place of its picture -> an entry of KEY.json or a member -> its piece of each column."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
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
from fastpipe.packing.fields.mask import mask_of_png, refuse_other_size
from fastpipe.packing.fields.values import Boxes
from fastpipe.sources.picture.convert import EncodeOptions, Packed, convert
from fastpipe.sources.picture.jpeg import ACROSS, DOWN, SWAPPED, apply_orientation
from fastpipe.sources.picture.png import encode_png


@dataclass(frozen=True)
class Placement:
    """What became of a picture: turned by an EXIF orientation, 1: not at all; then scaled to its new size."""

    size: tuple[int, int]
    turn: int
    new_size: tuple[int, int]

    def boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, 4) x0, y0, x1, y1 in pixels of the source -> in pixels of the packed picture."""
        corners = self._move(boxes.reshape(-1, 2, 2), edge=0)
        return np.sort(corners, axis=1, kind="stable").reshape(-1, 4)  # a mirrored box has them the other way round

    def points(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, K, 3) x, y, visibility, as `boxes`; they name pixels: mirrored, 0 becomes W - 1, as in torchvision."""
        return np.concatenate([self._move(points[..., :2], edge=1), points[..., 2:]], axis=-1)

    def mask(self, mask: NDArray[Any]) -> NDArray[Any]:
        """(H, W) values, turned and scaled by nearest neighbour."""
        turned = apply_orientation(mask, self.turn)
        if turned.shape == self.new_size[::-1]:
            return turned
        # The old pixel under the middle of each new one; in whole numbers, the same on every machine.
        for axis, new in enumerate(self.new_size[::-1]):
            turned = turned.take((2 * np.arange(new, dtype=np.int64) + 1) * turned.shape[axis] // (2 * new), axis)
        return turned

    def _move(self, points: NDArray[np.float32], *, edge: int) -> NDArray[np.float32]:
        """(..., 2) x, y. `edge` is 1 where coordinates are numbers of pixels, 0 where they lie between pixels."""
        if (self.turn, self.size) == (1, self.new_size):
            return points
        moved = points.astype(np.float64)
        width, height = self.size
        if self.turn in SWAPPED:
            moved, width, height = moved[..., ::-1].copy(), height, width
        if self.turn in DOWN:
            moved[..., 1] = height - edge - moved[..., 1]
        if self.turn in ACROSS:
            moved[..., 0] = width - edge - moved[..., 0]
        moved *= np.divide(self.new_size, (width, height))
        return moved.astype(np.float32)


def store(kind: str, value: Any, packed: Packed, how: EncodeOptions) -> Stored:
    """Moves a value as the picture was moved, and lays it out. ImageError says why it does not fit the picture."""
    if value is None:
        return Stored()
    if kind in ("text", "bytes"):
        return Stored(member=value.encode() if kind == "text" else value)
    if kind not in ("mask", "image", "boxes", "keypoints"):
        return Stored(short(value) if kind == "floats" else value)
    if kind == "image":  # a second picture: packed as the first, and turned by the first one's orientation
        second = convert(value, replace(how, storage=JPEG_STORAGE), packed.orientation)
        refuse_other_size(second.source_size, packed.source_size)
        return Stored(member=second.data)
    place = Placement(packed.source_size, packed.orientation if how.apply_exif else 1, (packed.width, packed.height))
    if kind != "mask":
        return Stored(_boxes(value, place) if kind == "boxes" else short(place.points(value)))
    mask = mask_of_png(value, packed.source_size) if isinstance(value, bytes) else value
    refuse_other_size(mask.shape[::-1], packed.source_size)
    # No filter: masks repeat themselves, and deflate finds that alone.
    return Stored(member=encode_png(place.mask(mask), filters=False))


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
        record[()] = (offset, len(data), *size_of(data), bits, image_format_of(data), xxhash.xxh3_64_intdigest(data))
    return record.tobytes()
