"""The pack of a dataset, and its sources as they are now -> its shards, made again."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.fields import read_fields
from fastpipe.dataset.format.layout import WORK_FOLDER, shard_number
from fastpipe.packing.fields.agreement import agreement_state_of
from fastpipe.packing.pipeline.exchange import convert_runs
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import OnSource, Plan, Run, runs_of, stride_of
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.listing import Listing
from fastpipe.store.store import Folder


@dataclass(frozen=True)
class Repack:
    """A pack whose shards can be made again.

    Attributes:
        info: the content of dataset.json.
        pack: the pack, from "packs" of `info`.
        listing: its sources.
        options: its options.
    """

    info: dict[str, Any]
    pack: dict[str, Any]
    listing: Listing
    options: PackOptions

    @cached_property
    def _plan(self) -> Plan:
        fields = read_fields(self.info)
        step = self.pack["plan"]["step"]
        return Plan(
            step,
            agreed=agreement_state_of(fields.values()),
            base=self.pack["plan"]["base"],
            kinds={name: field.kind for name, field in fields.items()},
            stride=stride_of(self.listing, step, shuffle=self.options.shuffle),
        )

    def runs(self, names: Iterable[str]) -> list[tuple[Run, set[str]]]:
        """The sources of each shard, with those of these names of tars that they were made into."""
        names_of_run = defaultdict[int, set[str]](set)
        for name in names:
            # A shard of several tars has the numbers n, n + stride, n + 2 * stride, ...
            number = (shard_number(name) - self._plan.base) % self._plan.stride
            names_of_run[number].add(name)
        runs = runs_of(
            self.listing,
            self._plan.step,
            self.options.seed,
            shuffle=self.options.shuffle,
        )
        return [(run, names_of_run[run.number]) for run in runs]

    @contextlib.contextmanager
    def remade(
        self, run: Run, scratch: Path, on_source: OnSource = lambda *_: None
    ) -> Iterator[tuple[Path, dict[str, Tar]]]:
        """Makes the shard of one of the `runs` again: its folder, and its tars by name.

        The folder is in `scratch`, and is removed in the end.
        """
        sources = self.listing.sources[run.start : run.stop]
        listing = replace(self.listing, sources=sources)
        run_alone = Run(run.number, 0, len(sources))
        # If a source cannot be packed any more, the shard differs, and the caller reports that.
        options = replace(self.options, fail_fast=False)
        with tempfile.TemporaryDirectory(
            dir=scratch, ignore_cleanup_errors=True
        ) as name:
            folder = Path(name)
            (folder / WORK_FOLDER).mkdir()
            outcomes = convert_runs(
                listing, [run_alone], self.options, folder / "spool"
            )
            store = Folder(folder, folder)
            runs = {"again.done": run_alone}
            # The name of the entry does not matter: nobody resumes this.
            (entry,) = make_shards(
                store, listing, self._plan, options, runs, outcomes, on_source
            )
            yield folder, {tar.name: tar for tar in entry.tars}
