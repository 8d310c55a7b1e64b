"""A diagnosis names what a loader suffers from, with the line to change; of sound ones it says nothing."""

from __future__ import annotations

import functools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.workers.diagnosed as faults
import torch
from support.workers.diagnosed import (
    FAULTS,
    Failing,
    Numbers,
    Own,
    Slow,
    Stream,
    diagnosed,
    finding,
    line_of,
    names,
)
from torch.utils.data import DataLoader

import fastpipe
from fastpipe.diagnosis import run
from fastpipe.errors import ConfigError

HERE = str(Path(__file__))


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPUs of the machine at hand are not what is tested."""
    monkeypatch.setattr("fastpipe.diagnosis.observation.count_granted_cpus", lambda: 8)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Numbers(), {}),
        (Numbers(), {"num_workers": 0}),
        (Own(), {"worker_init_fn": faults.seed_own}),
        (Stream(split=True), {}),
    ],
    ids=["fork", "no workers", "own seeds", "stream"],
)
def test_nothing_is_found_in_a_sound_loader(dataset: Any, options: dict[str, Any]) -> None:
    diagnosis = diagnosed(dataset, **options)
    # A machine that is busy with other work delays batches: that is not told from the loader's doing.
    assert names(diagnosis) <= {"late-batches", "slow-transfer"}, json.dumps(
        diagnosis.as_dict(), indent=1
    )
    assert diagnosis.stages is not None
    assert diagnosis.stages.batches == (
        16 if isinstance(dataset, Numbers) else 26
    )  # of a stream, 13 of each worker
    assert diagnosis.processes == options.get("num_workers", 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_loaders_own_and_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, workers: int
) -> None:
    """The same order, the same draws of workers, and afterwards the same state of every generator."""
    # Workers of torch have a socket there, and Linux takes 107 characters for its path.
    folder = tmp_path_factory.mktemp("tempdir")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    class Own(DataLoader[Any]):
        pass

    def loader() -> DataLoader[Any]:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        generator = torch.Generator().manual_seed(5)
        context = "fork" if workers else None
        return Own(
            Random(),
            8,
            True,
            num_workers=workers,
            generator=generator,
            multiprocessing_context=context,
        )

    made = loader()
    expected = [list(made), list(made)]
    seen: list[Any] = []
    watched = loader()
    before = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.random.get_rng_state().tolist(),
    )  # type: ignore[index]
    attributes = dict(vars(watched))
    fastpipe.diagnose(watched, step=seen.append, epochs=2)
    assert same(seen, expected[0] + expected[1])
    assert vars(watched) == attributes
    assert before == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.random.get_rng_state().tolist(),
    )  # type: ignore[index]
    assert same(list(watched), expected[0])
    assert list(folder.iterdir()) == []


class Random(Numbers):
    def sample(self, number: int) -> Any:
        return number, random.random(), float(np.random.rand()), float(torch.rand(()))


def same(batches: list[Any], others: list[Any]) -> bool:
    return len(batches) == len(others) and all(
        all(torch.equal(one, two) for one, two in zip(batch, other, strict=True))
        for batch, other in zip(batches, others, strict=True)
    )


def test_slow_samples_are_listed() -> None:
    found = finding(diagnosed(Slow(0.001, (40, 50)), num_workers=0, epochs=2), "slow-samples")
    assert "40 2" in found.what  # 40 200 ms
    assert "50 2" in found.what
    assert found.section == 13
    assert found.where.startswith(FAULTS)


def test_options_that_do_not_go_together() -> None:
    loader: DataLoader[Any] = DataLoader(
        Numbers(),
        4,
        num_workers=1,
        persistent_workers=True,
        pin_memory=not torch.accelerator.is_available(),
    )
    loader.num_workers = 0  # as somebody who debugs does
    diagnosis = fastpipe.diagnose(loader, step=faults.pause, epochs=1)
    found = finding(diagnosis, "options-without-workers")
    assert "persistent_workers=True and prefetch_factor=2" in found.what
    assert found.where == f"{HERE}:{line_of('loader: DataLoader[Any] = DataLoader(', HERE)}"
    if not torch.accelerator.is_available():
        assert "torch.cuda.is_available()" in finding(diagnosis, "pin-without-gpu").change


def test_lambdas() -> None:
    """pickle refuses them before a worker is started."""
    dataset = Numbers()
    dataset.transform = [len, functools.partial(print, lambda value: value), lambda value: value]  # type: ignore[attr-defined]
    assert "not-picklable" not in names(diagnosed(dataset)), "forked workers need no pickle"
    (found,) = diagnosed(dataset, num_workers=1, multiprocessing_context="spawn").findings
    assert (found.name, found.severity) == ("not-picklable", "bad")
    refused = "dataset.transform[2] (a lambda), dataset.transform[1].args[0] (a lambda) cannot be pickled: "
    assert refused in found.what
    assert found.where == f"{HERE}:{line_of('dataset.transform = ', HERE)}"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_threads_of_workers() -> None:
    found = finding(
        diagnosed(Numbers(), num_workers=3, worker_init_fn=faults.opencv_threads), "opencv-threads"
    )
    assert "4 threads in each of 3 workers, for 8 CPUs" in found.what
    assert "cv2.setNumThreads(0)" in found.change
    assert (
        "torch.set_num_threads"
        in finding(
            diagnosed(Numbers(), num_workers=1, worker_init_fn=faults.torch_threads),
            "torch-threads",
        ).change
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_raises_is_named(workers: int) -> None:
    found = finding(diagnosed(Failing("raise"), num_workers=workers), "bad-sample")
    assert found.what == "reading sample 20 (photos/20.jpg) raised OSError: image file is truncated"
    assert found.where == f"{FAULTS}:{line_of('raise OSError')}"


def test_a_worker_that_is_killed() -> None:
    found = finding(diagnosed(Failing("kill"), num_workers=1), "worker-killed")
    assert "by SIGKILL" in found.what
    assert found.section == 15


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    diagnosed(Numbers(), num_workers=0, batches=3, epochs=2, step=counted.append)
    assert len(counted) == 6
    counted.clear()
    diagnosed(Slow(0.05), num_workers=0, seconds=0.3, step=counted.append)
    assert 0 < len(counted) < 8


def test_wrong_arguments(flat: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Numbers())
    with pytest.raises(ConfigError, match=r"expected a torch\.utils\.data\.DataLoader, got list"):
        fastpipe.diagnose([1, 2])
    with pytest.raises(ConfigError, match="batches: "):
        fastpipe.diagnose(loader, batches=0)
    with pytest.raises(ConfigError, match="stall_timeout: "):
        fastpipe.diagnose(loader, stall_timeout=-1)
    with pytest.raises(ZeroDivisionError):
        fastpipe.diagnose(loader, step=lambda batch: 1 / 0)


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "read_observation", lambda path: None)
    with pytest.raises(ConfigError, match="check that the disk is not full"):
        diagnosed(Numbers(), num_workers=0)
