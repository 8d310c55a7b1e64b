"""The tables in a folder -> those that are likely to have the labels.

Kaggle's folders also have sampleSubmission.csv or sample_submission.csv, a form for results. It has
an answer for each image of the test, which is not a label. Nor is what a model has answered: people
write predictions.csv beside their images.
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
    r"lemma|expert|crowdflower|bbox|boxes|landmark|keypoint|identity|partition|(?:^|[-_ ])(?:split|fold)s?(?:[-_ ]|$)",
    re.IGNORECASE,
)
_SPLIT_WORD = re.compile(
    r"(?<![a-z])(?:test|testing|val|valid|validation|dev|eval)(?![a-z])", re.IGNORECASE
)
_SUBMISSION = re.compile(
    r"(?:sample|example)[-_ ]?subm|submission|submit|(?:^|[-_. ])pred(?:iction)?s?(?:[-_. ]|$)",
    re.IGNORECASE,
)
# Columns with a model's answers.
_ANSWER = re.compile(
    r"(?:.*[-_ ])?(?:predict(?:ion|ed|ions)?|preds?|probabilit(?:y|ies)|probs?|logits?|softmax)"
    r"(?:[-_ ].*)?",
    re.IGNORECASE,
)


def sort_labelled_first(tables: Iterable[str]) -> list[str]:
    """Sorts tables: those of the training first, those of the test last.

    Of one split, tables of boxes, points, persons or splits come last. Forms for results are left
    out if there are other tables.
    """
    names = list(tables)
    without_forms = [name for name in names if not is_result_form(name)]
    return sorted(without_forms or names, key=_rank)


def assume_forms_skipped(tables: Sequence[str]) -> list[Assumption]:
    """Says which tables are not read because they are forms for results."""
    forms = [name for name in tables if is_result_form(name)]
    # If there is nothing else, a form is read as a table.
    if not forms or len(forms) == len(tables):
        return []
    text = f"tables: {first_paths(forms)} is not read, because its name is that of results or of a form for them"
    return [Assumption(text)]


def is_result_form(name: str) -> bool:
    """Whether a table is called like results, or like a form for them, which have no labels."""
    return _SUBMISSION.search(name) is not None


def has_answers(columns: Iterable[str]) -> bool:
    """Whether a column is called like the answers of a model, which are no labels."""
    return any(_ANSWER.fullmatch(column.strip()) for column in columns)


def training_tables(table: SourcePath) -> list[SourcePath]:
    """The tables of the training beside one of another split; none beside one of no split.

    If one of them has the name of the table but for the split, it is the only one.
    """
    if split_in_path(table.name).startswith("train"):
        return []
    # FGVC has images_variant_test.txt beside images_variant_train.txt and images_family_train.txt.
    counterpart = _SPLIT_WORD.sub("train", table.name).lower()
    tables: list[SourcePath] = []
    counterparts: list[SourcePath] = []
    for other in tables_of_other_splits(table):
        if not split_in_path(other.name).startswith("train"):
            continue
        tables.append(other)
        if other.name.lower() == counterpart:
            counterparts.append(other)
    return counterparts or tables


def tables_of_other_splits(table: SourcePath) -> list[SourcePath]:
    """The tables beside one that are called after other splits; none beside one of no split."""
    if not isinstance(table, Path):
        return []
    split = split_in_path(table.stem)
    if not split:
        return []
    tables: list[SourcePath] = []
    for name in names_in(table.parent, FEW).files:
        stem, ending = os.path.splitext(name)
        if ending.lower() != table.suffix.lower() or is_result_form(name):
            continue
        if split_in_path(stem) not in ("", split):
            tables.append(table.parent / name)
    return tables


def _rank(name: str) -> tuple[int, bool]:
    """The key that `sort_labelled_first` sorts by."""
    split = split_in_path(os.path.splitext(name)[0])
    rank = 1
    if split.startswith("train"):
        rank = 0
    elif split.startswith("test"):
        rank = 2
    return rank, _LESS_LIKELY.search(name) is not None
