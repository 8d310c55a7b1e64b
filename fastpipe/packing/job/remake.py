"""A packed dataset and its sources -> some of its shards, made once more."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpipe.format.fields import read_fields
from fastpipe.format.layout import WORK_FOLDER, shard_name, shard_number
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.exchange import outcomes_of
from fastpipe.packing.shard.entry import Entry
from fastpipe.packing.shard.make import make_shards, making
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan, Run, runs_of, stride_of
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.store.folder import Folder

Told = Callable[[Source, Packed | str], None]


def packed_runs(pack: dict[str, Any], listing: Listing, options: PackOptions) -> list[Run]:
    """The runs of sources that the shards of a pack are made of; see "packs" in docs/format.md."""
    return runs_of(listing, pack["plan"]["step"], options.seed, shuffle=options.shuffle)


def run_of_shard(pack: dict[str, Any], listing: Listing, options: PackOptions, name: str) -> int:
    """The number of the run that a shard is made of."""
    stride = stride_of(listing, pack["plan"]["step"], shuffle=options.shuffle)
    return (shard_number(name) - int(pack["plan"]["base"])) % stride


def remake(
    info: dict[str, Any],
    pack: dict[str, Any],
    listing: Listing,
    options: PackOptions,
    runs: Sequence[Run],
    folder: Path,
    told: Told = lambda *_: None,
) -> Iterable[Entry]:
    """Makes shards of a dataset again, into a folder.

    Args:
        info: the content of dataset.json.
        pack: the one of its packs that made them.
        listing: of the sources, as they were packed.
        options: that they were packed with.
        runs: of `packed_runs`.
        folder: an empty one.
        told: called with each source and what became of it.

    Raises:
        PackError: as of `pack`.
    """
    fields = read_fields(info)
    plan = Plan(
        pack["plan"]["step"],
        Agreement.of(fields.values()).state(),
        pack["plan"]["base"],
        {name: field.kind for name, field in fields.items()},
    )
    ours = replace(listing, sources=[source for run in runs for source in listing.sources[run.start : run.stop]])
    again, at = [], 0
    for run in runs:
        again.append(Run(run.number, at, at + run.stop - run.start))
        at = again[-1].stop
    (folder / WORK_FOLDER).mkdir()
    stride = stride_of(listing, plan.step, shuffle=options.shuffle)
    how = making(Folder(folder, folder), listing, plan, stride, options.shard_size)
    workers = options.workers or granted_cpus()
    with closing(outcomes_of(ours, again, options, workers, folder / "spool")) as outcomes:
        yield from make_shards(how, [(f"{run.number}.done", run) for run in again], outcomes, told)


def unchanged_since(
    info: dict[str, Any], packed_ns: int, listing: Listing, options: PackOptions, scratch: Path
) -> bool:
    """Whether sources that changed after they were listed are packed as they are now.

    A change of permissions, a new hard link or a copy of the folder gives a file a new time and leaves its content. So
    the shards of all files with a new time are made again, and compared.

    Args:
        info: the content of dataset.json; its sources had these paths and sizes, and it was packed with these options.
        packed_ns: its time.
        listing: of the sources.
        options: of the pack.
        scratch: a folder for the shards.
    """
    pack = info["packs"][0]
    newer = [
        run
        for run in packed_runs(pack, listing, options)
        if any(source.ctime_ns > packed_ns for source in listing.sources[run.start : run.stop])
    ]
    expected = {shard["name"]: shard["xxh3_64"] for shard in info["shards"]}
    numbers = {run.number for run in newer}
    mine = {name for name in expected if run_of_shard(pack, listing, options, name) in numbers}
    for run in newer:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            for entry in remake(info, pack, listing, options, [run], Path(folder)):
                for tar in entry.tars:
                    name = shard_name(tar.number)
                    if expected.get(name) != tar.xxh3_64:
                        return False
                    mine.discard(name)
    return not mine
