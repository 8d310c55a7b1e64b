"""What the kernel says about the machine, in words; what it does not say is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpipe import machine


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def test_everything_is_told(kernel: Path) -> None:
    (kernel / "proc" / "meminfo").write_text("MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable:  2000000 kB\n")
    (kernel / "proc" / "pressure" / "io").write_text("some avg10=1.00 avg60=37.50 avg300=0.00 total=5\nfull avg10=0\n")
    (kernel / "proc" / "pressure" / "memory").write_text("some avg10=0.00 avg60=4.00 avg300=0.00 total=5\n")
    (kernel / "cgroup" / "memory.max").write_text("8000000000\n")
    (kernel / "cgroup" / "memory.current").write_text("7900000000\n")
    (kernel / "cgroup" / "cpu.stat").write_text("usage_usec 5\nnr_periods 9\nnr_throttled 1234\n")
    text = machine.machine_state()
    assert "CPUs granted, load " in text
    for words in (
        "2.0 of 16.4 GB of memory available",
        "7.9 of this container's 8.0 GB of memory in use",
        "tasks waited for the disk 38% of the last minute",
        "tasks waited for memory 4% of the last minute",
        "the CPU quota has throttled this container 1,234 times",
    ):
        assert words in text
    assert "waited for a CPU" not in text  # there is no such file


def test_no_limits_no_words(kernel: Path) -> None:
    (kernel / "cgroup" / "memory.max").write_text("max\n")
    (kernel / "cgroup" / "cpu.stat").write_text("usage_usec 5\nnr_throttled 0\n")
    (kernel / "proc" / "meminfo").write_text("garbled")
    (kernel / "proc" / "pressure" / "io").write_text("")
    text = machine.machine_state()
    assert text.count(";") == 0
    assert "CPUs granted" in text
