"""A draw's data -> which samples of which source it has, and of which share: by a column that each source gets.

tests/samples has what select, only, take, fold, concat and mix make of a dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from support.walk.drawing import Draw, Step

import fastpipe

Evaluate = Callable[[str], Any]


class Refused(Exception):  # noqa: N818 (no mistake of the program)
    """The method that leaves no dataset: its name is in the message of fastpipe, too."""


class Row(NamedTuple):
    """A sample.

    Attributes:
        part: which of the datasets it is of.
        number: in that one.
        name: of its class; None: it has no label.
        label: -1: none.
        extra: of the column of that name; None: there is none.
    """

    part: int
    number: int
    name: str | None
    label: int
    extra: float | None


@dataclass
class Composed:
    """What a dataset holds.

    Attributes:
        rows: its samples, by id.
        weights: of the shares of a mixture, which add up to 1; one share is of all.
        classes: their names.
    """

    rows: list[Row]
    weights: list[Fraction]
    classes: list[str]

    def __len__(self) -> int:
        return len(self.rows)

    def share(self, row: Row) -> int:
        """Which share of a mixture a sample is of."""
        return row.part if len(self.weights) > 1 else 0

    def ids(self, share: int) -> list[int]:
        """Of a share."""
        return [number for number, row in enumerate(self.rows) if self.share(row) == share]


def composed(draw: Draw, evaluate: Evaluate) -> Composed:
    """Raises Refused."""
    numbered = [
        [Step("with_column", f"'number', np.arange({len(part)})"), *steps]
        for part, steps in zip(draw.parts, draw.steps, strict=True)
    ]
    local = replace(
        draw, steps=numbered, opening=[{} for _ in draw.parts], urls=set(), by_path=False
    )
    try:
        data = evaluate(local.data)
    except fastpipe.ConfigError as error:
        said = str(error)
        raise Refused("column" if "has no column" in said else said.partition(":")[0]) from error
    labels = data.targets.tolist()
    names = [None if label < 0 else data.classes[label] for label in labels]
    extra = data["extra"][:].tolist() if "extra" in data.columns else [None] * len(data)
    columns = (data["source"][:].tolist(), data["number"][:].tolist(), names, labels, extra)
    weights = (
        [Fraction(weight) for weight in draw.join[1]]
        if draw.join is not None and draw.mixed
        else [Fraction(1)]
    )
    rows = [Row(*values) for values in zip(*columns, strict=True)]
    return Composed(rows, [weight / sum(weights) for weight in weights], data.classes)
