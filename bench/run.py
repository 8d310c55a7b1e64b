"""fastpipe against every peer, on the same photos: results.json, results.md and chart.png.

    make bench-peers
    .venv/bin/python -m bench.run PHOTOS [--peers dali,ffcv-jpg] [--rounds 5] [--seconds 4] [--out DIR]

PHOTOS is a folder with one folder of JPEG files a class. docs/development/benchmarks.md says how it is measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import contest, datasets, report
from bench.contest import Load, RunError
from bench.ratios import Duel, Run, figures
from bench.roster import (
    COEFFICIENTS,
    INSTALLED,
    PACKED,
    PACKED_500,
    PEERS,
    PHOTOS,
    ROOT,
    Peer,
    chosen,
    fastpipe,
    missing,
)

_PACKED = {
    PACKED: "fastpipe pack: every pixel kept",
    COEFFICIENTS: "fastpipe pack --storage coefficients: every pixel kept",
    PACKED_500: "fastpipe pack --max-size 500 --quality 90: larger photos shrunk, all others kept",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepares, measures and writes what came out."""
    options = _arguments().parse_args(arguments)
    try:
        peers = chosen(options.peers.split(",")) if options.peers else PEERS
    except ValueError as problem:
        sys.exit(f"bench: --peers: {problem}")
    load = Load(options.workers, options.batch_size, options.size, options.warmup, options.seconds)
    work, out = options.work.resolve(), options.out.resolve()
    for folder in (work, out):
        folder.mkdir(parents=True, exist_ok=True)
    samples = datasets.gather(options.photos.resolve(), work, options.samples)
    versions: dict[str, dict[str, str]] = {}
    packing = measure_packing(work, load.workers, samples, options.pack_rounds)
    packed = set(_PACKED) if options.pack_rounds else set()
    duels = []
    for peer in peers:
        forms = set() if missing(peer) else {peer.beside, peer.data} & datasets.PACKING.keys()
        for form in forms - packed:
            packed.add(form)
            datasets.pack(form, work, load.workers)
        duels.append(duel(peer, work, load, options.rounds, versions))
    ours: dict[str, list[Run]] = {}
    for each in duels:
        ours.setdefault(each.beside, []).extend(each.ours)
    runs = {
        each.name: {"ours": list(map(vars, each.ours)), "theirs": list(map(vars, each.theirs))}
        for each in duels
    }
    read = {name for each in duels if each.ours for name in (each.data, each.beside)}
    results = {
        "date": datetime.date.today().isoformat(),
        "command": command(options),
        "machine": machine(),
        "samples": samples,
        "rounds": options.rounds,
        "load": vars(load),
        "fastpipe": {form: figures(runs) for form, runs in ours.items() if runs},
        "duels": [each.summary() for each in duels],
        "runs": runs,
        "bytes": {name: datasets.size(work / name) for name in sorted(read)},
        "packing": packing,
        "versions": versions,
    }
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "results.md").write_text(report.markdown(results))
    _say("\n" + report.markdown(results))
    draw(out)


def duel(
    peer: Peer, work: Path, load: Load, rounds: int, versions: dict[str, dict[str, str]]
) -> Duel:
    """fastpipe and one peer in turn, A B A B ... A; a peer that cannot run is a duel that says why."""
    about = (peer.name, peer.label, peer.data, peer.beside)
    reason = missing(peer)
    if reason is not None:
        _say(f"{peer.name}: {reason}")
        return Duel(*about, missing=reason)
    ours: list[Run] = []
    theirs: list[Run] = []
    us = fastpipe(peer.beside)

    def measure(who: Peer, runs: list[Run]) -> None:
        found = contest.read(who, work, load)
        versions[who.environment or "fastpipe"] = found.pop("versions")
        runs.append(Run(**found))

    try:
        datasets.of_peer(peer, work, load.workers)
        for data in {us.data, peer.data}:
            datasets.warm(work / data)
        measure(us, ours)
        for number in range(rounds):
            measure(peer, theirs)
            measure(us, ours)
            speeds = f"fastpipe {ours[-1].images_per_s:.0f}, {peer.name} {theirs[-1].images_per_s:.0f} images/s"
            _say(f"{peer.name} {number + 1}/{rounds}: {speeds}")
    except RunError as problem:
        _say(f"{peer.name}: {problem}")
        return Duel(*about, missing=str(problem))
    return Duel(*about, ours, theirs)


def measure_packing(work: Path, workers: int, samples: int, rounds: int) -> list[dict[str, Any]]:
    """fastpipe's and FFCV's writers in turn, on the same photos; leaves the last one's datasets to be read."""
    if not rounds:
        return []
    writer = next(peer for peer in PEERS if peer.data == "ffcv-jpg")
    labels = {
        **_PACKED,
        writer.data: "FFCV, jpg, max_resolution=500, jpeg_quality=90: every photo encoded again",
    }
    seconds: dict[str, list[float]] = {name: [] for name in labels}
    reasons = {writer.data: reason} if (reason := missing(writer)) else {}
    datasets.warm(work / PHOTOS)
    for number in range(rounds):
        for name in labels:
            if name in reasons:
                continue
            if name != writer.data:
                took = datasets.pack(name, work, workers)["seconds"]
            else:
                try:
                    took = datasets.rewrite(writer, work, workers)["seconds"]
                except RunError as problem:
                    reasons[name] = str(problem)
                    continue
            seconds[name].append(took)
            _say(f"packing {number + 1}/{rounds}: {name} {samples / took:.0f} photos/s")
    rows = []
    for name, label in labels.items():
        row: dict[str, Any] = {"name": name, "label": label}
        if name in reasons:
            rows.append({**row, "missing": reasons[name]})
            continue
        found = figures([Run(samples / took, 1.0) for took in seconds[name]])
        speeds = {key: found[key] for key in ("images_per_s", "slowest", "fastest")}
        rows.append(
            {**row, **speeds, "seconds": seconds[name], "bytes": datasets.warm(work / name)}
        )
    return rows


def command(options: argparse.Namespace) -> str:
    """What was asked for, without the places of folders, which are another machine's business."""
    words = ["python", "-m", "bench.run", "PHOTOS"]
    for name, value in vars(options).items():
        if name not in ("photos", "work", "out") and value != _arguments().get_default(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def draw(out: Path) -> None:
    """The chart, where the environment for it is there."""
    _say(f"results.json and results.md are in {out}")
    python = INSTALLED / "chart" / "bin" / "python"
    if not (INSTALLED / "chart" / "ready").exists():
        _say("no chart: its environment is not installed; run `make bench-peers`")
        return
    script = str(ROOT / "bench" / "chart.py")
    subprocess.run(
        [str(python), script, str(out / "results.json"), str(out / "chart.png")], check=True
    )
    _say("chart.png too")


def machine() -> dict[str, Any]:
    """What it is measured on."""
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(
            line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line
        )
        cpu = next((fields[key].strip() for key in fields if key.strip() == "model name"), cpu)
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        "system": f"{platform.system()} {platform.release()}",
    }


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description="Compare fastpipe with other loaders."
    )
    parser.add_argument(
        "photos",
        type=Path,
        metavar="PHOTOS",
        help="folder with one folder of JPEG files for each class",
    )
    parser.add_argument(
        "--peers",
        metavar="NAMES",
        help=f"separated by commas: {', '.join(peer.name for peer in PEERS)} (all)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="number of runs of each loader, alternating with fastpipe (5)",
    )
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="measured seconds in each run (4)"
    )
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds of warm-up before (2)")
    parser.add_argument("--workers", type=int, default=2, help="number of threads or processes (2)")
    parser.add_argument("--batch-size", type=int, default=128, help="samples in a batch (128)")
    parser.add_argument("--size", type=int, default=224, help="output size in pixels (224)")
    parser.add_argument(
        "--samples",
        type=int,
        default=6000,
        help="number of photos, repeated if the folder has fewer (6000)",
    )
    parser.add_argument(
        "--pack-rounds", type=int, default=3, help="rounds of packing; 0: no packing (3)"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "bench", help="folder for the datasets"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "bench" / "results",
        help="folder for the results",
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
