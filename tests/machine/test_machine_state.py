"""What the kernel says about the machine, in words; what it does not say is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpipe.machine import cpus
from fastpipe.machine import state as machine


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(cpus, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cpus, "OWN", tmp_path / "own")
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "own").write_text("0::/\n")
    return tmp_path


def write(folder: Path, **files: object) -> None:
    """Files of a cgroup; `__` stands for the dot in a name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_everything_is_told(kernel: Path) -> None:
    (kernel / "proc" / "meminfo").write_text(
        "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable:  2000000 kB\n"
    )
    (kernel / "proc" / "pressure" / "io").write_text(
        "some avg10=1.00 avg60=37.50 avg300=0.00 total=5\nfull avg10=0\n"
    )
    (kernel / "proc" / "pressure" / "memory").write_text(
        "some avg10=0.00 avg60=4.00 avg300=0.00 total=5\n"
    )
    write(
        kernel / "cgroup",
        memory__max=8_000_000_000,
        memory__current=7_900_000_000,
        memory__stat="anon 5\ninactive_file 300000000",
        cpu__max="150000 100000",
        cpu__stat="usage_usec 5\nnr_periods 9\nnr_throttled 1234\nthrottled_usec 56000000",
    )
    text = machine.describe_machine_state()
    assert text.startswith(f"{cpus.count_granted_cpus()} CPUs granted (a quota of 1.5), load ")
    for words in (
        "2.0 of 16.4 GB of memory available",
        "7.6 of this container's 8.0 GB of memory in use",
        "tasks waited for the disk 38% of the last minute",
        "tasks waited for memory 4% of the last minute",
        "the CPU quota has throttled this container 1,234 times, for 56 s in all",
    ):
        assert words in text
    assert "waited for a CPU" not in text  # there is no such file


def test_no_limits_no_words(kernel: Path) -> None:
    write(
        kernel / "cgroup",
        memory__max="max",
        memory__current=5,
        cpu__max="max 100000",
        cpu__stat="usage_usec 5\nnr_throttled 0\nthrottled_usec 0",
    )
    (kernel / "proc" / "meminfo").write_text("garbled")
    (kernel / "proc" / "pressure" / "io").write_text("")
    text = machine.describe_machine_state()
    assert text.count(";") == 0
    assert "CPUs granted" in text


def test_limits_of_cgroup_v1(kernel: Path) -> None:
    """The group's own limit has more room than that of the one around it; CPUs are counted elsewhere."""
    (kernel / "own").write_text("4:memory:/docker/inner\n1:cpu,cpuacct:/docker\n")
    unlimited = 9223372036854771712
    memory = kernel / "cgroup" / "memory"
    write(memory, memory__limit_in_bytes=unlimited, memory__usage_in_bytes=1)
    write(
        memory / "docker",
        memory__limit_in_bytes=4_000_000_000,
        memory__usage_in_bytes=3_500_000_000,
        memory__stat="cache 9\ninactive_file 1\ntotal_inactive_file 500000000",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 0",
    )
    write(
        memory / "docker" / "inner",
        memory__limit_in_bytes=8_000_000_000,
        memory__usage_in_bytes=2_000_000_000,
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    )
    write(
        kernel / "cgroup" / "cpu" / "docker",
        cpu__cfs_quota_us=250_000,
        cpu__cfs_period_us=100_000,
        cpu__stat="nr_periods 9\nnr_throttled 7\nthrottled_time 2000000000",
    )
    assert machine.read_container_memory() == (3_000_000_000, 4_000_000_000)
    assert machine.read_container_oom_kills() == 3
    text = machine.describe_machine_state()
    assert "(a quota of 2.5)" in text
    assert "3.0 of this container's 4.0 GB" in text
    assert "throttled this container 7 times, for 2 s in all" in text


def test_no_container_no_kills(kernel: Path) -> None:
    assert machine.read_container_memory() is None
    assert machine.read_container_oom_kills() is None
    write(kernel / "cgroup", memory__events="low 0\noom 2\noom_kill 1\noom_group_kill 0")
    assert machine.read_container_oom_kills() == 1


def test_a_kernel_without_pressure_is_watched_for_a_moment(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 ticks, 100 were idle with the disk at work."""
    stat = kernel / "proc" / "stat"
    stat.write_text("cpu  1000 50 300 5000 700 0 20 0 0 0\ncpu0 1 1 1 1\n")
    later = "cpu  1150 50 350 5100 800 0 20 0 0 0\n"
    monkeypatch.setattr(machine.time, "sleep", lambda seconds: stat.write_text(later))
    assert (
        "CPUs idle, waiting for the disk, 25% of the time just now"
        in machine.describe_machine_state()
    )
    (kernel / "proc" / "pressure" / "io").write_text(
        "some avg10=1.00 avg60=3.00 avg300=0.00 total=5\n"
    )
    assert "just now" not in machine.describe_machine_state()
