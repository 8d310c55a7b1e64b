"""A loader's worker_init_fn -> one that also starts the recording in the worker."""

from __future__ import annotations

import multiprocessing.context
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .files import contain_errors, install_dump_handler
from .generators import checksum_generators, checksum_global_generators
from .inherited import Inherited
from .machine import describe_binding, list_cpus, take_snapshot
from .recorder import Recorder


@dataclass
class WorkerWatch:
    """Replaces a loader's worker_init_fn and calls it.

    The dataset and collate_fn stay the user's own.

    It is pickled to workers that are spawned. Its own errors are written down and never reach the
    worker.
    """

    folder: str
    loader_key: str
    init: Callable[[int], Any] | None
    collate: Callable[[Any], Any]
    is_forked: bool
    # The processes for which it was pickled.
    starting: list[Any] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        # multiprocessing says here which process it is about to spawn.
        get_process = getattr(multiprocessing.context, "get_spawning_popen", None)
        process = get_process() if get_process is not None else None
        if process is not None:
            self.starting.append(process)
        return {**self.__dict__, "starting": []}

    def __call__(self, worker_id: int) -> None:
        from torch.utils.data import get_worker_info

        dataset = getattr(get_worker_info(), "dataset", None)
        recorder: Recorder | None = None
        with contain_errors(self.folder):
            recorder = Recorder(self.folder, self.loader_key, worker_id, dataset)
            recorder.state.set("worker_init_fn")
            install_dump_handler(self.folder, fatal=True)
            if self.is_forked:
                self._record_inherited(recorder, dataset)
        if self.init is not None:
            self.init(worker_id)
        with contain_errors(self.folder):
            if recorder is not None:
                self._record_start(recorder, dataset)
                _watch_fetchers(recorder)

    def _record_inherited(self, recorder: Recorder, dataset: Any) -> None:
        inherited = Inherited(dataset=dataset, collate_fn=self.collate)
        recorder.inherited = inherited
        # One of them may hold a lock.
        threads = inherited.threads if inherited.locks else []
        recorder.log.write({"locks": inherited.locks, "threads": threads})

    def _record_start(self, recorder: Recorder, dataset: Any) -> None:
        recorder.log.write(
            {
                "generators_before": checksum_generators(
                    dataset=dataset, collate_fn=self.collate
                ),
                "globals_before": checksum_global_generators(),
                "start": take_snapshot(),
                "cpus": list_cpus(),
                "binding": describe_binding(),
            }
        )


def _watch_fetchers(recorder: Recorder) -> None:
    """Lets the recorder watch each fetcher of torch's worker loop, one in each epoch."""
    from torch.utils.data import _DatasetKind

    create_fetcher = _DatasetKind.create_fetcher

    def create_and_watch(*arguments: Any) -> Any:
        recorder.state.set("iter(dataset)")
        fetcher: Any = create_fetcher(*arguments)  # type: ignore[no-untyped-call]
        recorder.watch(fetcher)
        recorder.state.set("idle")
        return fetcher

    _DatasetKind.create_fetcher = staticmethod(create_and_watch)  # type: ignore[method-assign]
