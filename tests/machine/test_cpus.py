"""Tests of the count of granted CPUs: affinity mask and cgroup quota, whichever is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastpipe.machine import cpus


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of cgroups of the test's own, and an affinity of 8 CPUs."""
    monkeypatch.setattr(cpus, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cpus, "OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


def set_v2(limits: Path, path: str, text: str) -> None:
    """Puts this process into a cgroup of version 2 and limits one on the way to it."""
    folder = limits / "cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(text)


def set_v1(limits: Path, path: str, quota: str, period: str) -> None:
    """The same for version 1."""
    folder = limits / "cgroup" / "cpu" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(quota + "\n")
    (folder / "cpu.cfs_period_us").write_text(period + "\n")


def test_affinity_alone(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpus.count_granted_cpus() == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert cpus.count_granted_cpus() == 1


def test_without_affinity_masks(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cpus.count_granted_cpus() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpus.count_granted_cpus() == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("20000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("", 8),
        ("nonsense", 8),
        ("nonsense 1", 8),
    ],
)
def test_cgroup_v2(limits: Path, text: str, expected: int) -> None:
    (limits / "own").write_text("0::/\n")
    set_v2(limits, "", text)
    assert cpus.count_granted_cpus() == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [
        ("-1", "100000", 8),
        ("300000", "100000", 3),
        ("250000", "100000", 3),
        ("50000", "100000", 1),
        ("x", "1", 8),
    ],
)
def test_cgroup_v1(limits: Path, quota: str, period: str, expected: int) -> None:
    (limits / "own").write_text("12:memory:/a\n3:cpu,cpuacct:/\n0::/\n")
    set_v1(limits, "", quota, period)
    assert cpus.count_granted_cpus() == expected


def test_cgroup_v1_without_its_period(limits: Path) -> None:
    (limits / "own").write_text("1:cpu:/\n")
    set_v1(limits, "", "100000", "100000")
    (limits / "cgroup" / "cpu" / "cpu.cfs_period_us").unlink()
    assert cpus.count_granted_cpus() == 8


def test_a_period_of_zero_is_no_limit(limits: Path) -> None:
    (limits / "own").write_text("1:cpu:/\n0::/\n")
    set_v1(limits, "", "100000", "0")
    set_v2(limits, "", "100000 0\n")
    assert cpus.count_granted_cpus() == 8


@pytest.mark.parametrize(
    ("inner", "outer", "expected"), [("max 1", "300 100", 3), ("200 100", "300 100", 2)]
)
def test_the_least_quota_on_the_way_counts(
    limits: Path, inner: str, outer: str, expected: int
) -> None:
    (limits / "own").write_text("0::/slice/service\n")
    set_v2(limits, "slice/service", inner)
    set_v2(limits, "slice", outer)
    assert cpus.count_granted_cpus() == expected


def test_a_container_that_is_shown_its_hosts_path(limits: Path) -> None:
    (limits / "own").write_text("3:cpu:/docker/0123\n")
    set_v1(limits, "", "250000", "100000")
    assert cpus.count_granted_cpus() == 3


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::\n", "::::\n"])
def test_an_unreadable_list_of_cgroups_is_no_limit(limits: Path, text: str) -> None:
    (limits / "own").write_text(text)
    assert cpus.count_granted_cpus() == 8


def test_this_machine() -> None:
    assert 1 <= cpus.count_granted_cpus() <= (os.cpu_count() or 1)
