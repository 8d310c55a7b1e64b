"""A packed dataset and its sources -> some of its shards, made once more."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpipe.format.fields import read_fields
from fastpipe.format.layout import WORK_FOLDER, shard_name, shard_number
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.fields.agreement import agreed_in
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.exchange import outcomes_of
from fastpipe.packing.shard.make import make_shards, making
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan, Run, runs_of, stride_of
from fastpipe.packing.shard.tar import Tar
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.store.folder import Folder


def runs_of_shards(
    pack: dict[str, Any], listing: Listing, options: PackOptions, names: Iterable[str]
) -> list[tuple[Run, set[str]]]:
    """The runs of sources that a pack made shards of, each with its shards among these; see "packs" in docs/format.md.

    The listing is that of the sources as they were packed, and the options are those that they were packed with.
    """
    plan = pack["plan"]
    stride = stride_of(listing, plan["step"], shuffle=options.shuffle)
    of: defaultdict[int, set[str]] = defaultdict(set)
    for name in names:
        of[(shard_number(name) - plan["base"]) % stride].add(name)
    return [(run, of[run.number]) for run in runs_of(listing, plan["step"], options.seed, shuffle=options.shuffle)]


@contextmanager
def remade(
    info: dict[str, Any],
    pack: dict[str, Any],
    listing: Listing,
    options: PackOptions,
    run: Run,
    scratch: Path,
    told: Callable[[Source, Packed | str], None] = lambda *_: None,
) -> Iterator[tuple[Path, dict[str, Tar]]]:
    """The shards of a run, made again in a folder in `scratch` that goes in the end; by their names.

    Args:
        info: the content of dataset.json.
        pack, listing, options: as of `runs_of_shards`.
        run: one of these.
        scratch: a folder.
        told: called with each source and what became of it.
    """
    fields = read_fields(info)
    plan = Plan(
        pack["plan"]["step"],
        agreed_in(fields.values()),
        pack["plan"]["base"],
        {name: field.kind for name, field in fields.items()},
    )
    ours = replace(listing, sources=listing.sources[run.start : run.stop])
    again = Run(run.number, 0, len(ours.sources))
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / WORK_FOLDER).mkdir()
        stride = stride_of(listing, plan.step, shuffle=options.shuffle)
        how = making(Folder(folder, folder), listing, plan, stride, options.shard_size)
        workers = options.workers or granted_cpus()
        with closing(outcomes_of(ours, [again], options, workers, folder / "spool")) as outcomes:
            entries = make_shards(how, [(f"{run.number}.done", again)], outcomes, told)
            tars = {shard_name(tar.number): tar for entry in entries for tar in entry.tars}
        yield folder, tars
