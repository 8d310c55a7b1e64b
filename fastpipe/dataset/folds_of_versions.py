"""A stratified fold of a dataset that has grown -> how many samples have another part than before.

With `stratify`, the part of a sample depends on all samples: see Note [folds] in folding.py. Who goes
on with a trained model would then evaluate it on samples that it has learned from.
"""

from __future__ import annotations

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.choosing import hash_pictures
from fastpipe.dataset.folding import assign_parts
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.selection import Selection
from fastpipe.errors import DatasetError, format_count
from fastpipe.warnings_once import is_known, warn_once

# More samples take longer than a warning is worth.
_MOST_COMPARED = 2_000_000


def warn_of_changed_parts(
    data: BaseDataset, parts: Int64s, fold: int, count: int
) -> None:
    """Logs, once, how many samples of a part were in another one in the version before.

    Args:
        data: the samples.
        parts: (n,) the part of each, by `stratify` without `groups`.
        fold, count: as `fold` and `of` of Dataset.fold.
    """
    warning = f"parts of versions {data.path}"
    if is_known(warning) or not _is_whole_later_version(data):
        return
    version = data.version
    try:
        stored = data.stored[0].at_version(version - 1)
        before = BaseDataset(Selection((stored,)))
        if len(before) > _MOST_COMPARED:
            return
        parts_before = assign_parts(
            before, count, level=0, stratify="label", groups=None
        )
        pictures_before = hash_pictures(before.content)
    except DatasetError:
        return  # the files of the version before may be gone

    ids = np.flatnonzero(parts == fold)
    pictures = hash_pictures(data.content)[ids]
    others_before = pictures_before[parts_before != fold]
    num_changed = int(np.isin(pictures, others_before).sum())
    if not num_changed:
        return
    samples = format_count(len(ids), "sample")
    warn_once(
        warning,
        f"fold: {data.path} has other samples in version {version} than in version {version - 1}, and "
        f"with stratify= {num_changed:,} of the {samples} of this part were in the rest before. To go "
        "on with a model that was trained on the rest: fold without stratify=, or keep the keys of the "
        "old part. For a new model it does not matter",
    )


def _is_whole_later_version(data: BaseDataset) -> bool:
    """Whether these are all samples of a packed dataset on this machine that has grown."""
    content = data.content
    is_as_stored = (
        data._selection.relabelling is None
        and content.samples is None
        and content.labels is None
    )
    if not is_as_stored or len(data) > _MOST_COMPARED:
        return False
    return data.version > 1 and not isinstance(data.path, Url)
