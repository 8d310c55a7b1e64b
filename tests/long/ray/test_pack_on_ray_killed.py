"""Workers and drivers of a pack on Ray that SIGKILL ends at random moments: the same bytes, and little work twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import psutil
from support.ray.counted import slow_driver
from support.ray.sources import SHARD_BYTES
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import digests, write_large_folder

import fastpipe

_ENDED_S = times(300, 1500)
_EVERY_S = (0.3, 1.2)


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


def test_killed_workers_and_drivers_cost_little(ray_nodes: Any, tmp_path: Path, tried: Tried) -> None:
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
        if running and drivers < driver_kills and killed >= min(kills, driver_every * (drivers + 1)):
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
    tried("workers of a pack on Ray ended by SIGKILL", killed, f"same bytes; {share:.1%} of the work done twice")
    tried("drivers of a pack on Ray ended by SIGKILL", drivers, "a second run goes on; same bytes")
