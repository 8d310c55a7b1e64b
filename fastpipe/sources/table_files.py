"""The tables in a folder -> the one that is likely to have the labels.

Kaggle's folders also have sampleSubmission.csv or sample_submission.csv, a form for results. It has
an answer for each image of the test, which is not a label.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from fastpipe.sources.listing import Assumption
from fastpipe.sources.splits import some, split_in_path

_SUBMISSION = re.compile(r"(?:sample|example)[-_ ]?subm|submission|submit", re.IGNORECASE)


def with_labels_first(tables: Iterable[str]) -> list[str]:
    """Sorts tables: those of the training first, those of the test last.

    Leaves out forms for results if there are other tables.
    """
    names = list(tables)
    return sorted([name for name in names if not _is_form(name)] or names, key=_rank)


def left_out(tables: Sequence[str]) -> list[Assumption]:
    """Says which tables are not read because they are forms for results."""
    forms = [name for name in tables if _is_form(name)]
    if not forms or len(forms) == len(tables):
        return []
    return [
        Assumption(f"tables: {some(forms)} is not read, for it is called like a form for results")
    ]


def _is_form(name: str) -> bool:
    return _SUBMISSION.search(name) is not None


def _rank(name: str) -> int:
    split = split_in_path(os.path.splitext(name)[0])
    if split.startswith("train"):
        return 0
    return 2 if split.startswith("test") else 1
