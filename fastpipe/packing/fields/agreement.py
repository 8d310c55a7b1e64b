"""Samples in order -> the numbers that all values of a field share, such as the width of "floats"."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.format.fields import Field, check_name
from fastpipe.format.sample_layout import Stored

_NUMBERED, _NAMED = "numbers", "names"


@dataclass
class Agreed:
    """Of one field. None: no sample has said it yet.

    Attributes:
        width, points: as in `Field`.
        labelled: whether boxes have labels.
        classes: number of classes: one more than the greatest number.
        names: of the classes, in the order in which they came.
    """

    width: int | None = None
    points: int | None = None
    labelled: bool | None = None
    classes: int = 0
    names: list[str] = field(default_factory=list)


class Agreement:
    """The fields of a dataset that is being packed.

    Class names get their numbers in the order in which they come, so the same samples give the same numbers.

    Args:
        fields: name -> kind.
        agreed: what an earlier run had come to; it stays as it is.
    """

    def __init__(self, fields: Mapping[str, str], agreed: Mapping[str, Any] | None = None) -> None:
        self.kinds = {check_name(name): kind for name, kind in fields.items()}
        self._agreed = {name: Agreed(**deepcopy((agreed or {}).get(name, {}))) for name in fields}
        self._numbers = {
            name: {each: number for number, each in enumerate(one.names)} for name, one in self._agreed.items()
        }

    @classmethod
    def of(cls, fields: Collection[Field]) -> Agreement:
        """What the samples of a packed dataset agree on."""
        agreed = {
            field.name: {
                "width": field.width or None,
                "points": field.points or None,
                "labelled": field.labelled,
                "classes": 0 if field.names else field.classes,
                "names": list(field.names),
            }
            for field in fields
        }
        return cls({field.name: field.kind for field in fields}, agreed)

    def state(self) -> dict[str, Any]:
        """For an Agreement of a later run."""
        return {name: asdict(agreed) for name, agreed in self._agreed.items()}

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

    def admit(self, values: Sequence[Stored]) -> list[Stored]:
        """Takes the values of one sample, or none of them.

        Args:
            values: one a field.

        Returns:
            Them, with numbers in place of class names.

        Raises:
            ImageError: a value differs from those before it; the message is the reason.
        """
        gists = [gist(kind, value.note) for kind, value in zip(self.kinds.values(), values, strict=True)]
        numbers = self.agree(gists)
        return [value if of is None else Stored(of) for value, of in zip(values, numbers, strict=True)]

    def agree(self, gists: Sequence[Any]) -> list[list[int] | None]:
        """The same where only the gists of the values are known.

        Returns:
            For each field the numbers of the class names; None: the value stays as it is.
        """
        later: dict[str, Agreed] = {}
        for (name, kind), said in zip(self.kinds.items(), gists, strict=True):
            try:
                later[name] = _next(kind, said, self._agreed[name])
            except ImageError as problem:
                raise ImageError(f"field {name}: {problem}") from None
        self._agreed.update(later)
        return [self._numbered(*each) for each in zip(self.kinds.items(), gists, strict=True)]

    def _numbered(self, named: tuple[str, str], said: Any) -> list[int] | None:
        name, kind = named
        if kind != "classes" or not isinstance(said, list):
            return None
        numbers, names = self._numbers[name], self._agreed[name].names
        for each in said:
            if each not in numbers:
                numbers[each] = len(names)
                names.append(each)
        return [numbers[each] for each in said]


def gist(kind: str, note: Any) -> Any:
    """The part of a value that all samples must agree on, as JSON can hold it; None: it says nothing.

    Returns:
        Of "floats" how many numbers, of "keypoints" how many points an object, of "boxes" whether they have labels, of
        "classes" the names, or one more than the greatest number.
    """
    if not note:
        return None
    if kind == "floats":
        return len(note)
    if kind == "keypoints":
        return len(note[0])
    if kind == "boxes":
        return "labels" in note if note["boxes"] else None
    if kind == "classes":
        return note if isinstance(note[0], str) else 1 + max(note)
    return None


def _next(kind: str, said: Any, agreed: Agreed) -> Agreed:
    """What is agreed after one more value, of which this is the gist; the names of classes are added later."""
    if said is None:
        return agreed
    if kind == "floats":
        return replace(agreed, width=_same("numbers", said, agreed.width))
    if kind == "keypoints":
        return replace(agreed, points=_same("points an object", said, agreed.points))
    if kind == "boxes":
        if agreed.labelled not in (None, said):
            has, had = ("no labels", "labels") if agreed.labelled else ("labels", "no labels")
            raise ImageError(f"expected boxes with {had}, as in the samples before; got {has}")
        return replace(agreed, labelled=said)
    named = isinstance(said, list)
    if (agreed.classes and named) or (agreed.names and not named):
        words = (_NAMED, _NUMBERED) if agreed.names else (_NUMBERED, _NAMED)
        raise ImageError(f"expected classes as {words[0]}, as in the samples before; got {words[1]}")
    return agreed if named else replace(agreed, classes=max(agreed.classes, said))


def _same(what: str, found: int, before: int | None) -> int:
    if before not in (None, found):
        raise ImageError(f"expected {before} {what}, as in the samples before; got {found}")
    return found
