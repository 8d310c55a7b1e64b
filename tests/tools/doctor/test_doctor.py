"""The doctor finds what is wrong with a machine or a dataset, and says what to do; a sound one has nothing bad."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from support.datasets.packed import damage
from support.programs.cli_run import failed, fp

import fastpipe
from fastpipe.tools.cli.doctor import doctor_table
from fastpipe.tools.doctor import Check, Verdict, examine, libjpeg_simd, libraries, system
from fastpipe.tools.doctor import dataset_checks as dataset
from fastpipe.tools.doctor.libjpeg_simd import JpegSimd

MEASURED, TIMED = libjpeg_simd.measure_jpeg_simd, libjpeg_simd._time_decode


def check_of(name: str, data: Path | None = None) -> Check:
    (found,) = [check for check in examine(data) if check.name == name]
    return found


@pytest.fixture(autouse=True)
def a_sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine of the test is short of is not what is tested."""
    monkeypatch.setattr(system, "count_granted_cpus", lambda: 64)
    monkeypatch.setattr(system, "read_cpu_quota", lambda: None)
    monkeypatch.setattr(libraries, "count_granted_cpus", lambda: 64)
    monkeypatch.setattr(dataset, "count_granted_cpus", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(system, "read_memory", lambda: (50_000_000_000, 64_000_000_000))
    monkeypatch.setattr(system, "read_container_memory", lambda: None)
    monkeypatch.setattr(system, "read_oom_kills", lambda: 0)
    monkeypatch.setattr(system, "read_container_oom_kills", lambda: None)
    monkeypatch.setattr(system, "KERNEL_LOG", Path("/nowhere"))
    monkeypatch.setattr(system, "read_swap_used", lambda: 0)
    monkeypatch.setattr(
        libraries, "measure_jpeg_simd", lambda: JpegSimd("3.0.1", "/usr/lib/libjpeg.so.62", 2.5)
    )


def test_a_sound_machine_has_nothing_bad() -> None:
    checks = examine()
    assert len({check.name for check in checks}) == len(checks) == 13
    assert not [check for check in checks if check.verdict is Verdict.BAD]
    for check in checks:
        assert check.found
        assert check.advice or check.verdict is not Verdict.BAD


def test_cpus_that_are_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "count_granted_cpus", lambda: 4)
    check = check_of("CPUs")
    assert check.found == "4 granted of 64"
    assert check.verdict is Verdict.NOTE
    assert "num_workers=4" in check.advice
    monkeypatch.setattr(system, "read_cpu_quota", lambda: 3.5)
    assert check_of("CPUs").found == "4 granted of 64, by a quota of 3.5"


def test_memory_that_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "read_memory", lambda: (500_000_000, 64_000_000_000))
    assert check_of("memory").verdict is Verdict.BAD
    monkeypatch.setattr(system, "read_memory", lambda: (50_000_000_000, 64_000_000_000))
    monkeypatch.setattr(system, "read_container_memory", lambda: (7_900_000_000, 8_000_000_000))
    check = check_of("memory")
    assert check.verdict is Verdict.BAD
    assert "this container uses 7.9 GB of 8.0 GB" in check.found
    monkeypatch.setattr(system, "read_memory", lambda: None)
    assert check_of("memory").verdict is Verdict.OK


@pytest.mark.parametrize(("free", "verdict"), [(64 << 20, Verdict.NOTE), (8 << 30, Verdict.OK)])
def test_shared_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(system, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=free, free=free))
    check = check_of(str(tmp_path))
    assert check.verdict is verdict
    assert ("--shm-size" in check.advice) is (verdict is Verdict.NOTE)
    monkeypatch.setattr(system, "SHARED_MEMORY", tmp_path / "none")
    assert check_of(str(tmp_path / "none")).found == "not there"


def test_limits_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    check = check_of("open files (ulimit -n)")
    assert (check.found, check.verdict, check.advice) == (
        "256",
        Verdict.NOTE,
        "raise it: ulimit -n 4096",
    )
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert check_of("open files (ulimit -n)").found == "no limit"


def test_more_threads_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    monkeypatch.setenv("OMP_NUM_THREADS", "96")
    check = check_of("threads")
    assert check.verdict is Verdict.BAD
    assert "torch 96" in check.found
    assert "OMP_NUM_THREADS=96" in check.found
    assert check.advice == "more than the 64 CPUs granted: set OMP_NUM_THREADS=64"


def test_workers_whose_libraries_start_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        libraries, "count_threads", lambda: {"torch": 64, "OpenBLAS": 1, "OpenCV": 8}
    )
    check = check_of("threads in workers")
    assert check.found == "64 workers of DataLoader with 8 of OpenCV each: 512 threads"
    assert check.verdict is Verdict.NOTE
    assert "OPENCV_FOR_THREADS_NUM=1;" in check.advice
    monkeypatch.setattr(libraries, "count_threads", lambda: {"torch": 64, "OpenCV": 1})
    assert check_of("threads in workers").verdict is Verdict.OK


def test_swap_and_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "read_swap_used", lambda: 3_000_000_000)
    monkeypatch.setattr(system, "read_oom_kills", lambda: 2)
    assert check_of("swap").verdict is Verdict.NOTE
    assert check_of("killed for memory").verdict is Verdict.BAD
    assert "exited unexpectedly" in check_of("killed for memory").advice
    monkeypatch.setattr(system, "read_container_oom_kills", lambda: 0)
    check = check_of("killed for memory")
    assert (check.found, check.verdict) == (
        "2 processes since the machine started, 0 of them in this container",
        Verdict.NOTE,
    )
    monkeypatch.setattr(system, "read_container_oom_kills", lambda: 1)
    assert check_of("killed for memory").verdict is Verdict.BAD
    monkeypatch.setattr(system, "read_container_oom_kills", lambda: None)
    monkeypatch.setattr(system, "read_oom_kills", lambda: None)
    assert check_of("killed for memory").verdict is Verdict.OK


def test_the_kernel_log_names_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    then = 50_000_000
    kmsg = tmp_path / "kmsg"
    kmsg.write_text(
        f"3,10,{then - 5_000_000},-;Out of memory: Killed process 17 (first) total-vm:1kB, anon-rss:0kB\n"
        f"6,11,{then},-;Tasks state (memory values in pages):\n"
        f"3,12,{then},-;Memory cgroup out of memory: Killed process 4321 (pt_data_worker) total-vm:5kB\n"
        " SUBSYSTEM=memory\n"
        f"6,13,{then},-;a program says: Out of memory: Killed process 1 (liar)\n"
    )
    monkeypatch.setattr(system, "KERNEL_LOG", kmsg)
    monkeypatch.setattr(
        system, "time", SimpleNamespace(monotonic=lambda: 650.0)
    )  # since the machine's start
    monkeypatch.setattr(system, "read_oom_kills", lambda: None)
    check = check_of("killed for memory")
    last = "the last: pt_data_worker (4321), 10 minutes ago, at a container's limit"
    assert check.found == f"some processes since the machine started; {last}"
    assert check.verdict is Verdict.BAD
    kmsg.write_text("6,1,5,-;nothing of the kind\n")
    assert check_of("killed for memory").found == "unknown"


def test_the_engine_names_its_code() -> None:
    assert check_of("engine").found.startswith("resize by ")


def test_simd_of_libjpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of("libjpeg-turbo")
    assert check.found == "3.0.1 (libjpeg.so.62); SIMD in use, 2.5 times as fast as without SIMD"
    assert check.verdict is Verdict.OK
    monkeypatch.setattr(libraries, "measure_jpeg_simd", lambda: JpegSimd("3.0.1", None, 1.0))
    check = check_of("libjpeg-turbo")
    assert (check.found, check.verdict) == ("3.0.1; no SIMD in use", Verdict.NOTE)
    assert check.advice.startswith(
        "it was built without SIMD: install your system's libjpeg-turbo, or fastpipe's wheel"
    )
    monkeypatch.setenv("JSIMD_FORCENONE", "1")
    assert check_of("libjpeg-turbo").advice == "unset JSIMD_FORCENONE"
    monkeypatch.setattr(libraries, "measure_jpeg_simd", lambda: None)
    assert check_of("libjpeg-turbo").found.endswith("; its speed could not be measured")


@pytest.mark.new_python("a decode is timed in a process that has no torch")
def test_a_decode_is_timed_in_a_process_of_its_own() -> None:
    seconds, file = libjpeg_simd._time_decode(libjpeg_simd._encode_smooth_jpeg(), {})
    assert 0 < seconds < 1
    assert file is None or "libjpeg" in file


def test_simd_is_measured_beside_a_busy_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.7, 1.0, 1.0, 1.7, 1.7, 1.7, 1.0, 1.0])  # as is, without, as is, without, ...
    monkeypatch.setattr(libjpeg_simd, "_time_decode", lambda jpeg, extra: (next(seconds), None))
    measured = MEASURED.__wrapped__()
    assert measured is not None
    assert measured.ratio == 1
    monkeypatch.setattr(sys, "executable", "/nowhere")
    monkeypatch.setattr(libjpeg_simd, "_time_decode", TIMED)
    assert MEASURED.__wrapped__() is None


def test_a_dataset_is_looked_at(flat: Path) -> None:
    checks = {check.name: check for check in examine(flat)}
    assert checks["dataset"].found == "37 samples in 1 shard; the index and all sizes are unchanged"
    assert "images/s" in checks["decoding"].found
    assert "MB/s" in checks["reading"].found
    assert checks["reading"].verdict in (Verdict.OK, Verdict.NOTE)


def test_a_dataset_of_one_sample_is_looked_at(flat: Path, copied: Callable[[Path], Path]) -> None:
    path = copied(flat)
    fastpipe.remove(path, keys=list(fastpipe.open(path)["key"])[1:])
    assert [check.name for check in dataset.check_dataset(path)] == [
        "dataset",
        "decoding",
        "reading",
    ]


def test_damaged_datasets_are_named(many_shards: Path, copied: Callable[[Path], Path]) -> None:
    path = copied(many_shards)
    damage(path, 3)
    checks = {check.name: check for check in dataset.check_dataset(path)}
    assert checks["dataset"].verdict is Verdict.OK  # sizes and index are; no shard is read for this
    assert checks["decoding"].verdict is Verdict.BAD
    assert checks["decoding"].found.startswith("1 of 24 samples cannot be decoded: ")
    key = fastpipe.open(path)["key"][3]
    assert f"sample 3 ({key}) at byte" in checks["decoding"].found
    shards = fastpipe.open(path).index.shards
    shards[1].path.write_bytes(shards[1].path.read_bytes()[:-512])
    shards[-1].path.unlink()
    checks = {check.name: check for check in dataset.check_dataset(path)}
    assert checks["dataset"].verdict is Verdict.BAD
    size = shards[1].size_bytes
    assert (
        f"has a different size than when it was packed: expected {size:,} bytes, got {size - 512:,} bytes"
        in (checks["dataset"].found)
    )
    assert " and 1 more" in checks["dataset"].found
    assert checks["dataset"].advice.endswith("--repair SRC")
    assert checks["reading"].verdict is Verdict.BAD
    assert "No such file" in checks["reading"].found


def test_an_index_that_cannot_be_used(flat: Path, copied: Callable[[Path], Path]) -> None:
    path = copied(flat)
    (path / "index.npy").write_bytes(b"garbled")
    (check,) = dataset.check_dataset(path)
    assert check.verdict is Verdict.BAD
    assert "index.npy" in check.found


def test_a_record_that_cannot_be_leaves_the_rest_of_the_table(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    path = copied(flat)
    records = np.load(path / "index.npy", mmap_mode="r+")
    records["width"][5] = 0
    records.flush()
    checks = {check.name: check for check in examine(path)}
    assert "CPUs" in checks
    assert checks["dataset"].verdict is Verdict.BAD
    assert checks["decoding"].verdict is Verdict.BAD
    assert "sample 5" in checks["decoding"].found


def test_the_command(monkeypatch: pytest.MonkeyPatch, flat: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setenv("COLUMNS", "160")
    result = fp("doctor", flat)
    assert result.exit_code == 0, result.output
    for words in (
        "check",
        "found",
        "verdict",
        "what to do",
        "CPUs",
        "open files (ulimit -n)",
        "37 samples",
    ):
        assert words in result.stdout
    checks = json.loads(fp("doctor", "--json").stdout)
    assert [check["name"] for check in checks] == [check.name for check in examine()]
    monkeypatch.setattr(system, "read_oom_kills", lambda: 1)
    assert fp("doctor").exit_code == 1  # something is bad
    assert "is empty. Pass a packed dataset" in failed(1, "doctor", tmp_path)
    for option in ("--batches", "--seconds", "--stall-timeout"):
        assert f"{option} needs --train-script COMMAND" in failed(2, "doctor", option, "5")


def test_an_advice_is_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is broken in its middle cannot be copied."""
    advice = "set it before Python starts: " + "A=1 " * 40 + "OPENCV_FOR_THREADS_NUM=1"
    check = Check("threads", "found " * 40, Verdict.NOTE, advice)
    monkeypatch.setattr("fastpipe.tools.doctor.examine", lambda data: [check])
    assert advice in fp("doctor").stdout


def test_a_setting_is_not_broken_in_80_columns_and_a_pipe_gets_no_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice = "for your own worker processes: OPENCV_FOR_THREADS_NUM=1, OPENBLAS_NUM_THREADS=1"
    found = "2 workers of DataLoader with 2 of OpenCV and OpenBLAS each: 4 threads"
    checks = [Check("open files (ulimit -n)", found, Verdict.NOTE, advice)]
    terminal = Console(width=80, file=io.StringIO(), force_terminal=True)
    with terminal.capture() as captured:
        terminal.print(doctor_table(checks))
    text = captured.get()
    assert "OPENCV_FOR_THREADS_NUM=1" in text
    assert "OPENBLAS_NUM_THREADS=1" in text
    monkeypatch.setattr("fastpipe.tools.doctor.examine", lambda data: checks)
    assert "───" not in fp("doctor").stdout
