"""What packing on a cluster asks of the driver and of the object store, by simulation: sizes are drawn, no byte moves.

    python -m bench.cluster_simulation                         # all tables, up to 1,000,000,000 records; ten minutes
    python -m bench.cluster_simulation driver 10000000         # one plan, made by the product's own functions
    python -m bench.cluster_simulation driver 1000000 --tables # of sources that are read in the order of their files

The driver's part runs in a process of its own, whose memory it prints. Requests are counted by formulas, which the
tests compare with plans of drawn records.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.tar_writer import BLOCK
from fastpipe.packing.options import PackOptions
from fastpipe.packing.source.listing import Source
from fastpipe.packing.steps.convert_step import COLUMNS, written
from fastpipe.packing.steps.job import JOB_FILE, PART_BYTES, PARTS_FILE, Job, Listed, Part, read_listed, read_parts
from fastpipe.packing.steps.rolling_plan import rolling_plan
from fastpipe.packing.steps.shard_plan import ShardPlan
from fastpipe.packing.steps.sources import Sources
from fastpipe.packing.steps.store import SpoolStore
from fastpipe.plan.order import permute
from fastpipe.remote.objects import REQUEST_BYTES

PHOTO_BYTES = 110_000
SPREAD = 0.7  # of the logarithm of sizes
NOTE_BYTES, LINE_BYTES = 90, 230
MEMBERS_BYTES = 4 * BLOCK + NOTE_BYTES  # of a sample beside its picture
WORKERS, IN_FLIGHT, LATENCY_S, BYTES_PER_S = 1_000, 16, 0.03, 100e6


def drawn_part(number: int, count: int, records: int, *, tables: bool) -> NDArray[np.void]:
    """The columns of a part, as the step "convert" writes them, with drawn sizes.

    Args:
        number: of the part; it decides the draw.
        count: samples of a part.
        records: of the pack.
        tables: its samples lie anywhere in packing order; else one behind the other.
    """
    numbers = np.arange(number * count, min((number + 1) * count, records))
    sizes = np.random.default_rng(number).lognormal(math.log(PHOTO_BYTES) - SPREAD**2 / 2, SPREAD, len(numbers))
    rows = np.zeros(len(numbers), COLUMNS)
    rows["position"] = np.sort(permute(numbers, records, 7)) if tables else numbers
    rows["blob"] = sizes
    rows["blocks"] = (sizes + MEMBERS_BYTES) // BLOCK + 1
    rows["note"], rows["line"] = NOTE_BYTES, LINE_BYTES
    return rows


class DrawnSpool(SpoolStore):
    """The spool of a pack whose parts are all converted; the columns are drawn when they are read."""

    def __init__(self, records: int, *, tables: bool) -> None:
        self._records, self._tables, self._count = records, tables, PART_BYTES // PHOTO_BYTES

    def read(self, name: str) -> bytes:
        firsts = range(0, self._records, self._count)
        if name == JOB_FILE:
            drawn = self._records, PHOTO_BYTES * self._records, "", "", 0, "", PART_BYTES
            listed = Listed("/photos", "parquet" if self._tables else "", None, [], [], {}, 0, [], *drawn)
            return json.dumps(asdict(listed)).encode()
        if name == PARTS_FILE:
            counts = (min(self._count, self._records - first) for first in firsts)
            named = [Part(count, count * PHOTO_BYTES, f"part-{at:06d}-{at:016x}") for at, count in enumerate(counts)]
            return json.dumps(named).encode()
        number = int(name.split("-")[1])
        return written(drawn_part(number, self._count, self._records, tables=self._tables))

    def sizes(self) -> dict[str, int]:
        return {}

    def read_at(self, name: str, at: int, size_bytes: int) -> bytes:
        raise FileNotFoundError(name)

    def write(self, name: str, pieces: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        """The plan, which nobody reads."""

    def remove(self, names: Iterable[str]) -> None:
        """Nothing is there."""

    def end(self) -> None:
        """Nothing is there."""


@dataclass(frozen=True)
class DrawnJob(Job):
    """A pack of so many records, of tables or of what can be read in packing order."""

    records: int = 0
    tables: bool = False

    @classmethod
    def drawn(cls, records: int, *, tables: bool) -> DrawnJob:
        """With the usual options."""
        return cls("/photos", Path("/packed"), PackOptions(), PART_BYTES, records, tables)

    def store(self) -> SpoolStore:
        return DrawnSpool(self.records, tables=self.tables)

    def made_with(self, kinds: Mapping[str, str]) -> str:
        """No sample is made."""
        return ""


def shards_of(job: Job) -> Iterator[ShardPlan]:
    """The shards, as a driver plans them when one part after the other is converted. Each is finished at once."""
    store = job.store()
    plan = rolling_plan(job, Sources(read_listed(store), read_parts(store)), [])
    for part in plan.needed():
        for shard in plan.converted(part):
            yield shard
            plan.finished(shard)


def driver(records: int, *, tables: bool) -> dict[str, Any]:
    """Plans, and says what this took."""
    before, started = _peak_bytes(), time.process_time()
    shards = ranges = 0
    for shard in shards_of(DrawnJob.drawn(records, tables=tables)):
        shards, ranges = shards + 1, ranges + len(shard.ranges)
    return {
        "records": records,
        "tables": tables,
        "shards": shards,
        "ranges": ranges,
        "driver_bytes": _peak_bytes() - before,
        "cpu_s": time.process_time() - started,
    }


def _peak_bytes() -> int:
    """Of this process alone; getrusage begins with that of the process which started it."""
    said = Path("/proc/self/status").read_text()
    return int(said.partition("VmHWM:")[2].split()[0]) * 1024


def listing_bytes(records: int = 100_000) -> float:
    """Of memory, a record, of a listing of files."""
    tracemalloc.start()
    sources = [
        Source(
            f"train/class-{number % 1000:03d}/photo-{number:010d}.jpg",
            number % 1000,
            10**5 + number,
            10**18 + number,
            10**18 + number,
        )
        for number in range(records)
    ]
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / len(sources)


@dataclass(frozen=True)
class Pack:
    """A pack of tables, whose parts lie in the order of files and its shards in packing order.

    Attributes:
        records: of it.
        sample_bytes: of each, on average.
    """

    records: int
    sample_bytes: int = PHOTO_BYTES

    @property
    def files(self) -> int:
        """Spool files, and shards, which are of about the same size."""
        return math.ceil(self.records * self.sample_bytes / PART_BYTES)


@dataclass(frozen=True)
class Requests:
    """What assembling asks of the object store.

    Attributes:
        ranges: of spool files that are read.
        range_bytes: of each, on average.
        last_ranges: of these, those that shards are made of: the plan holds them.
        moved_bytes: read and written.
        requests: of all kinds. A range is two reads, of records and of blobs.
        hours: that so many workers need at least.
    """

    ranges: float
    range_bytes: float
    last_ranges: float
    moved_bytes: float
    requests: float
    hours: float


def filled(cells: float, records: float) -> float:
    """How many of so many cells have a record, if each record falls into any of them."""
    return cells * -math.expm1(-records / cells)


def tables_requests(pack: Pack, merges: int) -> Requests:
    """The requests of assembling a pack of tables.

    Each merge takes `fan` spool files, which are of all places in packing order, and writes as many again, each of
    which is of a narrower part of it. After the last one a shard is in one of each `fan` files.
    """
    files, total = pack.files, pack.records * pack.sample_bytes
    fan = files ** (1 / (merges + 1))
    ranges = sum(filled(files * fan, pack.records) for _ in range(merges + 1))
    writes = (merges + 1) * files * (math.ceil(PART_BYTES / REQUEST_BYTES) + 2)
    range_bytes = (merges + 1) * total / ranges
    reads = ranges * (1 + max(1.0, range_bytes / REQUEST_BYTES))
    moved = 2 * (merges + 1) * total
    at_a_time = WORKERS * IN_FLIGHT
    hours = max(reads * LATENCY_S / at_a_time, moved / 2 / (WORKERS * BYTES_PER_S)) / 3600
    return Requests(ranges, range_bytes, filled(files * fan, pack.records), moved, reads + writes, hours)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["all", "driver"], default="all")
    parser.add_argument("records", nargs="?", type=int, default=1_000_000_000)
    parser.add_argument("--tables", action="store_true")
    chosen = parser.parse_args()
    if chosen.what == "driver":
        _say(json.dumps(driver(chosen.records, tables=chosen.tables)))
        return
    _say(f"listing: {listing_bytes():.0f} bytes of memory a record\n")
    for line in (*_driver_table(chosen.records), "", *_requests_table()):
        _say(line)


def _driver_table(most: int) -> Iterator[str]:
    yield "| records | source | shards | ranges | driver's memory for the plan, MB | CPU s |"
    yield "|---|---|---|---|---|---|"
    for records, flags in (
        *((count, []) for count in (10**6, 10**7, 10**8, 10**9)),
        *((count, ["--tables"]) for count in (10**6, 10**7)),
    ):
        if records <= most:
            order = [sys.executable, "-m", "bench.cluster_simulation", "driver", str(records), *flags]
            found = json.loads(subprocess.run(order, check=True, capture_output=True, text=True).stdout)
            yield (
                f"| {records:,} | {'tables' if flags else 'folders, tars'} | {found['shards']:,} | {found['ranges']:,} "
                f"| {found['driver_bytes'] / 1e6:,.0f} | {found['cpu_s']:,.0f} |"
            )


def _requests_table() -> Iterator[str]:
    yield "| tables of | merges | ranges | of, kB | in the plan | requests | moved, TB | hours, 1,000 workers |"
    yield "|---|---|---|---|---|---|---|---|"
    for pack in (Pack(10**6), Pack(10**7), Pack(10**8), Pack(10**9), Pack(10**9, 10_000)):
        for merges in range(3):
            asked = tables_requests(pack, merges)
            yield (
                f"| {pack.records:,} x {pack.sample_bytes // 1000} kB | {merges} | {asked.ranges:,.0f} "
                f"| {asked.range_bytes / 1e3:,.0f} | {asked.last_ranges:,.0f} | {asked.requests:,.0f} "
                f"| {asked.moved_bytes / 1e12:,.1f} | {asked.hours:.2f} |"
            )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
