"""The models of this process -> how many ranks train one of them together, by its wrapper."""

from __future__ import annotations

import gc
import sys
from typing import Any

# Wrappers that average the gradients of ranks, each of which has data of its own. Other ways to
# divide a model among ranks, such as tensor parallelism, give all of them the same data.
_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
)


def count_data_parallel_ranks() -> int:
    """The number of ranks that share a wrapped model; 1: no model is wrapped.

    It looks at all objects of the process, which takes some tenths of a second.
    """
    wrappers: list[type] = []
    for module_name, class_name in _WRAPPERS:
        # A module that nobody has imported has made no object.
        wrapper = getattr(sys.modules.get(module_name), class_name, None)
        if isinstance(wrapper, type):
            wrappers.append(wrapper)
    most = 1
    for found in gc.get_objects():
        # Not isinstance, which asks proxies for the class of what they stand for.
        if issubclass(type(found), tuple(wrappers)):
            most = max(most, _group_size(found))
    return most


def _group_size(model: Any) -> int:
    try:
        return int(model.process_group.size())
    except (AttributeError, RuntimeError, TypeError):
        return 1
