"""A draw's data -> which samples it has, in which order and with which labels, as the docs say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from support.walk.drawing import Draw, Step

import fastpipe

Evaluate = Callable[[str], Any]
PAD = "jpeg/packed"  # a dataset of which each part has some


class Refused(Exception):  # noqa: N818 (no mistake of the program)
    """What a dataset has not: its word is in the message of fastpipe, too."""


@dataclass(frozen=True)
class Row:
    """A sample.

    Attributes:
        part: which of the datasets it is of.
        number: in that one.
        name: of its class; None: it has no label.
        label: None: the docs do not say which number its class has.
        added: the values of columns, by name.
    """

    part: int
    number: int
    name: str | None
    label: int | None
    added: tuple[tuple[str, Any], ...] = ()


@dataclass
class Composed:
    """What a dataset holds.

    Attributes:
        rows: its samples, by id.
        shares: which share of a mixture each of them is of.
        weights: of the shares; they add up to 1.
        classes: their names; None: the docs do not say in which order.
        folds: how often `fold` has divided what these are of.
    """

    rows: list[Row]
    shares: list[int]
    weights: list[Fraction]
    classes: list[str] | None
    folds: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mixed(self) -> bool:
        return len(self.weights) > 1

    def ids(self, share: int) -> list[int]:
        """Of a share."""
        return [each for each, other in enumerate(self.shares) if other == share]


def composed(draw: Draw, evaluate: Evaluate) -> Composed:
    """Raises Refused."""
    parts = []
    for place, known in enumerate(draw.parts):
        rows = [
            Row(place, number, known.names[label] if label >= 0 else None, label)
            for number, label in enumerate(known.labels)
        ]
        whole = Composed(rows, [0] * len(rows), [Fraction(1)], list(known.names))
        parts.append(_after(whole, draw.steps[place], draw, evaluate))
    made = parts[0] if draw.join is None else _joined(parts, *draw.join)
    return _after(made, draw.after, draw, evaluate)


def _joined(parts: list[Composed], how: str, weights: list[str], labels: str) -> Composed:
    mode = labels.strip("'") or "union"
    rows: list[Row] = []
    if len({tuple(dict(part.rows[0].added)) for part in parts}) > 1:
        raise Refused("column")
    for place, part in enumerate(parts):
        before = sum(len(each.classes or ()) for each in parts[:place])
        for row in part.rows:
            if row.label == -1:
                rows.append(row)
            elif mode == "offset":
                rows.append(replace(row, name=f"{place}/{row.name}", label=before + (row.label or 0)))
            elif mode == "own":
                rows.append(replace(row, name=str(row.label)))
            else:
                rows.append(replace(row, label=None))
    classes: list[str] | None = None
    if mode == "offset":
        classes = [f"{place}/{name}" for place, part in enumerate(parts) for name in part.classes or ()]
    elif mode == "own":
        classes = [str(label) for label in range(max(len(part.classes or ()) for part in parts))]
    folds = max(part.folds for part in parts)
    if how == "concat":
        return Composed(rows, [0] * len(rows), [Fraction(1)], classes, folds)
    given = [Fraction(weight) for weight in weights]
    shares = [place for place, part in enumerate(parts) for _ in part.rows]
    return Composed(rows, shares, [each / sum(given) for each in given], classes, folds)


def _after(data: Composed, steps: Sequence[Step], draw: Draw, evaluate: Evaluate) -> Composed:
    for step in steps:
        args, options = evaluate(f"(lambda *args, **options: (args, options))({step.args})")
        data = globals()[f"_{step.method}"](data, step, draw, evaluate, *args, **options)
        if any(share not in data.shares for share in range(len(data.weights))):
            raise Refused(step.method)
    return data


def _kept(data: Composed, ids: Sequence[int]) -> Composed:
    """These samples, share by share."""
    ordered = sorted(ids, key=lambda each: data.shares[each])
    return replace(data, rows=[data.rows[each] for each in ordered], shares=[data.shares[each] for each in ordered])


def columns_of(data: Composed, draw: Draw, labels: Sequence[int]) -> dict[str, Any]:
    """Those that every dataset has."""
    known = [draw.parts[row.part] for row in data.rows]
    numbers = [row.number for row in data.rows]
    sizes = np.array([part.sizes[n] for part, n in zip(known, numbers, strict=True)]).reshape(-1, 2)
    added = [dict(row.added) for row in data.rows]
    return {
        "label": np.array(labels, dtype=np.int64),
        "width": sizes[:, 0],
        "height": sizes[:, 1],
        "id": np.arange(len(data)),
        "source": np.array([row.part for row in data.rows]),
        **{name: np.array([each[name] for each in added]) for name in (added[0] if added else {})},
    }


def _select(data: Composed, step: Step, draw: Draw, evaluate: Evaluate, chosen: Any) -> Composed:
    if callable(chosen):
        chosen = chosen(columns_of(data, draw, [-1 if row.name is None else 0 for row in data.rows]))
    if isinstance(chosen, list) and chosen and isinstance(chosen[0], str):
        keys = [draw.parts[row.part].keys[row.number] for row in data.rows]
        chosen = [next(place for place, key in enumerate(keys) if asked.endswith(key)) for asked in chosen]
    given = np.asarray(chosen)
    return _kept(data, np.flatnonzero(given).tolist() if given.dtype == bool else given.tolist())


def _only(
    data: Composed, step: Step, draw: Draw, evaluate: Evaluate, classes: list[str], *, keep_labels: bool = False
) -> Composed:
    kept = _kept(data, [each for each, row in enumerate(data.rows) if row.name in classes])
    if keep_labels:
        return kept
    rows = [replace(row, label=classes.index(str(row.name))) for row in kept.rows]
    return replace(kept, rows=rows, classes=list(classes))


def _take(data: Composed, step: Step, draw: Draw, evaluate: Evaluate, fraction: float) -> Composed:
    return _kept(data, _ids_in(data, draw, evaluate, lambda each: each.take(fraction)))


def _fold(data: Composed, step: Step, draw: Draw, evaluate: Evaluate, fold: int, *, of: int) -> Composed:
    inside = _ids_in(data, draw, evaluate, lambda each: each.fold(fold, of=of)[1])
    halves = [_kept(data, sorted({*range(len(data))} - {*inside})), _kept(data, inside)]
    if any({*half.shares} != {*data.shares} for half in halves):
        raise Refused(step.method)
    return replace(halves[int(step.end.strip("[]"))], folds=data.folds + 1)


Choose = Callable[[fastpipe.Dataset], fastpipe.Dataset]


def _ids_in(data: Composed, draw: Draw, evaluate: Evaluate, choose: Choose) -> list[int]:
    pad = evaluate(f"at({PAD!r})")
    paths = [evaluate(f"at({known.sound!r})") for known in draw.parts]
    parts = [part_of(path, pad, choose, data.folds) for path in paths]
    return [each for each, row in enumerate(data.rows) if row.number in parts[row.part]]


def part_of(path: str, pad: str, choose: Choose, folds: int) -> set[int]:
    """The samples of one dataset that `take` or `fold` chooses: the same in all that is made of it, after as many
    folds. With other samples beside them, since a part that is empty is an error.
    """
    both = fastpipe.concat(path, pad)
    both = both.with_column("place", np.arange(len(both)))
    for _ in range(folds):
        both = fastpipe.concat(*both.fold(0, of=2))
    count = len(fastpipe.open(path))
    return {place for place in choose(both)["place"][:].tolist() if place < count}


def _with_labels(
    data: Composed, step: Step, draw: Draw, evaluate: Evaluate, labels: Any, *, classes: list[str] | None = None
) -> Composed:
    given = np.asarray(labels).tolist()
    if isinstance(given[0], str):
        names = sorted(set(given)) if classes is None else list(classes)
        given = [names.index(name) for name in given]
    else:
        names = list(data.classes or ()) if classes is None else list(classes)
    rows = [
        replace(row, label=label, name=names[label] if label >= 0 else None)
        for row, label in zip(data.rows, given, strict=True)
    ]
    return replace(data, rows=rows, classes=names)


def _with_column(data: Composed, step: Step, draw: Draw, evaluate: Evaluate, name: str, values: Any) -> Composed:
    rows = [
        replace(row, added=tuple({**dict(row.added), name: value}.items()))
        for row, value in zip(data.rows, np.asarray(values).tolist(), strict=True)
    ]
    return replace(data, rows=rows)
