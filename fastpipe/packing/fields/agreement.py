"""Values of samples -> what all values of a field share, such as the width of "floats"; others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from fastpipe.errors import ImageError, PackError
from fastpipe.format.fields import Field, check_name
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.values import of_field


class _Shared(NamedTuple):
    """What values of a kind must not differ in: how a Field says it, how a value's note has it, and its words."""

    what: str
    unknown: Any
    of: Callable[[Any], int]
    words: str
    choices: tuple[str, ...] = ()

    def differs(self, before: int, found: int) -> str:
        said, got = (self.choices[one] if self.choices else one for one in (before, found))
        return f"expected {self.words.format(said)}, as in the samples before; got {got}"


_SHARED = {
    "floats": _Shared("width", 0, len, "{} numbers"),
    "keypoints": _Shared("points", 0, lambda note: len(note[0]), "{} points an object"),
    "boxes": _Shared(
        "labelled", False, lambda note: "labels" in note, "boxes with {}", ("no labels", "labels")
    ),
    "classes": _Shared(
        "", None, lambda note: isinstance(note[0], str), "classes as {}", ("numbers", "names")
    ),
}


@dataclass
class Agreed:
    """Of one field, what no value differs in, None: no sample has said it yet; classes, by number or as they came."""

    shared: Any = None
    classes: int = 0
    names: list[str] = field(default_factory=list)


def agreement_state_of(fields: Iterable[Field]) -> dict[str, Any]:
    """`Agreement.state` after the last sample of a packed dataset that has these fields."""
    found = {}
    for one in fields:
        shared, names = None, list(one.names) if one.kind == "classes" else []
        if one.kind == "boxes":
            shared = one.labelled
        elif one.kind in _SHARED:
            shared = bool(names) if one.kind == "classes" else getattr(one, _SHARED[one.kind].what)
            shared = shared if shared or one.classes else None
        found[one.name] = asdict(Agreed(shared, one.classes, names))
    return found


class Agreement:
    """What values of the fields of a shard or of a dataset share; `agreed` is the state of another, without classes.

    KEY.json has class names as they came; a shard's columns have its numbers, which publishing makes the dataset's.
    """

    def __init__(self, kinds: Mapping[str, str], agreed: Mapping[str, Any] | None = None) -> None:
        self.kinds = {check_name(name): kind for name, kind in kinds.items()}
        known = {name: (agreed or {}).get(name, {}) for name in self.kinds}
        self._agreed = {
            name: Agreed(**{**said, "classes": 0, "names": []}) for name, said in known.items()
        }
        self._numbers: dict[str, dict[str, int]] = {
            name: {} for name in self.kinds
        }  # of class names

    @property
    def complete(self) -> bool:
        """Whether all is known that values must not differ in."""
        return all(
            self._agreed[name].shared is not None
            for name, kind in self.kinds.items()
            if kind in _SHARED
        )

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            name: {**asdict(one), "names": list(self._numbers[name])}
            for name, one in self._agreed.items()
        }

    def admit(self, values: Sequence[Stored]) -> list[Stored]:
        """Takes the values of one sample, or none: ImageError says which differs. Class names become numbers."""
        later: dict[str, Agreed] = {}
        for (name, kind), value in zip(self.kinds.items(), values, strict=True):
            with of_field(name):
                later[name] = _next(kind, value.note, self._agreed[name])
        self._agreed.update(later)
        return [
            Stored(self._numbered(name, value.note or ()))
            if kind == "classes" and self._agreed[name].shared
            else value
            for (name, kind), value in zip(self.kinds.items(), values, strict=True)
        ]

    def name_classes(self, field_name: str, names: Iterable[str]) -> None:
        """Gives names of classes that the source knows their numbers, in this order, also those that no sample has."""
        self._agreed[field_name].shared = True
        self._numbered(field_name, names)

    def _numbered(self, field_name: str, names: Iterable[str]) -> list[int]:
        numbers = self._numbers[field_name]
        return [numbers.setdefault(each, len(numbers)) for each in names]

    def join(self, state: Mapping[str, Any], where: str) -> dict[str, list[int]]:
        """Takes what another agreement holds: the number here of each class name there; PackError: they differ."""
        found: dict[str, list[int]] = {}
        for name, said in state.items():
            here, there = self._agreed[name], Agreed(**said)
            if (shared := _SHARED.get(self.kinds[name])) is not None:
                if None not in (here.shared, there.shared) and here.shared != there.shared:
                    raise PackError(
                        f"{where}, field {name}: {shared.differs(here.shared, there.shared)}. Give the field another "
                        f"kind, such as --field {name}=COLUMN:json, choose another column, or leave it out"
                    )
                here.shared = there.shared if here.shared is None else here.shared
            here.classes = max(here.classes, there.classes)
            if self.kinds[name] == "classes" and there.shared:
                found[name] = self._numbered(name, there.names)
        return found

    def fields(self) -> list[Field]:
        """As dataset.json describes them, without hashes of files."""
        found = []
        for (name, kind), agreed in zip(self.kinds.items(), self._agreed.values(), strict=True):
            names, shared = tuple(self._numbers[name]), _SHARED.get(kind)
            said = (
                {shared.what: agreed.shared or shared.unknown}
                if shared is not None and shared.what
                else {}
            )
            found.append(
                Field(name, kind, classes=len(names) or agreed.classes, names=names, **said)
            )
        return found


def _next(kind: str, note: Any, agreed: Agreed) -> Agreed:
    """What is agreed after one more value; the names of classes are added later."""
    shared = _SHARED.get(kind)
    if shared is None or not note or (kind == "boxes" and not note["boxes"]):
        return agreed
    found = shared.of(note)
    if agreed.shared not in (None, found):
        raise ImageError(shared.differs(agreed.shared, found))
    classes = (
        max(agreed.classes, 1 + max(note)) if kind == "classes" and not found else agreed.classes
    )
    return replace(agreed, shared=found, classes=classes)
