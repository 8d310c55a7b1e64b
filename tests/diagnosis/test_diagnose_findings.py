"""Findings that need a machine or a loader that a test does not have: from what was seen of one, made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkout import ROOT
from support.workers.diagnosed import FAULTS, Numbers, Stream, line_of
from support.workers.made_up import FETCH, ROOMY, found, late, seen
from torch.utils.data import DataLoader

import fastpipe.diagnosis
from fastpipe.diagnosis import ended as ended_module
from fastpipe.diagnosis.ended import explain_ending
from fastpipe.diagnosis.findings import Code, Finding
from fastpipe.diagnosis.inject.fastpipe_probe.checksums import (
    checksum,
    count_batch_bytes,
    find_sample_name,
)
from fastpipe.diagnosis.inject.fastpipe_probe.files import Log, State, read_state, safe_repr
from fastpipe.diagnosis.inject.fastpipe_probe.objects import find_definition
from fastpipe.diagnosis.inject.fastpipe_probe.records import Batch, Ending, Epoch, Snapshot
from fastpipe.diagnosis.inject.fastpipe_probe.watch import LoaderWatch
from fastpipe.diagnosis.inject.fastpipe_probe.worker_hazards import (
    list_heavy_containers,
    list_unpicklable,
)
from fastpipe.diagnosis.observation import Observation, read_lines, read_observation
from fastpipe.diagnosis.report import make_diagnosis
from fastpipe.diagnosis.source.keeping import find_keeping_lines
from fastpipe.diagnosis.source.places import find_seed
from fastpipe.diagnosis.stages import measure_stages


def test_the_sound_one_is_sound() -> None:
    assert found(seen()) == {}


def test_more_workers_than_cpus() -> None:
    few = replace(ROOMY, cpus=1)
    assert "2 workers for 1 CPU granted" in found(seen(), few)["too-many-workers"].what
    assert found(seen(), few)["too-many-workers"].severity == "note"
    observation = seen()
    for worker in observation.workers:
        worker.fetches = [replace(fetch, delayed_s=0.005) for fetch in worker.fetches]
    finding = found(observation, few)["too-many-workers"]
    assert (finding.severity, finding.where, finding.section) == ("bad", "train.py:7", 6)
    assert "num_workers=1" in finding.change


def test_workers_that_openmp_has_bound_to_one_cpu() -> None:
    observation = seen()
    for worker in observation.workers:
        worker.cpus, worker.binding = [3], "OMP_PROC_BIND=close"
    finding = found(observation)["bound-workers"]
    assert (
        "2 workers may run on 1 CPU together; 8 CPUs are granted; OMP_PROC_BIND=close is set"
        in finding.what
    )
    assert (finding.severity, finding.where) == ("bad", "train.py:7")
    for worker in observation.workers:  # as a worker_init_fn gives each a CPU of its own
        worker.cpus = [worker.number]
    assert found(observation) == {}


def test_a_worker_without_a_shard() -> None:
    """A stream of one shard: more workers would not help."""
    observation = late(0.2, lambda _: 0.2, stream=True)
    first, second = observation.workers
    first.fetches, second.fetches = [*first.fetches, *second.fetches], []
    finding = found(observation)
    assert set(finding) == {"idle-workers"}
    assert "1 of 2 workers made all batches" in finding["idle-workers"].what
    assert "num_workers=" not in finding["idle-workers"].change
    second.fetches = first.fetches[:1]
    assert "1 of 2 workers made 97% of the batches" in found(observation)["idle-workers"].what


def test_batches_made_ahead_against_memory_and_shared_memory() -> None:
    finding = found(seen(prefetch_factor=64), replace(ROOMY, free_bytes=200 << 20))[
        "prefetch-memory"
    ]
    assert (
        "num_workers=2 x prefetch_factor=64 x 1.0 MB per batch = 134.2 MB; only 209.7 MB"
        in finding.what
    )
    finding = found(seen(shared_free=4 << 20))["small-shared-memory"]
    assert "--shm-size" in finding.change
    assert finding.section == 3
    assert found(seen(prefetch_factor=64)) == {}


def test_a_gpu_without_pinned_memory() -> None:
    assert "non_blocking=True" in found(seen(uses_cuda=True))["gpu-without-pin"].change
    assert found(seen(uses_cuda=True, pin_memory=True)) == {}
    assert set(found(seen(pin_memory=True, accelerator=False))) == {"pin-without-gpu"}


def test_opencv_that_is_limited_with_the_first_sample() -> None:
    observation = seen()
    for worker in observation.workers:
        worker.start, worker.snapshots = Snapshot(0, 50 << 20, 2, 1, 16), []
    assert "OpenCV works on 16 threads" in found(observation)["opencv-threads"].what
    for worker in observation.workers:
        worker.snapshots.append(Snapshot(15, 50 << 20, 2, 1, 1))
    assert found(observation) == {}


def test_threads_of_other_libraries() -> None:
    observation = seen()
    for worker in observation.workers:
        worker.snapshots.append(Snapshot(15, 50 << 20, 16, 1, 1))
    assert "too-many-threads" not in found(observation), "a few that are idle are nothing"
    for worker in observation.workers:
        worker.snapshots.append(Snapshot(15, 50 << 20, 49, 1, 16))  # 15 of them are of OpenCV
    assert found(observation)["too-many-threads"].severity == "note"  # idle ones
    assert "OpenCV works on 16 threads" in found(observation)["opencv-threads"].what
    for worker in observation.workers:
        worker.fetches = [replace(fetch, cpu_s=0.05) for fetch in worker.fetches]
    finding = found(observation)["too-many-threads"]
    assert finding.severity == "bad"
    assert "68 in 2 workers, for 8 CPUs" in finding.what
    assert "OPENBLAS_NUM_THREADS=1" in finding.change


@pytest.mark.parametrize(
    ("method", "name"), [("fork", "copy-on-write"), ("spawn", "objects-in-each-worker")]
)
def test_many_objects(method: str, name: str) -> None:
    held = [
        {"path": "dataset.dataset.samples", "kind": "list of 10,000,000 tuple", "bytes": 2 << 30}
    ]
    finding = found(seen(heavy=held, method=method))[name]
    assert finding.what == (
        "dataset.dataset.samples is a list of 10,000,000 tuple, about 2.1 GB: up to 4.3 GB in 2 workers"
    )
    assert finding.change.startswith(
        "self.dataset.samples = np.array(..., dtype='S') for names, or a tensor"
    )
    assert finding.severity == "bad"
    assert finding.section == 5
    assert found(seen(heavy=[{**held[0], "bytes": 1 << 20}], method=method)) == {}
    assert name not in found(seen(heavy=held, method=method, num_workers=0))


def grown(
    observation: Observation,
    worker: int,
    size: Callable[[int], int],
    used: Callable[[int], int] | None = None,
) -> Observation:
    """With a worker that has `size` MB after a batch, and `used` MB in use."""
    observation.workers[worker].snapshots = [
        Snapshot(batch, size(batch) << 20, 3, 1, None, None if used is None else used(batch) << 20)
        for batch in range(60)
    ]
    return observation


def test_growth_that_ends_or_slows_down_is_no_leak() -> None:
    assert found(grown(seen(), 0, lambda batch: 50 + 20 * min(batch, 3))) == {}
    assert found(grown(seen(), 0, lambda batch: 50 + 4 * min(batch, 30))) == {}
    assert found(grown(seen(), 0, lambda batch: 250 - int(200 * 0.95**batch))) == {}
    finding = found(grown(seen(), 0, lambda batch: 50 + 5 * batch))["memory-grows"]
    assert "worker 0, pid 100 grew by 309.3 MB in 59 batches" in finding.what
    assert "41.9 MB an epoch" in finding.what  # 16 batches of 64 samples, 8 for each


def test_growth_of_a_process_that_keeps_nothing_is_no_leak() -> None:
    """Holes between tensors: malloc asks the kernel for more, and has no more in use."""
    assert found(grown(seen(), 0, lambda batch: 50 + 5 * batch, lambda batch: 50)) == {}
    assert set(
        found(grown(seen(), 0, lambda batch: 50 + 5 * batch, lambda batch: 50 + 5 * batch))
    ) == {"memory-grows"}


def test_little_growth_counts_where_a_line_keeps_something() -> None:
    assert found(grown(seen(), 0, lambda batch: 50 + batch // 2)) == {}
    keeping = f"{FAULTS}:{line_of('self.kept.append')}"
    finding = found(grown(seen(dataset_place=keeping), 0, lambda batch: 50 + batch // 2))[
        "memory-grows"
    ]
    assert finding.where == keeping
    assert "this line keeps something: self.kept.append(" in finding.what
    alone = seen(dataset_place=keeping, num_workers=0, prefetch_factor=None)
    alone.workers = []
    alone.snapshots = [Snapshot(batch, (50 + batch // 2) << 20, 3) for batch in range(60)]
    assert found(alone)["memory-grows"].where == keeping
    alone.facts |= {"num_workers": 2, "prefetch_factor": 2}
    assert found(alone) == {}, "the process that iterates has the dataset, and does not read it"


@pytest.mark.parametrize(("limit", "severity"), [(120, "bad"), (20_000, "note")])
def test_files_that_stay_open_are_bad_where_an_epoch_opens_too_many(
    limit: int, severity: str
) -> None:
    """Else they may be what is kept for the metrics of an epoch, and let go of at its end."""
    observation = seen(batches=100, files_limit=limit)
    observation.snapshots = [Snapshot(batch, None, 3, files=20 + batch) for batch in range(60)]
    finding = found(observation)["open-files"]
    assert (finding.severity, "the main process has 39 more files open" in finding.what) == (
        severity,
        True,
    )
    observation.snapshots = [Snapshot(batch, None, 3, files=20 + batch % 9) for batch in range(60)]
    assert found(observation) == {}


def test_lines_that_keep_something(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        """class Data:
    def sample(self, x):
        for group in self.groups:
            group.append(x)
        parts = []
        parts.append(x)
"""
    )
    assert find_keeping_lines(f"{path}:1") == [f"{path}:4"]


def test_a_cached_function_that_a_dataset_calls_keeps_something(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        """@functools.lru_cache(maxsize=None)
def read(x): ...
@functools.cache
def other(x): ...
class Data:
    def __getitem__(self, x):
        return read(x)
"""
    )
    assert find_keeping_lines(f"{path}:6") == [f"{path}:1"]


def test_a_decorator_of_another_file_keeps_something(tmp_path: Path) -> None:
    train, features = tmp_path / "train.py", tmp_path / "own" / "features.py"
    train.write_text(
        """from own.features import spectrogram
class Data:
    def __getitem__(self, x):
        return spectrogram(x)
"""
    )
    features.parent.mkdir()
    features.write_text(
        """def memoize(function):
    store = {}
    def wrapper(x):
        value = store[x] = function(x)
        return value
    return wrapper
@memoize
def spectrogram(x):
    parts = {}
    parts[x] = load(x)
    return parts
"""
    )
    assert find_keeping_lines(f"{train}:3") == [f"{features}:4"]


def test_a_function_that_a_dataset_calls_seeds(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        """def flip(image, number):
    random.seed(number)
    return image
class Data:
    def _load(self, number):
        return flip(self.images[number], number)
    def __getitem__(self, number):
        return self._load(number)
    def size(self):
        return 1
"""
    )
    assert find_seed(f"{path}:7") == f"{path}:2"
    assert find_seed(f"{path}:9") == f"{path}:9"


def test_a_loop_that_never_waits_looks_at_its_step() -> None:
    assert (
        "the loop's own step takes 100% of its time, so a faster loader would not help"
        in make_diagnosis(seen(), ROOMY).summary
    )


def test_items_that_are_batches_are_counted_as_batches() -> None:
    observation = late(0.2, lambda number: 0.5, batch_size=None)
    assert "samples/s" in make_diagnosis(observation, ROOMY).summary
    for worker in observation.workers:
        worker.fetches = [replace(fetch, samples=1) for fetch in worker.fetches]
    assert "; 3.5 batches/s" in make_diagnosis(observation, ROOMY).summary
    assert "samples/s" not in make_diagnosis(observation, ROOMY).summary


def test_a_late_batch_is_one_that_took_longer_than_others() -> None:
    def uneven(number: int) -> float:
        return 0.3 if number % 5 == 0 else 0.02

    assert set(found(late(0.2, uneven))) == {"late-batches"}
    assert "late-batches" not in found(late(0.2, lambda number: 0.02)), (
        "all take as long: it is something else"
    )
    assert "late-batches" not in found(late(0.009, uneven)), "9 ms"
    assert "late-batches" not in found(late(0.2, uneven, in_order=False))


@pytest.mark.parametrize(
    ("cpu_s", "words"),
    [(0.5, "bound a loop"), (0.01, "a lock"), (0.25, "very large files, a slow disk")],
)
def test_what_a_slow_sample_does_all_the_time(cpu_s: float, words: str) -> None:
    observation = late(0.2, lambda number: 0.02)
    slow = replace(
        FETCH,
        seconds=0.5,
        cpu_s=cpu_s,
        times_us=(2000, 2000, 2000, 490_000),
        worst=((7, 0.49, "7.jpg"),),
    )
    for worker in observation.workers:
        worker.fetches = [
            slow if number % 5 == 1 else each for number, each in enumerate(worker.fetches)
        ]
    assert words in found(observation)["slow-samples"].change


def test_one_worker_is_never_late_for_another() -> None:
    observation = late(0.2, lambda number: 0.3 if number % 5 == 0 else 0.02, num_workers=1)
    observation.workers = observation.workers[:1]
    assert "late-batches" not in found(observation)


def test_a_slow_way_from_the_workers() -> None:
    assert set(found(late(0.2, lambda number: 0.02, way_s=0.19))) == {"slow-transfer"}
    assert set(found(late(0.2, lambda number: 0.02, way_s=0.25))) == {"slow-transfer"}, (
        "made before the loop asked"
    )


def test_ends_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(text: str, kills_before: int | None = 3, *exits: tuple[int, int, int]) -> Finding:
        (finding,) = explain_ending(seen(), Ending(text, "train.py:9", exits), kills_before)
        return finding

    killed = "RuntimeError: DataLoader worker (pid 100) is killed by signal: Killed."
    monkeypatch.setattr(ended_module, "count_oom_kills", lambda: 3)
    assert end(killed, 2).why == "the kernel's OOM killer ended it: there was too little memory"
    assert "its count did not rise here" in end(killed).why
    assert end(killed).what == "worker 0 (pid 100) was ended by SIGKILL"
    gone = "RuntimeError: DataLoader worker (pid(s) 101) exited unexpectedly"
    assert end(gone, 3, (1, 101, -11)).what == "worker 1 (pid 101) was ended by SIGSEGV"
    assert "sys.exit" in end(gone, 3, (1, 101, 3)).change
    said = end(
        "RuntimeError: DataLoader worker (pid 101) exited unexpectedly with exit code 7. Details are lost"
    )
    assert said.what == "worker 1 (pid 101) ended with exit code 7"
    bus = end(killed.replace("Killed", "Bus error"))
    assert (bus.name, bus.section, "shm-size" in bus.change) == ("small-shared-memory", 3, True)
    files = end("RuntimeError: received 0 items of ancdata")
    assert (files.name, files.section, files.where) == ("open-files", 4, "train.py:9")
    assert 'set_sharing_strategy("file_system")' in files.change
    assert "ulimit -n" in files.change
    assert end("AttributeError: Can't pickle local object 'f.<locals>.g'").section == 10
    assert end("RuntimeError: DefaultCPUAllocator: can't allocate memory").name == "out-of-memory"
    assert end("KeyError: 3").where == "train.py:9"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>: No space",
            "small-shared-memory",
        ),
        ("OSError: [Errno 24] Too many open files: 'a.jpg'", "open-files"),
        ("MemoryError: ", "out-of-memory"),
        ("OSError: image file is truncated", "bad-sample"),
    ],
)
def test_what_the_machine_lacks_is_no_samples_fault(text: str, name: str) -> None:
    observation = seen()
    failure = {"failed": "dataset", "sample": "3", "name": "", "error": text, "place": "train.py:5"}
    observation.workers[0].failures = [failure]
    assert set(found(observation)) == {name}
    observation.workers[0].read_again = ["3"]
    assert set(found(observation)) == {"passing-error" if name == "bad-sample" else name}


def test_every_finding_is_made_somewhere_and_stands_on_the_page() -> None:
    folder = Path(fastpipe.diagnosis.__file__).parent
    sources = "".join(
        path.read_text() for path in folder.rglob("*.py") if path.name != "findings.py"
    )
    assert [code for code in Code if f"Code.{code.name}" not in sources] == []
    page = (ROOT / "docs/how-to/diagnose.md").read_text()
    assert [code for code in Code if f"`{code}`" not in page] == []


def test_no_advice_points_to_a_finding_that_is_not_there() -> None:
    folder = Path(fastpipe.diagnosis.__file__).parent
    for path in folder.rglob("*.py"):
        assert "see the finding" not in path.read_text(), path


def slow_dataset(*, cpus: int = 1, num_workers: int = 2, **fetch: float) -> Finding:
    """What is found on some CPUs if the loop waits for workers whose fetches are so."""
    observation = seen(num_workers=num_workers)
    observation.batches = [
        replace(batch, asked_s=0.07 * batch.number, came_s=0.07 * batch.number + 0.05)
        for batch in observation.batches
    ]
    for worker in observation.workers:
        worker.fetches = [replace(FETCH, finished_s=0.01 * batch, **fetch) for batch in range(15)]  # type: ignore[arg-type]
    return found(observation, replace(ROOMY, cpus=cpus))["slow-dataset"]


def test_shares_are_at_most_all() -> None:
    for cpu_s, words in (
        (0.0099, "99% of it on a CPU, 1% waiting"),
        (0.0157, "on 1.6 CPUs on average"),
    ):
        assert words in slow_dataset(seconds=0.01, cpu_s=cpu_s, delayed_s=0.005).what


def test_samples_that_sleep_are_not_blamed_on_the_cpus() -> None:
    for delayed_s, words in (
        (0.0034, "waiting for the disk, the network or a lock"),
        (0.006, "threads are ready"),
    ):
        assert words in slow_dataset(cpu_s=0.0005, delayed_s=delayed_s).why


def test_workers_that_other_programs_delay_are_no_fault() -> None:
    """Two workers, and a loop that computes 2/7 of its time, are 2.3 threads on 2 CPUs."""
    takes = {"seconds": 0.4, "dataset_s": 0.4}
    busy = slow_dataset(cpus=2, cpu_s=0.056, delayed_s=0.344, **takes)
    assert (busy.severity, busy.why) == ("note", "other programs use the CPUs")
    assert "86% waiting for a CPU" in busy.what
    assert "explain a wait for a CPU of 13% at most" in busy.what
    assert "OMP_NUM_THREADS" not in busy.change
    assert "num_workers" not in busy.change
    own = slow_dataset(cpus=1, cpu_s=0.24, delayed_s=0.16, **takes)
    assert (own.severity, "more threads are ready" in own.why) == ("bad", True)
    assert slow_dataset(cpus=2, cpu_s=0.5, delayed_s=0.3, **takes).severity == "bad", (
        "threads of its own in each worker"
    )


def test_a_dataset_that_free_cpus_would_not_make_fast_is_named_among_other_programs() -> None:
    """A batch takes 240 ms on a CPU, a step 20 ms."""
    slow = slow_dataset(cpus=2, seconds=0.4, dataset_s=0.4, cpu_s=0.24, delayed_s=0.16)
    assert (slow.severity, "more CPU time than there is" in slow.why) == ("bad", True)
    assert "on free CPUs it would be too slow as well" in slow.what
    assert "a sample takes 60 ms of CPU time" in slow.what
    assert "OMP_NUM_THREADS" not in slow.change
    one = slow_dataset(
        cpus=2, num_workers=1, seconds=0.4, dataset_s=0.4, cpu_s=0.14, delayed_s=0.26
    )
    assert "num_workers=2" in one.change


def test_a_loader_that_only_other_programs_delay_gets_no_finding_but_a_word() -> None:
    observation = late(0.1, lambda _: 0.3)
    for worker in observation.workers:
        worker.fetches = [replace(fetch, cpu_s=0.1, delayed_s=0.2) for fetch in worker.fetches]
    around = replace(ROOMY, cpus=2)
    assert found(observation, around) == {}
    assert "if other programs did not use the CPUs" in make_diagnosis(observation, around).summary


def test_idle_workers_are_found_while_other_programs_use_the_cpus() -> None:
    """Four workers and one shard: those without work do not count as too many for 2 CPUs."""
    for num_workers in (2, 4):
        observation = late(0.2, lambda _: 0.3, stream=True, num_workers=num_workers)
        first, second = observation.workers
        first.fetches = [
            replace(fetch, cpu_s=0.2, delayed_s=0.1) for fetch in [*first.fetches, *second.fetches]
        ]
        second.fetches = []
        others = [replace(second, number=number) for number in range(2, num_workers)]
        observation.workers.extend(others)
        around = replace(ROOMY, cpus=2)
        finding = found(observation, around)
        assert set(finding) == {"idle-workers"}
        assert f"1 of {num_workers} workers made all batches" in finding["idle-workers"].what
        assert "1 worker " in str(make_diagnosis(observation, around)), "the table of stages"


def test_the_step_of_an_epochs_only_batch() -> None:
    """Its end is the asking for the next batch, though none comes; or that for the next epoch."""
    observation = seen(num_workers=0, batches=1, prefetch_factor=None)
    observation.workers = [replace(observation.workers[0], number=-1)]
    observation.epochs = [Epoch(0.1 * number) for number in range(12)]
    observation.batches = [
        Batch(number, 0, 0.1 * number, 0.1 * number + 0.02, 1 << 20) for number in range(12)
    ]
    time = measure_stages(observation)
    assert time is not None
    assert time.step_s == pytest.approx(0.08)
    assert time.waiting == pytest.approx(0.2, abs=0.02)
    observation.stepped = [(number, 0, 0.1 * number + 0.06) for number in range(12)]
    time = measure_stages(observation)
    assert time is not None
    assert time.step_s == pytest.approx(0.04)
    assert found(observation) == {}, "workers would make no batch ahead"


def test_no_pinning_without_pinned_memory() -> None:
    observation = seen(num_workers=0)
    observation.workers = [replace(observation.workers[0], number=-1)]
    time = measure_stages(observation)
    assert time is not None
    assert time.transfer_s is None


def test_what_is_in_a_dataset() -> None:
    dataset = Numbers()
    dataset.names = [(f"{number}.jpg", number) for number in range(20_000)]  # type: ignore[attr-defined]
    dataset.table = {number: str(number) for number in range(20_000)}  # type: ignore[attr-defined]
    dataset.array = np.zeros(1_000_000)  # type: ignore[attr-defined]
    dataset.flags = [True] * 50_000  # type: ignore[attr-defined]
    dataset.itself = dataset  # type: ignore[attr-defined]
    held = list_heavy_containers(dataset, "dataset")
    assert {each["path"] for each in held} == {"dataset.names", "dataset.table"}
    exact = 20_000 * (8 + 56 + 57 + 28)  # pointer, tuple, name, number
    assert held[0]["bytes"] == pytest.approx(exact, rel=0.1)
    assert held[0]["kind"] == "list of 20,000 tuple"
    assert list_unpicklable(dataset, "dataset") == []
    assert find_sample_name(torch.utils.data.Subset(WithFiles(), [2, 1]), 0) == "c.jpg"
    assert find_sample_name(dataset, 3) == ""
    assert find_definition(len) == ""


def test_the_end_of_a_stream_is_no_sample(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Stream(split=False), 40)
    watch = LoaderWatch(str(tmp_path), loader, "train.py:7")
    watch.begin_epoch(loader)
    batches = iter(watch.make_iterator(loader, lambda each: each._get_iterator()))
    while watch.next_batch(batches, lambda each: next(each, None)) is not None:
        pass
    seen = read_observation(tmp_path / f"loader-{watch.line.key}.jsonl")
    assert seen is not None
    assert [len(fetch.times_us) for worker in seen.workers for fetch in worker.fetches] == [
        40,
        40,
        20,
    ]


class WithFiles(Numbers):
    def __init__(self) -> None:
        self.imgs = [("a.jpg", 0), ("b.jpg", 0), ("c.jpg", 1)]


def test_sizes_and_checksums_of_samples() -> None:
    batch = {
        "image": torch.zeros(2, 3, 4, dtype=torch.float32),
        "more": [np.zeros(5, np.uint8), "word"],
    }
    assert count_batch_bytes(batch) == 2 * 3 * 4 * 4 + 5
    samples = [
        1,
        2,
        "1",
        (torch.zeros(3), 1),
        (torch.zeros(3), 2),
        (torch.ones(3), 1),
        {"a": 1},
        {"a": 2},
        b"1",
    ]
    assert len({checksum(sample) for sample in samples}) == len(samples)
    assert checksum((torch.zeros(3), 1)) == checksum((torch.zeros(3), 1))


def test_files_are_bounded_and_cut_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpipe.diagnosis.inject.fastpipe_probe.files._MAX_BYTES", 100)
    log = Log(str(tmp_path / "log"))
    for number in range(100):
        log.write({"number": number})
    log.close()
    with (tmp_path / "log").open("a") as file:
        file.write('{"numb')
    assert [line["number"] for line in read_lines(tmp_path / "log")] == list(range(7))
    state = State(str(tmp_path / "state"))
    assert read_state(str(tmp_path / "state")) is None
    state.set("dataset", [f"{'name' * 20}{number}" for number in range(100)])
    found_ = read_state(str(tmp_path / "state"))
    assert found_ is not None
    assert found_[1] == "dataset"
    assert found_[2].endswith("...")
    assert safe_repr(Unprintable()) == "<Unprintable>"


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")
