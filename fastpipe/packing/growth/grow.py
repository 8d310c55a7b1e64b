"""`fastpipe.add` and `fastpipe.remove`: a packed dataset -> its next version. Note [versions]"""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, PackError, readable
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.folder import Place
from fastpipe.format.layout import NO_LABEL, PICTURE
from fastpipe.format.packed_index import PackedIndex
from fastpipe.format.sample_layout import key_hash
from fastpipe.packing.fields.agreement import Agreement, agreed_in
from fastpipe.packing.growth.version import Version, newest, packs_of
from fastpipe.packing.job.destination import check_apart
from fastpipe.packing.job.threads import Make, Progress, assumed_of_images, make_in_threads
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.shard.journal import SOURCES, Entries, Tally
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.files import SourcePath
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Assumption, Facts, Listing, Source, SourceField
from fastpipe.sources.tables import TableListing

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_OWN = ("label", *PICTURE)
_COMPARISON = re.compile(r"\s*(\w+)\s*(<=|>=|==|!=|<|>|=)\s*(.*\S)\s*")
_NAMED = 5  # keys or files in a message


@dataclass(frozen=True)
class Grown:
    """What became of a dataset that was to grow or to shrink.

    Attributes:
        info: the content of dataset.json.
        added, removed: samples.
        known: sources that the dataset has.
        copies: sources that were left out because the dataset has their picture.
        skipped: sources that have changed since they were packed, and were left out.
        rejected: path and reason of sources that could not be packed.
        assumed: what the source does not say for sure, and new classes that a fresh pack would number otherwise.
        seconds: it took.
        uploaded_bytes: that were written into a bucket.
    """

    info: dict[str, Any]
    added: int = 0
    removed: int = 0
    known: int = 0
    copies: int = 0
    skipped: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)
    assumed: tuple[Assumption, ...] = ()
    seconds: float = 0.0
    uploaded_bytes: int = 0


def add(
    source: SourcePath,
    destination: Place,
    given: PackOptions,
    *,
    by: str,
    changed: str,
    on_progress: Progress,
    make: Make = make_in_threads,
) -> Grown:
    """See `fastpipe.add`. `given` has the options that are not those of the dataset; `make` makes the new shards."""
    started = time.monotonic()
    check_apart(source, destination, given.spool)
    command = ["add", str(source), str(destination)]
    command += ["--by", by] * (by != "path") + ["--changed", changed] * (changed != "error")
    with newest(destination, given, command, shared_spool=make is not make_in_threads) as version:
        journal, index, options = version.journal, version.index, version.options
        listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
        said = fitting_fields(listing, index)
        check_given_classes(listing, index, options)
        listing = relabelled(listing, index.classes)
        new, stays, counts = compared(listing, version, by, changed)
        assumed = (*listing.assumed, *_new_classes(index, listing.classes, {source.label for source in new}))
        grown = Grown(version.index.info, **counts, assumed=assumed)
        if not new:
            return replace(grown, seconds=time.monotonic() - started)
        listing = replace(listing, sources=new)
        with version.growing({"listing": listing.digest_with_times(), "options": options.shaping(listing.kinds)}):
            kinds = {name: one.kind for name, one in index.fields.items()}

            def fitted(plan: Plan) -> Plan:
                agreement = Agreement(kinds, agreed_in(index.fields.values()))
                agreement.join(plan.agreed, str(source))
                return plan._replace(agreed=agreement.state(), base=version.index.info["next_shard"], kinds=kinds)

            made = make(listing, options, journal, fitted, on_progress)
            everything = list(made.entries)
            tally = Entries(everything).tally
            of_images = assumed_of_images({"assumed_shown": tally.assumed_shown, "transparent": tally.transparent})
            rejected = [(readable(path), reason) for path, reason in tally.rejected]
            grown = replace(grown, rejected=rejected, assumed=(*assumed, *of_images))
            entries = [entry for entry in everything if entry.tars]
            if entries:
                # Changed sources that cannot be packed any more take no place: those samples stay as they were.
                lost = np.array([key_hash(path) for path, _ in grown.rejected], np.uint64)
                stays |= np.isin(index.records["key"], lost)
                facts = replace(Facts.of(listing), fields=tuple(said), state="")
                tried = {readable(one.path) for one in new}
                info = version.publish(stays, facts, tally, entries, tried, made.plan, made.publishing)
                added, removed = (info["history"][-1][name] for name in ("added", "removed"))
                grown = replace(grown, info=info, added=added, removed=removed)
            else:
                journal.clear()
        return replace(grown, seconds=time.monotonic() - started, uploaded_bytes=journal.store.uploaded_bytes)


class Chosen:
    """What a user says of samples; all of it holds. See `fastpipe.remove`."""

    def __init__(
        self, keys: Iterable[str] | None, classes: str | Sequence[str] | None, where: str | Sequence[str] | None
    ) -> None:
        if keys is None and not classes and not where:
            raise ConfigError("remove: expected --keys, --class or --where, which say what is to be removed")
        if isinstance(keys, (str, os.PathLike)):
            raise ConfigError(f"keys: expected a list of keys, got {keys!r}")
        self._keys = None if keys is None else list(keys)
        self._classes = [classes] if isinstance(classes, str) else list(classes or ())
        self._where = []
        for text in [where] if isinstance(where, str) else where or ():
            match = _COMPARISON.fullmatch(text)
            if match is None:
                raise ConfigError(
                    f"--where {text!r}: expected COLUMN OPERATOR VALUE, such as 'score < 0.2', with one of "
                    f"{', '.join(_OPERATORS)}"
                )
            self._where.append((match[1], match[2], match[3]))

    @property
    def words(self) -> list[str]:
        """As options of a command."""
        said = [("--class", name) for name in self._classes] + [("--where", " ".join(each)) for each in self._where]
        return [*(() if self._keys is None else ("--keys", "FILE")), *(word for pair in said for word in pair)]

    def of(self, index: PackedIndex) -> NDArray[np.bool_]:
        """(n,) which samples of a dataset are named; ConfigError: it has no such key, class or column."""
        found = np.ones(len(index), np.bool_)
        if self._keys is not None:
            wanted = np.array([key_hash(key) for key in self._keys], np.uint64)
            there = np.array(index.records["key"])
            unknown = np.flatnonzero(~np.isin(wanted, there))
            if len(unknown):
                names = ", ".join(map(repr, (self._keys[at] for at in unknown[:_NAMED].tolist())))
                raise ConfigError(
                    f"{len(unknown):,} of {len(wanted):,} keys are not in {index.path}: {names}"
                    f"{' ...' if len(unknown) > _NAMED else ''}; expected the paths of samples' sources, as "
                    'batch["key"] has them'
                )
            found &= np.isin(there, wanted)
        if self._classes:
            found &= np.isin(index.records["label"], [_label(index, name) for name in self._classes])
        for column, sign, value in self._where:
            found &= _compared(index, column, sign, value)
        return found


def remove(destination: Place, given: PackOptions, chosen: Chosen) -> Grown:
    """Removes samples from the newest version; `given` has how URLs are reached."""
    started = time.monotonic()
    with newest(destination, given, ["remove", str(destination), *chosen.words]) as version:
        index = version.index
        goes = chosen.of(index)
        gone = int(goes.sum())
        info = version.index.info
        if gone == len(index):
            raise PackError(
                f"that removes all {gone:,} samples of {destination}; a dataset has at least one. Remove the folder "
                "itself, or choose fewer samples"
            )
        if gone:
            said = tuple(said_of(one) for one in index.fields.values())
            facts = Facts("", index.classes, taken_ns=version.history[-1]["listed_ns"], fields=said)
            with version.growing({"removed": xxhash.xxh3_64_hexdigest(np.packbits(goes).tobytes())}):
                info = version.publish(~goes, facts, Tally())
        uploaded = version.journal.store.uploaded_bytes
        return Grown(info, removed=gone, seconds=time.monotonic() - started, uploaded_bytes=uploaded)


def _label(index: PackedIndex, name: str) -> int:
    if name not in index.class_to_idx:
        known = ", ".join(index.classes[:20]) + (" ..." if len(index.classes) > 20 else "")
        raise ConfigError(f"class {name!r}: {index.path} has no such class; its classes are {known or 'none'}")
    return index.class_to_idx[name]


def _compared(index: PackedIndex, column: str, sign: str, value: str) -> NDArray[np.bool_]:
    compare = _OPERATORS[sign]
    if column == "class":
        if compare not in (operator.eq, operator.ne):
            raise ConfigError(f"--where class {sign} {value}: classes have no order; expected == or !=")
        return np.asarray(compare(index.records["label"], _label(index, value)), np.bool_)
    numbers = {each.name: each for each in index.fields.values() if each.kind == "int" or each.width == 1}
    values: NDArray[Any]
    if column in _OWN:
        values = index.records[column].astype(np.int64)
    elif column in numbers:
        file = index.files / FIELDS_FOLDER / sidecars(numbers[column])[0]
        values = np.lib.format.open_memmap(file, mode="r").reshape(-1)
    else:
        field, expected = index.fields.get(column), ", ".join([*_OWN, "class", *numbers])
        what = "no such column" if field is None else f"values of kind {field.kind}, no single numbers"
        raise ConfigError(f"--where {column}: {index.path} has {what}; expected one of {expected}")
    try:
        number: float = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        raise ConfigError(f"--where {column} {sign} {value}: expected a number behind {sign}") from None
    return np.asarray(compare(values, number), np.bool_)


def compared(
    listing: Listing, version: Version, by: str, changed: str
) -> tuple[list[Source], NDArray[np.bool_], dict[str, Any]]:
    """New and changed sources, in packing order; (n,) which samples stay; how many others, as Grown names them. `by`
    and `changed` are as of `fastpipe.add`.
    """
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
    return [source for source in new if source.path not in copies], stays, counts


def _packed_ns(version: Version) -> NDArray[np.int64]:
    """(n,) when the source of each sample was listed."""
    shards, times = version.index.shards, {entry["version"]: entry["listed_ns"] for entry in version.history}
    packs = packs_of(version.index.info, (shard.name for shard in shards))
    listed = np.array([times[pack["version"]] for pack in packs], np.int64)
    return np.repeat(listed, [shard.samples for shard in shards])


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


def check_given_classes(listing: Listing, index: PackedIndex, options: PackOptions) -> None:
    """Raises PackError if the classes that a user has named, now or for the pack, do not allow those of a listing."""
    if options.source.classes is not None:
        if listing.classes and listing.classes[: len(index.classes)] != index.classes:
            raise PackError(
                f"--classes-from: expected the {len(index.classes):,} classes of {index.path} first, in their order, "
                "and new ones behind them: labels that models have learned stay"
            )
        return
    given = "classes_from" in index.info["packs"][0]["options"]["source"]
    unknown = [name for name in listing.classes if name not in index.class_to_idx]
    if given and unknown:
        raise PackError(
            f"{readable(str(listing.root))} has the class {unknown[0]!r}, and {index.path} was packed with the classes "
            "of --classes-from, which are others. To add it, pass --classes-from with all of them, new ones last"
        )


def _new_classes(index: PackedIndex, classes: Sequence[str], used: Collection[int]) -> Iterator[Assumption]:
    """Says of classes that come behind those of a dataset what number they would have in a fresh pack."""
    fresh = sorted(classes)
    if index.classes != sorted(index.classes):
        return  # nobody knows in which order a fresh pack would have them
    for number in range(len(index.classes), len(classes)):
        name = classes[number]
        if number in used and fresh.index(name) != number:
            yield Assumption(
                f"the class {name!r} is new, and comes last here: it is {number}. A fresh pack would sort it, and "
                f"number it {fresh.index(name)}; for the same numbers there: --classes-from {index.path}"
            )


def fitting_fields(listing: Listing, index: PackedIndex) -> list[SourceField]:
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
                f"of {index.path}, {', '.join(old.names) or 'none'}, in the same order, and new ones behind them. "
                f"--classes-from {index.path} numbers them by name"
            )
        said.append(new._replace(names=longer.names, flip_pairs=pairs))
    return said


def said_of(one: Any) -> SourceField:
    """A field of a dataset as one of its source."""
    return SourceField(one.name, one.kind, names=one.names, flip_pairs=one.flip_pairs)
