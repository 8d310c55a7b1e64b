"""What packing on a cluster asks of the driver and of the object store, by simulation: sizes are drawn, no byte moves.

    python -m bench.cluster_simulation                         # all tables, up to 1,000,000,000 records; an hour
    python -m bench.cluster_simulation driver 10000000         # one pack, by the product's own functions
    python -m bench.cluster_simulation driver 1000000 --tables # of sources that are read in the order of their files
    python -m bench.cluster_simulation lister                  # one of the tasks that list such a pack

The driver's part runs in a process of its own, whose memory it prints: it adds up what the tasks have listed, reads the
list of parts, hands out the tasks, reads the entries of all shards, and strings them together. Requests are counted by
formulas, which the tests compare with plans of drawn records.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastpipe.dataset.format.layout import INDEX_DTYPE, SOURCES_DTYPE, WORK_FOLDER, shard_name
from fastpipe.dataset.format.open_file import FileState
from fastpipe.dataset.format.tar_writer import BLOCK
from fastpipe.packing.distributed import listing as listing_tasks
from fastpipe.packing.distributed import pack as pack_tasks
from fastpipe.packing.distributed.listing import ListedGroup, encode_listed, list_in_tasks
from fastpipe.packing.distributed.spool import CONVERT, MAKE, Job, ListedSources, Part
from fastpipe.packing.job.summary import PackedShards, publish
from fastpipe.packing.pipeline.exchange import _MAX_WINDOW_BYTES as MOST_WINDOW_BYTES
from fastpipe.packing.pipeline.exchange import _MIN_WINDOW_BYTES as LEAST_WINDOW_BYTES
from fastpipe.packing.pipeline.exchange import _SPOOLED_BYTES as RUN_BYTES
from fastpipe.packing.pipeline.exchange import _WINDOWS_BYTES as WINDOWS_BYTES
from fastpipe.packing.pipeline.exchange import cut_rows_into_runs
from fastpipe.packing.pipeline.run_file import write_run
from fastpipe.packing.shard.entry import SOURCES, Entry, Tally, entry_name
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import DEFAULT_SHARD_BYTES, PackOptions
from fastpipe.packing.shard.plan import FEW, HASHES, Plan, cut_into_slices
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.facts import Facts
from fastpipe.sources.listing import Group, Listing, Source, packing_order
from fastpipe.sources.tables.tables import Table, TableListing
from fastpipe.store.remote.objects import REQUEST_BYTES
from fastpipe.store.store import Folder, NewFile, Store

PHOTO_BYTES = 110_000
MEMBERS_BYTES = 4 * BLOCK + 90  # of a sample beside its picture
WORKERS, AT_A_TIME, LATENCY_S, BYTES_PER_S = (
    1_000,
    32,
    0.03,
    100e6,
)  # a worker reads footers at a time
CLASSES = 1000


@dataclass(frozen=True)
class Drawn:
    """A pack of so many records, of tables or of files, whose shards are all made."""

    records: int
    tables: bool = False

    @property
    def shards(self) -> int:
        """How many there are."""
        return math.ceil(self.records * (PHOTO_BYTES + MEMBERS_BYTES) / DEFAULT_SHARD_BYTES)

    def samples(self, shard: int) -> int:
        """Of a shard."""
        return self.records * (shard + 1) // self.shards - self.records * shard // self.shards

    def size_bytes(self, shard: int) -> int:
        """Of a shard."""
        return self.samples(shard) * (PHOTO_BYTES + MEMBERS_BYTES)

    @staticmethod
    def facts(records: int) -> Facts:
        """What is told of some of the sources."""
        classes = [f"class-{number:03d}" for number in range(CLASSES)]
        return Facts("/photos", classes, records, records * PHOTO_BYTES, "0" * 32, "0" * 32)

    @property
    def listed(self) -> ListedSources:
        """What is known of all sources when they are listed."""
        step = HASHES // self.shards
        plan = Plan(step, {}, stride=HASHES // step + 1)
        return ListedSources(self.facts(self.records), plan, self.ranges, "")

    @staticmethod
    def entry_name(shard: int) -> str:
        """Of a shard."""
        return entry_name(shard, f"{shard * 0x9E3779B97F4A7C15 % 2**64:016x}")

    @property
    def ranges(self) -> int:
        """In which the parts are written down."""
        return 1 if self.tables else math.ceil(self.records / listing_tasks.MAX_SOURCES)

    def parts(self, number: int) -> Iterator[Part]:
        """As tasks write them, of one range."""
        runs = math.ceil(self.records * PHOTO_BYTES / RUN_BYTES) if self.tables else 0
        for run in range(runs):
            rows = self.records // runs
            yield Part(CONVERT, f"rows-{run:032x}", rows, RUN_BYTES, 0, [(f"run-{run:032x}", rows)])
        for shard in range(
            self.shards * number // self.ranges, self.shards * (number + 1) // self.ranges
        ):
            samples = self.samples(shard)
            yield Part(MAKE, self.entry_name(shard), samples, samples * PHOTO_BYTES, shard)


class DrawnStore(Folder):
    """The destination and the spool of such a pack; what they hold is drawn when it is read, and nothing is kept."""

    def __init__(self, drawn: Drawn) -> None:
        super().__init__(Path("/packed"), Path("/packed"))
        self._drawn = drawn

    def sizes(self, folder: str = "") -> dict[str, int]:
        drawn = self._drawn
        if folder == WORK_FOLDER:
            return {drawn.entry_name(shard): 1000 + shard for shard in range(drawn.shards)}
        return {
            shard_name(shard): drawn.size_bytes(shard)
            for shard in range(drawn.shards)
            if not folder
        }

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        if name.startswith("parts-"):
            data = bytearray()
            for part in self._drawn.parts(int(name[6:-4])):
                data += json.dumps(part).encode() + b"\n"
            return bytes(data)
        if not name.endswith(".done"):
            raise FileNotFoundError(name)
        shard = int(name.split("-")[1])
        samples, size_bytes = self._drawn.samples(shard), self._drawn.size_bytes(shard)
        if start:
            assert stop is not None  # entries are read by ranges
            records = stop - start == samples * INDEX_DTYPE.itemsize
            return self._records(samples) if records else bytes(stop - start)
        parts = ((*SOURCES, samples * SOURCES_DTYPE.itemsize),)
        tally = Tally(samples * PHOTO_BYTES, samples * PHOTO_BYTES)
        return Entry(
            name, (Tar(shard, samples, size_bytes, f"{shard:016x}"),), tally, parts=parts
        ).line()

    @staticmethod
    def _records(samples: int) -> bytes:
        records = np.zeros(samples, INDEX_DTYPE)
        records["label"] = np.arange(samples) % CLASSES
        return records.tobytes()

    @contextlib.contextmanager
    def open_atomic(self, name: str) -> Iterator[BinaryIO]:
        """Nobody reads it."""
        with open(os.devnull, "wb") as file:
            yield file

    def swap(self, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        return True

    def written_ns(self, name: str) -> int:
        return 0

    def find_other_file(self) -> str | None:
        return None

    def new_file(self, name: str) -> NewFile:
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        """Nothing is there."""
        for _ in names:
            pass


def listed_by_tasks(drawn: Drawn) -> Callable[[Any, Iterable[Any]], Iterator[Any]]:
    """In place of tasks that list: each has listed one class."""
    few = [Source(f"class-000/{number:010d}.jpg", 0, PHOTO_BYTES, 1, 1) for number in range(FEW)]

    def everywhere(task: Any, items: Iterable[Any]) -> Iterator[Any]:
        for group in items:
            if task.func is listing_tasks._list_all:
                yield CLASSES
            elif task.func is listing_tasks._list_group:
                files = drawn.records * (group + 1) // CLASSES - drawn.records * group // CLASSES
                runs = range(math.ceil(files / listing_tasks.MAX_SOURCES))
                names = tuple(f"listed-{group}-{run}" for run in runs)
                yield ListedGroup(drawn.facts(files), files * PHOTO_BYTES, few, names)
            else:
                yield drawn.listed.plan

    return everywhere


def lister(records: int = listing_tasks.MAX_SOURCES) -> dict[str, Any]:
    """Lists a part of a pack's sources as one task does, and writes down a range of them as another one does."""
    before, started = _peak_bytes(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, Path(folder), PackOptions())
        (Path(folder) / WORK_FOLDER).mkdir()
        place = packing_order(job.options.seed, shuffle=True)
        sources = sorted(drawn_sources(records), key=place)
        write_run(job.open_spool(), "listed-0-0", encode_listed(sources, place))
        facts = Facts.of(Listing(Path(folder), ["class"], sources, []))
        assert facts.files == records
        wrote = _peak_bytes()
        found = listing_tasks._read_listed(job, ["listed-0-0"], 0, HASHES)
        assert len(found) == records
        stored = job.open_spool().sizes()["listed-0-0"]
    cpu_s = time.process_time() - started
    return {
        "records": records,
        "list_bytes": wrote - before,
        "range_bytes": _peak_bytes() - before,
        "stored": stored,
        "cpu_s": cpu_s,
    }


def drawn_sources(records: int) -> list[Source]:
    """Files of class folders."""
    return [
        Source(
            f"train/class-{number % 1000:03d}/photo-{number:010d}.jpg",
            number % 1000,
            10**5 + number,
            10**18 + number,
            10**18 + number,
        )
        for number in range(records)
    ]


@dataclass(frozen=True)
class DrawnJob(Job):
    """Its pack."""

    drawn: Drawn = Drawn(1)

    def open_spool(self) -> Store:
        return DrawnStore(self.drawn)

    def open_destination(self) -> Store:
        return DrawnStore(self.drawn)


def tasks_of(function: Any, items: Iterable[Any], **_: Any) -> Iterator[tuple[Any, int]]:
    """In place of `run_tasks`: each task ends at once."""
    for item in items:
        yield item, 0


def driver(records: int, *, tables: bool) -> dict[str, Any]:
    """Does the driver's part of a pack, and says what this took."""
    drawn = Drawn(records, tables)
    before, started = _peak_bytes(), time.process_time()
    job = DrawnJob("/photos", Path("/packed"), PackOptions(), drawn)
    listed = drawn.listed if tables else list_in_tasks(job, listed_by_tasks(drawn))
    assert (listed.facts.files, listed.num_ranges) == (records, drawn.ranges)
    pack_tasks.run_tasks = tasks_of  # type: ignore[assignment]
    pack_tasks._make_in_tasks(
        job, _NothingThere(DrawnStore(drawn)), listed, WORKERS, lambda _: None
    )
    handed_out = _peak_bytes()
    journal = Journal(DrawnStore(drawn))
    journal.clear = lambda: None  # type: ignore[method-assign]  # nothing is there
    shards = PackedShards(listed.plan, pack_tasks.read_all_entries(job, journal, listed))
    info = publish(journal, listed.facts, job.options, shards, started).info
    assert info["samples"] == records
    return {
        "records": records,
        "tables": tables,
        "shards": len(info["shards"]),
        "tasks_bytes": handed_out - before,
        "driver_bytes": _peak_bytes() - before,
        "cpu_s": time.process_time() - started,
    }


class _NothingThere(Journal):
    """At the begin of a pack."""

    def entry_names(self) -> set[str]:
        return set()


def _peak_bytes() -> int:
    """Of this process alone; getrusage begins with that of the process which started it."""
    said = Path("/proc/self/status").read_text()
    return int(said.partition("VmHWM:")[2].split()[0]) * 1024


def listing_bytes(records: int = 100_000) -> float:
    """Of memory, a record, of a listing of files."""
    tracemalloc.start()
    sources = drawn_sources(records)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / len(sources)


@dataclass(frozen=True)
class Pack:
    """A pack of tables, whose runs lie in the order of files and its shards in packing order. Note [exchange]

    Attributes:
        records: of it.
        sample_bytes: of each, on average.
    """

    records: int
    sample_bytes: int = PHOTO_BYTES

    @property
    def runs(self) -> int:
        """Files of the spool."""
        return math.ceil(self.records * self.sample_bytes / RUN_BYTES)

    @property
    def shards(self) -> int:
        """How many there are."""
        return math.ceil(self.records * self.sample_bytes / DEFAULT_SHARD_BYTES)


@dataclass(frozen=True)
class Requests:
    """What the exchange asks of the object store.

    Attributes:
        footers: that are read: each shard reads those of all runs.
        ranges: of runs that are read.
        range_bytes: of each, on average.
        requests: of all kinds. A range is one read more than it has windows.
        hours: that so many workers need at least.
    """

    footers: int
    ranges: float
    range_bytes: float
    requests: float
    hours: float


def filled(cells: float, records: float) -> float:
    """How many of so many cells have a record, if each record falls into any of them."""
    return cells * -math.expm1(-records / cells)


def drawn_tables(pack: Pack) -> TableListing:
    """The rows of one table, in packing order."""
    sources = [
        Source(f"x/{row:09d}", 0, 0, 0, 0, archive="x", offset_bytes=row)
        for row in range(pack.records)
    ]
    sources.sort(key=packing_order(7, shuffle=True))
    groups = tuple(
        Group(number, 1000 * number, 1000, 0, 0) for number in range(pack.records // 1000)
    )
    tables = {"x": Table(FileState(pack.records * pack.sample_bytes, 0, 0), groups)}
    return TableListing(Path("/tables"), [], sources, [], tables=tables)


def drawn_ranges(pack: Pack) -> int:
    """The ranges that shards read of runs, by the plan of the product."""
    listing = drawn_tables(pack)
    run_of = np.empty(pack.records, np.int64)
    for number, rows in enumerate(cut_rows_into_runs(listing, "")):
        run_of[list(rows.positions)] = number
    shards = cut_into_slices(listing, -(-(1 << 64) // pack.shards), 7, shuffle=True)
    return sum(len(np.unique(run_of[shard.start : shard.stop])) for shard in shards)


def tables_requests(pack: Pack) -> Requests:
    """The requests of a pack of tables: a shard reads the footer of each run, and its own part of the run."""
    total, cells = pack.records * pack.sample_bytes, pack.runs * pack.shards
    ranges = filled(cells, pack.records)
    window_bytes = min(max(WINDOWS_BYTES // pack.runs, LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES)
    reads = ranges * (1 + max(1.0, total / ranges / window_bytes))
    writes = pack.runs * (math.ceil(RUN_BYTES / REQUEST_BYTES) + 2)
    waiting_s = (cells / AT_A_TIME + reads) * LATENCY_S / WORKERS
    hours = max(waiting_s, total / (WORKERS * BYTES_PER_S)) / 3600
    return Requests(cells, ranges, total / ranges, cells + reads + writes, hours)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["all", "driver", "lister"], default="all")
    parser.add_argument("records", nargs="?", type=int, default=1_000_000_000)
    parser.add_argument("--tables", action="store_true")
    chosen = parser.parse_args()
    if chosen.what == "driver":
        _say(json.dumps(driver(chosen.records, tables=chosen.tables)))
        return
    if chosen.what == "lister":
        _say(json.dumps(lister()))
        return
    _say(f"listing: {listing_bytes():.0f} bytes of memory a record\n")
    for line in (*_driver_table(chosen.records), "", *_requests_table()):
        _say(line)


def _driver_table(most: int) -> Iterator[str]:
    yield "| records | source | shards | memory to hand out tasks, MB | driver's memory, MB | CPU s |"
    yield "|---|---|---|---|---|---|"
    for records, flags in (
        *((count, []) for count in (10**6, 10**7, 10**8, 10**9)),
        *((count, ["--tables"]) for count in (10**6, 10**7)),
    ):
        if records <= most:
            order = [
                sys.executable,
                "-m",
                "bench.cluster_simulation",
                "driver",
                str(records),
                *flags,
            ]
            found = json.loads(
                subprocess.run(order, check=True, capture_output=True, text=True).stdout
            )
            yield (
                f"| {records:,} | {'tables' if flags else 'folders, tars'} | {found['shards']:,} "
                f"| {found['tasks_bytes'] / 1e6:,.0f} | {found['driver_bytes'] / 1e6:,.0f} | {found['cpu_s']:,.0f} |"
            )


def _requests_table() -> Iterator[str]:
    yield "| tables of | runs | shards | footers | ranges | of, kB | requests | hours, 1,000 workers |"
    yield "|---|---|---|---|---|---|---|---|"
    for pack in (Pack(10**6), Pack(10**7), Pack(10**8), Pack(10**9), Pack(10**9, 10_000)):
        asked = tables_requests(pack)
        yield (
            f"| {pack.records:,} x {pack.sample_bytes // 1000} kB | {pack.runs:,} | {pack.shards:,} "
            f"| {asked.footers:,} | {asked.ranges:,.0f} | {asked.range_bytes / 1e3:,.0f} | {asked.requests:,.0f} "
            f"| {asked.hours:.2f} |"
        )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
