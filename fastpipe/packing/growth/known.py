"""Sources and a version of a dataset -> which of them it has, which are new or changed; whether their fields fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL, shard_number
from fastpipe.format.sample_layout import key_hash
from fastpipe.packing.growth.version import Version
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.shard.entry import SOURCES
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.listing import Listing, Source, SourceField
from fastpipe.sources.tables import TableListing

_NAMED = 5  # files in a message


class Found(NamedTuple):
    """New and changed sources, in packing order; (n,) which samples stay; how many others, as Grown names them."""

    new: list[Source]
    stays: NDArray[np.bool_]
    counts: dict[str, Any]


def compared(listing: Listing, version: Version, by: str, changed: str) -> Found:
    """Which sources the dataset has, by path and size, unchanged; `by` and `changed` as of `fastpipe.add`."""
    sources, index, columns = listing.sources, version.index, version.columns
    keys = np.array([key_hash(readable(source.path)) for source in sources], np.uint64)
    known_keys = np.array(index.records["key"])
    order = np.argsort(known_keys, kind="stable")
    places = np.minimum(np.searchsorted(known_keys[order], keys), len(order) - 1)
    rows = order[places]
    there = known_keys[rows] == keys
    labels = np.array([source.label for source in sources], np.int64)
    same = there & (index.records["label"][rows] == labels)
    if not isinstance(listing, TableListing):  # the size of a row's image is known only when the row has been read
        sizes = np.array([source.size_bytes for source in sources], np.uint64)
        same &= columns[SOURCES]["bytes"][rows] == sizes
    newer = same & (np.array([source.ctime_ns for source in sources], np.int64) > _packed_ns(version)[rows])
    maybe = np.flatnonzero(newer).tolist()
    hashes = index.records["xxh3_64"]
    digests = _digests(listing, [sources[at] for at in maybe], version.options)
    same[maybe] = [digests[sources[at].path] == int(hashes[rows[at]]) for at in maybe]
    other = there & ~same
    if other.any() and changed == "error":
        names = ", ".join(readable(sources[at].path) for at in np.flatnonzero(other)[:_NAMED].tolist())
        raise PackError(
            f"{int(other.sum()):,} files of {listing.root} have changed since they were packed into "
            f"{index.path}: {names}{' ...' if other.sum() > _NAMED else ''}. Pass --changed replace to take the new "
            "ones in their place, or --changed skip to leave them as they are"
        )
    stays, replaced = np.ones(len(index), np.bool_), other & (changed == "replace")
    stays[rows[replaced]] = False
    new = [sources[at] for at in np.flatnonzero(~there | replaced).tolist()]
    copies: set[str] = set()
    if by == "content":
        seen = set(np.array(hashes)[stays].tolist())
        for path, digest in _digests(listing, new, version.options).items():
            if digest is not None and digest in seen:
                copies.add(path)
            seen.add(digest)
    counts = {"known": int(same.sum()), "copies": len(copies), "skipped": int((other & ~replaced).sum())}
    return Found([source for source in new if source.path not in copies], stays, counts)


def _packed_ns(version: Version) -> NDArray[np.int64]:
    """(n,) when the source of each sample was listed."""
    packs, shards = version.index.info["packs"], version.index.shards
    times = {entry["version"]: entry["listed_ns"] for entry in version.history}
    bases = np.array([pack["plan"]["base"] for pack in packs], np.int64)
    listed = np.array([times[pack["version"]] for pack in packs], np.int64)
    numbers = np.array([shard_number(shard.name) for shard in shards], np.int64)
    of_shards = listed[np.searchsorted(bases, numbers, side="right") - 1]
    return np.repeat(of_shards, [shard.samples for shard in shards])


def _digests(listing: Listing, few: Sequence[Source], options: PackOptions) -> dict[str, int | None]:
    """By path, the hashes of some sources' pictures as they would be stored; None: it cannot be packed."""
    found: dict[str, int | None] = dict.fromkeys(source.path for source in few)
    for source, outcome in converted(listing, few, options) if few else ():
        found[source.path] = None if isinstance(outcome, str) else xxhash.xxh3_64_intdigest(outcome.data)
    return found


def relabelled(listing: Listing, classes: Sequence[str]) -> Listing:
    """The listing with the labels of a dataset, whose classes stay in front; its new ones come behind them."""
    names = [*classes, *(name for name in listing.classes if name not in set(classes))]
    if names == listing.classes:
        return listing
    numbers = {name: number for number, name in enumerate(names)}
    labels = [numbers[name] for name in listing.classes]
    sources = [each if each.label == NO_LABEL else each._replace(label=labels[each.label]) for each in listing.sources]
    return replace(listing, classes=names, sources=sources)


def fitting_fields(listing: Listing, index: Index) -> list[SourceField]:
    """The fields as dataset.json is to describe them; PackError: the sources have others than the dataset."""
    ours, theirs = listing.kinds, {name: one.kind for name, one in index.fields.items()}
    for name in (*theirs, *ours):
        if ours.get(name) != theirs.get(name):
            then, now = (f"the kind {kinds[name]}" if name in kinds else "no such field" for kinds in (theirs, ours))
            raise PackError(
                f"field {name}: {index.path} has {then}, and {listing.root} has {now}; all samples of a dataset have "
                "the same fields. Choose them with --field NAME=COLUMN:KIND, or pack the sources into a dataset of "
                "their own"
            )
    said = []
    fields = {new.name: new for new in listing.fields}
    for name, one in index.fields.items():
        new, old = fields[name], said_of(one)
        longer, shorter = sorted((old, new), key=lambda each: len(each.names), reverse=True)
        pairs = old.flip_pairs or new.flip_pairs
        other_pairs = new.flip_pairs and new.flip_pairs != pairs
        if old.kind != "classes" and (other_pairs or longer.names[: len(shorter.names)] != shorter.names):
            raise PackError(
                f"field {new.name}: its names in {listing.root} are {', '.join(new.names) or 'none'}; expected those "
                f"of {index.path}, {', '.join(old.names) or 'none'}, in the same order, and new ones behind them"
            )
        said.append(new._replace(names=longer.names, flip_pairs=pairs))
    return said


def said_of(one: Any) -> SourceField:
    """A field of a dataset as one of its source."""
    return SourceField(one.name, one.kind, names=one.names, flip_pairs=one.flip_pairs)
