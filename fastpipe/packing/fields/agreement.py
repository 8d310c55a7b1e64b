"""Values of samples -> what all values of a field share, such as the width of "floats".

Values that differ are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastpipe.dataset.format.array_file import common_shape, read_array_header
from fastpipe.dataset.format.fields import ARRAY_KINDS, Field, check_name
from fastpipe.dataset.format.sample_layout import Stored
from fastpipe.errors import ImageError, PackError
from fastpipe.packing.fields.values import naming_field

# Kinds whose values share something; see `_shared_by`.
_SHARING_KINDS = ("floats", "keypoints", "boxes", "classes", *ARRAY_KINDS)
# The attribute of a Field that has it. A field of classes has names or not instead.
_ATTRIBUTES = {"floats": "width", "keypoints": "points", "boxes": "labelled"}


@dataclass
class Agreed:
    """What the values of one field share. Entries of shards and plans hold it as JSON.

    Attributes:
        shared: see `_shared_by`; None: no sample so far decides it.
        classes: number of classes, if they are numbers.
        names: of the classes, in the order in which they came.
    """

    shared: Any = None
    classes: int = 0
    names: list[str] = field(default_factory=list)


def _shared_by(kind: str, value: Stored) -> Any:
    """What a value must share with all others of its field, as JSON can hold it.

    The length of "floats", the number of points of an object, whether boxes have labels, whether
    classes are names, and [dtype, shape] of an array: arrays share the number of axes, and those
    lengths that are not None. None: the kind has nothing of the sort, or the value is empty.
    """
    if kind in ARRAY_KINDS and value.member is not None:
        header = read_array_header(value.member)
        lengths = list(header.shape)
        return [header.dtype, lengths]
    note = value.note
    if not note:
        return None
    if kind == "floats":
        return len(note)
    if kind == "keypoints":
        points_of_object = note[0]
        return len(points_of_object)
    if kind == "boxes":
        if not note["boxes"]:
            return None
        return "labels" in note
    if kind == "classes":
        return isinstance(note[0], str)
    return None


def _merge_shared(kind: str, before: Any, shared: Any) -> Any:
    """What values share that share this with some, and that with others; None: they cannot."""
    if kind not in ARRAY_KINDS:
        if before != shared:
            return None
        return before
    dtype, lengths = shared
    dtype_before, lengths_before = before
    has_same_axes = len(lengths) == len(lengths_before)
    if dtype != dtype_before or not has_same_axes:
        return None
    # Only the height and the width of maps may differ.
    channels = lengths[2:]
    channels_before = lengths_before[2:]
    if kind == "map" and channels != channels_before:
        return None
    shape = common_shape([lengths_before, lengths])
    return [dtype, list(shape)]


def _describe_difference(kind: str, expected: Any, got: Any) -> str:
    """The end of a message: two values of `_shared_by` for a kind."""
    as_before = "as in the samples before"
    if kind in ARRAY_KINDS:
        dtype, lengths = got
        expected_dtype, expected_lengths = expected
        if kind == "map":
            shape = _shape_of_maps(lengths)
            expected_shape = _shape_of_maps(expected_lengths)
            return (
                f"expected {expected_dtype} of the shape {expected_shape}, {as_before}; got {dtype} "
                f"of {shape}"
            )
        return (
            f"expected {expected_dtype} with {len(expected_lengths)} axes, {as_before}; got {dtype} "
            f"with {len(lengths)}"
        )
    if kind == "floats":
        return f"expected {expected} numbers, {as_before}; got {got}"
    if kind == "keypoints":
        return f"expected {expected} points an object, {as_before}; got {got}"
    # The other kinds share a yes or no, which chooses between two words.
    if kind == "boxes":
        choices = ("no labels", "labels")
        subject = "boxes with"
    else:
        choices = ("numbers", "names")
        subject = "classes as"
    expected_choice = choices[expected]
    got_choice = choices[got]
    return f"expected {subject} {expected_choice}, {as_before}; got {got_choice}"


def _shape_of_maps(lengths: Sequence[int | None]) -> str:
    """The shape that all maps of a field have: their height and width may differ."""
    axes = ["height", "width"]
    for length in lengths[2:]:
        axes.append(str(length))
    return f"({', '.join(axes)})"


def agreement_state_of(fields: Iterable[Field]) -> dict[str, Any]:
    """`Agreement.state` after the last sample of a packed dataset that has these fields."""
    return {field.name: asdict(_agreed_of(field)) for field in fields}


def _agreed_of(field: Field) -> Agreed:
    if field.kind == "boxes":
        return Agreed(field.labelled)
    if field.kind == "classes":
        has_names: bool | None = None  # no sample has a class
        if field.names or field.classes:
            has_names = bool(field.names)
        return Agreed(has_names, field.classes, list(field.names))
    if field.kind in ARRAY_KINDS:
        lengths = list(field.shape)
        return Agreed([field.dtype, lengths])
    if field.kind in _ATTRIBUTES:
        attribute = _ATTRIBUTES[field.kind]
        # A width of 0: no sample has a value.
        shared = getattr(field, attribute) or None
        return Agreed(shared)
    return Agreed()


class Agreement:
    """What the values of the fields of a shard, or of a dataset, share.

    KEY.json has class names as they came. A shard's columns have the shard's numbers for them, and
    publishing replaces these by the dataset's numbers.

    Args:
        kinds: name -> kind of each field.
        agreed: the state of another agreement. Values have to agree with it; its classes are not
            taken over.
    """

    def __init__(
        self, kinds: Mapping[str, str], agreed: Mapping[str, Any] | None = None
    ) -> None:
        agreed = agreed or {}
        self.kinds: dict[str, str] = {}
        self._agreed: dict[str, Agreed] = {}
        # For each field with class names, the number of each name.
        self._numbers: dict[str, dict[str, int]] = {}
        for given_name, kind in kinds.items():
            name = check_name(given_name)
            shared = None
            if name in agreed:
                state = agreed[name]
                shared = state["shared"]
            self.kinds[name] = kind
            self._agreed[name] = Agreed(shared)
            self._numbers[name] = {}

    @property
    def complete(self) -> bool:
        """Whether it is known of all fields what their values share."""
        for name, kind in self.kinds.items():
            if kind not in _SHARING_KINDS:
                continue
            agreed = self._agreed[name]
            if agreed.shared is None:
                return False
        return True

    def state(self) -> dict[str, Any]:
        """The agreement as JSON can hold it."""
        state = {}
        for name, agreed in self._agreed.items():
            state_of_field = asdict(agreed)
            state_of_field["names"] = list(self._numbers[name])
            state[name] = state_of_field
        return state

    def compare(self, values: Sequence[Stored]) -> dict[str, Agreed]:
        """By field, what is shared after the values of one more sample, which are not added yet.

        ImageError: a value differs from those before.
        """
        agreed = {}
        for name, value in zip(self.kinds, values, strict=True):
            kind = self.kinds[name]
            before = self._agreed[name]
            with naming_field(name):
                agreed[name] = _agree(kind, value, before)
        return agreed

    def admit(
        self, values: Sequence[Stored], agreed: Mapping[str, Agreed]
    ) -> list[Stored]:
        """Adds the values of one sample, and returns them with numbers in place of class names.

        `agreed` is the result of `compare` for these values.
        """
        self._agreed.update(agreed)
        numbered = []
        for name, value in zip(self.kinds, values, strict=True):
            kind = self.kinds[name]
            agreed_of_field = agreed[name]
            # True: its classes are names.
            if kind == "classes" and agreed_of_field.shared:
                class_names = value.note or ()
                numbers = self._number(name, class_names)
                value = Stored(numbers)
            numbered.append(value)
        return numbered

    def name_classes(self, field_name: str, names: Iterable[str]) -> None:
        """Numbers classes in this order, also those that no sample has: the source knows them."""
        self._agreed[field_name].shared = True
        self._number(field_name, names)

    def _number(self, field_name: str, names: Iterable[str]) -> list[int]:
        """The number of each class name; a new name gets the next number."""
        numbers = self._numbers[field_name]
        return [numbers.setdefault(name, len(numbers)) for name in names]

    def join(self, state: Mapping[str, Any], where: str) -> dict[str, list[int]]:
        """Adds the state of another agreement.

        Returns, for each field with class names, the number in this agreement of each class of the
        other. PackError, which begins with `where`: the two differ.
        """
        numbers: dict[str, list[int]] = {}
        for name, entry in state.items():
            kind = self.kinds[name]
            ours = self._agreed[name]
            theirs = Agreed(**entry)
            # One of the two may not know yet what values share: it has only empty ones.
            if ours.shared is None:
                ours.shared = theirs.shared
            elif theirs.shared is not None:
                merged = _merge_shared(kind, ours.shared, theirs.shared)
                if merged is None:
                    difference = _describe_difference(kind, ours.shared, theirs.shared)
                    raise PackError(
                        f"{where}, field {name}: {difference}. Give the field another kind, such as "
                        f"--field {name}=COLUMN:json, choose another column, or leave it out"
                    )
                ours.shared = merged
            ours.classes = max(ours.classes, theirs.classes)
            if kind == "classes" and theirs.shared:
                numbers[name] = self._number(name, theirs.names)
        return numbers

    def fields(self) -> list[Field]:
        """The fields as dataset.json describes them, without the hashes of files."""
        fields = []
        for name, kind in self.kinds.items():
            agreed = self._agreed[name]
            names = tuple(self._numbers[name])
            shared: dict[str, Any] = {}
            if kind in _ATTRIBUTES and agreed.shared is not None:
                attribute = _ATTRIBUTES[kind]
                shared[attribute] = agreed.shared
            elif kind in ARRAY_KINDS and agreed.shared is not None:
                dtype, lengths = agreed.shared
                shared = {"dtype": dtype, "shape": tuple(lengths)}
            classes = len(names) or agreed.classes
            field = Field(name, kind, classes=classes, names=names, **shared)
            fields.append(field)
        return fields


def _agree(kind: str, value: Stored, agreed: Agreed) -> Agreed:
    """What is agreed after one more value. The names of classes are added later."""
    shared = _shared_by(kind, value)
    if shared is None:
        return agreed
    if agreed.shared is not None:
        merged = _merge_shared(kind, agreed.shared, shared)
        if merged is None:
            difference = _describe_difference(kind, agreed.shared, shared)
            raise ImageError(difference)
        shared = merged
    classes = agreed.classes
    if kind == "classes" and not shared:
        highest_class = max(value.note)
        classes = max(classes, highest_class + 1)
    return Agreed(shared, classes)
