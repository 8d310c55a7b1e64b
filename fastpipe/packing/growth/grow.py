"""`fastpipe.add` and `fastpipe.remove`: a packed dataset -> its next version. Note [versions]"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Bools, Int64s
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import PackError, first_names, format_count, readable
from fastpipe.packing.fields.agreement import Agreement, agreement_state_of
from fastpipe.packing.growth.carried_columns import assumed_of_carried
from fastpipe.packing.growth.choice import MAX_NAMED, SampleChoice
from fastpipe.packing.growth.command_line import source_words
from fastpipe.packing.growth.copies import (
    Copies,
    KnownPictures,
    assumed_of_copies,
    assumed_of_skipped_copies,
    copies_in_shards,
)
from fastpipe.packing.growth.fit import (
    assumed_of_missing_labels,
    assumed_of_new_classes,
    check_given_classes,
    merge_fields,
    relabel,
)
from fastpipe.packing.growth.inherited import with_inherited
from fastpipe.packing.growth.missing_files import assumed_of_missing_files, find_missing
from fastpipe.packing.growth.version import Version, find_packs, open_newest
from fastpipe.packing.job.destination import check_apart
from fastpipe.packing.job.progress import Progress
from fastpipe.packing.job.summary import PackedShards, assumed_of_tally
from fastpipe.packing.job.threads import AdjustPlan, MakeShards, make_in_threads
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.pipeline.picture_values import assume_picture_values
from fastpipe.packing.pipeline.source_identity import identity_of_source
from fastpipe.packing.shard.entry import SOURCES, Tally
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import SourcePath
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Assumption, Listing, Source, SourceField
from fastpipe.sources.member_fields import field_of_dataset
from fastpipe.sources.tables.rows import is_row_name
from fastpipe.sources.tables.tables import TableListing

# Of the files of a source: if more have changed, they may be other photos with the same names.
_SHARE_OF_OTHER_PHOTOS = 0.1
# So many known files are compared with their samples.
_FEW_FILES = 16


@dataclass(frozen=True)
class Grown:
    """What became of a dataset that was to grow or to shrink.

    Attributes:
        info: the content of dataset.json.
        added, removed: samples.
        known: sources that the dataset has.
        copies: sources that were left out because the dataset has their image.
        skipped: sources that have changed since they were packed, and were left out.
        rejected: path and reason of sources that could not be packed.
        assumed: what the source does not say for sure, and new classes that a fresh pack would
            number otherwise.
        seconds: it took.
        uploaded_bytes: that were written into a bucket.
    """

    info: dict[str, Any] = field(repr=False)
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
    make: MakeShards = make_in_threads,
) -> Grown:
    """Adds the new sources, and replaces the samples of changed ones if `changed` says so.

    See `fastpipe.add`.

    Args:
        source, destination, by, changed, on_progress: as there.
        given: the options that are not those of the dataset.
        make: makes the new shards: in threads, or on a cluster.
    """
    started = time.monotonic()
    check_apart(source, destination, given.spool)
    command = ["add", str(source), str(destination)]
    command += _add_options(given, by, changed)
    # On a cluster --spool is for the tasks; else it is where the shards of a bucket are made.
    shared_spool = make is not make_in_threads
    with open_newest(destination, given, command, shared_spool=shared_spool) as version:
        index = version.index
        source_options, inherited = with_inherited(
            source, version.options.source, index
        )
        options = replace(version.options, source=source_options)
        version = replace(version, options=options)
        listing = list_sources(
            source, options.seed, shuffle=options.shuffle, options=options.source
        )
        listing = assume_picture_values(listing)
        fields = merge_fields(listing, index)
        check_given_classes(listing, index, options)
        # The sources get the labels of the dataset before they are compared with its samples.
        listing = relabel(listing, index.classes)

        compared = compare_sources(listing, version, by, changed)
        assumed_of_listing = _without_settled(listing, index)
        full_listing = listing
        listing = replace(listing, sources=compared.new)
        new_classes = assumed_of_new_classes(index, listing, options)
        no_labels = assumed_of_missing_labels(index, listing)
        # The result if nothing is new.
        grown = Grown(
            index.info,
            known=compared.known,
            copies=compared.copies,
            skipped=compared.skipped,
            assumed=(
                *assumed_of_listing,
                *inherited,
                *new_classes,
                *no_labels,
                *compared.assumed,
            ),
        )
        if not compared.new:
            is_missing = find_missing(version, full_listing) & compared.is_kept
            missing = assumed_of_missing_files(
                version, full_listing, is_missing, compared.copied_rows
            )
            grown = replace(grown, assumed=(*grown.assumed, *missing))
        else:
            change = {
                "listing": listing.state_digest(),
                "options": options.shaping(listing.kinds),
            }
            adjust_plan = _plan_adjuster(version, source)
            # The plan of an interrupted run with the same sources is continued.
            with version.growing(change):
                shards = make(
                    listing, options, version.journal, adjust_plan, on_progress
                )
                grown = _publish_added(
                    version,
                    listing,
                    full_listing,
                    fields,
                    compared,
                    shards,
                    grown,
                )
        uploaded_bytes = version.journal.store.uploaded_bytes
        return replace(
            grown, seconds=time.monotonic() - started, uploaded_bytes=uploaded_bytes
        )


def _add_options(given: PackOptions, by: str, changed: str) -> list[str]:
    """The options of `fastpipe add` that the history of the dataset records: no defaults."""
    words = []
    if by != "path":
        words += ["--by", by]
    if changed != "error":
        words += ["--changed", changed]
    words += source_words(given.source.recorded())
    if given.source.image_root is not None:
        words += ["--image-root", given.source.image_root]
    return words


def _without_settled(listing: Listing, index: PackedIndex) -> list[Assumption]:
    """What is assumed of a source, without what was settled when the dataset was packed: that its
    folders are classes.
    """
    has_new_classes = not set(listing.classes) <= set(index.classes)
    assumed = []
    for assumption in listing.assumed:
        if has_new_classes or assumption.option != AS_CLASSES:
            assumed.append(assumption)
    return assumed


def _plan_adjuster(version: Version, source: SourcePath) -> AdjustPlan:
    """A function that gives a plan the dataset's fields and the number of its next shard."""
    fields = version.index.fields
    kinds = {name: field.kind for name, field in fields.items()}

    def adjust(plan: Plan) -> Plan:
        # The new values must agree with those of the dataset, and shards then agree with both.
        agreement = Agreement(kinds, agreement_state_of(fields.values()))
        agreement.join(plan.agreed, str(source))
        return plan._replace(
            agreed=agreement.state(), base=version.index.info["next_shard"], kinds=kinds
        )

    return adjust


def _publish_added(
    version: Version,
    listing: Listing,
    full_listing: Listing,
    fields: Sequence[SourceField],
    compared: ComparedSources,
    shards: PackedShards,
    grown: Grown,
) -> Grown:
    """Publishes new shards, if they have any sample.

    Args:
        version: that grows.
        listing: the new sources.
        full_listing: all sources, those that the dataset has included.
        fields: of the next version.
        compared: the sources beside the version.
        shards: of the new sources.
        grown: what is known so far.
    """
    all_entries = list(shards.entries)
    tally = Tally()
    for entry in all_entries:
        tally.add(entry.tally)
    rejected = [(readable(path), reason) for path, reason in tally.rejected]
    assumed = (*grown.assumed, *assumed_of_tally(tally))
    grown = replace(grown, rejected=rejected, assumed=assumed)
    entries = [entry for entry in all_entries if entry.tars]
    if not entries:
        version.journal.clear()
        is_missing = find_missing(version, full_listing) & compared.is_kept
        missing = assumed_of_missing_files(
            version, full_listing, is_missing, compared.copied_rows
        )
        return replace(grown, assumed=(*grown.assumed, *missing))

    # If a changed source cannot be packed any more, its old sample stays.
    rejected_keys = key_hashes(path for path, _ in rejected)
    is_rejected = np.isin(version.index.records["key"], rejected_keys)
    is_kept = compared.is_kept | is_rejected
    is_missing = find_missing(version, full_listing) & is_kept
    copies = copies_in_shards(
        version.index,
        is_kept,
        entries,
        version.journal.store,
        full_listing,
        is_missing,
    )
    # Copies that were added are named, and those that were left out keep their samples.
    copied_rows = np.concatenate([copies.rows, compared.copied_rows])
    missing = assumed_of_missing_files(version, full_listing, is_missing, copied_rows)
    grown = replace(
        grown, assumed=(*grown.assumed, *assumed_of_copies(copies), *missing)
    )
    facts = Facts.of(listing)
    # No state: a pack of these sources alone would make another dataset than this version.
    facts = replace(facts, fields=tuple(fields), state="")
    info = version.publish(
        is_kept,
        facts,
        tally,
        entries,
        tried={readable(source.path) for source in listing.sources},
        plan=shards.plan,
        on_file=shards.on_published_file,
    )
    # A changed source counts twice: its old sample is removed, and a new one is added.
    change = info["history"][-1]
    assumed_carried = assumed_of_carried(version.saved, version.index, change["added"])
    return replace(
        grown,
        info=info,
        added=change["added"],
        removed=change["removed"],
        assumed=(*grown.assumed, *assumed_carried),
    )


def remove(destination: Place, given: PackOptions, choice: SampleChoice) -> Grown:
    """Removes samples from the newest version. `given` says how URLs are reached."""
    started = time.monotonic()
    command = ["remove", str(destination), *choice.command_options()]
    with open_newest(destination, given, command) as version:
        index = version.index
        selected = choice.select(index, version.saved)
        num_removed = int(selected.sum())
        info = index.info
        if num_removed == len(index):
            raise PackError(
                f"that removes all {num_removed:,} samples of {destination}; a dataset has at "
                "least one. Remove the folder itself, or choose fewer samples"
            )
        if num_removed:
            fields = tuple(field_of_dataset(field) for field in index.fields.values())
            # Nothing is listed, so there is no root, and the time is that of the last listing.
            facts = Facts(
                root="",
                classes=index.classes,
                taken_ns=version.history[-1]["listed_ns"],
                fields=fields,
            )
            selected_bits = np.packbits(selected).tobytes()
            change = {"removed": xxhash.xxh3_64_hexdigest(selected_bits)}
            # The plan of an interrupted run that removes the same samples is continued.
            with version.growing(change):
                info = version.publish(~selected, facts, Tally())
        return Grown(
            info,
            removed=num_removed,
            seconds=time.monotonic() - started,
            uploaded_bytes=version.journal.store.uploaded_bytes,
        )


class ComparedSources(NamedTuple):
    """Sources beside a dataset.

    Attributes:
        new: sources to pack, in packing order: new ones, and changed ones that replace their
            samples.
        is_kept: (n,) which samples of the dataset stay.
        known: number of sources that the dataset has.
        copies: number of sources whose picture the dataset has under another path.
        copied_rows: (copies that the dataset has,) their rows in the index.
        skipped: number of changed sources that are left out.
        assumed: what to know of the copies.
    """

    new: list[Source]
    is_kept: Bools
    known: int
    copies: int
    copied_rows: Int64s
    skipped: int
    assumed: Sequence[Assumption]


def compare_sources(
    listing: Listing, version: Version, by: str, changed: str
) -> ComparedSources:
    """Compares sources with a dataset; `by` and `changed` are as of `fastpipe.add`.

    PackError: a source has changed, and `changed` is "error".
    """
    sources = listing.sources
    index = version.index
    _refuse_names_by_place(listing)
    rows, has_key = _find_rows(index, sources)
    is_same = _has_same_content(listing, version, rows, has_key)
    has_changed = has_key & ~is_same
    if has_changed.any() and changed == "error":
        paths = [source.path for source in compress(sources, has_changed)]
        names = first_names([readable(path) for path in paths], MAX_NAMED)
        advice = ""
        if len(paths) >= _SHARE_OF_OTHER_PHOTOS * len(sources):
            advice = (
                ". If these are other images with the same names, neither is right: pack "
                f"{listing.root} into a folder of its own with --classes-from {index.path}, and "
                f"read both, fastpipe.concat({str(index.path)!r}, OTHER)"
            )
        raise PackError(
            f"{format_count(len(paths), 'file')} of {listing.root} changed after packing into "
            f"{index.path}: {names}. Pass --changed replace to take the new ones in their "
            f"place, or --changed skip to leave them as they are{advice}"
        )
    is_replaced = has_changed & (changed == "replace")
    is_kept = np.ones(len(index), np.bool_)
    is_kept[rows[is_replaced]] = False
    new = list(compress(sources, ~has_key | is_replaced))

    copies: set[str] = set()
    copied_rows: Int64s = np.zeros(0, np.int64)
    assumed: list[Assumption] = []
    if by == "content":
        # Samples that are replaced do not count: their pictures may come again under another path.
        copies, known_copies = _find_copies(listing, new, version, is_kept)
        copied_rows = known_copies.rows
        assumed = assumed_of_skipped_copies(known_copies)
        new = [source for source in new if source.path not in copies]
    return ComparedSources(
        new,
        is_kept,
        known=int(is_same.sum()),
        copies=len(copies),
        copied_rows=copied_rows,
        skipped=int((has_changed & ~is_replaced).sum()),
        assumed=assumed,
    )


def _refuse_names_by_place(listing: Listing) -> None:
    """Raises PackError if samples without an image are called by their place in a table: with a new
    row, others would get their names.
    """
    for source in listing.sources:
        if not source.has_image and is_row_name(source.path):
            raise PackError(
                f"{readable(str(listing.root))}: samples without an image are known by their id, and "
                f"{readable(source.path)} has none. Give each row of the table an id of its own, in "
                "a column called id, and pack it into a new folder"
            )


def _find_rows(index: PackedIndex, sources: Sequence[Source]) -> tuple[Int64s, Bools]:
    """(sources,) for each source a row of the index, and whether the sample there has its key.

    If no sample has it, the row is any other one.
    """
    keys = key_hashes(readable(source.path) for source in sources)
    known_keys = np.array(index.records["key"])
    # (n,) rows sorted by key; (sources,) the position of each source's key among them. A key behind
    # the last one would have no position, and gets that of the last one.
    order = np.argsort(known_keys, kind="stable")
    sorted_keys = known_keys[order]
    last_position = len(order) - 1
    positions = np.searchsorted(sorted_keys, keys)
    positions = np.minimum(positions, last_position)
    rows = order[positions]
    has_key = known_keys[rows] == keys
    return rows, has_key


def _has_same_content(
    listing: Listing,
    version: Version,
    rows: Int64s,
    has_key: Bools,
) -> Bools:
    """(sources,) whether each source has the label and the content of the sample in its row."""
    sources = listing.sources
    records = version.index.records
    labels = np.array([source.label for source in sources], np.int64)
    # A sample is the same if label and size are the same, and the file is not newer.
    has_label = records["label"][rows] == labels
    is_same: Bools = has_key & has_label
    # The size of a row's image is known only when the row has been read.
    if not isinstance(listing, TableListing):
        sizes = np.array([source.size_bytes for source in sources], np.uint64)
        packed_sizes = version.columns[SOURCES]["bytes"]
        is_same &= packed_sizes[rows] == sizes

        is_same &= ~_have_other_pictures(listing, version, rows, is_same)

    # A source with a newer time may have the same content, so its picture is compared.
    changed_ns = np.array([source.ctime_ns for source in sources], np.int64)
    is_newer = is_same & (changed_ns > _listed_ns(version)[rows])
    newer = list(compress(sources, is_newer))
    digests = _digests(listing, newer, version.options)
    packed_digests = records["xxh3_64"][rows[is_newer]].tolist()
    is_same[is_newer] = [
        digests[source.path] == packed_digest
        for source, packed_digest in zip(newer, packed_digests, strict=True)
    ]
    return is_same


def _have_other_pictures(
    listing: Listing, version: Version, rows: Int64s, is_same: Bools
) -> Bools:
    """(sources,) which sources have another picture than the sample in their row.

    Photos of another camera may have the names and the sizes of those in the dataset: BMPs, say.
    So a few files are compared, and all of them only if one of these is another one.

    Args:
        listing: the sources.
        version: that grows.
        rows: (sources,) of the index.
        is_same: (sources,) which sources have the path, the size and the label of the sample.
    """
    sources = listing.sources
    identities = np.array(version.index.records["identity"])

    def has_other_picture(source_index: int) -> bool:
        identity = identity_of_source(listing.root, sources[source_index])
        return identity is not None and identity != identities[rows[source_index]]

    is_other = np.zeros(len(sources), np.bool_)
    # Reading from a bucket takes long.
    if not isinstance(listing.root, Path):
        return is_other
    candidates = np.flatnonzero(is_same)
    step = max(1, math.ceil(len(candidates) / _FEW_FILES))
    few = candidates[::step].tolist()
    if any(has_other_picture(source_index) for source_index in few):
        for source_index in candidates.tolist():
            is_other[source_index] = has_other_picture(source_index)
    return is_other


def _find_copies(
    listing: Listing, new: Sequence[Source], version: Version, is_kept: Bools
) -> tuple[set[str], Copies]:
    """The paths of new sources whose picture is in the dataset, or has come before; and those of
    which the dataset has the picture.
    """
    # A source that cannot be packed is no copy. It is rejected when its shard is made.
    digests = {}
    for path, digest in _digests(listing, new, version.options).items():
        if digest is not None:
            digests[path] = digest
    hashes = np.array(list(digests.values()), np.uint64)
    rows = KnownPictures(version.index, is_kept).find(hashes)
    is_known = rows >= 0

    seen: set[int] = set()
    copies = set()
    for (path, digest), is_in_dataset in zip(digests.items(), is_known, strict=True):
        if is_in_dataset or digest in seen:
            copies.add(path)
        seen.add(digest)
    label_of_path = {source.path: source.label for source in new}
    known_paths = list(compress(digests, is_known))
    labels = [label_of_path[path] for path in known_paths]
    known_copies = Copies(
        version.index,
        listing,
        key_hashes(readable(path) for path in known_paths),
        rows[is_known],
        np.array(labels, np.int64),
        is_missing=np.zeros(len(version.index), np.bool_),
    )
    return copies, known_copies


def _listed_ns(version: Version) -> Int64s:
    """(n,) when the source of each sample was listed."""
    shards = version.index.shards
    time_of_version = {}
    for entry in version.history:
        time_of_version[entry["version"]] = entry["listed_ns"]
    # (shards,) the time of each, and how many samples it has.
    shard_names = [shard.name for shard in shards]
    packs = find_packs(version.index.info, shard_names)
    times = [time_of_version[pack["version"]] for pack in packs]
    times_ns = np.array(times, np.int64)
    sample_counts = [shard.samples for shard in shards]
    return np.repeat(times_ns, sample_counts)


def _digests(
    listing: Listing, sources: Sequence[Source], options: PackOptions
) -> dict[str, int | None]:
    """By path, the hash of each picture as it would be stored; None: it cannot be packed, or the
    sample has none.
    """
    digests: dict[str, int | None] = {source.path: None for source in sources}
    if sources:
        for source, outcome in convert_sources(listing, sources, options):
            if not isinstance(outcome, str) and outcome.data:
                digest = xxhash.xxh3_64_intdigest(outcome.data)
                digests[source.path] = digest
    return digests
