"""The ranks that share an epoch -> an error if their loaders differ in what decides their samples.

Note [agreement]
Each rank computes its share of an epoch by itself, from the dataset, the seed, the weights and the
batch sizes. If a rank has another seed, its share is of another order: some samples come twice, and
others never. So ranks compare these facts when an epoch begins, through the key-value store of
torch.distributed: the first rank writes its facts, and the others compare theirs with them. A
collective would wait for all ranks. But a program may iterate in some of them alone (`if rank == 0:
images, labels = next(iter(train))`), or in a thread beside collectives of its own. The store waits
for nobody. The first rank looks again after 1, 2, 4, 8, ... batches and at the epoch's end, whether
another rank has found a difference, so that all of them stop.

The shares of ranks in different epochs do not belong together either. Each rank counts the epochs of
which it reads some batches. The first rank to reach its n-th writes which epoch that is, and another
rank with another n-th epoch logs the difference. It is no error, since a program may read an epoch in
one rank alone.

A rank that evaluates alone (`if rank == 0: evaluate(model, loader)`) reads its share only. So each
rank counts itself when it begins an epoch. One that has read a whole epoch looks later, after some
batches of another one, whether it was the only one, and logs it. Ranks that train in step have
begun the epoch, too, by then, if they read it at all. If another rank has not begun the other one
yet, it may be a few seconds late, so an epoch that has ended just now is looked at with a later
one. A program that ends after it has read one epoch looks at its end. An evaluation that took
longer than that is looked at when it ends: ranks in step begin it together.

Two loaders are compared if the same line of the program made them, in the same turn, and if they
begin the same epoch.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import torch
import xxhash

from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import ConfigError
from fastpipe.loading.caches_of_ranks import caches_of, warn_of_other_cache
from fastpipe.loading.data_parallel import count_data_parallel_ranks
from fastpipe.loading.datasets_of_ranks import (
    RankDataset,
    advise_on_datasets,
    describe_datasets,
    paths_of,
)
from fastpipe.loading.state import Position, epoch_facts
from fastpipe.plan.recipe import Recipe

# Facts that may differ -> a user's name for them, and what to do. Others have their own name.
_OPTIONS = {
    "seed": (
        "seed=",
        "each rank gets samples, crops and flips of its own with the same seed",
    ),
    "global_batch_size": (
        "batch_size= times world_size=",
        "all ranks need the same batch_size=",
    ),
    "dataset_versions": (
        "the dataset's version",
        "pass version= to fastpipe.open on all ranks",
    ),
    "weights": (
        "the weights",
        "pass the same weights on all ranks, also to set_weights: if each rank computes some, sum "
        "them with torch.distributed.all_reduce first",
    ),
    "samples": (
        "the samples",
        "choose the same samples on all ranks: the loader shares them out itself",
    ),
    "numbers": (
        "the numbers",
        "the sampler has to give the same numbers on all ranks: the loader shares them out itself",
    ),
}
# Of these, ranks compare hashes.
_IN_WORDS = {
    "weights": "the weights are different ones",
    "samples": "the dataset has different samples",
    "numbers": "the sampler has given different numbers",
}
_LOG = logging.getLogger("fastpipe")
# An epoch of which a rank reads fewer batches may be a look at the data by this rank alone.
_MIN_BATCHES = 4
# An epoch that has ended so long ago is not one for which another rank is late.
_LOOP_PATIENCE_S = 5.0
# An evaluation that took so long is not one for which another rank is late.
_EVALUATION_PATIENCE_S = 5.0
# At the end of a program, a rank waits so long for others that are late for an epoch it has read.
_EXIT_PATIENCE_S = 1.0
# Line of the program -> how many of the loaders that it made have begun an epoch that several ranks
# share.
_turns: Counter[str] = Counter()
_turns_lock = threading.Lock()


class _ReadEpoch(NamedTuple):
    """An epoch that this process has read to its end."""

    store: Any  # of the ranks that shared it
    key: str
    if_alone: str  # what to log if no other rank has begun it
    ended: float  # monotonic
    rank: int
    elsewhere_key: str  # in the store, once ranks were found in different epochs

    def is_alone(self) -> bool:
        """Whether no other rank has begun it so far. False if the store cannot be reached.

        Ranks in different epochs read each of them alone, which another warning names.
        """
        if _read_value(self.store, self.elsewhere_key):
            return False
        return _count_ranks(self.store, self.key) == 1


_read_epochs: list[_ReadEpoch] = []
# A child has no connection of its own to the store.
os.register_at_fork(after_in_child=_read_epochs.clear)


class Agreement:
    """Compares the facts of one loader with those of the other ranks. Note [agreement]"""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self.line = _calling_line()
        # The number of this loader among those that its line has made; None: it has begun no epoch.
        self._turn: int | None = None
        self._begun: Counter[int] = Counter()  # by epoch: how often it was begun
        # Whether this loader of all samples was compared with those of the other ranks.
        self._was_compared_alone = False
        self._key = ""  # of the running epoch in the store; "": it is not compared
        self._start = Position(0, 0)  # of the running epoch
        self._began_s = 0.0  # monotonic, when it began
        self._num_read = 0  # epochs of which this rank has read some batches
        self._counts_epoch = False  # whether the running epoch is not among these yet

    def begin(self, recipe: Recipe, start: Position) -> None:
        """When an epoch begins. Raises ConfigError if a rank began it with other facts before."""
        epoch = start.epoch
        self._key = ""
        store = _shared_store(recipe)
        if store is None:
            self._warn_if_all_read_all(recipe, epoch)
            return
        ranks = recipe.ranks
        begun = self._begun[epoch]
        key = f"{self._key_of_loader()}/{epoch}/{begun}/{ranks.world_size}"
        # As JSON has them, since another rank reads them so.
        encoded = json.dumps(epoch_facts(recipe, epoch, self._data))
        facts = json.loads(encoded)
        mine = {
            "rank": ranks.rank,
            "machine": platform.node(),
            "facts": facts,
            "paths": paths_of(self._data),
        }
        first = _exchange(store, key, mine)  # this rank's own, if it is the first
        if first is not None and first["facts"] != facts:
            message = self._describe_difference(mine, first, epoch, ranks.world_size)
            _refuse_on_all(store, key, message)
        self._check_rank(store, key, ranks.rank, epoch)
        for cache, folder in caches_of(self._data):
            first_folder = _first_value(
                store, f"{self._key_of_loader()}/{cache}", folder
            )
            if first_folder:
                warn_of_other_cache(cache, folder, first_folder)
        with suppress(RuntimeError):
            store.add(f"{key}/ranks", 1)
        # A rank may begin an epoch several times; the other ranks then do so, too.
        self._begun[epoch] += 1
        self._key = key
        self._start = replace(start)
        self._began_s = time.monotonic()
        self._counts_epoch = True

    def _warn_if_all_read_all(self, recipe: Recipe, epoch: int) -> None:
        """Says if ranks that train one model all read everything, in one order.

        So it is if a program passes rank=0 and world_size=1, the defaults of its own options. With a
        seed of its own, each rank has another order.
        """
        if (
            self._was_compared_alone
            or not recipe.shuffle
            or recipe.ranks.world_size > 1
        ):
            return
        store = _store_of_processes()
        if store is None:
            return
        self._was_compared_alone = True
        if count_data_parallel_ranks() == 1:
            return
        # Ranks that read the same in the same order have the same key.
        facts = json.dumps(epoch_facts(recipe, epoch, self._data), sort_keys=True)
        key = f"fastpipe/all/{self.line}/{xxhash.xxh3_64_hexdigest(facts.encode())}"
        process = str(torch.distributed.get_rank())
        if _first_value(store, key, process) in ("", process):
            return
        # One rank says it for all.
        if _first_value(store, f"{key}/told", process) != process:
            return
        _LOG.warning(
            "torch.distributed has %d ranks, and the loader of %s is rank 0 of 1 on each: each rank "
            "reads all samples, in the same order, so the ranks compute the same gradients. Leave "
            "rank= and world_size= out of fastpipe.loader(...); torch.distributed knows them",
            torch.distributed.get_world_size(),
            self._data.index.path,
        )

    def _check_rank(self, store: Any, key: str, rank: int, epoch: int) -> None:
        """Raises ConfigError if another process reads the share of this rank."""
        process = str(torch.distributed.get_rank())
        first = _first_value(store, f"{key}/rank-{rank}", process)
        if first in ("", process):
            return
        low, high = sorted((int(first), int(process)))
        message = (
            f"the ranks share epoch {epoch} of {self._data.index.path}, but the processes {low} and "
            f"{high} of torch.distributed both read the share of rank={rank}: samples would come "
            "twice, and others not at all. Leave rank= and world_size= of fastpipe.loader(...) out; "
            "torch.distributed knows them. (LOCAL_RANK counts the processes of one machine only)"
        )
        _refuse_on_all(store, key, message)

    def check(self, recipe: Recipe, batches: int, *, is_end: bool = False) -> None:
        """While an epoch runs. Raises ConfigError if a rank has begun it with other facts.

        Args:
            recipe: of the epoch.
            batches: that this rank has read of it.
            is_end: whether these are all.
        """
        store = _shared_store(recipe) if self._key else None
        if store is None:
            return
        key = f"{self._key}/differs"
        message = _read_value(store, key)
        if message:
            raise ConfigError(message)
        if self._counts_epoch and (is_end or batches >= _MIN_BATCHES):
            self._counts_epoch = False
            self._compare_epochs(store, recipe)
            self._num_read += 1
            is_shared = _count_ranks(store, self._key) > 1
            rank_in_step = recipe.ranks.rank if is_shared else None
            _warn_of_epochs_alone(store, rank_in_step)
        if is_end:
            if_alone = self._describe_alone(recipe)
            now_s = time.monotonic()
            rank = recipe.ranks.rank
            epoch = _ReadEpoch(
                store, self._key, if_alone, now_s, rank, self._elsewhere_key
            )
            if not epoch.is_alone():
                return
            # Ranks that train in step begin an evaluation together.
            if not recipe.shuffle and now_s > self._began_s + _EVALUATION_PATIENCE_S:
                _LOG.warning("%s", if_alone)
            else:
                _read_epochs.append(epoch)

    def _describe_alone(self, recipe: Recipe) -> str:
        ranks = recipe.ranks
        return (
            f"{self._data.index.path}: only rank {ranks.rank} of {ranks.world_size} has read epoch "
            f"{self._start.epoch}, and a rank reads its share of the samples. A rank that is to read "
            "all of them alone: fastpipe.loader(..., rank=0, world_size=1). Else iterate on all ranks, "
            "and add up their results"
        )

    def _compare_epochs(self, store: Any, recipe: Recipe) -> None:
        """Logs a warning if another rank reads another epoch, or has begun it elsewhere."""
        rank = recipe.ranks.rank
        size = recipe.ranks.world_size
        key = f"{self._key_of_loader()}/read-{self._num_read}/{size}"
        place = _describe_start(self._start)
        first = _first_value(store, key, f"{rank} {place}")
        other_rank, _, other_place = first.partition(" ")
        if other_place in ("", place) or _read_value(store, self._elsewhere_key):
            return
        with suppress(RuntimeError):
            store.set(self._elsewhere_key, "1")
        _LOG.warning(
            "%s: rank %s reads %s while rank %d reads %s, so some samples come twice, and others not "
            "at all. Has one rank alone looked at a batch, or called set_epoch or load_state_dict? Call "
            "loader.set_epoch(epoch), or load_state_dict(state), on all ranks before the loop",
            self._data.index.path,
            other_rank,
            other_place,
            rank,
            place,
        )

    def _key_of_loader(self) -> str:
        """The start of all keys of this loader in the store."""
        if self._turn is None:
            with _turns_lock:
                self._turn = _turns[self.line]
                _turns[self.line] += 1
        return f"fastpipe/{self.line}/{self._turn}"

    @property
    def _elsewhere_key(self) -> str:
        """The key in the store that says that ranks are in different epochs of this loader."""
        return f"{self._key_of_loader()}/elsewhere"

    def _describe_difference(
        self,
        mine: dict[str, Any],
        first: dict[str, Any],
        epoch: int,
        world_size: int,
    ) -> str:
        # In the order of ranks, so that all ranks say the same.
        low, high = sorted(
            (mine, first), key=lambda rank_facts: int(rank_facts["rank"])
        )
        low_facts = low["facts"]
        high_facts = high["facts"]
        differences = []
        hints = []
        # All facts of both, as one may lack what the other has.
        for name in {**low_facts, **high_facts}:
            if low_facts.get(name) == high_facts.get(name):
                continue
            option, hint = _OPTIONS.get(
                name, (name, "pass the same options on all ranks")
            )
            if name == "dataset":
                low_dataset = _dataset_of(low)
                high_dataset = _dataset_of(high)
                differences.append(describe_datasets(low_dataset, high_dataset))
                hint = advise_on_datasets(low_dataset, high_dataset, world_size)
            elif name in _IN_WORDS:
                # The facts are hashes, which say nothing to a reader.
                differences.append(
                    f"{_IN_WORDS[name]} on rank {low['rank']} and on rank {high['rank']}"
                )
            else:
                differences.append(
                    f"{option} is {low_facts.get(name)!r} on rank {low['rank']} and "
                    f"{high_facts.get(name)!r} on rank {high['rank']}"
                )
            if hint not in hints:
                hints.append(hint)
        return (
            f"the ranks share epoch {epoch} of {self._data.index.path}, but their loaders differ: "
            f"{'; '.join(differences)}. Some samples would come twice, and others not at all. Pass "
            f"the same to fastpipe.loader(...) on all ranks ({'; '.join(hints)}). With rank=0, "
            "world_size=1 each rank reads everything that it is given; DDP waits for ever if ranks "
            "then have different numbers of batches, so pass the same epoch_size= on all of them"
        )


def _dataset_of(rank_facts: dict[str, Any]) -> RankDataset:
    """The dataset in what a rank has written about itself."""
    fingerprint = rank_facts["facts"]["dataset"]
    return RankDataset(
        rank_facts["rank"], rank_facts["machine"], fingerprint, rank_facts["paths"]
    )


def _shared_store(recipe: Recipe) -> Any:
    """The store of torch.distributed, if its ranks are those that share an epoch; else None."""
    world_size = recipe.ranks.world_size
    if world_size < 2:
        return None
    store = _store_of_processes()
    # The program may have divided the ranks into groups itself. Then the store's ranks are not
    # those that share an epoch.
    if store is None or torch.distributed.get_world_size() != world_size:
        return None
    return store


def _store_of_processes() -> Any:
    """The store of torch.distributed, if it has several processes; else None."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() < 2:
        return None
    try:
        return distributed.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, RuntimeError, ValueError):
        # A private function, or no store.
        return None


def _exchange(store: Any, key: str, mine: dict[str, Any]) -> dict[str, Any] | None:
    """As `_first_value`, with facts; None if there are none."""
    try:
        first = json.loads(_first_value(store, key, json.dumps(mine)))
    except ValueError:
        return None
    if isinstance(first, dict) and "facts" in first:
        return first
    return None


def _first_value(store: Any, key: str, mine: str) -> str:
    """Writes a value, if no rank has done so before; returns the value of the first rank.

    "" if the store cannot be reached, or keeps nothing, as in a simulated group.
    """
    try:
        return str(store.compare_set(key, "", mine).decode())
    except RuntimeError:  # the process that has the store may have ended
        return ""


def _read_value(store: Any, key: str) -> str:
    """What a rank has written; "" if none has, or if the store cannot be reached."""
    try:
        if store.check([key]):
            return str(store.get(key).decode())
    except RuntimeError:  # the process that has the store may have ended
        pass
    return ""


def _refuse_on_all(store: Any, key: str, message: str) -> NoReturn:
    """Raises ConfigError here, and leaves the message for the other ranks of the epoch."""
    with suppress(RuntimeError):  # as above
        store.set(f"{key}/differs", message)
    raise ConfigError(message)


def _count_ranks(store: Any, key: str) -> int:
    """How many ranks have begun an epoch so far; 0 if the store cannot be reached."""
    try:
        return int(store.add(f"{key}/ranks", 0))
    except RuntimeError:  # the process that has the store may have ended
        return 0


def _warn_of_epochs_alone(store: Any, rank_in_step: int | None) -> None:
    """Logs which epochs this process has read to their end, and no other rank has begun.

    `rank_in_step`: this rank, if another one has begun the running epoch, too. All ranks run one
    program, so the other one is not late for the epochs before.
    """
    epochs = list(_read_epochs)
    _read_epochs.clear()
    for epoch in epochs:
        # The program may have connected other processes meanwhile.
        if epoch.store is not store or not epoch.is_alone():
            continue
        is_late = time.monotonic() < epoch.ended + _LOOP_PATIENCE_S
        if is_late and epoch.rank != rank_in_step:
            _read_epochs.append(epoch)
        else:
            _LOG.warning("%s", epoch.if_alone)


def _warn_at_exit() -> None:
    """As `_warn_of_epochs_alone`, of a program that begins no other epoch."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for epoch in _read_epochs:
        while epoch.is_alone():
            if time.monotonic() > deadline:
                _LOG.warning("%s", epoch.if_alone)
                break
            time.sleep(0.05)
    _read_epochs.clear()


atexit.register(_warn_at_exit)


def _describe_start(start: Position) -> str:
    if start.batches:
        return f"epoch {start.epoch} from batch {start.batches}"
    return f"epoch {start.epoch}"


def _calling_line() -> str:
    """The line of the program that makes the loader, which is the same on all ranks."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        module = str(frame.f_globals.get("__name__"))
        package, _, _ = module.partition(".")
        if package != "fastpipe":
            return f"{os.path.basename(frame.f_code.co_filename)}:{line}"
    return ""
