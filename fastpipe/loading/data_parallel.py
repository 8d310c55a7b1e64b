"""The models of this process -> how many ranks train one of them together, by its wrapper."""

from __future__ import annotations

import sys
from typing import Any

from fastpipe.loading.instances import instances_of

# Wrappers that average the gradients of ranks, each of which has data of its own. Other ways to
# divide a model among ranks, such as tensor parallelism, give all of them the same data.
_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
)


def count_data_parallel_ranks() -> int:
    """The number of ranks that share a wrapped model; 1: no model is wrapped."""
    most = 1
    for module_name, class_name in _WRAPPERS:
        # A module that nobody has imported has made no object.
        wrapper: type[Any] | None = getattr(
            sys.modules.get(module_name), class_name, None
        )
        if wrapper is None:
            continue
        for model in instances_of(wrapper):
            most = max(most, _group_size(model))
    return most


def _group_size(model: Any) -> int:
    try:
        return int(model.process_group.size())
    except (AttributeError, RuntimeError, TypeError):
        return 1
