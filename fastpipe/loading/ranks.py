"""Arguments, torch.distributed, a launcher's environment -> the ranks that share an epoch."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace

import torch
from torch.utils.data import get_worker_info

from fastpipe.errors import ConfigError, whole
from fastpipe.machine.environment import read_number
from fastpipe.plan.partition import ALONE, Ranks
from fastpipe.warnings_once import warn_once

# The variables in which launchers give a process its rank and the number of processes.
_LAUNCHERS = {
    "RANK": "WORLD_SIZE",  # torchrun, accelerate, Ray
    # Not SLURM_NTASKS: the batch script, a single process, has it, too.
    "SLURM_PROCID": "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK": "PMI_SIZE",
    "HOROVOD_RANK": "HOROVOD_SIZE",
    # Lightning starts processes with this variable alone. On several machines it is not the rank.
    "LOCAL_RANK": "WORLD_SIZE",
}
# Functions, by module, that iterate over a loader to give each process a part of its batches.
_SPLITTERS = (
    ("accelerate.data_loader", "DataLoaderDispatcher._fetch_batches"),
    ("accelerate.data_loader", "IterableDatasetShard.__iter__"),
    ("datasets.iterable_dataset", "StepExamplesIterable.__iter__"),
)


class RankResolver:
    """Finds out which ranks share an epoch: from arguments, or from torch.distributed.

    torch.distributed is asked each time, because a program may initialise it after it has made
    its loaders.
    """

    def __init__(self, rank: object, world_size: object) -> None:
        self._given: Ranks | None = None
        worker = get_worker_info()
        if rank is not None or world_size is not None:
            hint = "pass rank= and world_size=, or neither"
            if isinstance(rank, str) or isinstance(world_size, str):
                hint = 'variables of the environment are texts: int(os.environ["RANK"])'
            count = whole("world_size", world_size, least=1, most=2**20, hint=hint)
            if rank == count and not isinstance(rank, bool):
                hint = "ranks are numbered from 0: pass 0 to world_size - 1"
            number = whole("rank", rank, least=0, most=count - 1, hint=hint)
            self._given = Ranks(number, count)
        elif worker is not None:
            raise ConfigError(
                f"fastpipe.loader() was called in worker {worker.id} of a torch DataLoader. Each "
                f"of its {worker.num_workers} workers would read the whole dataset. Iterate the "
                "loader itself, without a DataLoader: it decodes in threads of its own. To share "
                "it among the workers, pass rank=worker.id and world_size=worker.num_workers"
            )

    def known(self) -> Ranks | None:
        """The ranks as given, of torch.distributed, or as a launcher announces them; or None."""
        connected = self._connected()
        if connected is not None:
            return connected
        name, announced = _launched()
        # Lightning's first process has no LOCAL_RANK, so the others do not use theirs: all ranks
        # have to come to the same result.
        if name in ("", "LOCAL_RANK"):
            return None
        return announced

    def seems_alone(self) -> bool:
        """Whether nothing tells the ranks, and no launcher has started several processes."""
        _, launched = _launched()
        return self.known() is None and launched.world_size == 1

    def check(self) -> None:
        """Raises ConfigError if each process would read all batches, or a part of its share."""
        name, launched = _launched()
        connected = self._connected()
        if launched.world_size > 1 and connected is not None:
            self._warn_of_launcher(name, launched, connected)
        # A launcher has started several processes, and nothing says which of them share an epoch.
        if launched.world_size > 1 and connected is None:
            raise ConfigError(
                f"rank, world_size: the launcher started {launched.world_size} processes "
                f"({name}={launched.rank}, {_LAUNCHERS[name]}={launched.world_size}), but "
                "torch.distributed is not initialised, so each process would read the whole "
                "dataset. Call torch.distributed.init_process_group() before the loop over the "
                "loader, or pass rank= and world_size= to fastpipe.loader(...): rank=0, world_size=1 "
                "if each process is to read everything. If no launcher has started this process, "
                f"unset {name} and {_LAUNCHERS[name]}"
            )
        if (self.known() or ALONE).world_size == 1:
            return
        splitter = _calling_splitter()
        if splitter is not None:
            raise ConfigError(
                f"{splitter} gives each process a part of what this loader reads, but the loader "
                "reads only the share of its own rank, so the rest would be lost. Iterate the "
                "loader itself, without a DataLoader: accelerator.prepare leaves it as it is. Or "
                "pass rank=0 and world_size=1 to fastpipe.loader(...): then the loader reads all "
                "samples"
            )

    def _warn_of_launcher(self, name: str, launched: Ranks, connected: Ranks) -> None:
        """Says if a launcher's variables contradict the ranks of this loader.

        `name`: the launcher's variable for the rank.
        """
        variables = f"{name}={launched.rank}, {_LAUNCHERS[name]}={launched.world_size}"
        # Of other launchers than those with RANK a program may number the processes in its own way.
        has_all = connected.world_size == launched.world_size
        is_renumbered = has_all and connected.rank != launched.rank
        message = ""
        if self._given is None:
            # WORLD_SIZE=1 of torchrun says that each task of Slurm trains alone.
            trains_alone = read_number("WORLD_SIZE") == 1
            if connected.world_size == 1 and not trains_alone:
                message = (
                    f"the launcher started {launched.world_size} processes ({variables}), and "
                    "torch.distributed has 1, so each process reads the whole dataset. Call "
                    "torch.distributed.init_process_group() without rank= and world_size=; or, if "
                    "each process is to read all, pass rank=0 and world_size=1 to "
                    "fastpipe.loader(...)"
                )
        elif name == "RANK" and is_renumbered:
            message = (
                f"fastpipe.loader(..., rank={connected.rank}, "
                f"world_size={connected.world_size}): the launcher numbers this process "
                f"otherwise ({variables}). If two processes have one rank, their samples come "
                "twice, and others not at all. "
            )
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                message += (
                    "Leave rank= and world_size= out: torch.distributed knows them"
                )
            else:
                message += 'Pass rank=int(os.environ["RANK"])'
        if message:
            warn_once(message, message)

    def _connected(self) -> Ranks | None:
        if self._given is not None:
            return self._given
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return None
        return Ranks(distributed.get_rank(), distributed.get_world_size())


def ranks_per_node(ranks: Ranks) -> int:
    """How many ranks run on this machine; without a launcher all of them."""
    return min(launched_here() or ranks.world_size, ranks.world_size)


def launched_here() -> int | None:
    """LOCAL_WORLD_SIZE, which torchrun sets; None without a launcher."""
    return read_number("LOCAL_WORLD_SIZE")


def group_by_node(ranks: Ranks, partition: str | int) -> tuple[Ranks, int]:
    """Groups the ranks by node; returns them and the number of parts.

    With partition="node" there are as many parts as nodes.
    """
    local = ranks_per_node(ranks)
    if ranks.world_size % local:
        raise ConfigError(
            f'partition="node": expected the same number of ranks on every node, got '
            f"{ranks.world_size} ranks, {local} of them on this node (LOCAL_WORLD_SIZE); pass "
            'partition="sample"'
        )
    nodes = ranks.world_size // local
    parts = partition if isinstance(partition, int) else nodes
    if parts % nodes:
        raise ConfigError(
            f"partition: expected a multiple of the {nodes} nodes ({ranks.world_size} ranks, "
            f"{local} on each), got {parts}"
        )
    return replace(ranks, nodes=nodes), parts


def _launched() -> tuple[str, Ranks]:
    """A launcher's variable for the rank, and the ranks by it; ("", ALONE) without a launcher."""
    for name, world_size_name in _LAUNCHERS.items():
        rank = read_number(name)
        world_size = read_number(world_size_name)
        if rank is not None and world_size is not None and rank < world_size > 1:
            return name, Ranks(rank, world_size)
    return "", ALONE


def _calling_splitter() -> str | None:
    """The class among the callers of this function that splits batches among processes."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        module = frame.f_globals.get("__name__")
        function = frame.f_code.co_qualname
        if (module, function) in _SPLITTERS:
            class_name = function.rpartition(".")[0]
            return f"{module}.{class_name}"
    return None
