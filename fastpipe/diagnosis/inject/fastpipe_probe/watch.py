"""A DataLoader that a program iterates -> what it is made of, and when each batch was asked for and came, in a file."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from .files import Log, State
from .machine import Snapshots
from .objects import batch_bytes, heavy, place, unpicklable
from .worker import WorkerWatch, watch_without_workers

SHARED_MEMORY = "/dev/shm"
_count = 0


class LoaderWatch:
    """Watches one DataLoader in the process that iterates it.

    Args:
        folder: where the files go.
        loader: torch's DataLoader.
        made_at: file and line that made it; "" where that is not known.
        step: whether there is a training step between two batches.
    """

    def __init__(self, folder: str, loader: Any, made_at: str, *, step: bool = True) -> None:
        global _count
        self.key = f"{os.getpid()}.{_count}"
        _count += 1
        self._folder = folder
        self._process = os.getpid()
        self._log = Log(os.path.join(folder, f"loader-{self.key}.jsonl"))
        self._state = State(os.path.join(folder, f"loader-{self.key}.state"))
        self._snapshots = Snapshots()
        self._epoch = -1
        self._number = 0
        self._log.write({**facts(loader, made_at), "step": step})

    def iterator(self, loader: Any, get_iterator: Callable[[Any], Any]) -> Any:
        """What `get_iterator(loader)` gives, with workers that are watched. Afterwards the loader is as it was."""
        self._state.set("starting")
        init = loader.worker_init_fn
        loader.worker_init_fn = WorkerWatch(self._folder, self.key, init)
        try:
            iterator = get_iterator(loader)
        finally:
            loader.worker_init_fn = init
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:
            watch_without_workers(self._folder, self.key, fetcher, loader.dataset)
        return iterator

    def began(self) -> None:
        """An epoch is asked for."""
        self._epoch += 1
        self._number = 0
        self._state.set("starting")
        self._log.write({"epoch": self._epoch, "at": time.monotonic()})

    def asked(self) -> None:
        """A batch is asked for."""
        self._asked_s = time.monotonic()
        self._state.set("waiting")

    def came(self, batch: Any) -> None:
        """A batch is there; the step begins."""
        came_s = time.monotonic()
        line: dict[str, Any] = {"batch": self._number, "epoch": self._epoch, "asked": self._asked_s, "came": came_s}
        line["bytes"] = batch_bytes(batch)
        if self._snapshots.due(came_s):
            line["snapshot"] = self._snapshots.take()
        self._number += 1
        self._log.write(line)
        self._state.set("step")

    def stepped(self) -> None:
        """The training step ended, where that can be told otherwise than by the next batch."""
        self._log.write({"stepped": self._number - 1, "epoch": self._epoch, "at": time.monotonic()})
        self._state.set("between")

    def ended(self) -> None:
        """The epoch has no more batches."""
        self._log.write({"ended": self._epoch, "at": time.monotonic()})
        self._state.set("ended")

    def failed(self, problem: BaseException) -> None:
        """Asking for a batch ended in an error."""
        self._log.write({"error": f"{type(problem).__name__}: {str(problem)[:4000]}", "at": time.monotonic()})
        self._state.set("failed")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a watched loader, in another process or not, has no watch."""
        return type(None), ()

    def here(self) -> bool:
        """Whether this is the process that made it: a forked child has a copy."""
        return os.getpid() == self._process


def facts(loader: Any, made_at: str) -> dict[str, Any]:
    """A DataLoader's options, and what in its dataset is bad for worker processes."""
    import torch

    dataset, collate = loader.dataset, loader.collate_fn
    context = loader.multiprocessing_context
    # allow_none: to ask without it would settle the method for the whole program.
    method = (multiprocessing if context is None else context).get_start_method(allow_none=True)
    roles = (("dataset", dataset), ("collate_fn", collate), ("worker_init_fn", loader.worker_init_fn))
    device = getattr(torch, "accelerator", torch.cuda)  # what torch itself asks, where pin_memory is set
    return {
        "class": type(loader).__name__,
        "made_at": made_at,
        "dataset": type(dataset).__name__,
        "dataset_place": place(dataset),
        "collate": getattr(collate, "__qualname__", type(collate).__name__),
        "collate_place": place(collate),
        "init": loader.worker_init_fn is not None,
        "stream": isinstance(dataset, torch.utils.data.IterableDataset),
        "length": _length(dataset),
        "batches": _length(loader),
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": loader.pin_memory,
        "in_order": getattr(loader, "in_order", True),
        "timeout": loader.timeout,
        "method": method or multiprocessing.get_all_start_methods()[0],
        "accelerator": device.is_available() if loader.pin_memory else None,
        "uses_cuda": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
        "unpicklable": [found for name, value in roles for found in unpicklable(value, name)],
        "heavy": heavy(dataset, "dataset"),
        "shared_free": shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else None,
        "pid": os.getpid(),
        "torch": str(torch.__version__),
    }


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except Exception:
        return None
