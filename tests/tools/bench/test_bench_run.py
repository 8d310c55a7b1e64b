"""Tests of the benchmark against every peer, bench/run.py: what it computes and tells, without any peer installed."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.checkout import ROOT

sys.path.extend(
    [str(ROOT), str(ROOT / "bench" / "peers")]
)  # last, so that fastpipe is the one under test

import contender

from bench import contest, datasets, install, report, roster, run
from bench.contest import Load, RunError
from bench.ratios import Duel, Run, figures
from bench.roster import PEERS, Peer

LOAD = Load(workers=2, batch_size=8, size=16, warmup_s=0, seconds=1)


def runs(*speeds: float) -> list[Run]:
    return [
        Run(images_per_s=speed, cpus=2, first_batch_s=1 / speed, memory_mb=speed)
        for speed in speeds
    ]


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (roster, install):
        monkeypatch.setattr(module, "INSTALLED", tmp_path / "peers")
    (tmp_path / "peers").mkdir()
    return tmp_path / "peers"


def test_ratios_are_those_of_neighbours() -> None:
    duel = Duel("it", "It", "x", "fastpipe", runs(100, 200, 400, 300), runs(50, 100, 100))
    # In the order measured: 100 50 200 100 400 100 300.
    assert sorted(duel.ratios()) == [2, 2, 3, 4, 4, 4]
    summary = duel.summary()
    assert (summary["ratio"], summary["ratio_lowest"], summary["ratio_highest"]) == (3.5, 2, 4)
    assert summary["theirs"]["images_per_s"] == 100
    assert (summary["theirs"]["slowest"], summary["theirs"]["fastest"]) == (50, 100)


def test_a_drifting_machine_changes_no_ratio_by_much() -> None:
    """Slower and slower by a tenth a run: the runs before and after outweigh each other."""
    speeds = [1000 * 0.9**number for number in range(11)]
    summary = Duel("it", "It", "x", "fastpipe", runs(*speeds[::2]), runs(*speeds[1::2])).summary()
    assert summary["ratio"] == pytest.approx(1, abs=0.01)
    assert summary["ratio_highest"] == pytest.approx(1 / 0.9)


def test_ratio_by_cpu_time_does_not_see_a_cpu_taken_away() -> None:
    ours = [Run(1000, cpus=2.0), Run(500, cpus=1.0), Run(1000, cpus=2.0)]
    theirs = [Run(500, cpus=2.0), Run(500, cpus=2.0)]
    assert Duel("it", "It", "x", "fastpipe", ours, theirs).summary()["ratio_by_cpu_time"] == 2


def results(duels: list[Duel], packing: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "date": "2026-01-02",
        "command": "python -m bench.run PHOTOS",
        "machine": {"cpu": "Some CPU", "cpus": 2, "memory_gb": 24.2, "system": "Linux 6"},
        "samples": 6000,
        "rounds": 3,
        "load": vars(LOAD),
        "fastpipe": {"fastpipe": figures(runs(2000))},
        "duels": [duel.summary() for duel in duels],
        "bytes": {"fastpipe": 3_000_000, "x": 4_600_000},
        "packing": packing or [],
        "versions": {"slow": {"Python": "3.11.7", "slow": "1.0"}},
    }


def test_the_tables() -> None:
    duels = [
        Duel("slow", "Slow", "x", "fastpipe", runs(2000, 2000, 2000), runs(500, 400)),
        Duel("quick", "Quick", "x", "fastpipe", runs(2000, 2000), runs(1600)),
        Duel("gone", "Gone", "x", "fastpipe", missing="cannot be installed: no | wheel"),
    ]
    packing = [
        {
            "label": "ours",
            "images_per_s": 1234.5,
            "slowest": 1000.0,
            "fastest": 1500.0,
            "bytes": 5_000_000,
        },
        {"label": "theirs", "missing": "ended with code 1"},
    ]
    lines = report.markdown(results(duels, packing)).splitlines()
    assert lines[0].startswith(
        "2026-01-02, Some CPU, 2 CPUs, 24 GB, Linux 6; 6,000 photos, 2 workers"
    )
    table = [line for line in lines if line.startswith(("| **", "| Slow", "| Quick", "| Gone"))]
    assert table == [
        "| **fastpipe** | **2,000** | 2,000 to 2,000 |  |  | 0.00 s | 2,000 MB | 3 MB |",
        "| Quick | 1,600 | 1,600 to 1,600 | 1.25 x (1.25 to 1.25) | 1.25 x | 0.00 s | 1,600 MB | 5 MB |",
        "| Slow | 450 | 400 to 500 | 4.50 x (4.00 to 5.00) | 4.50 x | 0.00 s | 450 MB | 5 MB |",
        "| Gone | missing | cannot be installed: no \\| wheel |  |  |  |  |  |",
    ]
    assert "| ours | 1,234 | 1,000 to 1,500 | 5 MB |" in lines
    assert "| theirs | missing | ended with code 1 |  |" in lines
    assert "| slow | Python 3.11.7, slow 1.0 |" in lines
    columns = {
        block.count("|") for block in lines if block.startswith(("| Slow", "| Quick", "| **"))
    }
    assert len(columns) == 1


def test_runs_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order: list[str] = []

    def read(peer: Peer, work: Path, load: Load) -> dict[str, Any]:
        order.append(peer.name)
        return {"images_per_s": 10.0 * len(order), "cpus": 1.0, "versions": {"it": "1"}}

    monkeypatch.setattr(contest, "read", read)
    monkeypatch.setattr(run, "missing", lambda peer: None)
    versions: dict[str, dict[str, str]] = {}
    peer = Peer("it", "It", "its", "it.py", roster.PHOTOS)
    duel = run.duel(peer, tmp_path, LOAD, 3, versions)
    assert order == ["fastpipe", "it"] * 3 + ["fastpipe"]
    assert [each.images_per_s for each in duel.ours] == [10, 30, 50, 70]
    assert [each.images_per_s for each in duel.theirs] == [20, 40, 60]
    assert versions == {"fastpipe": {"it": "1"}, "its": {"it": "1"}}


def test_a_peer_that_is_not_installed_is_reported(nothing_installed: Path, tmp_path: Path) -> None:
    duel = run.duel(roster.chosen(["dali"])[0], tmp_path, LOAD, 3, {})
    assert duel.missing == "not installed; run `make bench-peers`"
    text = report.markdown(results([duel]))
    assert "| DALI on the CPU | missing | not installed; run `make bench-peers` |" in text
    assert roster.missing(roster.chosen(["fastpipe-default"])[0]) is None


def test_a_peer_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read(peer: Peer, *_: object) -> dict[str, Any]:
        if peer.name != "fastpipe":
            raise RunError("ended with code 1: no such thing")
        return {"images_per_s": 1.0, "cpus": 1.0, "versions": {}}

    monkeypatch.setattr(contest, "read", read)
    monkeypatch.setattr(run, "missing", lambda peer: None)
    duel = run.duel(Peer("it", "It", "its", "it.py", roster.PHOTOS), tmp_path, LOAD, 3, {})
    assert duel.missing == "ended with code 1: no such thing"
    assert duel.summary()["missing"] == duel.missing


def test_why_an_installation_failed_is_kept(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*command: str) -> None:
        raise install.InstallError(f"`{command[0]}`: no compiler")

    monkeypatch.setattr(install, "_run", fail)
    assert install.main(["libjpeg"]) == 1
    (peer,) = roster.chosen(["libjpeg"])
    assert roster.missing(peer) == (
        "cannot be installed (needs: apt-get install libjpeg62-turbo-dev): `cc`: no compiler"
    )
    monkeypatch.setattr(install, "_run", lambda *_: None)
    assert install.main(["libjpeg"]) == 0
    assert roster.missing(peer) is None


def test_unknown_peers_are_named() -> None:
    with pytest.raises(SystemExit, match=r"expected some of libjpeg, .*; got dalli"):
        run.main(["photos", "--peers", "dalli"])


def test_every_peer_has_a_script_and_exact_requirements() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    for peer in PEERS:
        assert (roster.SCRIPTS / peer.script).is_file()
        if peer.environment in ("", "libjpeg"):
            continue
        pins = (roster.SCRIPTS / "requirements" / f"{peer.environment}.txt").read_text().split()
        assert pins
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)


@pytest.mark.parametrize(("samples", "each", "expected"), [(10, 2, 10), (5, 1, 5), (2, 1, 3)])
def test_photos_are_repeated_or_thinned(
    tmp_path: Path, samples: int, each: int, expected: int
) -> None:
    for number in range(5):
        folder = tmp_path / "source" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.JPEG").write_bytes(bytes([number]))
    assert datasets.gather(tmp_path / "source", tmp_path, samples) == expected
    found = sorted((tmp_path / roster.PHOTOS).glob("*/*.jpg"))
    assert len(found) == expected
    contents = [path.read_bytes() for path in found]
    assert all(contents.count(content) == each for content in contents)
    assert {path.parent.name for path in found} == {"class-0", "class-1"}


class Clock:
    """A loader that takes a given time for each batch, on a clock of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, seconds: list[float], shape: tuple[int, ...]
    ) -> None:
        self.now, self.seconds, self.shape = 0.0, seconds, shape
        fake = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(contender, "time", fake)
        ticks = itertools.count(1.0)
        monkeypatch.setattr(contender, "_cpu_seconds", lambda: next(ticks))
        monkeypatch.setattr(contender, "_memory_mb", lambda: 5.0)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for seconds in self.seconds:
            self.now += seconds
            yield (
                torch.zeros(self.shape, dtype=torch.uint8),
                torch.zeros(self.shape[0], dtype=torch.int64),
            )


def test_the_clock_stands_still_while_an_epoch_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = contender.Task(Path("x"), workers=2, batch_size=8, size=16, variant="")
    # Slow until the pipeline is in its stride, then 8 pictures every 0.1 s, two batches at a time.
    loader = Clock(monkeypatch, [3.0, 1.0, 1.0, 1.0, 0.2, 0, 0.2, 0, 0.2, 0], (8, 3, 16, 16))
    found = contender.measure(lambda _: loader, task, warmup_s=0.5, seconds=3.0)
    assert found["images_per_s"] == pytest.approx(80)
    assert found["first_batch_s"] == 3
    assert found["memory_mb"] == 5


def test_what_cannot_be_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = contender.Task(Path("x"), workers=2, batch_size=8, size=16, variant="")
    batch = (torch.zeros((8, 3, 16, 16), dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(
        SystemExit, match=r"expected at least 6 batches an epoch.*got 5; raise --samples"
    ):
        contender.measure(lambda _: [batch] * 5, task, 0, 1)
    with pytest.raises(
        SystemExit, match=r"8 uint8 pictures of 3 x 16 x 16, got torch.uint8 \(8, 16, 16, 3\)"
    ):
        contender.measure(lambda _: Clock(monkeypatch, [1.0], (8, 16, 16, 3)), task, 0, 1)
