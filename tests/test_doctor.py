"""The doctor finds what is wrong with a machine or a dataset, and says what to do; a sound one has nothing bad."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cli_run import failed, fp
from conftest import damage

import fastpipe
from fastpipe import doctor
from fastpipe.doctor import Check, Verdict, examine


def check_of(name: str, data: Path | None = None) -> Check:
    (found,) = [check for check in examine(data) if check.name == name]
    return found


@pytest.fixture(autouse=True)
def a_sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine of the test is short of is not what is tested."""
    monkeypatch.setattr(doctor, "granted_cpus", lambda: 64)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(doctor, "memory_bytes", lambda: (50_000_000_000, 64_000_000_000))
    monkeypatch.setattr(doctor, "container_memory_bytes", lambda: None)
    monkeypatch.setattr(doctor, "oom_kills", lambda: 0)
    monkeypatch.setattr(doctor, "swap_used_bytes", lambda: 0)


def test_a_sound_machine_has_nothing_bad() -> None:
    checks = examine()
    assert len({check.name for check in checks}) == len(checks) == 10
    assert not [check for check in checks if check.verdict is Verdict.BAD]
    for check in checks:
        assert check.found
        assert check.advice or check.verdict is not Verdict.BAD


def test_cpus_that_are_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "granted_cpus", lambda: 4)
    check = check_of("CPUs")
    assert check.found == "4 granted of 64"
    assert check.verdict is Verdict.NOTE
    assert "num_workers=4" in check.advice


def test_memory_that_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory_bytes", lambda: (500_000_000, 64_000_000_000))
    assert check_of("memory").verdict is Verdict.BAD
    monkeypatch.setattr(doctor, "memory_bytes", lambda: (50_000_000_000, 64_000_000_000))
    monkeypatch.setattr(doctor, "container_memory_bytes", lambda: (7_900_000_000, 8_000_000_000))
    check = check_of("memory")
    assert check.verdict is Verdict.BAD
    assert "this container uses 7.9 GB of 8.0 GB" in check.found
    monkeypatch.setattr(doctor, "memory_bytes", lambda: None)
    assert check_of("memory").verdict is Verdict.OK


@pytest.mark.parametrize(("free", "verdict"), [(64 << 20, Verdict.NOTE), (8 << 30, Verdict.OK)])
def test_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, verdict: Verdict) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=free, free=free))
    check = check_of(str(tmp_path))
    assert check.verdict is verdict
    assert ("--shm-size" in check.advice) is (verdict is Verdict.NOTE)
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "none")
    assert check_of(str(tmp_path / "none")).found == "not there"


def test_limits_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    check = check_of("open files (ulimit -n)")
    assert (check.found, check.verdict, check.advice) == ("256", Verdict.NOTE, "raise it: ulimit -n 4096")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert check_of("open files (ulimit -n)").found == "no limit"


def test_more_threads_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    monkeypatch.setenv("OMP_NUM_THREADS", "96")
    check = check_of("threads")
    assert check.verdict is Verdict.BAD
    assert "torch 96" in check.found
    assert "OMP_NUM_THREADS=96" in check.found
    assert "OMP_NUM_THREADS=64" in check.advice


def test_swap_and_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "swap_used_bytes", lambda: 3_000_000_000)
    monkeypatch.setattr(doctor, "oom_kills", lambda: 2)
    assert check_of("swap").verdict is Verdict.NOTE
    assert check_of("killed for memory").verdict is Verdict.BAD
    assert "exited unexpectedly" in check_of("killed for memory").advice
    monkeypatch.setattr(doctor, "oom_kills", lambda: None)
    assert check_of("killed for memory").verdict is Verdict.OK


def test_the_engine_names_its_code() -> None:
    found = check_of("engine").found
    assert found.startswith(("libjpeg-turbo 2.", "libjpeg-turbo 3."))
    assert "resize by " in found


def test_a_dataset_is_looked_at(monkeypatch: pytest.MonkeyPatch, flat: Path) -> None:
    monkeypatch.setattr(doctor, "granted_cpus", lambda: 2)
    checks = {check.name: check for check in examine(flat)}
    assert checks["dataset"].found == "37 samples in 1 shard, all of the right size"
    assert "images/s" in checks["decoding"].found
    assert "MB/s" in checks["reading"].found
    assert checks["reading"].verdict in (Verdict.OK, Verdict.NOTE)


def test_damaged_datasets_are_named(
    monkeypatch: pytest.MonkeyPatch, many_shards: Path, copied: Callable[[Path], Path]
) -> None:
    monkeypatch.setattr(doctor, "granted_cpus", lambda: 2)
    dataset = copied(many_shards)
    damage(dataset, 3)
    with pytest.raises(fastpipe.DatasetError, match="1 of 24 samples cannot be decoded"):
        examine(dataset)
    shards = fastpipe.open(dataset).shards
    shards[1].path.write_bytes(shards[1].path.read_bytes()[:-512])
    shards[2].path.unlink()
    check = doctor._shards(fastpipe.open(dataset))
    assert check.verdict is Verdict.BAD
    assert (
        f"{shards[1].name} has {shards[1].size_bytes - 512:,} bytes, expected {shards[1].size_bytes:,}" in check.found
    )
    assert check.advice.startswith("2 damaged: ")


def test_the_command(monkeypatch: pytest.MonkeyPatch, flat: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "granted_cpus", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setenv("COLUMNS", "160")
    result = fp("doctor", flat)
    assert result.exit_code == 0, result.output
    for words in ("check", "found", "verdict", "what to do", "CPUs", "open files (ulimit -n)", "37 samples"):
        assert words in result.stdout
    checks = json.loads(fp("doctor", "--json").stdout)
    assert [check["name"] for check in checks] == [check.name for check in examine()]
    monkeypatch.setattr(doctor, "oom_kills", lambda: 1)
    assert fp("doctor").exit_code == 1  # something is bad
    assert "no packed dataset" in failed(1, "doctor", tmp_path) or "dataset.json" in failed(1, "doctor", tmp_path)
