"""torch.distributed, the launcher's environment and arguments -> the rank of this process and the number of ranks."""

from __future__ import annotations

import os

import torch
from torch.utils.data import get_worker_info

from fastpipe.checks import whole
from fastpipe.errors import ConfigError
from fastpipe.plan.partition import ALONE, Ranks

_MOST = 2**20


def ranks_of(rank: object, world_size: object) -> Ranks:
    """The ranks, all in one group.

    Args:
        rank, world_size: as a user gave them; both None: those of torch.distributed's default group where it is
            initialised, else 0 of 1.

    Raises:
        ConfigError: they make no sense, or a launcher has started several processes that do not know of each other yet.
    """
    if (rank is None) != (world_size is None):
        missing, given = ("rank", "world_size") if rank is None else ("world_size", "rank")
        raise ConfigError(f"{missing}: expected a number, because {given} is given; pass both or neither")
    if rank is not None:
        count = whole("world_size", world_size, least=1, most=_MOST)
        return Ranks(whole("rank", rank, least=0, most=count - 1), count)
    if (worker := get_worker_info()) is not None:
        raise ConfigError(
            f"fastpipe.loader() was called in worker {worker.id} of a torch DataLoader. Each of its "
            f"{worker.num_workers} workers would read the whole dataset. Iterate the loader itself, without a "
            "DataLoader: it decodes in threads of its own. To share it among the workers, pass rank=worker.id and "
            "world_size=worker.num_workers"
        )
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return Ranks(distributed.get_rank(), distributed.get_world_size())
    launched = _number("WORLD_SIZE")
    if launched is not None and launched > 1 and "RANK" in os.environ:
        raise ConfigError(
            f"rank, world_size: the launcher started {launched} processes (RANK={os.environ['RANK']}, "
            f"WORLD_SIZE={launched}), but torch.distributed is not initialised, so each process would read the whole "
            "dataset. Call torch.distributed.init_process_group() before fastpipe.loader(...), or pass rank= and "
            "world_size="
        )
    return ALONE


def ranks_per_node(ranks: Ranks) -> int:
    """How many ranks run on this machine: LOCAL_WORLD_SIZE, which torchrun sets; without it all of them."""
    local = launched_here()
    return min(local, ranks.world_size) if local else ranks.world_size


def launched_here() -> int | None:
    """LOCAL_WORLD_SIZE, which a launcher's other processes inherit, too; None without a launcher."""
    return _number("LOCAL_WORLD_SIZE")


def in_nodes(ranks: Ranks, canonical_nodes: object) -> tuple[Ranks, int]:
    """The ranks grouped by node, and the number of canonical nodes; see Note [partition].

    Args:
        ranks: all in one group.
        canonical_nodes: as a user gave it; None: as many as there are nodes now.

    Raises:
        ConfigError: nodes do not hold as many ranks as each other, or their number does not divide the canonical one.
    """
    local = ranks_per_node(ranks)
    if ranks.world_size % local:
        raise ConfigError(
            f'partition="node": expected the same number of ranks on every node, got {ranks.world_size} ranks, '
            f'{local} of them on this node (LOCAL_WORLD_SIZE); pass partition="sample"'
        )
    nodes = ranks.world_size // local
    canonical = nodes if canonical_nodes is None else whole("canonical_nodes", canonical_nodes, least=1, most=_MOST)
    if canonical % nodes:
        raise ConfigError(
            f"canonical_nodes: expected a multiple of the {nodes} nodes ({ranks.world_size} ranks, {local} on each), "
            f"got {canonical}"
        )
    return Ranks(ranks.rank, ranks.world_size, nodes), canonical


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None
