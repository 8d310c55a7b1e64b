"""A checked value and its picture -> an entry of KEY.json or a member -> pieces of columns."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.arrays import Float32s
from fastpipe.dataset.format.array_file import (
    encode_array,
    normalise_array_file,
    read_array_header,
)
from fastpipe.dataset.format.columns import row_dtype
from fastpipe.dataset.format.fields import (
    ARRAY_KINDS,
    FIELD_IMAGE_DTYPE,
    PICTURE_KINDS,
    SPATIAL_KINDS,
    Field,
    array_record_dtype,
    image_format_of,
    sidecars,
)
from fastpipe.dataset.format.layout import JPEG_STORAGE
from fastpipe.dataset.format.map_file import check_map, may_be_directions
from fastpipe.dataset.format.sample_layout import Stored
from fastpipe.engine.pictures import size_of
from fastpipe.errors import ImageError
from fastpipe.packing.fields.mask import mask_of_png, mask_size
from fastpipe.packing.fields.placement import (
    Frame,
    Placement,
    Size,
    combine_orientations,
    frame_of_file,
    frame_of_map,
    turned_size,
)
from fastpipe.packing.fields.values import (
    Boxes,
    check_boxes_are_pixels,
    check_picture_count,
    check_points_are_pixels,
    describe_outside,
    find_outside,
    naming_picture,
)
from fastpipe.sources.listing import SHOWN
from fastpipe.sources.picture.convert import EncodeOptions, Packed, convert
from fastpipe.sources.picture.jpeg import SWAPPED, turn_upright
from fastpipe.sources.picture.pillow import OpenedImage
from fastpipe.sources.picture.png import encode_png


class FieldValues:
    """Lays out the values of one sample, moved as its picture was moved.

    Args:
        packed: the picture.
        encode: how the picture was packed.
        frame: of boxes, points and masks.

    Attributes:
        assumed: a value was moved by the rule of the source's format, and nothing says that the
            rule is right for it. Note [frames]
        assumed_stored: the same of a value that stays of the picture as stored, as the size in the
            annotations says, and would fit the picture as shown, too.
    """

    def __init__(self, packed: Packed, encode: EncodeOptions, frame: Frame) -> None:
        self.assumed = False
        self.assumed_stored = False
        self._packed = packed
        self._encode = encode
        self._frame = frame

    def store(self, kind: str, value: Any) -> Stored:
        """A value as a shard has it. ImageError: it does not fit the picture."""
        if value is None:
            if kind in ARRAY_KINDS:
                raise ImageError("expected an array, got none")
            return Stored()
        if kind == "text":
            return Stored(members=(value.encode(),))
        if kind == "bytes":
            return Stored(members=(value,))
        if kind == "floats":
            return Stored(shortest_floats(value))
        if kind == "array":
            return Stored(members=(_array_member(value),))
        if kind == "images":
            return Stored(members=self._pictures(value))
        if kind not in SPATIAL_KINDS:
            return Stored(value)
        if not self._packed.data:
            raise ImageError(
                f"a field of kind {kind} lies on the image of its sample, which has none; "
                "expected an image"
            )
        if kind == "image":
            return Stored(members=(self._second_picture(value),))
        if kind == "mask":
            return Stored(members=(self._mask(value),))
        if kind == "map":
            return Stored(members=(self._map(value),))
        placement = self._placement(self._frame)
        self.assumed_stored |= self._fits_as_shown(kind, value)
        if kind == "boxes":
            return Stored(_place_boxes(value, placement))
        check_points_are_pixels(value, *placement.size)
        points = placement.points(value, has_shares=self._frame.has_shares)
        return Stored(shortest_floats(points))

    def _placement(self, frame: Frame) -> Placement:
        self.assumed |= not frame.certain and self._packed.orientation != 1
        return Placement.of(frame, self._packed, self._encode)

    def _fits_as_shown(self, kind: str, value: Any) -> bool:
        """Whether values that are stored by the size alone could be of the picture as shown."""
        packed = self._packed
        if not self._frame.is_by_size or packed.orientation not in SWAPPED:
            return False
        if kind != "boxes":
            return bool(value.size)
        shown_size = turned_size(packed.source_size, packed.orientation)
        return len(value.boxes) > 0 and not find_outside(value, *shown_size).any()

    def _mask(self, value: bytes | NDArray[Any]) -> bytes:
        """The PNG of a mask, which comes as a PNG, or as (H, W) uint8 or uint16."""
        if isinstance(value, bytes):
            size = mask_size(value)
        else:
            height, width = value.shape
            size = (width, height)
        frame = frame_of_file(size, self._packed, self._frame)
        # A PNG of a wrong size is refused before it is decoded.
        ids = mask_of_png(value) if isinstance(value, bytes) else value
        placed = self._placement(frame).mask(ids)
        # No filter: masks repeat themselves, and deflate finds that without one.
        return encode_png(placed, filters=False)

    def _map(self, value: bytes) -> bytes:
        """The file of a map, turned as the image was."""
        data = _array_member(value)
        header = read_array_header(data)
        check_map(header)
        height, width = header.shape[:2]
        frame = frame_of_map((width, height), self._packed, self._frame)
        turn = self._placement(frame).turn
        if turn == 1:
            return data
        if may_be_directions(header.dtype, header.shape):
            raise ImageError(
                f"EXIF turns the image, and a map of {header.shape[2]} channels of "
                f"{header.dtype} may have directions, which would have to turn with it. Turn "
                "both by a program of your own, and remove the orientation from the EXIF"
            )
        array = np.load(io.BytesIO(data), allow_pickle=False)
        return encode_array(turn_upright(array, turn))

    def _pictures(self, values: Sequence[bytes | OpenedImage]) -> tuple[bytes, ...]:
        """The bytes of pictures of their own sizes, each turned by its own EXIF, as the first one."""
        check_picture_count(len(values))
        options = replace(self._encode, storage=JPEG_STORAGE)
        pictures = []
        for number, value in enumerate(values):
            with naming_picture(number):
                packed = convert(value, options, may_be_tiled=False)
            pictures.append(packed.data)
        return tuple(pictures)

    def _second_picture(self, value: bytes | OpenedImage) -> bytes:
        """The bytes of another picture of the sample, turned so that it lies on the first one."""
        first = self._packed

        def turn(size: Size, orientation: int) -> int:
            shown_size = turned_size(first.source_size, first.orientation)
            if orientation != 1 and turned_size(size, orientation) == shown_size:
                # Each of the two pictures is shown by its own EXIF. So the second one is turned to
                # how it is shown, and then as the first one was turned from there.
                shown_placement = Placement.of(Frame(SHOWN), first, self._encode)
                from_shown = shown_placement.turn
                return combine_orientations(orientation, from_shown)
            frame = frame_of_file(size, first, self._frame)
            return self._placement(frame).turn

        options = replace(self._encode, storage=JPEG_STORAGE, apply_exif=True)
        return convert(value, options, turn, may_be_tiled=False).data


def _array_member(data: bytes) -> bytes:
    """The file of an array as a shard has it."""
    try:
        return normalise_array_file(data)
    except ValueError as problem:
        raise ImageError(f"expected an array as a .npy file: {problem}") from None


def shortest_floats(numbers: Float32s) -> Any:
    """Nested lists of floats with few digits that are the same float32 when they are read."""
    # The text of a float32 has as many digits as tell it from its neighbours. As a float64 it is
    # written with the same digits.
    texts = numbers.ravel().astype(str)
    flat = np.array([float(text) for text in texts])
    return flat.reshape(numbers.shape).tolist()


def _place_boxes(value: Boxes, placement: Placement) -> dict[str, Any]:
    """Boxes as KEY.json has them. ImageError: a box lies outside its picture."""
    width, height = placement.size
    check_boxes_are_pixels(value, width, height)
    if find_outside(value, width, height).any():
        raise ImageError(describe_outside(value, width, height))
    boxes = placement.boxes(value.boxes)
    note = {"boxes": shortest_floats(boxes)}
    if value.labels is not None:
        note["labels"] = value.labels.tolist()
    return note


# The parts of which columns are made.
VALUES = "values"
# How many values each sample has; joining the shards makes offsets of them.
LENGTHS = "lengths"
LABELS = "labels"
_PARTS = (VALUES, LENGTHS, LABELS)
_INTEGER = np.dtype("<i8")
_PNG_BITS_OFFSET = 24  # of the byte with the bits of a sample, in a PNG


class Column(NamedTuple):
    """A sidecar file.

    Attributes:
        part: of which it is made: VALUES, LENGTHS or LABELS.
        dtype: of its numbers.
        width: trailing axes of a value.
    """

    part: str
    dtype: np.dtype[Any]
    width: tuple[int, ...] = ()


def columns(field: Field) -> tuple[Column, ...]:
    """The columns of a field, in the order of `fastpipe.dataset.format.fields.sidecars`."""
    row = row_dtype(field)
    all_columns = (
        Column(VALUES, row.base, row.shape),
        Column(LENGTHS, _INTEGER),
        Column(LABELS, _INTEGER),
    )
    return all_columns[: len(sidecars(field))]


def parts_of(kind: str) -> tuple[str, ...]:
    """The parts of which the columns of a kind are made; boxes may have labels."""
    return _PARTS[: len(sidecars(Field("", kind, labelled=True)))]


@cache
def _value_dtype(kind: str) -> np.dtype[Any]:
    return row_dtype(Field("", kind, width=1)).base


def piece(kind: str, value: Stored, offsets: Sequence[int]) -> dict[str, bytes]:
    """What a value adds to each part; its members are at these offsets in the shard.

    KeyError, TypeError, ValueError: a damaged shard.
    """
    note = value.note
    labels = b""
    if kind in ("text", "bytes"):
        values = value.member or b""
        length = len(values)
    elif kind == "json":
        values = json.dumps(note, ensure_ascii=False, separators=(",", ":")).encode()
        length = len(values)
    elif kind in PICTURE_KINDS:
        # A sample without a picture has no offset.
        offset = offsets[0] if offsets else 0
        values = _image_record(kind, value.member, offset)
        length = 1
    elif kind == "images":
        records = []
        for data, offset in zip(value.members, offsets, strict=True):
            records.append(_image_record(kind, data, offset))
        values = b"".join(records)
        length = len(records)
    elif kind in ARRAY_KINDS:
        (offset,) = offsets
        values = _array_record(value.member or b"", offset)
        length = 1
    else:
        if kind == "boxes" and note:
            # TypeError, not AttributeError, if the note is no object.
            boxes = note["boxes"]
            labels = np.array(note.get("labels", []), _INTEGER).tobytes()
            note = boxes
        elif kind == "int":
            note = [note]
        numbers = np.array(note or [], _value_dtype(kind))
        values = numbers.tobytes()
        length = len(numbers)
    return {VALUES: values, LENGTHS: length.to_bytes(8, "little"), LABELS: labels}


def _image_record(kind: str, data: bytes | None, offset: int) -> bytes:
    """A record of FIELD_IMAGE_DTYPE; all 0 if the sample has no mask or image."""
    record = np.zeros((), FIELD_IMAGE_DTYPE)
    if data is not None:
        width, height = size_of(data)
        record["offset"] = offset
        record["size"] = len(data)
        record["width"] = width
        record["height"] = height
        record["bits"] = 8
        if kind == "mask":
            record["bits"] = data[_PNG_BITS_OFFSET]
        record["format"] = image_format_of(data)
        record["xxh3_64"] = xxhash.xxh3_64_intdigest(data)
    return record.tobytes()


def _array_record(data: bytes, offset: int) -> bytes:
    """A record of array_record_dtype. ValueError: a damaged shard."""
    shape = read_array_header(data).shape
    record = np.zeros((), array_record_dtype(len(shape)))
    record["offset"] = offset
    record["size"] = len(data)
    record["shape"] = shape
    record["xxh3_64"] = xxhash.xxh3_64_intdigest(data)
    return record.tobytes()
