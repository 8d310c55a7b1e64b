"""Tests -> the order in which pytest-xdist's workers run them: files side by side, then the serial tests alone."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

SERIAL = "serial"
MOST_WORKERS = 4
_FOLDER = pytest.StashKey[Path]()

# The files that take longest, the longest first. They start first, so that no worker has one left at the end.
LONGEST = (
    "tests/project/test_examples.py",
    "tests/project/test_recipes.py",
    "tests/loading/test_distributed.py",
    "tests/engine/test_stress.py",
    "tests/diagnosis/test_train_scripts.py",
    "tests/project/test_wheel.py",
    "tests/sources/picture/test_fuzz.py",
    "tests/diagnosis/test_diagnose.py",
    "tests/packing/test_pack_tables_killed.py",
    "tests/remote/test_remote_content.py",
    "tests/samples/test_dataset_memory.py",
    "tests/diagnosis/test_diagnose_stuck.py",
    "tests/project/test_examples_ranks.py",
    "tests/augment/test_augment_compile.py",
    "tests/packing/remote/test_pack_by_url_interrupted.py",
    "tests/remote/test_identity.py",
    "tests/resize/test_resize.py",
    "tests/decode/test_strip_kernels.py",
    "tests/sources/test_hostile_tables.py",
    "tests/sources/scan/test_data.py",
    "tests/resize/test_nearest.py",
    "tests/packing/test_pack_killed.py",
    "tests/augment/test_kornia_samples.py",
    "tests/samples/test_dataset_workers.py",
    "tests/remote/test_faults.py",
    "tests/diagnosis/test_diagnose_command.py",
    "tests/wds/test_wds_workers.py",
    "tests/loading/test_forks.py",
    "tests/loading/test_ranks.py",
    "tests/remote/test_cache.py",
    "tests/project/test_examples_fields.py",
    "tests/loading/test_loader_exit.py",
    "tests/bench/test_bench.py",
    "tests/packing/test_pack_fields_killed.py",
    "tests/bench/test_bench_gpu.py",
    "tests/bench/test_stall.py",
    "tests/bench/test_bench_wds.py",
    "tests/failures/test_small_shm.py",
)

# Folders whose files share what takes long to start: Ray.
TOGETHER = ("tests/cluster/",)


def order_tests(items: list[pytest.Item]) -> None:
    """The longest files come first and the serial tests last; the others stay as they are."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (is_serial(item), rank.get(item.nodeid.split("::")[0], len(rank))))


def is_serial(item: pytest.Item) -> bool:
    return item.get_closest_marker(SERIAL) is not None


def forget_the_terminal() -> None:
    """readline, which pytest imports, sets the terminal's size for the processes that pytest starts: the workers."""
    for name in ("COLUMNS", "LINES"):
        if name not in os.environ:
            os.unsetenv(name)


def prepare_worker(node: WorkerController) -> None:
    """Names the file in which a worker notes its serial tests: the scheduler sees no markers, only names of tests."""
    if _FOLDER not in node.config.stash:
        for each in node.config.args:  # a worker's own words on it are lost
            if not (node.config.invocation_params.dir / each.partition("::")[0]).exists():
                raise pytest.UsageError(f"file or directory not found: {each}")
        folder = tempfile.TemporaryDirectory(prefix="fastpipe-serial-")
        node.config.add_cleanup(folder.cleanup)
        node.config.stash[_FOLDER] = Path(folder.name)
    noted = node.config.stash[_FOLDER] / node.gateway.id
    noted.write_text("[]")  # a worker that finds no tests notes none
    node.workerinput[SERIAL] = str(noted)


def note_serial_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker; see `prepare_worker`."""
    if hasattr(config, "workerinput"):
        names = [item.nodeid for item in items if is_serial(item)]
        Path(config.workerinput[SERIAL]).write_text(json.dumps(names))


def workers() -> int:
    """One more than this process may use CPUs, because tests wait for a quarter of their time: for programs, timers and
    disks. Or PYTEST_XDIST_AUTO_NUM_WORKERS, which pytest-xdist looks at, too.
    """
    if wanted := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(wanted)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus + 1, MOST_WORKERS)


def scheduler(config: pytest.Config, log: Producer) -> object:
    """What `pytest -n` gives tests to workers by."""
    from xdist.scheduler import LoadFileScheduling  # here, since a run without -n may do without pytest-xdist

    class FilesThenSerial(LoadFileScheduling):
        """A worker gets a file at a time, since tests of a file share what they make, or a folder.

        When no file is left, one worker stays. It gets the serial tests when all others have ended.
        """

        def schedule(self) -> None:
            node = next(iter(self.registered_collections))
            self.serial = set(json.loads(Path(node.workerinput[SERIAL]).read_text()))
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            if nodeid in self.serial:
                return SERIAL
            together = next((folder for folder in TOGETHER if nodeid.startswith(folder)), None)
            return together or super()._split_scope(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            if SERIAL in self.workqueue:  # a file can stand after it if a worker has crashed
                self.workqueue.move_to_end(SERIAL)
            others = [other for other in self.nodes if other is not node]
            if list(self.workqueue) != [SERIAL] or not any(map(self._left, others)):
                super()._assign_work_unit(node)

        def _reschedule(self, node: WorkerController) -> None:
            if node.shutting_down or node not in self.registered_collections:  # it has only just been started
                return
            if not self.workqueue:
                node.shutdown()
                return
            if list(self.workqueue) == [SERIAL]:
                others = [other for other in self.nodes if other is not node]
                if not all(other.shutting_down for other in others):
                    node.shutdown()  # when it has run what it has
                    return
            if self._left(node) <= 1:  # a worker runs a test when it knows the next
                self._assign_work_unit(node)

        def _left(self, node: WorkerController) -> int:
            return self._pending_of(self.assigned_work[node])

        def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            for other in self.nodes:
                self._reschedule(other)

        def remove_node(self, node: WorkerController) -> str | None:
            """The test that a worker crashed in is not tried again; its other tests go to other workers."""
            units = self.assigned_work.pop(node)
            left = [(unit, test) for unit in units.values() for test, done in unit.items() if not done]
            if left:
                unit, crashed = left[0]
                unit[crashed] = True
                self.workqueue.update((name, unit) for name, unit in units.items() if not all(unit.values()))
            for other in self.nodes:
                self._reschedule(other)
            return left[0][1] if left else None

    config.option.loadscopereorder = False
    return FilesThenSerial(config, log)
