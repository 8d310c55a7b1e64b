"""Names of classes that the user gives, in the order of their numbers -> the labels of a listing, renumbered by name.

Note [given classes]
A source numbers the classes that it has. So a class has another number where another class is missing, and a model that
was trained on one would be scored wrong on the other. With given names, a class has the number that they say; a class
of the source that is not among them is refused, and one that the source lacks has 0 samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import NO_LABEL
from fastpipe.sources.listing import Assumption, Listing, SourceField, relabel_sources

_OPTION = "--classes-from"
KINDS = ("boxes", "classes", "mask")  # of fields whose values are numbers or names of classes
_MOST_NAMED = 5


@dataclass(frozen=True)
class ClassNames:
    """Names of classes; a number is a position in its list. See Note [given classes]"""

    labels: tuple[str, ...]
    fields: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # name of a field, and the names of its classes

    def recorded(self) -> dict[str, Any]:
        """For dataset.json."""
        return {
            "labels": list(self.labels),
            "fields": {name: list(names) for name, names in self.fields},
        }

    @classmethod
    def of_recorded(cls, said: Mapping[str, Any]) -> ClassNames:
        fields = tuple((name, tuple(names)) for name, names in said["fields"].items())
        return cls(tuple(said["labels"]), fields)


def with_given_classes(listing: Listing, given: ClassNames) -> Listing:
    """The listing with the given names and numbers, of labels and of fields. PackError: it has other classes."""
    assumed = [
        each for each in listing.assumed if not each.option.startswith(_OPTION)
    ]  # this settles the others
    has_labels = bool(listing.classes)
    classes = list(given.labels) if has_labels else []
    if has_labels and not given.labels:
        raise PackError(
            f"{_OPTION}: it has no names of labels, and {readable(str(listing.root))} has labels"
        )
    if has_labels:
        used = {source.label for source in listing.sources if source.problem is None} - {NO_LABEL}
        numbers, is_by_position = _numbers(listing, listing.classes, used, given.labels)
        if is_by_position:
            assumed.append(
                Assumption(
                    f"labels are numbers: number 0 is {given.labels[0]!r}, and so on", _OPTION
                )
            )
        relabel_sources(listing.sources, numbers)
    fields = tuple(_with_names(listing, field, given, assumed) for field in listing.fields)
    if not has_labels and fields == listing.fields:
        raise PackError(f"{_OPTION}: {readable(str(listing.root))} has no classes; leave it out")
    return replace(listing, classes=classes, fields=fields, assumed=tuple(assumed))


def with_names_of_all(listing: Listing, others: Iterable[Listing]) -> Listing:
    """The listing of a split, in whose fields of boxes and classes a class has one number in all splits."""
    named: dict[str, set[str]] = {
        field.name: set(field.names) for field in listing.fields if field.names
    }
    for other in others:
        for field in other.fields:
            if field.name in named:
                named[field.name].update(field.names)
    fields = []
    for field in listing.fields:
        names = tuple(sorted(named.get(field.name, ())))
        is_sorted = field.names == tuple(sorted(field.names))  # else the source says the numbers
        if field.kind in ("boxes", "classes") and is_sorted and names != field.names:
            field = _numbered_as(field, names, [names.index(name) for name in field.names])
        fields.append(field)
    return replace(listing, fields=tuple(fields))


def numbered_folders(
    some: Sequence[str],
    folders: Sequence[str],
    given: ClassNames | None,
    is_empty: Callable[[str], bool],
) -> list[tuple[int, str]]:
    """Some of the class folders with their numbers. PackError: one with files is not among the given names."""
    names = folders if given is None else given.labels
    places = {name: number for number, name in enumerate(names)}
    if given is not None and are_positions(folders, folders, names):
        places = {name: int(name) for name in folders}
    _refuse(
        [name for name in some if name not in places and not is_empty(name)], names, "the source"
    )
    return [(places[name], name) for name in some if name in places]


def are_positions(ours: Sequence[str], used: Sequence[str], names: Collection[str]) -> bool:
    """Whether our classes are numbers without names, of which those that are used can be positions in given names."""
    are_numbers = list(ours) == [str(number) for number in range(len(ours))]
    return are_numbers and bool(used) and not set(used) & set(names) and int(used[-1]) < len(names)


def renumbered(field: SourceField, value: Any) -> Any:
    """A value of a field, as its source has it, with the given numbers. ImageError: it has a class without any."""
    if not field.numbers or value is None:
        return value
    if field.kind == "boxes" and isinstance(value, dict) and value.get("labels") is not None:
        return {**value, "labels": [_number(field, label) for label in value["labels"]]}
    if field.kind == "mask" and isinstance(value, dict) and "shapes" in value:
        return {
            **value,
            "shapes": [(_number(field, label), shape) for label, shape in value["shapes"]],
        }
    if field.kind == "classes" and isinstance(value, list):
        return [_named(field, each) for each in value]
    return value


def _number(field: SourceField, label: Any) -> int:
    known = isinstance(label, int) and 0 <= label < len(field.numbers)
    number = field.numbers[label] if known else NO_LABEL
    if number == NO_LABEL:
        raise ImageError(
            f"its class {label!r} has no name; expected one of the {len(field.names)} of {_OPTION}"
        )
    return number


def _named(field: SourceField, value: Any) -> str:
    if isinstance(value, str):
        if value not in field.names:
            raise ImageError(
                f"the class {value!r} is not among the {len(field.names)} of {_OPTION}"
            )
        return value
    return field.names[_number(field, value)]


def _with_names(
    listing: Listing, field: SourceField, given: ClassNames, assumed: list[Assumption]
) -> SourceField:
    """The field with the given names and the given numbers of its own."""
    if field.kind not in KINDS or (field.kind == "mask" and not field.names):
        return field
    names = dict(given.fields).get(field.name)
    if names is None and listing.classes:  # the given names are those of the labels
        if field.names:
            assumed.append(
                Assumption(f"classes of the field {field.name}: numbered as in the source", _OPTION)
            )
        return field
    if names is None and not given.labels:
        others = ", ".join(name for name, _ in given.fields) or "none"
        raise PackError(f"{_OPTION}: it has no names for the field {field.name}, but for {others}")
    names = given.labels if names is None else names
    if field.kind == "mask" and listing.notes is None:
        raise PackError(
            f"{_OPTION}: the masks {field.name} are stored as pixels, which have their numbers already. Pack their "
            f"annotations anew, or choose other fields with --field"
        )
    if field.kind == "classes" and not field.names:  # values are names
        return field._replace(names=names, numbers=tuple(range(len(names))))
    by_position = Assumption(
        f"classes of {field.name} are numbers: number 0 is {names[0]!r}, and so on", _OPTION
    )
    if not field.names:
        assumed.append(by_position)
        return field._replace(names=names, numbers=tuple(range(len(names))))
    used = [number for number, name in enumerate(field.names) if name]  # "" in a gap
    numbers, is_by_position = _numbers(listing, field.names, used, names)
    if is_by_position:
        assumed.append(by_position)
    if field.kind == "mask" and 0 in (numbers[number] for number in used):
        raise PackError(
            f"{_OPTION}: {names[0]!r} would be number 0 in the masks {field.name}, which is the background. Take the "
            "names from a packed dataset with such masks"
        )
    return _numbered_as(field, names, numbers)


def _numbered_as(field: SourceField, names: Sequence[str], numbers: Sequence[int]) -> SourceField:
    """The field with other names; `numbers` has the new number of each of its names so far. Values stay as the source
    has them: so these numbers follow upon those that the field may have already, as a split's has those of all splits.
    """
    if field.numbers:
        numbers = [number if number == NO_LABEL else numbers[number] for number in field.numbers]
    return field._replace(names=tuple(names), numbers=tuple(numbers))


def _numbers(
    listing: Listing, ours: Sequence[str], used: Iterable[int], names: Sequence[str]
) -> tuple[list[int], bool]:
    """The given number of each of our classes, NO_LABEL: it has none; whether ours are numbers, and no names."""
    places = {name: number for number, name in enumerate(names)}
    there = [ours[number] for number in sorted(used)]
    if are_positions(ours, there, names):
        return list(range(len(ours))), True
    _refuse([name for name in there if name not in places], names, readable(str(listing.root)))
    return [places.get(name, NO_LABEL) for name in ours], False


def _refuse(unknown: Sequence[str], names: Sequence[str], source: str) -> None:
    if unknown:
        shown = ", ".join(repr(name) for name in unknown[:_MOST_NAMED])
        more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
        known = ", ".join(map(repr, names[:_MOST_NAMED])) + (
            " ..." if len(names) > _MOST_NAMED else ""
        )
        raise PackError(
            f"{_OPTION}: {source} has the class {shown}{more}, which is not among the {len(names):,} names ({known}). "
            "Add it behind them, or leave its images out of the source"
        )
