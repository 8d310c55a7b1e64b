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
    """What values of a kind must not differ in: an attribute of Agreed, how a value's note has it, and its words."""

    what: str
    of: Callable[[Any], int]
    words: str
    choices: tuple[str, ...] = ()

    def differs(self, before: int, found: int) -> str:
        said, got = (self.choices[one] if self.choices else one for one in (before, found))
        return f"expected {self.words.format(said)}, as in the samples before; got {got}"


_SHARED = {
    "floats": _Shared("width", len, "{} numbers"),
    "keypoints": _Shared("points", lambda note: len(note[0]), "{} points an object"),
    "boxes": _Shared("labelled", lambda note: "labels" in note, "boxes with {}", ("no labels", "labels")),
    "classes": _Shared("named", lambda note: isinstance(note[0], str), "classes as {}", ("numbers", "names")),
}


@dataclass
class Agreed:
    """Of one field; None: no sample has said it yet. Classes are numbers below `classes`, or `names`, as they came."""

    width: int | None = None
    points: int | None = None
    labelled: bool | None = None
    named: bool | None = None
    classes: int = 0
    names: list[str] = field(default_factory=list)


def agreed_in(fields: Iterable[Field]) -> dict[str, Any]:
    """`Agreement.state` after the last sample of a packed dataset that has these fields."""
    found = {}
    for one in fields:
        labelled = one.labelled if one.kind == "boxes" else None
        names = list(one.names) if one.kind == "classes" else []
        named = bool(names) if one.classes else None
        found[one.name] = asdict(Agreed(one.width or None, one.points or None, labelled, named, one.classes, names))
    return found


class Agreement:
    """The fields of samples that are packed together, of a shard or of a dataset, and what their values share.

    KEY.json has class names as they came. Columns have numbers: in a shard's piece of a column those of this shard,
    which publishing turns into those of the dataset. Names of classes in `agreed` are left out.
    """

    def __init__(self, kinds: Mapping[str, str], agreed: Mapping[str, Any] | None = None) -> None:
        self.kinds = {check_name(name): kind for name, kind in kinds.items()}
        known = {name: (agreed or {}).get(name, {}) for name in self.kinds}
        self._agreed = {name: Agreed(**{**said, "classes": 0, "names": []}) for name, said in known.items()}
        self._numbers: dict[str, dict[str, int]] = {name: {} for name in self.kinds}  # of class names

    @property
    def complete(self) -> bool:
        """Whether all is known that values must not differ in."""
        needed = ((name, _SHARED[kind].what) for name, kind in self.kinds.items() if kind in _SHARED)
        return all(getattr(self._agreed[name], what) is not None for name, what in needed)

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {name: {**asdict(one), "names": list(self._numbers[name])} for name, one in self._agreed.items()}

    def admit(self, values: Sequence[Stored]) -> list[Stored]:
        """Takes the values of one sample, or none: ImageError says which differs. Class names become numbers."""
        later: dict[str, Agreed] = {}
        for (name, kind), value in zip(self.kinds.items(), values, strict=True):
            with of_field(name):
                later[name] = _next(kind, value.note, self._agreed[name])
        self._agreed.update(later)
        return [
            Stored(self._numbered(name, value.note or ())) if self._agreed[name].named else value
            for name, value in zip(self.kinds, values, strict=True)
        ]

    def _numbered(self, field_name: str, names: Iterable[str]) -> list[int]:
        numbers = self._numbers[field_name]
        return [numbers.setdefault(each, len(numbers)) for each in names]

    def join(self, state: Mapping[str, Any], where: str) -> dict[str, list[int]]:
        """Takes what another agreement holds: the number here of each class name there; PackError: they differ."""
        found: dict[str, list[int]] = {}
        for name, said in state.items():
            here, there = self._agreed[name], Agreed(**said)
            if (shared := _SHARED.get(self.kinds[name])) is not None:
                ours, theirs = getattr(here, shared.what), getattr(there, shared.what)
                if None not in (ours, theirs) and ours != theirs:
                    raise PackError(
                        f"{where}, field {name}: {shared.differs(ours, theirs)}. Give the field another kind, such as "
                        f"--field {name}=COLUMN:json, choose another column, or leave it out"
                    )
                setattr(here, shared.what, theirs if ours is None else ours)
            here.classes = max(here.classes, there.classes)
            if there.named:
                found[name] = self._numbered(name, there.names)
        return found

    def fields(self) -> list[Field]:
        """As dataset.json describes them, without hashes of files."""
        return [
            Field(
                name,
                kind,
                width=agreed.width or 0,
                points=agreed.points or 0,
                classes=len(self._numbers[name]) or agreed.classes,
                names=tuple(self._numbers[name]),
                labelled=bool(agreed.labelled),
            )
            for (name, kind), agreed in zip(self.kinds.items(), self._agreed.values(), strict=True)
        ]


def _next(kind: str, note: Any, agreed: Agreed) -> Agreed:
    """What is agreed after one more value; the names of classes are added later."""
    shared = _SHARED.get(kind)
    if shared is None or not note or (kind == "boxes" and not note["boxes"]):
        return agreed
    before, found = getattr(agreed, shared.what), shared.of(note)
    if before not in (None, found):
        raise ImageError(shared.differs(before, found))
    changed: dict[str, Any] = {shared.what: found}
    if kind == "classes" and not found:
        changed["classes"] = max(agreed.classes, 1 + max(note))
    return replace(agreed, **changed)
