"""Failure 6: workers are counted by the machine's CPUs, and the container was granted fewer; or there are none."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from support.running.process_state import threads, threads_at_rest
from torch.utils.data import DataLoader

import fastpipe
from fastpipe.machine import cpus


@pytest.fixture
def two_of_eight_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container on a machine of 8 CPUs, with the quota of `docker run --cpus 2`."""
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "cpu.max").write_text("200000 100000\n")
    monkeypatch.setattr(cpus, "OWN", tmp_path / "own")
    monkeypatch.setattr(cpus, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


@pytest.mark.usefixtures("two_of_eight_cpus")
def test_too_many_by_the_count_that_people_take() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(range(10), num_workers=os.cpu_count() or 1)  # type: ignore[arg-type, var-annotated]
    assert loader.num_workers == 8, "four processes a CPU, and no warning"
    with pytest.warns(
        UserWarning, match="Our suggested max number of worker in current system is 8"
    ):
        DataLoader(range(10), num_workers=9)  # type: ignore[arg-type]


def test_too_few_by_default() -> None:
    assert DataLoader(range(10)).num_workers == 0  # type: ignore[arg-type]


@pytest.mark.usefixtures("two_of_eight_cpus")
def test_fastpipe_takes_what_is_granted(flat: Path) -> None:
    before = threads_at_rest()
    with fastpipe.loader(flat, 8, size=16) as loader:
        assert len(list(loader)) == 4
        assert threads() - before == 2 + 1, (
            "two that decode, and one that asks the kernel to read ahead"
        )
