"""Datasets -> one dataset of all their samples, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.errors.checks import choice
from fastpipe.format.columns import JoinedColumn, starts_of
from fastpipe.format.mixed_index import union
from fastpipe.plan.content import ById
from fastpipe.samples.by_id import Computed
from fastpipe.samples.data import Data, unchanged

_LABELS = ("union", "offset", "own")

D = TypeVar("D", bound=Data)


def joined(parts: Sequence[D], mode: str) -> D:
    """See `concat` in opening.py."""
    choice("labels", mode, _LABELS)
    if any(part._single != parts[0]._single for part in parts):
        raise ConfigError(
            "the datasets have other transforms, crops, pixels or fields of single samples; leave these out, and call "
            "with_transform, cropped, with_pixels and with_fields on the dataset of all"
        )
    names, new = _classes_of(parts, mode)
    relabelled = []
    for part, labels in zip(parts, new, strict=True):
        relabelled += [labels[old] for old in part._store_labels]
    starts = starts_of([len(part) for part in parts])
    by_id = None
    if any(part._labels is not None for part in parts):
        each = zip(parts, new, strict=True)
        by_id = _behind("label", [Computed(part.by_id("label"), labels.__getitem__) for part, labels in each], starts)
    added: dict[str, ById] = {}
    for name in dict.fromkeys(name for part in parts for name in part._added):
        for part in parts:
            if name not in part.columns:
                raise ConfigError(f"{part.path} has no column {name!r}; pass with_column({name!r}, ...) to it, too")
        added[name] = _behind(name, [part.by_id(name) for part in parts], starts)
    identities = [part._identity for part in parts]
    identity: dict[str, Any] = {"labels": mode} if len(parts) > 1 else {}
    if any(identities):
        identity["parts"] = identities
    return parts[0]._with(
        stores=tuple(store for part in parts for store in part._stores),
        relabelled=(names, relabelled),
        samples=_samples_of(parts),
        starts=None,
        weights=(1.0,),
        labels=by_id,
        added=added,
        identity=identity,
    )


def _behind(name: str, columns: Sequence[ById], starts: NDArray[np.int64]) -> ById:
    """The values of some datasets, one behind the other; `starts` has the first id of each."""
    nothing = [column.take(np.empty(0, dtype=np.int64)) for column in columns]
    kinds = {(type(each), getattr(each, "shape", ())) for each in nothing}
    if len(kinds) > 1:
        found = [f"{each.dtype} of {each.shape[1:]}" if isinstance(each, np.ndarray) else "texts" for each in nothing]
        raise ConfigError(
            f"the column {name!r} needs values of one kind and shape in all datasets, got {', '.join(found)}; pass "
            "such values to with_column"
        )
    if isinstance(nothing[0], np.ndarray):
        dtype = np.result_type(*nothing)
        columns = [Computed(column, partial(np.asarray, dtype=dtype)) for column in columns]
    return JoinedColumn(starts, columns)


def _samples_of(parts: Sequence[Data]) -> NDArray[np.int64] | None:
    if all(part._samples is None for part in parts):
        return None
    firsts = starts_of([len(part.index) for part in parts])
    given = [np.arange(len(part), dtype=np.int64) if part._samples is None else part._samples for part in parts]
    return np.concatenate([each + first for each, first in zip(given, firsts, strict=False)])


def _classes_of(parts: Sequence[Data], mode: str) -> tuple[list[str], list[NDArray[np.int64]]]:
    """The names of all classes; for each dataset the new labels of its own, and behind them that of NO_LABEL."""
    given = [part.classes for part in parts]
    if mode == "offset":
        given = [[f"{number}/{name}" for name in each] for number, each in enumerate(given)]
    elif mode == "own":
        longest = max(map(len, given))
        return [str(label) for label in range(longest)], [unchanged(each) for each in given]
    return union(given)
