"""The ranks that share an epoch -> an error if their loaders differ in what decides which samples each of them gets.

Note [agreement]
Each rank computes its share of an epoch by itself, from the dataset, the seed, the weights and the batch sizes. A rank
with another seed has a share of another order: some samples come twice, and others not at all. So ranks compare these
when an epoch begins, through the key-value store of torch.distributed: the first rank writes its values, and the others
compare theirs with them. A collective would wait for all ranks, and a program may iterate in some of them alone
(`if rank == 0: images, labels = next(iter(train))`), or in a thread beside collectives of its own. The store waits for
nobody. A rank that was first looks again after 1, 2, 4, 8, ... batches and at the epoch's end, whether another rank has
found a difference, so that all of them stop.

Two loaders are compared if the same line of the program made them, in the same turn, and if they begin the same epoch.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections import Counter
from contextlib import suppress
from typing import Any

import torch

from fastpipe.errors import ConfigError
from fastpipe.loading.state import facts_of
from fastpipe.plan.recipe import Recipe
from fastpipe.samples.dataset import Dataset

# What a user calls the facts that may differ, and what to do then. Others are named as they are.
_OPTIONS = {
    "seed": ("seed=", "each rank gets samples, crops and flips of its own with the same seed"),
    "global_batch_size": ("batch_size= times world_size=", "all ranks need the same batch_size="),
    "dataset": ("the dataset", "all ranks have to read the same files: a rank may have an older or unfinished copy"),
    "dataset_versions": ("the dataset's version", "pass version= to fastpipe.open on all ranks"),
    "weights": ("a hash of the weights", "pass the same weights on all ranks, also to set_weights"),
    "samples": ("a hash of the samples", "choose the same samples on all ranks: the loader shares them out itself"),
    "numbers": (
        "a hash of the numbers that the sampler gave",
        "the sampler has to give the same numbers on all ranks: the loader shares them out itself",
    ),
}
_turns: Counter[str] = Counter()  # by line of the program, loaders that have begun an epoch among several ranks
_lock = threading.Lock()


class Agreement:
    """Compares one loader's facts with those of the other ranks. Note [agreement]"""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._line = _calling_line()
        self._turn: int | None = None  # of this loader among those of its line
        self._begun: Counter[int] = Counter()  # by number, how often an epoch was begun
        self._key = ""  # of the running epoch, if it is compared

    def begin(self, recipe: Recipe, epoch: int) -> None:
        """As an epoch begins. ConfigError: a rank that began it before has other facts."""
        self._key = ""
        store = _store_of(recipe)
        if store is None:
            return
        ranks = recipe.ranks
        key = f"fastpipe/{self._line}/{self._own_turn()}/{epoch}/{self._begun[epoch]}/{ranks.world_size}"
        mine = {"rank": ranks.rank, "facts": self._facts(recipe, epoch)}
        first = _exchanged(store, key, json.dumps(mine))
        if first is not None and first["facts"] != mine["facts"]:
            words = self._difference(mine, first, epoch)
            with suppress(RuntimeError):
                store.set(f"{key}/differs", words)
            raise ConfigError(words)
        self._begun[epoch] += 1
        self._key = key

    def look(self, recipe: Recipe) -> None:
        """While an epoch runs. ConfigError: a rank that began it later has other facts."""
        store = _store_of(recipe) if self._key else None
        if store is None:
            return
        words = ""
        with suppress(RuntimeError):  # the process that has the store may have ended
            if store.check([f"{self._key}/differs"]):
                words = store.get(f"{self._key}/differs").decode()
        if words:
            raise ConfigError(words)

    def _own_turn(self) -> int:
        if self._turn is None:
            with _lock:
                self._turn = _turns[self._line]
                _turns[self._line] += 1
        return self._turn

    def _facts(self, recipe: Recipe, epoch: int) -> dict[str, Any]:
        """What decides which samples are in which global batch, as another rank reads it."""
        return dict(json.loads(json.dumps(facts_of(recipe, epoch, self._data))))

    def _difference(self, one: dict[str, Any], other: dict[str, Any], epoch: int) -> str:
        lower, higher = sorted((one, other), key=lambda said: int(said["rank"]))
        ours, theirs = lower["facts"], higher["facts"]
        names = [name for name in (*ours, *(theirs.keys() - ours.keys())) if ours.get(name) != theirs.get(name)]
        pairs, hints = [], []
        for name in names:
            option, hint = _OPTIONS.get(name, (name, "pass the same options on all ranks"))
            on_lower = f"{ours.get(name)!r} on rank {lower['rank']}"
            pairs.append(f"{option} is {on_lower} and {theirs.get(name)!r} on rank {higher['rank']}")
            if hint not in hints:
                hints.append(hint)
        return (
            f"the ranks share epoch {epoch} of {self._data.index.path}, but their loaders differ: {'; '.join(pairs)}. "
            "Some samples would come twice, and others not at all. Pass the same to fastpipe.loader(...) on all ranks "
            f"({'; '.join(hints)}). A rank that is to read by itself: rank=0, world_size=1"
        )


def _store_of(recipe: Recipe) -> Any:
    """The store of torch.distributed, if the ranks that share an epoch are its ranks; else None."""
    distributed = torch.distributed
    ranks = recipe.ranks
    if ranks.world_size < 2 or not distributed.is_available() or not distributed.is_initialized():
        return None
    if (distributed.get_rank(), distributed.get_world_size()) != (ranks.rank, ranks.world_size):
        return None  # groups of ranks that a program has made itself
    with suppress(AttributeError, KeyError, RuntimeError, ValueError):
        return distributed.distributed_c10d._get_default_store()
    return None


def _exchanged(store: Any, key: str, mine: str) -> dict[str, Any] | None:
    """What the first rank wrote under this key; None: the store does not say."""
    try:
        said = json.loads(store.compare_set(key, "", mine))
    except (RuntimeError, ValueError):  # it cannot be reached, or it is none, as in a simulated group
        return None
    return said if isinstance(said, dict) and "facts" in said else None


def _calling_line() -> str:
    """The line of the program that makes the loader, which is the same on all ranks."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        if str(frame.f_globals.get("__name__")).partition(".")[0] != "fastpipe":
            return f"{os.path.basename(frame.f_code.co_filename)}:{line}"
    return ""
