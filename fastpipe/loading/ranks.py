"""Arguments, torch.distributed, a launcher's environment -> the ranks of the moment, and the recipe for them."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from fastpipe.errors import ConfigError, whole
from fastpipe.loading.samplers import Sampling
from fastpipe.plan.content import MOST_ROWS
from fastpipe.plan.impossible import impossible
from fastpipe.plan.partition import ALONE, Ranks
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe, check_batches
from fastpipe.samples.dataset import Dataset

# How launchers tell a process its number and that of all. A batch script of Slurm, one process, has SLURM_NTASKS, too.
_LAUNCHERS = {
    "RANK": "WORLD_SIZE",  # torchrun, accelerate, Ray
    "SLURM_PROCID": "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK": "PMI_SIZE",
    "HOROVOD_RANK": "HOROVOD_SIZE",
    "LOCAL_RANK": "WORLD_SIZE",  # what Lightning starts; not its rank where there are several machines
}
# Who iterates in order to give each process a part of it.
_DEALERS = (
    ("accelerate.data_loader", "DataLoaderDispatcher._fetch_batches"),
    ("accelerate.data_loader", "IterableDatasetShard.__iter__"),
    ("datasets.iterable_dataset", "StepExamplesIterable.__iter__"),
)


class World:
    """The processes that train together at the moment, as a user or torch.distributed says, where it is initialised."""

    def __init__(self, rank: object, world_size: object) -> None:
        self._given: Ranks | None = None
        if rank is not None or world_size is not None:
            hint = "pass rank= and world_size=, or neither"
            count = whole("world_size", world_size, least=1, most=2**20, hint=hint)
            self._given = Ranks(whole("rank", rank, least=0, most=count - 1, hint=hint), count)
        elif (worker := get_worker_info()) is not None:
            raise ConfigError(
                f"fastpipe.loader() was called in worker {worker.id} of a torch DataLoader. Each of its "
                f"{worker.num_workers} workers would read the whole dataset. Iterate the loader itself, without a "
                "DataLoader: it decodes in threads of its own. To share it among the workers, pass rank=worker.id and "
                "world_size=worker.num_workers"
            )

    def known(self) -> Ranks | None:
        """In one group: as given, of torch.distributed, or as a launcher promises them; None: nothing tells."""
        name, promised = _launched()  # Lightning's first process has no LOCAL_RANK: no process goes by it, so all agree
        return self._connected() or (None if name in ("", "LOCAL_RANK") else promised)

    def check(self) -> None:
        """Raises ConfigError where each of several processes would read the same batches, or a part of its share."""
        name, launched = _launched()
        if launched.world_size > 1 and self._connected() is None:
            raise ConfigError(
                f"rank, world_size: the launcher started {launched.world_size} processes ({name}={launched.rank}, "
                f"{_LAUNCHERS[name]}={launched.world_size}), but torch.distributed is not initialised, so each process "
                "would read the whole dataset. Call torch.distributed.init_process_group() before the loop over the "
                "loader, or pass rank= and world_size= to fastpipe.loader(...): 0 and 1 if each process is to read all"
            )
        if (self.known() or ALONE).world_size > 1 and (dealer := _dealer()):
            raise ConfigError(
                f"{dealer} gives each process a part of what this loader reads, but the loader reads only the share of "
                "its own rank, so the rest would be lost. Iterate the loader itself, without a DataLoader: "
                "accelerator.prepare leaves it as it is. Or pass rank=0 and world_size=1 to fastpipe.loader(...): then "
                "the loader reads all samples"
            )

    def _connected(self) -> Ranks | None:
        distributed = torch.distributed
        if self._given is None and distributed.is_available() and distributed.is_initialized():
            return Ranks(distributed.get_rank(), distributed.get_world_size())
        return self._given


class Recipes:
    """The ranks of the moment -> the recipe of an epoch that begins now, the same object as long as nothing changes."""

    def __init__(self, world: World, recipe: Recipe, sampling: Sampling, partition: str | int) -> None:
        self.world, self.sampling = world, sampling
        self.size: tuple[int, int] | None = None  # that set_size has set
        self._shuffle = recipe.shuffle
        self._made = lru_cache(1)(partial(_shared, recipe, partition))

    def set_weights(self, weights: Any, data: Dataset) -> None:
        """See Loader.set_weights. Weights that are refused change nothing."""
        sampling = self.sampling.with_weights(weights, data, shuffle=self._shuffle)
        self._made(self.world.known() or ALONE, self.size, sampling)
        self.sampling = sampling

    def now(self, ranks: Ranks | None = None) -> Recipe:
        """The recipe for the ranks of the moment, or for those given."""
        return self._made(ranks or self.world.known() or ALONE, self.size, self.sampling)

    def ask_again(self, epoch: int) -> None:
        """As an epoch begins: a sampler of the program may name other samples than when the epoch was made ahead."""
        if any(isinstance(pick, Listed) and pick.changed(epoch) for pick in self.now().picks):
            self.sampling = replace(self.sampling)  # another one, so another recipe

    def of_batch(self, rows: object) -> Recipe:
        """As `now`; as long as nothing tells the ranks, for so many as give a global batch of these rows."""
        ranks, rest = divmod(rows, self.now().batch_size) if type(rows) is int else (0, 0)
        return self.now(None if self.world.known() or rest or ranks < 1 else Ranks(0, ranks))


def _shared(
    recipe: Recipe, partition: str | int, everyone: Ranks, size: tuple[int, int] | None, sampling: Sampling
) -> Recipe:
    """The recipe where these ranks share epochs, see Note [partition]; ConfigError if a batch or node gets nothing."""
    ranks, sequences = everyone, 1
    if partition != "sample":
        ranks, sequences = in_nodes(everyone, partition)
        if sampling.listed is not None or sampling.by_class is not None:
            raise impossible("listed parts")
    content, world = recipe.content, everyone.world_size
    recipe = sampling.of(replace(recipe, ranks=ranks, sequences=sequences, size=size or recipe.size))
    if content.mixed and recipe.rows(0) > MOST_ROWS:
        raise ConfigError(
            'epoch_size="largest": the dataset with the smallest weight comes to its end after more than '
            f"{MOST_ROWS:,} rows; give it a larger weight, or pass a number as epoch_size"
        )
    check_batches(recipe)
    if recipe.batch_size * world % sequences:
        raise ConfigError(
            f"batch_size={recipe.batch_size}: batch_size times world_size={world} must be a multiple of the "
            f"{sequences} parts of partition=, because each part gives the same number of samples to a batch"
        )
    counts = content.counts() if content.mixed else [recipe.rows(0), len(content)]
    if min(counts) < sequences:
        raise ConfigError(
            f"{content.index.path} has {min(counts)} samples{' of one share' if content.mixed else ''}, fewer than the "
            f'{sequences} parts of partition=; pass partition="sample"'
        )
    return recipe


def ranks_per_node(ranks: Ranks) -> int:
    """How many ranks run on this machine; without a launcher all of them."""
    return min(launched_here() or ranks.world_size, ranks.world_size)


def launched_here() -> int | None:
    """LOCAL_WORLD_SIZE, which torchrun sets; None without a launcher."""
    return _number("LOCAL_WORLD_SIZE")


def in_nodes(ranks: Ranks, partition: str | int) -> tuple[Ranks, int]:
    """The ranks grouped by node, and the number of parts; "node": as many as there are nodes."""
    local = ranks_per_node(ranks)
    if ranks.world_size % local:
        raise ConfigError(
            f'partition="node": expected the same number of ranks on every node, got {ranks.world_size} ranks, '
            f'{local} of them on this node (LOCAL_WORLD_SIZE); pass partition="sample"'
        )
    nodes = ranks.world_size // local
    parts = partition if isinstance(partition, int) else nodes
    if parts % nodes:
        of = f"{nodes} nodes ({ranks.world_size} ranks, {local} on each)"
        raise ConfigError(f"partition: expected a multiple of the {of}, got {parts}")
    return replace(ranks, nodes=nodes), parts


def _launched() -> tuple[str, Ranks]:
    """The variable in which a launcher says this process's number, and what it says; ("", ALONE) without a launcher."""
    for name, of_all in _LAUNCHERS.items():
        rank, world_size = _number(name), _number(of_all)
        if rank is not None and world_size is not None and rank < world_size > 1:
            return name, Ranks(rank, world_size)
    return "", ALONE


def _dealer() -> str | None:
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe()))
    callers = ((frame.f_globals.get("__name__"), frame.f_code.co_qualname) for frame in frames)
    return next((".".join(each).rpartition(".")[0] for each in callers if each in _DEALERS), None)


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None
