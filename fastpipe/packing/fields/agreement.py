"""Values of samples -> what all values of a field share, such as the width of "floats"; others are refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastpipe.errors import ImageError, PackError
from fastpipe.format.fields import Field, check_name
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.values import of_field

_NUMBERED, _NAMED = "numbers", "names"


@dataclass
class Agreed:
    """Of one field. None: no sample has said it yet.

    Attributes:
        width, points: as in `Field`.
        labelled: whether boxes have labels.
        named: whether classes are given by names.
        classes: number of classes that are numbers: one more than the greatest.
        names: of the classes, in the order in which they came.
    """

    width: int | None = None
    points: int | None = None
    labelled: bool | None = None
    named: bool | None = None
    classes: int = 0
    names: list[str] = field(default_factory=list)


class Agreement:
    """The fields of samples that are packed together: of a shard, or of a dataset.

    KEY.json has class names as they came. Columns have numbers: in a shard's piece of a column those of this shard,
    which publishing turns into those of the dataset.

    Args:
        kinds: name -> kind.
        agreed: what is known before the first sample; names of classes in it are left out.
    """

    def __init__(self, kinds: Mapping[str, str], agreed: Mapping[str, Any] | None = None) -> None:
        self.kinds = {check_name(name): kind for name, kind in kinds.items()}
        known = agreed or {}
        self._agreed = {name: Agreed(**{**known.get(name, {}), "classes": 0, "names": []}) for name in self.kinds}
        self._numbers: dict[str, dict[str, int]] = {name: {} for name in self.kinds}

    @classmethod
    def of(cls, fields: Collection[Field]) -> Agreement:
        """What the samples of a packed dataset agree on."""
        agreed = {
            one.name: {
                "width": one.width or None,
                "points": one.points or None,
                "labelled": one.labelled if one.kind == "boxes" else None,
                "named": bool(one.names) if one.classes else None,
            }
            for one in fields
        }
        return cls({one.name: one.kind for one in fields}, agreed)

    @property
    def complete(self) -> bool:
        """Whether all is known that values must not differ in."""
        needed = {"floats": "width", "keypoints": "points", "boxes": "labelled", "classes": "named"}
        return all(
            getattr(self._agreed[name], needed[kind]) is not None for name, kind in self.kinds.items() if kind in needed
        )

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {name: asdict(agreed) for name, agreed in self._agreed.items()}

    def admit(self, values: Sequence[Stored]) -> list[Stored]:
        """Takes the values of one sample, or none of them.

        Returns:
            Them as columns have them: with numbers in place of class names.

        Raises:
            ImageError: a value differs from those before it; the message is the reason.
        """
        later: dict[str, Agreed] = {}
        for (name, kind), value in zip(self.kinds.items(), values, strict=True):
            with of_field(name):
                later[name] = _next(kind, value.note, self._agreed[name])
        self._agreed.update(later)
        return [
            Stored(self._numbered(name, value.note)) if kind == "classes" and self._agreed[name].named else value
            for (name, kind), value in zip(self.kinds.items(), values, strict=True)
        ]

    def _numbered(self, field_name: str, names: Iterable[str] | None) -> list[int]:
        numbers, known = self._numbers[field_name], self._agreed[field_name].names
        for each in names or ():
            if each not in numbers:
                numbers[each] = len(known)
                known.append(each)
        return [numbers[each] for each in names or ()]

    def join(self, state: Mapping[str, Any], where: str) -> dict[str, list[int]]:
        """Takes what another agreement has come to.

        Returns:
            For each field with class names: the number here of each number there.

        Raises:
            PackError: they differ.
        """
        found: dict[str, list[int]] = {}
        for name, said in state.items():
            here, there = self._agreed[name], Agreed(**said)
            for what in ("width", "points", "labelled", "named"):
                ours, theirs = getattr(here, what), getattr(there, what)
                if None not in (ours, theirs) and ours != theirs:
                    raise PackError(
                        f"field {name}: {what} is {theirs} in {where}, and {ours} in what was packed before it; all "
                        "samples of a dataset have the same. Give the field another kind, such as --field "
                        f"{name}=COLUMN:json, choose another column, or leave it out"
                    )
                setattr(here, what, theirs if ours is None else ours)
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
                classes=len(agreed.names) or agreed.classes,
                names=tuple(agreed.names),
                labelled=bool(agreed.labelled),
            )
            for (name, kind), agreed in zip(self.kinds.items(), self._agreed.values(), strict=True)
        ]


def _next(kind: str, note: Any, agreed: Agreed) -> Agreed:
    """What is agreed after one more value; the names of classes are added later."""
    if not note:
        return agreed
    if kind == "floats":
        return replace(agreed, width=_same("numbers", len(note), agreed.width))
    if kind == "keypoints":
        return replace(agreed, points=_same("points an object", len(note[0]), agreed.points))
    if kind == "boxes" and note["boxes"]:
        labelled = "labels" in note
        if agreed.labelled not in (None, labelled):
            has, had = ("no labels", "labels") if agreed.labelled else ("labels", "no labels")
            raise ImageError(f"expected boxes with {had}, as in the samples before; got {has}")
        return replace(agreed, labelled=labelled)
    if kind != "classes":
        return agreed
    named = isinstance(note[0], str)
    if agreed.named not in (None, named):
        words = (_NAMED, _NUMBERED) if agreed.named else (_NUMBERED, _NAMED)
        raise ImageError(f"expected classes as {words[0]}, as in the samples before; got {words[1]}")
    return replace(agreed, named=named, classes=agreed.classes if named else max(agreed.classes, 1 + max(note)))


def _same(what: str, found: int, before: int | None) -> int:
    if before not in (None, found):
        raise ImageError(f"expected {before} {what}, as in the samples before; got {found}")
    return found
