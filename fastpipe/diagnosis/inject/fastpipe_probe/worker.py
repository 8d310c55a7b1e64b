"""A worker process of a DataLoader -> one that notes what its time goes into, and dumps its stacks when asked."""

from __future__ import annotations

import multiprocessing.context
import os
import time
from collections.abc import Callable
from typing import Any

from .fetching import Recorder, watch_fetcher
from .files import Log, State, arm, note
from .inherited import Inherited
from .machine import Snapshots
from .objects import generators, global_generators

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerWatch:
    """Stands in the place of a loader's worker_init_fn and calls it; the dataset and collate_fn stay the user's own.

    It is pickled to workers that are spawned. What goes wrong in here is noted and never reaches the worker.
    """

    def __init__(self, folder: str, loader: str, init: Callable[[int], Any] | None, *, forked: bool) -> None:
        self._folder = folder
        self._loader = loader
        self._init = init
        self._forked = forked
        self.starting: list[Any] = []  # the processes that it was pickled for

    def __getstate__(self) -> dict[str, Any]:
        process = getattr(multiprocessing.context, "get_spawning_popen", lambda: None)()
        if process is not None:
            self.starting.append(process)
        return {**self.__dict__, "starting": []}

    def __call__(self, worker_id: int) -> None:
        log = state = inherited = None
        try:
            name = os.path.join(self._folder, f"worker-{self._loader}-{worker_id}-{os.getpid()}")
            log, state = Log(f"{name}.jsonl"), State(f"{name}.state")
            state.set("worker_init_fn")
            arm(self._folder, fatal=True)
            log.write({"id": worker_id, "pid": os.getpid(), "at": time.monotonic(), "variables": _variables()})
            inherited = _inherited(log) if self._forked else None
        except Exception as problem:
            note(self._folder, problem)
        if self._init is not None:
            self._init(worker_id)
        if log is not None and state is not None:
            try:
                _watch_this_worker(log, state, inherited)
            except Exception as problem:
                note(self._folder, problem)


def _inherited(log: Log) -> Inherited | None:
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    if worker is None:
        return None
    inherited = Inherited(worker.dataset)
    if inherited.locks:
        log.write({"locks": inherited.locks, "threads": inherited.threads})
    return inherited


def _watch_this_worker(log: Log, state: State, inherited: Inherited | None) -> None:
    from torch.utils.data import _DatasetKind, get_worker_info

    worker = get_worker_info()
    dataset = None if worker is None else worker.dataset
    log.write(
        {
            "generators": generators(dataset, "dataset"),
            "globals": global_generators(),
            "snapshot": Snapshots().take(),
        }
    )
    recorder = Recorder(log, state, dataset, inherited)
    create_fetcher = _DatasetKind.create_fetcher

    def create_and_watch(*arguments: Any) -> Any:
        state.set("iter(dataset)")
        fetcher: Any = create_fetcher(*arguments)  # type: ignore[no-untyped-call]
        watch_fetcher(fetcher, recorder)
        state.set("idle")
        return fetcher

    # In this process alone; torch's worker loop makes its fetcher, and a new one each epoch, right after this.
    _DatasetKind.create_fetcher = staticmethod(create_and_watch)  # type: ignore[method-assign]


def watch_without_workers(folder: str, loader: str, fetcher: Any, dataset: Any) -> Log:
    """The same for a loader with num_workers=0, which has its fetcher in the process that iterates."""
    name = os.path.join(folder, f"worker-{loader}--1-{os.getpid()}")
    log = Log(f"{name}.jsonl")
    log.write({"id": -1, "pid": os.getpid(), "at": time.monotonic(), "variables": _variables()})
    watch_fetcher(fetcher, Recorder(log, State(f"{name}.state"), dataset, None))
    return log


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
