"""Tests of the count of granted CPUs: affinity mask and cgroup quota, whichever is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastpipe import cpus


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cgroup files in a folder of the test's own, none there yet, and an affinity of 8 CPUs."""
    monkeypatch.setattr(cpus, "CGROUP_V2_QUOTA", tmp_path / "v2")
    monkeypatch.setattr(cpus, "CGROUP_V1_QUOTA", tmp_path / "v1-quota")
    monkeypatch.setattr(cpus, "CGROUP_V1_PERIOD", tmp_path / "v1-period")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


def test_affinity_alone(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpus.granted_cpus() == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert cpus.granted_cpus() == 1


def test_without_affinity_masks(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cpus.granted_cpus() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpus.granted_cpus() == 1


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
    (limits / "v2").write_text(text)
    assert cpus.granted_cpus() == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [("-1", "100000", 8), ("300000", "100000", 3), ("250000", "100000", 3), ("50000", "100000", 1), ("x", "1", 8)],
)
def test_cgroup_v1(limits: Path, quota: str, period: str, expected: int) -> None:
    (limits / "v1-quota").write_text(quota + "\n")
    (limits / "v1-period").write_text(period + "\n")
    assert cpus.granted_cpus() == expected


def test_cgroup_v1_without_its_period(limits: Path) -> None:
    (limits / "v1-quota").write_text("100000\n")
    assert cpus.granted_cpus() == 8


@pytest.mark.parametrize("file", ["v2", "v1"])
def test_a_period_of_zero_is_no_limit(limits: Path, file: str) -> None:
    (limits / "v2").write_text("100000 0\n") if file == "v2" else None
    (limits / "v1-quota").write_text("100000\n")
    (limits / "v1-period").write_text("0\n")
    assert cpus.granted_cpus() == 8


def test_version_2_goes_before_version_1(limits: Path) -> None:
    (limits / "v2").write_text("max 100000\n")
    (limits / "v1-quota").write_text("100000\n")
    (limits / "v1-period").write_text("100000\n")
    assert cpus.granted_cpus() == 8


def test_this_machine() -> None:
    assert 1 <= cpus.granted_cpus() <= (os.cpu_count() or 1)
