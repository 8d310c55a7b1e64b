"""Class names that the user gives, in the order of their numbers -> a listing with these numbers.

Note [given classes]
A source numbers the classes that it has. So a class gets another number where another class is
missing, and a model that was trained on one source would be scored wrong on the other. With given
names a class has the number that they say. A class of the source that is not among them is refused,
and a given class that the source lacks has 0 samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.errors import ImageError, PackError, first_names, readable
from fastpipe.sources.folders.split_classes import are_own_numbers, join_classes
from fastpipe.sources.listing import Assumption, Listing, SourceField, relabel_sources

_OPTION = "--classes-from"
_MAX_SHOWN = 5


@dataclass(frozen=True)
class ClassNames:
    """Names of classes. The number of a class is its position. See Note [given classes]."""

    labels: tuple[str, ...]
    # Name of a field, and the names of its classes.
    fields: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # The names of the values of masks, "" for values without one; () if they are those of `labels`.
    values: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """As dataset.json has them."""
        fields = {name: list(names) for name, names in self.fields}
        recorded = {"labels": list(self.labels), "fields": fields}
        if self.values:
            recorded["values"] = list(self.values)
        return recorded

    @classmethod
    def of_recorded(cls, record: Mapping[str, Any]) -> ClassNames:
        """The reverse of `recorded`."""
        fields = tuple((name, tuple(names)) for name, names in record["fields"].items())
        return cls(tuple(record["labels"]), fields, tuple(record.get("values", ())))


def with_given_classes(listing: Listing, given: ClassNames) -> Listing:
    """The listing with the given names and numbers of labels and fields.

    Raises:
        PackError: the listing has a class that is not given, or no classes at all.
    """
    root = readable(listing.root)
    assumptions = []
    for assumption in listing.assumed:
        # Given classes settle the assumptions that name their option.
        if not assumption.option.startswith(_OPTION):
            assumptions.append(assumption)
    classes: list[str] = []
    if listing.classes:
        given_labels = given.labels or names_of_numbers(listing.classes, given)
        if not given_labels:
            raise PackError(
                f"{_OPTION}: it has no names of labels, and {root} has labels"
            )
        # A source with a problem is not packed, so its class need not be given.
        used_labels = set()
        for source in listing.sources:
            if source.problem is None:
                used_labels.add(source.label)
        used_labels.discard(NO_LABEL)
        if given.labels:
            numbers, is_by_position = _number_classes(
                listing, listing.classes, used_labels, given.labels
            )
            if is_by_position:
                text = f"labels are numbers: number 0 is {given.labels[0]!r}, and so on"
                assumptions.append(Assumption(text, _OPTION))
        else:
            numbers = _number_by_values(listing, used_labels, given)
            number, position = next(iter(_positions_of_numbers(given).items()))
            text = (
                f"classes are numbers: {number} is {given_labels[position]!r}, with label "
                f"{position}, and so on, in the order of the numbers"
            )
            assumptions.append(Assumption(text, _OPTION))
        relabel_sources(listing.sources, numbers)
        classes = list(given_labels)

    new_fields = []
    for field in listing.fields:
        new_fields.append(_with_given_names(listing, field, given, assumptions))
    fields = tuple(new_fields)
    # The given numbers may be those that the fields have already, which are of all splits.
    have_numbers = any(field.numbers for field in listing.fields)
    if not listing.classes and fields == listing.fields and not have_numbers:
        raise PackError(f"{_OPTION}: {root} has no classes; leave it out")
    return replace(listing, classes=classes, fields=fields, assumed=tuple(assumptions))


def names_of_numbers(ours: Sequence[str], given: ClassNames) -> tuple[str, ...]:
    """The names that are given to numbers, in the order of these; () if they cannot be our classes.

    Our classes are numbers, too. Oxford's flowers have the folders 1 to 102, and a JSON file with a
    name for each. No class has the number 0, so labels are positions in this order.
    """
    names = [name for name in given.values if name]
    if len(set(names)) < len(names) or not all(name.isdecimal() for name in ours):
        return ()
    return tuple(names)


def _number_by_values(
    listing: Listing, used: Iterable[int], given: ClassNames
) -> list[int]:
    """As `_number_classes`, where names are given to the numbers that our classes are called by."""
    position_of_number = _positions_of_numbers(given)
    numbers = [position_of_number.get(int(name), NO_LABEL) for name in listing.classes]
    unknown = []
    for label in sorted(used):
        if numbers[label] == NO_LABEL:
            unknown.append(listing.classes[label])
    _check_unknown(unknown, list(map(str, position_of_number)), readable(listing.root))
    return numbers


def _positions_of_numbers(given: ClassNames) -> dict[int, int]:
    """Number -> its position among the numbers with a name."""
    named = [number for number, name in enumerate(given.values) if name]
    return {number: position for position, number in enumerate(named)}


def with_names_of_all(listing: Listing, others: Iterable[Listing]) -> Listing:
    """The listing of one split, with the classes of its fields numbered as in all splits.

    `others` may have the listing itself among them.
    """
    # The name of a field -> the names of its classes in each of the splits.
    lists_of_field: dict[str, list[Sequence[str]]] = {}
    for split_listing in (listing, *others):
        for field in split_listing.fields:
            lists_of_field.setdefault(field.name, []).append(field.names)

    for field in listing.fields:
        if not field.names or field.kind not in CLASS_KINDS:
            continue
        name_lists = lists_of_field[field.name]
        # Numbers without a name, but for a mask's background, show that the source itself gives the
        # numbers.
        has_gaps = any("" in names_of_split[1:] for names_of_split in name_lists)
        if not has_gaps:
            names = join_classes(name_lists)
            listing = with_names_of_field(listing, field.name, names)
    return listing


def with_names_of_field(
    listing: Listing, field_name: str, names: Sequence[str]
) -> Listing:
    """The listing with these names of the classes of a field, which have all of its own among them."""
    numbers = {name: number for number, name in enumerate(names)}
    fields = []
    for field in listing.fields:
        if field.name == field_name and list(field.names) != list(names):
            new_numbers = [numbers[name] for name in field.names]
            field = _renumber_field(field, names, new_numbers)
        fields.append(field)
    return replace(listing, fields=tuple(fields))


def numbered_folders(
    some: Sequence[str],
    folders: Sequence[str],
    given: ClassNames | None,
    is_empty: Callable[[str], bool],
) -> list[tuple[int, str]]:
    """Some of the class folders with their numbers, without empty ones that have none.

    Raises:
        PackError: one of them has files, but no given class has its name.
    """
    names = folders
    if given is not None:
        names = given.labels
    numbers = {name: number for number, name in enumerate(names)}
    if given is not None and are_positions(folders, folders, names):
        numbers = {name: int(name) for name in folders}
    if given is not None and not names and names_of_numbers(folders, given):
        position_of_number = _positions_of_numbers(given)
        numbers = {}
        for name in folders:
            if int(name) in position_of_number:
                numbers[name] = position_of_number[int(name)]
    numbered = []
    unknown = []
    for name in some:
        if name in numbers:
            numbered.append((numbers[name], name))
        elif not is_empty(name):
            unknown.append(name)
    _check_unknown(unknown, names, "the source")
    return numbered


def are_positions(
    ours: Sequence[str], used: Sequence[str], names: Collection[str]
) -> bool:
    """Whether our classes are bare numbers that can be positions in the given names.

    Args:
        ours: our classes, in the order of their numbers.
        used: those of them that have samples, in the same order.
        names: the given names.
    """
    if not used or not are_own_numbers(list(ours)):
        return False
    return set(used).isdisjoint(names) and int(used[-1]) < len(names)


def are_counted_from_0(names: Sequence[str]) -> bool:
    """Whether the names of a mask's values are the background, and numbers from 0 on."""
    return len(names) > 1 and not names[0] and are_own_numbers(list(names[1:]))


def renumber_value(field: SourceField, value: Any) -> Any:
    """A value of a field, as its source has it -> the value with the given class numbers.

    Raises:
        ImageError: a class of the value has no given number.
    """
    if not field.numbers or value is None:
        return value
    is_object = isinstance(value, dict)
    if field.kind == "boxes" and is_object and value.get("labels") is not None:
        labels = [_given_number(field, label) for label in value["labels"]]
        return {**value, "labels": labels}
    if field.kind == "mask" and is_object and "shapes" in value:
        shapes = []
        for label, shape in value["shapes"]:
            shapes.append((_given_number(field, label), shape))
        return {**value, "shapes": shapes}
    if field.kind == "classes" and isinstance(value, list):
        return [_given_name(field, class_value) for class_value in value]
    return value


def _given_number(field: SourceField, label: Any) -> int:
    """The given number of a class of the source. ImageError: it has none."""
    number = NO_LABEL
    if isinstance(label, int) and 0 <= label < len(field.numbers):
        number = field.numbers[label]
    if number == NO_LABEL:
        raise ImageError(
            f"its class {label!r} has no name; expected one of the {len(field.names)} of {_OPTION}"
        )
    return number


def _given_name(field: SourceField, value: Any) -> str:
    """The given name of a class of the source, by number or name. ImageError: it has none."""
    if not isinstance(value, str):
        return field.names[_given_number(field, value)]
    if value not in field.names:
        raise ImageError(
            f"the class {value!r} is not among the {len(field.names)} of {_OPTION}"
        )
    return value


def _with_given_names(
    listing: Listing,
    field: SourceField,
    given: ClassNames,
    assumptions: list[Assumption],
) -> SourceField:
    """The field with given names and numbers. What is uncertain is added to `assumptions`."""
    if field.kind not in CLASS_KINDS:
        return field
    if field.kind == "mask" and not field.names:
        return _with_names_of_values(listing, field, given, assumptions)
    names = dict(given.fields).get(field.name)
    if names is None and listing.classes:
        # The given names are those of the labels, and say nothing of this field.
        if field.names:
            text = f"classes of the field {field.name}: numbered as in the source"
            assumptions.append(Assumption(text, _OPTION))
        return field
    if names is None:
        names = given.labels
    if not names:
        others = ", ".join(name for name, _ in given.fields) or "none"
        raise PackError(
            f"{_OPTION}: it has no names for the field {field.name}, but for {others}"
        )
    has_numbers_already = field.kind == "mask" and not field.colours
    if has_numbers_already and not _are_masks_drawn(listing, field):
        raise PackError(
            f"{_OPTION}: the masks {field.name} are stored as pixels, which have their numbers "
            "already. Pack their annotations anew, or choose other fields with --field"
        )

    by_position = Assumption(
        f"classes of {field.name} are numbers: number 0 is {names[0]!r}, and so on",
        _OPTION,
    )
    if not field.names:
        # Classes of "classes" are then names, those of other kinds are numbers.
        if field.kind != "classes":
            assumptions.append(by_position)
        all_numbers = tuple(range(len(names)))
        return field._replace(names=names, numbers=all_numbers)

    if has_numbers_already and are_counted_from_0(field.names):
        # Run lengths with the classes 0, 1, ...: see Note [tables of run lengths].
        if not names[0]:
            names = names[1:]  # those of a packed mask, with the background
        _check_unknown(field.names[1 + len(names) :], names, readable(listing.root))
        text = (
            f"classes of {field.name} are numbers: number 0 is {names[0]!r}, with 1 in the mask, "
            "and so on"
        )
        assumptions.append(Assumption(text, _OPTION))
        all_numbers = tuple(range(1 + len(names)))
        return field._replace(names=("", *names), numbers=all_numbers)

    # A gap has the name "".
    used = [number for number, name in enumerate(field.names) if name]
    numbers, is_by_position = _number_classes(listing, field.names, used, names)
    if is_by_position:
        assumptions.append(by_position)
    used_numbers = {numbers[number] for number in used}
    # Of colours, each is a class, and none is the background by itself.
    if has_numbers_already and 0 in used_numbers:
        raise PackError(
            f"{_OPTION}: {names[0]!r} would be number 0 in the masks {field.name}, which is the "
            "background. Take the names from a packed dataset with such masks"
        )
    return _renumber_field(field, names, numbers)


def _with_names_of_values(
    listing: Listing,
    field: SourceField,
    given: ClassNames,
    assumptions: list[Assumption],
) -> SourceField:
    """A field of masks, whose pixels have numbers, with the given name of each number."""
    names = dict(given.fields).get(field.name)
    others = [other for other in listing.fields if other.kind in CLASS_KINDS]
    # Names that are given for labels or boxes say nothing of the numbers in a mask.
    if names is None and not listing.classes and len(others) == 1:
        names = given.values or given.labels
    if not names or field.has_object_numbers:
        return field
    meanings = [f"{number} is {name!r}" for number, name in enumerate(names) if name]
    text = f"classes of the field {field.name}: {first_names(meanings, _MAX_SHOWN)}"
    assumptions.append(Assumption(text, _OPTION))
    return field._replace(names=tuple(names))


def _are_masks_drawn(listing: Listing, field: SourceField) -> bool:
    """Whether masks are drawn of shapes when their image is converted, and are no files."""
    if listing.notes is None:
        return False
    for source in listing.sources:
        values = listing.values_of_row(source)
        if values is not None and field.name in values:
            return "shapes" in values[field.name]
    return True


def _renumber_field(
    field: SourceField, names: Sequence[str], numbers: Sequence[int]
) -> SourceField:
    """The field with other names; `numbers` has the new number of each of its names so far.

    Values stay as the source has them. So a field that has new numbers already, such as those of
    all splits, gets the numbers that both steps give together.
    """
    new_numbers = numbers
    if field.numbers:
        new_numbers = []
        for number in field.numbers:
            if number != NO_LABEL:
                number = numbers[number]
            new_numbers.append(number)
    # The values of "classes" that are names need no numbers of the source.
    source_names = field.source_names
    if field.kind != "classes":
        source_names = source_names or field.names
    return field._replace(
        names=tuple(names), numbers=tuple(new_numbers), source_names=source_names
    )


def _number_classes(
    listing: Listing, ours: Sequence[str], used: Iterable[int], names: Sequence[str]
) -> tuple[list[int], bool]:
    """The given number of each of our classes; NO_LABEL for an unused class without one.

    Also returns whether our classes are numbers that were taken for positions in `names`.
    """
    used_names = [ours[number] for number in sorted(used)]
    if are_positions(ours, used_names, names):
        return list(range(len(ours))), True
    numbers = {name: number for number, name in enumerate(names)}
    unknown = [name for name in used_names if name not in numbers]
    _check_unknown(unknown, names, readable(listing.root))
    return [numbers.get(name, NO_LABEL) for name in ours], False


def _check_unknown(unknown: Sequence[str], names: Sequence[str], source: str) -> None:
    """Raises PackError if the source has classes that are not among the given names."""
    if not unknown:
        return
    shown = first_names([repr(name) for name in unknown], _MAX_SHOWN)
    known = first_names([repr(name) for name in names], _MAX_SHOWN)
    advice = "Add it behind them, or leave its images out of the source"
    if len(names) == 1 and unknown[0] in re.split(r"[\s,;]+", names[0]):
        advice = "The names stand on one line: write each on a line of its own"
    raise PackError(
        f"{_OPTION}: {source} has the class {shown}, which is not among the {len(names):,} names "
        f"({known}). {advice}"
    )
