"""Two parts of a dataset -> which patients, videos or the like are in both.

The images of a patient are alike. So a model that has learned from some of them is better at the
others than at those of a new patient, and its figures are too good.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.warnings_once import is_known, remember, warn_once

# More samples take longer than a warning is worth.
_MOST_SAMPLES = 1 << 20
_UNITS = frozenset(
    {
        "patient",
        "participant",
        "subject",
        "person",
        "case",
        "study",
        "slide",
        "video",
        "clip",
        "scene",
        "sequence",
        "session",
        "recording",
    }
)
# Names that are hardly meant as something else, also without "id".
_PLAIN_UNITS = frozenset({"patient", "participant"})
# Such columns may have kinds, such as "street" or "upper", if they are not called scene_id.
_NAMES_OF_KINDS = frozenset({"scene", "case", "study", "clip", "session", "sequence"})
_ID_WORDS = frozenset({"id", "uid", "uuid", "identifier"})
# A column "video" may have kinds of videos: those are few.
_LEAST_NAMES = 10
_LEAST_REPEATED = 2  # values


def warn_of_divided_groups(first: BaseDataset, second: BaseDataset) -> None:
    """Logs once of which column two parts of one dataset have values in common."""
    if len(first) + len(second) > _MOST_SAMPLES:
        return
    for name, field in first.fields.items():
        warning = f"divided {name} {first.path}"
        if field.kind not in ("int", "text", "column") or is_known(warning):
            continue
        if not _may_be_unit(name) or name not in second.columns:
            continue
        message = _describe(name, first, second)
        if message is not None:
            warn_once(warning, message)
            return
        remember(warning)  # so that a loop over folds looks at it once


def _may_be_unit(name: str) -> bool:
    words = name.lower().split("_")
    last = words[-1]
    if last in _ID_WORDS:
        return len(words) > 1 and words[-2] in _UNITS
    if last in _NAMES_OF_KINDS:
        return False
    return last in _UNITS or last.removesuffix("id") in _UNITS


def _is_surely_unit(name: str) -> bool:
    last = name.lower().split("_")[-1]
    return last.endswith(("id", "identifier")) or last in _PLAIN_UNITS


def _describe(name: str, first: BaseDataset, second: BaseDataset) -> str | None:
    first_row = first.column(name)[:1]  # rows may be large
    if first_row.ndim != 1 or first_row.dtype.kind not in "iuUO":
        return None
    values = _column_of_both(name, first, second)
    is_text = values.dtype.kind in "UO"
    if is_text:
        values = values.astype(str)
    distinct, group_of, sizes = np.unique(
        values, return_inverse=True, return_counts=True
    )
    if not _is_surely_unit(name) and (not is_text or len(distinct) < _LEAST_NAMES):
        return None  # a number of persons, or a kind of scenes
    if (sizes > 1).sum() < _LEAST_REPEATED:
        return None
    if _are_labels(group_of, _column_of_both("label", first, second)):
        return None
    num_first = len(first)
    in_both = np.intersect1d(group_of[:num_first], group_of[num_first:])
    if is_text:
        in_both = in_both[distinct[in_both] != ""]  # samples without a value
    if not len(in_both):
        return None
    verb = "is" if len(in_both) == 1 else "are"
    return (
        f"{len(in_both):,} of the {len(distinct):,} values of {name!r} {verb} in both parts of "
        f"{first.path}, so what is learned from some samples of a value is evaluated on others of it. "
        f"To keep each value in one part: data.fold(0, of=5, groups={name!r})"
    )


def _column_of_both(
    name: str, first: BaseDataset, second: BaseDataset
) -> NDArray[np.generic]:
    columns = [np.asarray(first.column(name)), np.asarray(second.column(name))]
    return np.concatenate(columns)


def _are_labels(group_of: Int64s, labels: NDArray[np.generic]) -> bool:
    """Whether each value is one class: as in face recognition, both parts need all of them."""
    label_of = np.unique(labels, return_inverse=True)[1]
    num_pairs = int(np.unique(np.stack([group_of, label_of]), axis=1).shape[1])
    num_groups = int(group_of.max()) + 1
    num_labels = int(label_of.max()) + 1
    return num_pairs == num_groups == num_labels
