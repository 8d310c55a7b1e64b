"""A DataLoader -> its options, and what in its dataset is bad for worker processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
from typing import Any

from .checksums import find_sample_name
from .generators import checksum_generators
from .locks import is_lock
from .objects import find_definition, find_user_place, walk_with_globals
from .worker_hazards import list_heavy_containers, list_unpicklable

_SHARED_MEMORY = "/dev/shm"
_MAX_LOCKS = 4
_OPTIONS = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "drop_last",
    "timeout",
)
# Two loaders with the same values of these are the same one, made again.
_IDENTIFYING = (
    "made_at",
    "class",
    "dataset",
    "length",
    "batch_size",
    "num_workers",
    "method",
    "pin_memory",
)


def identify_loader(facts: dict[str, Any]) -> tuple[Any, ...]:
    """Returns facts that are equal for DataLoaders of one line with the same options."""
    if not facts["made_at"]:
        return (object(),)  # the line is not known: it is equal to no other
    return tuple(facts[name] for name in _IDENTIFYING)


def read_facts(loader: Any, made_at: str) -> dict[str, Any]:
    """Reads the facts of a DataLoader that the line `made_at` has made."""
    import torch

    dataset = loader.dataset
    collate = loader.collate_fn
    init = loader.worker_init_fn
    facts: dict[str, Any] = {name: getattr(loader, name) for name in _OPTIONS}
    facts |= {
        "class": type(loader).__name__,
        "made_at": made_at,
        "dataset": type(dataset).__name__,
        "length": _get_length(dataset),
        "batches": _get_length(loader),
        "in_order": getattr(loader, "in_order", True),
        "method": _get_start_method(loader),
        "stream": isinstance(dataset, torch.utils.data.IterableDataset),
        "shuffled": not isinstance(loader.sampler, torch.utils.data.SequentialSampler),
        "whole": _name_first_sample(loader),
        "init": init is not None,
        "pid": os.getpid(),
    }
    # The lines to change.
    samplers = [loader.batch_sampler, loader.sampler]
    facts |= {
        "dataset_place": find_user_place(dataset, "dataset") or made_at,
        "collate_place": find_user_place(collate, "collate_fn") or made_at,
        "sampler_place": find_user_place(samplers, "sampler") or made_at,
        "init_place": find_definition(init) if init is not None else "",
    }
    # Objects that are bad for worker processes.
    collate_generators = checksum_generators(collate_fn=collate).keys()
    dataset_generators = checksum_generators(dataset=dataset).keys()
    objects = walk_with_globals(dataset=dataset)
    facts |= {
        "collate_generators": sorted(collate_generators - dataset_generators),
        "locks": [path for path, value in objects if is_lock(value)][:_MAX_LOCKS],
        "unpicklable": [
            *list_unpicklable(dataset, "dataset"),
            *list_unpicklable(collate, "collate_fn"),
            *list_unpicklable(init, "worker_init_fn"),
        ],
        "heavy": list_heavy_containers(dataset, "dataset"),
    }
    # The machine.
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts |= {
        "files_limit": soft_limit,
        "accelerator": _has_accelerator() if loader.pin_memory else None,
        "uses_cuda": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
        "shared_free": _get_free_shared_memory(),
    }
    return facts


def _get_length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:
        return None


def _get_start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is None:
        context = multiprocessing
    # Without allow_none, the question would settle the method for the whole program.
    method = context.get_start_method(allow_none=True)
    return method or multiprocessing.get_all_start_methods()[0]


def _has_accelerator() -> bool:
    """Asks as torch itself asks if pin_memory is set."""
    import torch

    device = getattr(torch, "accelerator", torch.cuda)  # torch.accelerator is newer
    return bool(device.is_available())


def _get_free_shared_memory() -> int | None:
    if not os.path.isdir(_SHARED_MEMORY):
        return None
    return shutil.disk_usage(_SHARED_MEMORY).free


def _name_first_sample(loader: Any) -> str:
    """Names the dataset's first sample, if each epoch of the loader has all samples; else ""."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    is_plain_batch = type(loader.batch_sampler) is BatchSampler
    is_plain_sampler = type(loader.sampler) in (RandomSampler, SequentialSampler)
    if not is_plain_batch or not is_plain_sampler:
        return ""
    if len(loader.sampler) != _get_length(loader.dataset):
        return ""
    return find_sample_name(loader.dataset, 0)
