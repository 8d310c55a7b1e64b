"""Real Ray clusters: packs, adds and checks give what they give on one machine, whatever happens to workers and nodes.

One file, since a cluster takes seconds to start. What needs none is in tests/packing/distributed and tests/verify.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.datasets.packed import damage
from support.programs.cli_run import fp
from support.ray import counted
from support.ray.cluster_tasks import check_killed_at_first, slow_or_fast
from support.ray.counted import slow_driver
from support.ray.ray_cluster import environment
from support.ray.sources import (
    FIELDS,
    MAKERS,
    SHARD_BYTES,
    folder,
    local,
    made_sources,
    packed_on_ray,
)
from support.remote.s3 import Bucket
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import digests, files, write_large_folder

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ClusterError
from fastpipe.packing.cluster import RAY, run_tasks
from fastpipe.tools.verify import verification
from fastpipe.tools.verify.verification import verify

_ENDED_S = times(300, 1500)
_EVERY_S = (0.3, 1.2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind -> a source, with the pack of one machine beside it in `local`."""
    return made_sources(tmp_path_factory.mktemp("sources"))


def test_running_tasks_end_when_nobody_wants_them(ray_cluster: Any, tmp_path: Path) -> None:
    import ray

    results = run_tasks(slow_or_fast, [0, 1], name=str)
    assert next(results) == (0, 0)
    results.close()
    deadline = time.monotonic() + 140  # it takes 150 s
    while ray.available_resources().get("CPU", 0) < 2:  # the killed task has let go of its CPU
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.1)


OWN = """
from support.ray.cluster_tasks import slow, squared
from fastpipe.packing.cluster import session
from fastpipe.packing.cluster import run_tasks

with session(workers=1) as cpus:
    print(cpus, list(run_tasks(squared, [3], name=str)), flush=True)
    list(run_tasks(slow, [1, 2], name=str))
"""


def test_a_cluster_of_its_own_ends_with_ctrl_c() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", OWN], env=environment(), **pipes
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "1 [(3, 9)]\n"
    time.sleep(1)
    asked = time.monotonic()
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=300)
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert time.monotonic() - asked < 140  # the tasks take 150 s


@pytest.mark.parametrize("kind", MAKERS)
def test_every_file_is_that_of_one_machine(
    ray_cluster: Any, made: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    source = made[kind]
    summary = packed_on_ray(source, tmp_path / "packed", fields=FIELDS[kind])
    expected = digests(local(source))
    assert digests(tmp_path / "packed") == expected
    assert len(summary.info["shards"]) >= 5
    assert summary.tally.rejected, "the source has samples that are rejected"


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_every_object_in_a_bucket_is_that_of_one_machine(
    ray_cluster: Any,
    made: dict[str, Path],
    bucket: Bucket,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    source = made[kind]
    url = bucket.upload(source, "source")
    spool = {"spool": bucket.url("spool")} if kind == "folder" else {}
    how = {"storage_options": bucket.options, "fields": FIELDS[kind], **spool}
    summary = packed_on_ray(url, bucket.url("packed"), **how)
    assert bucket.objects("packed") == files(local(source))
    assert bucket.objects("spool") == {}
    assert bucket.unfinished_uploads() == 0
    assert summary.info["samples"] > 10
    assert packed_on_ray(url, bucket.url("packed"), **how).already_packed


def test_one_worker_of_its_own_and_no_shuffle(tmp_path: Path) -> None:
    """In a process of its own, for this one may be connected to a cluster."""
    source = folder(tmp_path / "source", images=8)
    options = ["--shard-size", str(SHARD_BYTES), "--no-shuffle", "--storage", "coefficients"]
    assert fp("pack", source, tmp_path / "local", *options).exit_code == 0
    ended = counted.command(
        ["pack", source, tmp_path / "ray", *options, "--on", "ray", "--workers", "1"]
    )
    assert ended.returncode == 0, ended.stderr
    assert digests(tmp_path / "ray") == digests(tmp_path / "local")


def test_a_disk_that_refuses_is_tried_on_the_other_node(
    ray_cluster: Any, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = counted.refuse_on_first_node(monkeypatch, tmp_path / "log")
    packed_on_ray(made["folder"], tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(local(made["folder"]))
    assert len(set(log.read_text().split())) == 2
    counted.refuse_everywhere(monkeypatch)
    with pytest.raises(
        ClusterError, match=r"task make shard-\S+ has failed 5 times .* log /.*No space left"
    ):
        packed_on_ray(made["folder"], tmp_path / "other")


def test_a_check_whose_workers_are_killed_finds_the_same(
    many_shards: Path,
    copied: Callable[[Path], Path],
    ray_cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset, log = copied(many_shards), tmp_path / "log"
    log.mkdir()
    for sample in (0, 9, len(PackedIndex(dataset)) - 1):
        damage(dataset, sample)
    monkeypatch.setattr(verification, "check_group", partial(check_killed_at_first, log))
    monkeypatch.setattr(verification, "_TASKS_PER_CPU", 1)
    there, here = verify(dataset, executor=RAY), verify(dataset)
    assert {**there.as_dict(), "seconds": 0} == {**here.as_dict(), "seconds": 0}
    assert len(here.findings) >= 3
    assert len(list(log.iterdir())) >= 2


def workers(log: Path) -> list[psutil.Process]:
    """The workers of the cluster that are at a step of a pack: no longer at the imports, which take longest."""
    pids = log.with_suffix(".pids")
    begun = set(map(int, pids.read_text().split())) if pids.exists() else set()
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            name = process.cmdline()[:1]
        except psutil.Error:
            continue
        if process.pid in begun and name and name[0].startswith("ray::make"):
            found.append(process)
    return found


def test_killed_workers_and_drivers_cost_little(
    ray_nodes: Any, tmp_path: Path, tried: Tried
) -> None:
    chance = random.Random(5)
    images = times(40, 9600)
    source = write_large_folder(tmp_path / "source", images=images)
    fastpipe.pack(source, tmp_path / "local", shard_size=SHARD_BYTES)
    log = tmp_path / "log"
    kills, driver_kills = times(3, 200), times(1, 10)
    driver_every = kills // (driver_kills + 1) + 1  # kills of workers for each of the driver

    def start() -> Any:
        return slow_driver(source, tmp_path / "packed", log, ray_nodes.address)

    driver = start()
    killed = drivers = 0
    deadline = time.monotonic() + _ENDED_S
    while driver.poll() is None:
        assert time.monotonic() < deadline, "the pack does not end"
        time.sleep(chance.uniform(*_EVERY_S))
        running = workers(log)
        if killed < kills and running:
            chance.choice(running).kill()
            killed += 1
        if (
            running
            and drivers < driver_kills
            and killed >= min(kills, driver_every * (drivers + 1))
        ):
            driver.kill()
            driver.communicate()
            drivers += 1
            driver = start()
    said = driver.communicate()[1]
    assert driver.returncode == 0, said.decode()
    assert (killed, drivers) == (kills, driver_kills)
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    begun = [line.split() for line in log.read_text().splitlines()]
    once = {(step, name): int(files) for step, name, files in begun}
    repeated = sum(int(files) for _, _, files in begun) - sum(once.values())
    share = repeated / sum(once.values())
    # A kill costs a shard, of some eight photos at most, and that of a driver costs those that run.
    assert 0 < repeated <= 8 * (killed + times(2, 8) * drivers)
    if long_form():
        assert share <= 0.1, share
    tried(
        "workers of a pack on Ray ended by SIGKILL",
        killed,
        f"same bytes; {share:.1%} of the work done twice",
    )
    tried("drivers of a pack on Ray ended by SIGKILL", drivers, "a second run goes on; same bytes")
