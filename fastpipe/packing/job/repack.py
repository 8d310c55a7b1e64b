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
from fastpipe.packing.pipeline.exchange import convert_slices
from fastpipe.packing.shard.journal import SPOOL_NAME
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import (
    OnSource,
    Plan,
    ShardSlice,
    cut_into_slices,
    stride_of,
)
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

    def slices(self, names: Iterable[str]) -> list[tuple[ShardSlice, set[str]]]:
        """The sources of each shard, with those of these names of tars that they were made into."""
        names_of_slice = defaultdict[int, set[str]](set)
        for name in names:
            # A shard of several tars has the numbers n, n + stride, n + 2 * stride, ...
            shards_behind_base = shard_number(name) - self._plan.base
            number = shards_behind_base % self._plan.stride
            names_of_slice[number].add(name)
        slices = cut_into_slices(
            self.listing,
            self._plan.step,
            self.options.seed,
            shuffle=self.options.shuffle,
        )
        return [(part, names_of_slice[part.number]) for part in slices]

    @contextlib.contextmanager
    def remade(
        self,
        shard_slice: ShardSlice,
        scratch: Path,
        on_source: OnSource = lambda *_: None,
    ) -> Iterator[tuple[Path, dict[str, Tar]]]:
        """Makes the shard of one of the `slices` again: its folder, and its tars by name.

        The folder is in `scratch`, and is removed in the end.
        """
        # The shard is packed as if its sources were the whole listing.
        sources = self.listing.sources[shard_slice.start : shard_slice.stop]
        listing = replace(self.listing, sources=sources)
        slice_alone = ShardSlice(shard_slice.number, 0, len(sources))
        # If a source cannot be packed any more, the shard differs, and the caller reports that.
        options = replace(self.options, fail_fast=False)
        with tempfile.TemporaryDirectory(
            dir=scratch, ignore_cleanup_errors=True
        ) as name:
            folder = Path(name)
            (folder / WORK_FOLDER).mkdir()
            outcomes = convert_slices(
                listing, [slice_alone], self.options, folder / SPOOL_NAME
            )
            store = Folder(folder, folder)
            slices = {"again.done": slice_alone}
            # The name of the entry does not matter: nobody resumes this.
            (entry,) = make_shards(
                store, listing, self._plan, options, slices, outcomes, on_source
            )
            yield folder, {tar.name: tar for tar in entry.tars}
