"""The tables in a folder -> those that are likely to have the labels.

Kaggle's folders also have sampleSubmission.csv or sample_submission.csv, a form for results. It has
an answer for each image of the test, which is not a label.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, first_paths, split_in_path
from fastpipe.sources.listing import Assumption

# Tables that say something else of images than their classes.
_LESS_LIKELY = re.compile(
    r"bbox|boxes|landmark|keypoint|identity|partition|(?:^|[-_ ])(?:split|fold)s?(?:[-_ ]|$)",
    re.IGNORECASE,
)
_SUBMISSION = re.compile(
    r"(?:sample|example)[-_ ]?subm|submission|submit", re.IGNORECASE
)


def sort_labelled_first(tables: Iterable[str]) -> list[str]:
    """Sorts tables: those of the training first, those of the test last.

    Of one split, tables of boxes, points, persons or splits come last. Forms for results are left
    out if there are other tables.
    """
    names = list(tables)
    return sorted(
        [name for name in names if not is_result_form(name)] or names, key=_rank
    )


def assume_forms_skipped(tables: Sequence[str]) -> list[Assumption]:
    """Says which tables are not read because they are forms for results."""
    forms = [name for name in tables if is_result_form(name)]
    if not forms or len(forms) == len(tables):
        return []
    return [
        Assumption(
            f"tables: {first_paths(forms)} is not read, for it is called like a form for results"
        )
    ]


def is_result_form(name: str) -> bool:
    """Whether a table is called like a form for results, which has no labels."""
    return _SUBMISSION.search(name) is not None


def training_tables(table: SourcePath) -> list[SourcePath]:
    """The tables of the training beside one of another split; none beside one of no split."""
    if not isinstance(table, Path):
        return []
    split = split_in_path(table.stem)
    if not split or split.startswith("train"):
        return []
    tables: list[SourcePath] = []
    for name in names_in(table.parent, FEW).files:
        stem, ending = os.path.splitext(name)
        is_same_kind = ending.lower() == table.suffix.lower()
        if (
            is_same_kind
            and split_in_path(stem).startswith("train")
            and not is_result_form(name)
        ):
            tables.append(table.parent / name)
    return tables


def _rank(name: str) -> tuple[int, bool]:
    split = split_in_path(os.path.splitext(name)[0])
    is_less_likely = _LESS_LIKELY.search(name) is not None
    if split.startswith("train"):
        return 0, is_less_likely
    return 2 if split.startswith("test") else 1, is_less_likely
