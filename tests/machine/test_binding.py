"""CPUs where OpenMP has bound the main thread: counted as before, and threads are started with all of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fastpipe
from fastpipe import warnings_once
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine.engine import Engine
from fastpipe.machine import binding, cpus
from fastpipe.tools.doctor.system import check_system

Bound = Callable[..., None]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Bound:
    """A thread with these CPUs, after OpenMP has made places of others."""

    def bind(mask: set[int], *places: set[int], variable: str = "close") -> None:
        masks = [mask]
        monkeypatch.setenv("OMP_PROC_BIND", variable)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: masks[-1], raising=False)
        monkeypatch.setattr(
            os, "sched_setaffinity", lambda _, cpus: masks.append(set(cpus)), raising=False
        )
        monkeypatch.setattr(
            binding, "_read_places", lambda: [[frozenset(place) for place in places]]
        )
        monkeypatch.setattr(cpus, "read_cpu_quota", lambda: None)
        monkeypatch.setattr(os, "cpu_count", lambda: 8)

    return bind


def test_cpus_are_counted_as_before_openmp_bound_the_thread(bound: Bound) -> None:
    bound({0}, {0}, {1}, {2}, {3})
    assert cpus.count_granted_cpus() == 4
    bound({0, 4}, {0, 4}, {1, 5}, variable="spread")  # cores of two CPUs each
    assert cpus.count_granted_cpus() == 4


def test_a_mask_that_openmp_has_not_made_counts(bound: Bound) -> None:
    bound({0, 1}, {0}, {1}, {2}, {3})  # set by the program
    assert cpus.count_granted_cpus() == 2
    bound({0}, {0}, {1}, variable="false")
    assert cpus.count_granted_cpus() == 1
    bound({5}, {0}, {1})
    assert cpus.count_granted_cpus() == 1


def test_threads_start_with_all_cpus_and_the_main_thread_stays_bound(
    bound: Bound, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound({0}, {0}, {1}, {2})
    masks = []
    made = Engine.__init__.__globals__["_engine"].Engine

    class Seen:
        def __new__(cls, *arguments: object) -> object:
            masks.append(os.sched_getaffinity(0))
            return made(*arguments)

    monkeypatch.setattr(Engine.__init__.__globals__["_engine"], "Engine", Seen)
    Engine(PackedIndex(flat), 2).close()
    assert (masks, os.sched_getaffinity(0)) == ([{0, 1, 2}], {0})


def test_a_loader_has_as_many_threads_as_cpus_before(bound: Bound, flat: Path) -> None:
    bound({0}, {0}, {1}, {2})
    with fastpipe.loader(flat, 4, size=8) as loader:
        assert loader.stats().threads == 3


def test_a_process_that_was_started_with_one_cpu_says_it_once(
    bound: Bound, flat: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a rank that torchrun, bound itself, has started."""
    bound({0}, {0})
    warnings_once.forget_all()
    with caplog.at_level(logging.WARNING, "fastpipe"):
        for _ in range(2):
            fastpipe.loader(flat, 4, size=8).close()
    assert caplog.text.count("started with one CPU of 8, and OMP_PROC_BIND=close is set") == 1


def test_doctor_names_the_variable(bound: Bound) -> None:
    bound({0}, {0}, {1})
    (check,) = [check for check in check_system() if check.name == "binding of threads"]
    assert check.found == "OMP_PROC_BIND=close; this thread may use 2 CPUs"
    bound({0}, {0}, {1}, variable="false")
    assert not [check for check in check_system() if check.name == "binding of threads"]
