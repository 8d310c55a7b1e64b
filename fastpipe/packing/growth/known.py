"""Sources and a version of a dataset -> which of them it has, which are new or changed; whether their fields fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.identity import key_hash
from fastpipe.format.index import Index
from fastpipe.format.layout import shard_number
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.growth.kept import Columns, agreed_in
from fastpipe.packing.pipeline.exchange import few_outcomes
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.source.listing import Listing, Source, SourceField
from fastpipe.packing.source.tables import TableListing

_NAMED = 5  # files in a message


class Found(NamedTuple):
    """What a dataset has of the sources of a listing.

    Attributes:
        new: those that it does not have, with those that take the place of changed ones; in packing order.
        stays: (n,) which of its samples stay.
        known, copies, skipped: as of Grown.
    """

    new: list[Source]
    stays: NDArray[np.bool_]
    known: int
    copies: int
    skipped: int


def compared(
    listing: Listing,
    index: Index,
    history: Sequence[Mapping[str, Any]],
    columns: Columns,
    options: PackOptions,
    changed: str,
) -> Found:
    """Which sources the dataset has."""
    sources = listing.sources
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
        same &= columns.sources["bytes"][rows] == sizes
    newer = same & (np.array([source.ctime_ns for source in sources], np.int64) > _packed_ns(index, history)[rows])
    maybe = np.flatnonzero(newer)
    hashes = index.records["xxh3_64"]
    for at, digest in zip(maybe.tolist(), _digests(listing, maybe, options), strict=True):
        same[at] = digest == int(hashes[rows[at]])
    other = there & ~same
    stays = np.ones(len(index), np.bool_)
    if other.any() and changed == "error":
        names = ", ".join(readable(sources[at].path) for at in np.flatnonzero(other)[:_NAMED].tolist())
        raise PackError(
            f"{int(other.sum()):,} files of {listing.root} have changed since they were packed into "
            f"{index.path}: {names}{' ...' if other.sum() > _NAMED else ''}. Pass --changed replace to take the new "
            "ones in their place, or --changed skip to leave them as they are"
        )
    new = ~there
    if changed == "replace":
        stays[rows[other]] = False
        new = new | other
    taken = [sources[at] for at in np.flatnonzero(new).tolist()]
    return Found(taken, stays, int(same.sum()), 0, int(other.sum()) if changed == "skip" else 0)


def _packed_ns(index: Index, history: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    """(n,) when the source of each sample was listed."""
    packs = index.info["packs"]
    times = {entry["version"]: entry["listed_ns"] for entry in history}
    bases = np.array([pack["plan"]["base"] for pack in packs], np.int64)
    listed = np.array([times[pack["version"]] for pack in packs], np.int64)
    numbers = np.array([shard_number(shard.name) for shard in index.shards], np.int64)
    of_shards = listed[np.searchsorted(bases, numbers, side="right") - 1]
    return np.repeat(of_shards, [shard.samples for shard in index.shards])


def _digests(listing: Listing, places: Sequence[int] | NDArray[np.int64], options: PackOptions) -> Iterator[int | None]:
    """The hashes of some sources' pictures as they would be stored; None: it cannot be packed."""
    few = [listing.sources[at] for at in places]
    workers = options.workers or granted_cpus()
    found = {
        source.path: None if isinstance(outcome, str) else xxhash.xxh3_64_intdigest(outcome.jpeg)
        for source, outcome in (few_outcomes(listing, few, options, workers) if few else ())
    }
    return (found[source.path] for source in few)


def without_copies(listing: Listing, found: Found, index: Index, options: PackOptions) -> Found:
    """Leaves out sources whose picture the dataset has, or an earlier one of them."""
    seen = set(np.array(index.records["xxh3_64"])[found.stays].tolist())
    new = []
    for source, digest in zip(
        found.new, _digests(replace(listing, sources=found.new), range(len(found.new)), options), strict=True
    ):
        if digest is None or digest not in seen:
            new.append(source)
            seen.add(digest)
    return found._replace(new=new, copies=len(found.new) - len(new))


def fitting_fields(listing: Listing, index: Index) -> list[SourceField]:
    """The fields as dataset.json is to describe them.

    Raises:
        PackError: those of the sources are others than those of the dataset.
    """
    ours, theirs = listing.kinds, {name: one.kind for name, one in index.fields.items()}
    for name in (*theirs, *ours):
        if ours.get(name) != theirs.get(name):
            raise PackError(
                f"field {name}: {index.path} has {_kind(theirs.get(name))}, and {listing.root} has "
                f"{_kind(ours.get(name))}; all samples of a dataset have the same fields. Choose them with --field "
                "NAME=COLUMN:KIND, or pack the sources into a dataset of their own"
            )
    said = []
    fields = {new.name: new for new in listing.fields}
    for name, one in index.fields.items():
        new, old = fields[name], said_of(one)
        longer, shorter = sorted((old, new), key=lambda each: len(each.names), reverse=True)
        pairs = old.flip_pairs or new.flip_pairs
        if old.kind != "classes" and (
            longer.names[: len(shorter.names)] != shorter.names
            or (new.flip_pairs and old.flip_pairs and new.flip_pairs != old.flip_pairs)
        ):
            raise PackError(
                f"field {new.name}: its names in {listing.root} are {', '.join(new.names) or 'none'}; expected those "
                f"of {index.path}, {', '.join(old.names) or 'none'}, in the same order, and new ones behind them"
            )
        said.append(new._replace(names=longer.names, flip_pairs=pairs))
    return said


def said_of(one: Any) -> SourceField:
    """A field of a dataset as one of its source."""
    return SourceField(one.name, one.kind, names=one.names, flip_pairs=one.flip_pairs)


def _kind(kind: str | None) -> str:
    return "no such field" if kind is None else f"the kind {kind}"


def agreed_by(index: Index, new: Mapping[str, Any], source: object) -> dict[str, Any]:
    """What values of fields share in a dataset and its new sources.

    Raises:
        PackError: they do not.
    """
    found = Agreement({name: one.kind for name, one in index.fields.items()}, agreed_in(index))
    found.join(new, str(source))
    return found.state()
