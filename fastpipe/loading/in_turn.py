"""Batches of two loaders that a program takes in turn -> a warning if their rows should be pairs.

Photos and their targets that lie in two datasets do not come in pairs from zip(photos, targets):
the order of a loader follows from its own dataset. Nothing fails, and a model learns from wrong
pairs. Programs that draw from two datasets on purpose (labelled and unlabelled photos, two domains)
look alike. So the log says it only if the datasets have about as many samples, and the same names.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from pathlib import PurePosixPath

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.errors import DatasetError
from fastpipe.loading.prefetcher import Prefetcher
from fastpipe.plan.content import Content
from fastpipe.warnings_once import is_known, remember

_LOG = logging.getLogger("fastpipe")
_NUM_TURNS = 6  # first, second, first, second, first, second
_NUM_ROWS = 16  # of a batch whose names are compared
_MOST_COMPARED = 20_000_000  # samples of a dataset
_SHARE_OF_NAMES = 0.7  # of the samples of a dataset that another one has, too
_SHARE_OF_WRONG_PAIRS = (
    0.5  # of the rows; rows that belong together have no wrong pairs
)


class _Turns(threading.local):
    """The epochs of the last batches that a thread has got. Threads do not read pairs in turn."""

    def __init__(self) -> None:
        self.prefetchers: deque[weakref.ref[Prefetcher]] = deque(maxlen=_NUM_TURNS)


_turns = _Turns()


def note_turn(prefetcher: Prefetcher) -> None:
    """Notes that a program gets a batch of an epoch; compares two epochs that are read in turn."""
    turns = _turns.prefetchers
    if turns and turns[-1]() is prefetcher:
        # One loader alone, as in most programs.
        turns.clear()
    turns.append(weakref.ref(prefetcher))
    if len(turns) < _NUM_TURNS:
        return
    in_turn = [reference() for reference in turns]
    first, second = in_turn[0], in_turn[1]
    if first is None or second is None:
        return
    if in_turn != [first, second] * (_NUM_TURNS // 2):
        return
    # Else this batch of one is the partner of the next batch of the other.
    if first.num_taken == second.num_taken:
        _compare(first, second)


def _compare(first: Prefetcher, second: Prefetcher) -> None:
    """Logs that rows of two epochs are no pairs, if their datasets have the same names."""
    first_content = first.recipe.content
    second_content = second.recipe.content
    first_index = first_content.index
    second_index = second_content.index
    contents = sorted([first_index.content, second_index.content])
    pair = f"in turn {contents}"
    if first_index.content == second_index.content or is_known(pair):
        return
    remember(pair)
    first_ids = first.last_ids
    second_ids = second.last_ids
    counts = [len(first_content), len(second_content)]
    if len(first_ids) != len(second_ids) or min(counts) < _SHARE_OF_NAMES * max(counts):
        return
    if max(counts) > _MOST_COMPARED:
        return
    try:
        first_paths = _paths_of(first_content, first_ids[:_NUM_ROWS])
        second_paths = _paths_of(second_content, second_ids[:_NUM_ROWS])
        if not _has_names(second_content, first_paths, second_paths):
            return
    except DatasetError:
        return  # whoever reads a damaged record gets the error
    others = []
    for path, other_path in zip(first_paths, second_paths, strict=True):
        if _without_ending(path) != _without_ending(other_path):
            others.append((path, other_path))
    if len(others) < _SHARE_OF_WRONG_PAIRS * len(first_paths):
        return
    path, other_path = others[0]
    _LOG.warning(
        f"batches of {first_index.path} and {second_index.path} are read in turn, as zip does, and "
        f"their rows do not belong together: a row of {path} comes with one of {other_path}. The "
        "order of a loader follows from its own dataset. If each sample has a partner of the same "
        "name, pack both as one dataset, with the partner as a field: fastpipe.Writer(DST, "
        'fields={"target": "image"}), or fastpipe pack TABLE.csv DST --field target=COLUMN:image'
    )


def _paths_of(content: Content, ids: Int64s) -> list[str]:
    """The source paths of samples."""
    source_paths = SourcePaths(content.index)
    return source_paths.of(content.numbers(ids), content.records_of(ids))


def _has_names(content: Content, paths: list[str], some_paths: list[str]) -> bool:
    """Whether most of these paths are those of samples, with another ending of the file at most.

    The index has hashes of paths alone. So the paths are tried with the endings that some paths of
    the samples have.
    """
    endings = {PurePosixPath(path).suffix for path in some_paths}
    all_ids = np.arange(len(content), dtype=np.int64)
    hashes = content.index.hashes(content.numbers(all_ids), "key")
    num_same = 0
    for ending in endings:
        tried_paths = [_without_ending(path) + ending for path in paths]
        num_same += int(np.isin(key_hashes(tried_paths), hashes).sum())
    return num_same >= _SHARE_OF_NAMES * len(paths)


def _without_ending(path: str) -> str:
    return path.removesuffix(PurePosixPath(path).suffix)
