"""Packing on a cluster beside Ray Data and LitData: photos/s a CPU, reproducible bytes, and what a killed worker costs.

    make bench-peers PEERS="litdata ray_data"     # each in an environment of its own, in build/peers
    python -m bench.cluster_peers PHOTOS [--copies 20] [--cpus 2] [--work FOLDER] [--peers fastpipe,...]

Each packs the same photos three times, in a process of its own, with so many workers: twice undisturbed, and once while
one of its workers is killed when half of the photos have been opened. The kernel tells which photos are opened
(inotify), so repeated work is counted for all in the same way, from outside. CPU time is that of the process and all
below it, from the hundredth part of the photos on: what comes before is the start, which is told apart.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.roster import INSTALLED, ROOT, SCRIPTS

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 300
_IN_OPEN, _IN_CLOSE, _IN_ISDIR, _IN_NONBLOCK = 0x20, 0x18, 0x40000000, 0o4000

_FASTPIPE = [sys.executable, "-c", "from fastpipe.tools import cli; cli.main()", "pack"]


def command(peer: str, photos: Path, destination: Path, cpus: int) -> list[str]:
    """How a peer packs."""
    places = [str(photos), str(destination)]
    if peer.startswith("fastpipe"):
        return [
            *_FASTPIPE,
            *places,
            "--workers",
            str(cpus),
            *(["--on", "ray"] if peer == "fastpipe-ray" else []),
        ]
    environment, script = {
        "ray_data": ("ray_data", "cluster_ray_data.py"),
        "litdata": ("litdata", "cluster_litdata.py"),
    }[peer]
    return [
        str(INSTALLED / environment / "bin" / "python"),
        str(SCRIPTS / script),
        *places,
        str(cpus),
    ]


LABELS = {
    "fastpipe-ray": "`fastpipe pack --on ray`",
    "fastpipe": "`fastpipe pack`, threads",
    "ray_data": "Ray Data, `write_webdataset`",
    "litdata": "LitData, `optimize`",
}


class Opened:
    """How often files of folders are opened from now on.

    The kernel joins an event with an equal one before it, so closings are asked for, too.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(_IN_NONBLOCK)
        for folder in folders:
            if (
                self._libc.inotify_add_watch(
                    self._handle, os.fsencode(folder), _IN_OPEN | _IN_CLOSE
                )
                < 0
            ):
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        self.count = 0

    def look(self) -> int:
        """How often so far."""
        while True:
            try:
                data = os.read(self._handle, 1 << 20)
            except BlockingIOError:
                return self.count
            at = 0
            while at < len(data):
                _, mask, _, size = struct.unpack_from("iIII", data, at)
                at += 16 + size
                self.count += bool(mask & _IN_OPEN) and not mask & _IN_ISDIR

    def close(self) -> None:
        os.close(self._handle)


@dataclass
class Run:
    """A pack that has ended.

    Attributes:
        code: exit code; None: it had to be ended.
        seconds, cpu_s: of its work, from the hundredth part of the photos on.
        start_s: before.
        opened: how often photos were opened.
        killed: the command of the worker that was killed.
        said: its last words.
        files: name -> hash of what it wrote.
        samples: in its output, as often as they are there.
    """

    code: int | None
    seconds: float
    cpu_s: float
    start_s: float
    opened: int
    killed: str
    said: str
    files: dict[str, str]
    samples: Counter[str] = field(default_factory=Counter)


def run(peer: str, photos: Path, destination: Path, cpus: int, *, kill: bool) -> Run:
    """Packs once, into a new folder."""
    shutil.rmtree(destination, ignore_errors=True)
    classes = [folder for folder in photos.iterdir() if folder.is_dir()]
    total = sum(1 for _ in photos.glob("*/*"))
    opened, used = Opened(classes), dict[int, float]()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryFile("w+") as words:
        began = time.monotonic()
        process = subprocess.Popen(
            command(peer, photos, destination, cpus),
            stdout=words,
            stderr=words,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        first, killed = None, ""
        while process.poll() is None and time.monotonic() - began < _PATIENCE_S:
            for pid in below(process.pid):
                used[pid] = cpu_seconds(pid) or used.get(pid, 0.0)
            now = opened.look()
            if first is None and now * 100 >= total:
                first = time.monotonic(), sum(used.values())
            if kill and not killed and now * 2 >= total:
                killed = kill_worker(process.pid)
            time.sleep(_LOOK_EVERY_S)
        ended = time.monotonic()
        code = process.poll()
        if code is None:
            for pid in below(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
        words.seek(0)
        said = (words.read().strip().splitlines() or [""])[-1][:300]
    count = opened.look()
    opened.close()
    start, spent = first or (ended, sum(used.values()))
    files = {
        path.relative_to(destination).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(destination.rglob("*"))
        if path.is_file()
    }
    found = Run(
        code, ended - start, sum(used.values()) - spent, start - began, count, killed, said, files
    )
    found.samples = samples(destination)
    return found


def below(root: int) -> list[int]:
    """A process and all that it has started, as far as they are there."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(pid: int) -> float:
    """Of a process."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def kill_worker(root: int) -> str:
    """Kills the busiest worker of a pack, and names it; "" if none is found."""
    named = {
        pid: Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
        for pid in below(root)[1:]
    }
    tasks = {
        pid: name for pid, name in named.items() if name.startswith("ray::") and "IDLE" not in name
    }
    forked = {pid: name for pid, name in named.items() if "cluster_litdata" in name}
    workers = tasks or forked
    if not workers:
        return ""
    pid = max(workers, key=cpu_seconds)
    os.kill(pid, signal.SIGKILL)
    return workers[pid].strip()[:80]


def samples(folder: Path) -> Counter[str]:
    """The samples of an output, by name, as a reader would find them."""
    found: Counter[str] = Counter()
    for tar in folder.glob("*.tar"):
        try:
            with tarfile.open(tar) as members:
                found.update(member.name for member in members if member.name.endswith(".jpg"))
        except tarfile.TarError:
            found["damaged tar"] += 1
    if (folder / "index.json").exists():  # LitData's
        chunks = json.loads((folder / "index.json").read_text())["chunks"]
        found.update(str(number) for number in range(sum(chunk["chunk_size"] for chunk in chunks)))
    return found


def row(peer: str, photos: Path, work: Path, cpus: int, total: int) -> str:
    """A line of the table."""
    first, second = (
        run(peer, photos, work / f"{peer}-{time_}", cpus, kill=False) for time_ in (1, 2)
    )
    if first.code != 0:
        return f"| {LABELS[peer]} | ended with {first.code}: {first.said} | | | | |"
    struck = (
        run(peer, photos, work / f"{peer}-struck", cpus, kill=True) if peer != "fastpipe" else None
    )
    for each in filter(None, (first, second, struck)):
        told = f"{peer}: {each.seconds:.1f} s, {each.cpu_s:.1f} CPU s, photos opened {each.opened:,} times"
        sys.stderr.write(f"{told}{', killed ' + each.killed if each.killed else ''}; {each.said}\n")
    rates = sorted(total / max(each.cpu_s, 1e-9) for each in (first, second))
    cells = [
        f"{sum(rates) / 2:,.0f}",
        f"{(first.start_s + second.start_s) / 2:.1f} s",
        same(first, second),
        "" if struck is None else struck_words(struck, first, total),
        ""
        if struck is None
        else f"{max(0.0, 100 * (struck.opened - first.opened) / max(first.opened, 1)):.0f} %",
    ]
    return f"| {LABELS[peer]} | {' | '.join(cells)} |"


def same(first: Run, second: Run) -> str:
    """Whether two runs wrote the same."""
    if first.files == second.files:
        return f"yes, all {len(first.files)} files"
    if sorted(first.files.values()) == sorted(second.files.values()):
        return "the same files under other names"
    equal = sum((Counter(first.files.values()) & Counter(second.files.values())).values())
    return f"no: {equal} of {len(first.files)} files are equal"


def struck_words(struck: Run, first: Run, total: int) -> str:
    """What is there after a worker was killed."""
    if not struck.killed:
        return "no worker was found to kill"
    end = (
        "no end within 300 s"
        if struck.code is None
        else "it ends"
        if struck.code == 0
        else f"exit code {struck.code}"
    )
    twice = sum(count - 1 for count in struck.samples.values())
    there = len(struck.samples)
    if struck.code == 0 and same(struck, first).startswith("yes"):
        return f"{end}; the same bytes"
    return f"{end}; {there:,} of {total:,} samples are there, {twice:,} of them twice"


def copies(photos: Path, folder: Path, count: int) -> int:
    """The photos so many times, as hard links to a copy; returns how many."""
    total = 0
    for path in sorted(photos.glob("*/*")):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        first = folder / path.parent.name / f"00-{path.name}"
        if not first.exists():
            shutil.copyfile(path, first)
        for number in range(1, count):
            link = first.with_name(f"{number:02d}-{path.name}")
            if not link.exists():
                os.link(first, link)
        total += count
    return total


def table(photos: Path, work: Path, cpus: int, count: int, peers: list[str]) -> Iterator[str]:
    """All lines, as they come."""
    source = work / f"photos-{count}"
    total = copies(photos, source, count)
    yield f"{total:,} photos, {cpus} workers"
    yield "| | photos/s a CPU | start | two runs give the same bytes | a killed worker | photos read again |"
    yield "|---|---|---|---|---|---|"
    for peer in peers:
        yield row(peer, source, work, cpus, total)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-cluster"
    )
    parser.add_argument("--peers", default=",".join(LABELS))
    chosen = parser.parse_args()
    for line in table(
        chosen.photos, chosen.work, chosen.cpus, chosen.copies, chosen.peers.split(",")
    ):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
