"""The tables in a folder -> which of them is likely to have the labels, and which are forms for results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from fastpipe.sources.listing import Assumption
from fastpipe.sources.splits import some, split_in_path

# Kaggle's sampleSubmission.csv and sample_submission.csv have an answer for each image of the test, which is no label.
_SUBMISSION = re.compile(r"(?:sample|example)[-_ ]?subm|submission|submit", re.IGNORECASE)


def is_submission(name: str) -> bool:
    """Whether a table is called like a form for results, which has no labels."""
    return _SUBMISSION.search(name) is not None


def with_labels_first(tables: Iterable[str]) -> list[str]:
    """Tables without forms for results, those of the training first; all of them if there are no others."""
    tables = list(tables)
    kept = [name for name in tables if not is_submission(name)] or tables
    return sorted(kept, key=_rank)


def _rank(name: str) -> int:
    word = split_in_path(os.path.splitext(name)[0])
    return 2 if word.startswith("test") else 0 if word.startswith("train") else 1


def left_out(tables: Sequence[str]) -> list[Assumption]:
    """Says which tables are not read since they are forms for results."""
    forms = [name for name in tables if is_submission(name)]
    if not forms or len(forms) == len(tables):
        return []
    return [
        Assumption(f"tables: {some(forms)} is not read, for it is called like a form for results")
    ]
