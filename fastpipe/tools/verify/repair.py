"""A damaged dataset and its source -> the same dataset, intact, with the same bytes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.dataset.format.description import file_hash, read_info
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field, read_fields, sidecars
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    SOURCES_FILE,
    index_dtype,
    shard_number,
    version_folder,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import Stored, key_hash
from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.packing.fields.stored import columns, piece
from fastpipe.packing.growth.fit import relabel
from fastpipe.packing.growth.version import find_packs, packed_options
from fastpipe.packing.job.destination import check_apart, disk_errors
from fastpipe.packing.job.progress import Progress, ProgressReporter
from fastpipe.packing.job.repack import Repack
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.npy import write_column, write_npy
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.files import SourcePath
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.options import read_recorded_options
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.tables.tables import TableListing
from fastpipe.store.files import publish
from fastpipe.store.store import Folder, Store
from fastpipe.tools.verify.check_sample import open_samples, records_of
from fastpipe.tools.verify.damage import Report
from fastpipe.tools.verify.shard_facts import (
    ShardFacts,
    member_endings,
    read_description,
)

_ANEW = "pack it again: fastpipe pack SRC DST --overwrite"
_CHUNK_BYTES = 1 << 20
# A message names at most so many classes.
_MAX_NAMES_SHOWN = 5


def repair(
    path: Path,
    source: SourcePath,
    report: Report,
    *,
    image_root: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on_progress: Progress = lambda _: None,
) -> list[str]:
    """Makes damaged shards again, and a damaged index and damaged sidecars from the shards.

    Nothing takes the place of a damaged file but one of exactly the hash that dataset.json has.

    Args:
        path: the dataset's folder.
        source: that it was packed from.
        report: of `verify`.
        image_root, workers, on_progress: as of the pack.

    Returns:
        The names of the files that were made again.

    Raises:
        PackError: dataset.json is damaged, the source is not what was packed, or it gives other
            bytes now.
        ConfigError: as of `check_apart`.
    """
    check_apart(source, path)
    description = read_description(path)
    damaged = {damage.file for damage in report.findings}
    if DATASET_FILE in damaged or description.info is None:
        raise PackError(
            f"{path / DATASET_FILE} is damaged, and only this file defines the correct content of "
            f"the other files; {_ANEW}"
        )
    info = description.info
    folder = version_folder(info["version"])
    # Findings name files in the dataset's folder; those of a version lie in a folder of their own.
    damaged = {name.removeprefix(folder) for name in damaged}
    _check_repairable(path, info, description.shards, damaged)

    shards = [shard for shard in description.shards if shard.name in damaged]
    # The journal locks the folder, so that no pack writes to it meanwhile.
    with disk_errors(path), Journal(Folder(path)) as journal:
        if journal.plan() is not None:
            raise PackError(
                f"{path} holds an unfinished pack or add; run the same command again to finish it, "
                "then repair"
            )
        root = None if image_root is None else os.fspath(image_root)
        # Shards come first: the index and the columns are made from all of them.
        _remake_packs(path, source, journal, shards, info, root, workers, on_progress)
        _rebuild(journal.store, description.shards, info, damaged)

    repaired = [shard.name for shard in shards]
    if INDEX_FILE in damaged:
        repaired.append(folder + INDEX_FILE)
    for name in sorted(damaged):
        if _is_column(name):
            repaired.append(folder + name)
    return repaired


def _is_column(name: str) -> bool:
    return name.startswith(f"{FIELDS_FOLDER}/")


def _check_repairable(
    path: Path,
    info: dict[str, Any],
    shards: Sequence[ShardFacts],
    damaged: Collection[str],
) -> None:
    """Raises PackError if a damaged file cannot be made from the shards."""
    folder = path / version_folder(info["version"])
    has_columns = any(_is_column(name) for name in damaged)
    is_rebuilt = INDEX_FILE in damaged or has_columns
    if is_rebuilt and any(shard.removed for shard in shards):
        previous = info["version"] - 1
        raise PackError(
            f"{folder}: index.npy and columns cannot be made again, for the shards do not say "
            f"which samples were removed. Version {previous} may be whole: "
            f"fastpipe.open({str(path)!r}, version={previous})"
        )
    if SOURCES_FILE in damaged:
        raise PackError(
            f"{folder / SOURCES_FILE} cannot be made again. Only fastpipe add and remove need it, "
            f"and no loader; if you need these, {_ANEW}"
        )


def _remake_packs(
    path: Path,
    source: SourcePath,
    journal: Journal,
    shards: Sequence[ShardFacts],
    info: dict[str, Any],
    image_root: str | None,
    workers: int | None,
    on_progress: Progress,
) -> None:
    """Makes shards again, pack by pack: a dataset that has grown has several.

    A pack whose sources are not in this source does not keep the shards of other packs from being
    repaired; its error is raised at the end.
    """
    first_error: PackError | None = None
    pack_of_shard = find_packs(info, [shard.name for shard in shards])
    for pack in info["packs"]:
        damaged_of_pack = []
        for shard, shard_pack in zip(shards, pack_of_shard, strict=True):
            if shard_pack is pack:
                damaged_of_pack.append(shard)
        # Sources of a pack without damage need not be present.
        if not damaged_of_pack:
            continue
        source_options = read_recorded_options(pack["options"]["source"], image_root)
        options = packed_options(pack["options"], source_options)
        options = replace(options, workers=workers)
        try:
            listing = _listing_of_pack(path, info, pack, source, options)
        except PackError as problem:
            first_error = first_error or problem
            continue
        repack = Repack(info, pack, listing, options)
        _remake_shards(path, journal, damaged_of_pack, repack, on_progress)
    if first_error is not None:
        raise first_error


def _listing_of_pack(
    path: Path,
    info: dict[str, Any],
    pack: dict[str, Any],
    source: SourcePath,
    options: PackOptions,
) -> Listing:
    """The sources of a pack, as they were listed. PackError: they are not in this source."""
    if "made_by" in pack["source"]:
        raise PackError(
            f"{path} was written by {pack['source']['made_by']}, so its shards cannot be packed "
            "again from a folder; run the program that wrote it again, into a new folder. "
            f"index.npy and the files in {FIELDS_FOLDER} can be repaired if all shards are intact"
        )
    # The digest of the listing was recorded: with the same sources, packing makes the same bytes.
    try:
        current = list_sources(
            source, options.seed, shuffle=options.shuffle, options=options.source
        )
    except PackError as problem:
        raise _other_split_error(path, source, options, problem) from problem
    expected = pack["source"]["xxh3_128"]
    if current.digest() == expected:
        return current
    for part in _parts_of_listing(path, pack, current):
        if part.digest() == expected:
            return part

    hint = ""
    if current.notes is not None:
        hint = "If the pack had an --image-root, pass it here, too. "
    raise PackError(
        f"{current.root} differs from the source of {path}: "
        f"{_describe_difference(info, pack, current)}. {hint}Restore the source, or {_ANEW}"
    )


def _other_split_error(
    path: Path, source: SourcePath, options: PackOptions, problem: PackError
) -> PackError:
    """The error of listing a source, with what the dataset was packed of where splits are the cause."""
    if problem.option != "split":
        return problem
    split = options.source.split
    if split is None:
        expected = "of a folder without splits: pass the folder of its split"
    else:
        expected = f"with --split {split}: pass the folder that holds the splits"
    return PackError(
        f"{path} was packed {expected}; got {readable(source)}: {problem}",
    )


def _parts_of_listing(
    path: Path, pack: dict[str, Any], listing: Listing
) -> Iterator[Listing]:
    """The sources that a later pack may have added; all others were in the dataset before."""
    if pack["version"] == 1:
        return
    classes = read_info(path, version=pack["version"])["classes"]
    listing = relabel(listing, classes)
    # The index of the pack's version has the samples that it added, and that of the version before
    # has all others. One of the two may be damaged.
    for version in (pack["version"], pack["version"] - 1):
        try:
            index = PackedIndex(path, version=version)
        except DatasetError:
            continue
        has_added = version == pack["version"]
        keys = set(index.records["key"].tolist())
        if has_added:
            keys = _keys_of_added(path, pack, index)
        sources = []
        for source in listing.sources:
            is_in_index = key_hash(readable(source.path)) in keys
            if is_in_index is has_added:
                sources.append(source)
        yield replace(listing, classes=classes, sources=sources)


def _keys_of_added(path: Path, pack: dict[str, Any], index: PackedIndex) -> set[int]:
    """The keys, by hash, of the samples that a pack has added, and of the files it rejected."""
    is_added = []
    sample_counts = []
    first_number = pack["plan"]["base"]
    for shard in index.shards:
        number = shard_number(shard.name)
        is_added.append(number >= first_number)
        sample_counts.append(shard.samples)
    is_added_sample = np.repeat(is_added, sample_counts)
    added_keys = index.records["key"][is_added_sample]
    keys = set(added_keys.tolist())
    if index.counts["rejected"]:
        rejected = read_rejected(path, pack["version"])
        keys |= {key_hash(entry["path"]) for entry in rejected}
    return keys


def _describe_difference(
    info: dict[str, Any], pack: dict[str, Any], listing: Listing
) -> str:
    """The difference of two sources, as far as it is known."""
    texts = []
    missing = [name for name in info["classes"] if name not in listing.classes]
    for name in missing[:_MAX_NAMES_SHOWN]:
        texts.append(f"no class {readable(name)!r} now")
    added = [name for name in listing.classes if name not in info["classes"]]
    for name in added[:_MAX_NAMES_SHOWN]:
        texts.append(f"class {readable(name)!r} is new")
    packed = pack["source"]
    file_count = len(listing.sources)
    if file_count != packed["files"]:
        texts.append(f"{packed['files']:,} files then, {file_count:,} now")
    size = listing.size_bytes
    # The bytes of a table are not only those of images.
    if size != packed["bytes"] and not isinstance(listing, TableListing):
        texts.append(f"{packed['bytes']:,} bytes then, {size:,} now")
    if not texts:
        return "the same number of files and bytes, but a path or the size of a file is different"
    return "; ".join(texts)


def _remake_shards(
    path: Path,
    journal: Journal,
    shards: Sequence[ShardFacts],
    repack: Repack,
    on_progress: Progress,
) -> None:
    """Makes shards again; each takes the damaged one's place if it is the one that was packed."""
    # Packing takes long, so an unchanged shard is refused before any is made. Packing it again
    # would repair nothing.
    for shard in shards:
        _check_damaged(shard)
    listing = repack.listing
    shard_by_name = {shard.name: shard for shard in shards}
    # A slice of which no shard is damaged has no names.
    slices = [pair for pair in repack.slices(shard_by_name) if pair[1]]
    file_count = 0
    total_bytes = 0
    for shard_slice, _ in slices:
        sources = listing.sources[shard_slice.start : shard_slice.stop]
        file_count += len(sources)
        total_bytes += sum(source.size_bytes for source in sources)
    if not total_bytes:  # a table has only the size of all of its images
        total_bytes = listing.size_bytes * file_count // len(listing.sources)
    # Files that could not be packed then are expected to fail again.
    rejected_entries = read_rejected(path, repack.info["version"])
    rejected = {entry["path"] for entry in rejected_entries}
    progress = ProgressReporter(file_count, total_bytes, journal.store, on_progress)

    def on_source(source: Source, outcome: Packed | str) -> None:
        if isinstance(outcome, str) and readable(source.path) not in rejected:
            name = readable(listing.root / source.path)
            raise PackError(
                f"{name} could be packed before, but now it cannot: {outcome}. Restore the file, "
                f"or {_ANEW}"
            )
        progress.add(1, source.size_bytes)

    for shard_slice, names in slices:
        with repack.remade(shard_slice, journal.store.scratch, on_source) as (
            folder,
            tars,
        ):
            for name in sorted(names):
                shard = shard_by_name[name]
                # Nothing replaces a damaged shard but the very bytes that were packed.
                _check_remade(shard, tars.get(name))
                publish(folder / name, shard.path)


def _check_damaged(shard: ShardFacts) -> None:
    """Raises PackError if a shard is as it was packed."""
    try:
        digest = file_hash(shard.path)
    except OSError:
        return
    if digest == shard.xxh3_64:
        raise PackError(
            f"{shard.name} is unchanged, so packing it again repairs nothing; {_ANEW}"
        )


def _check_remade(shard: ShardFacts, tar: Tar | None) -> None:
    """Raises PackError if a shard that was made again is not the one that was packed."""
    if tar is not None and (tar.size_bytes, tar.xxh3_64) == (
        shard.size_bytes,
        shard.xxh3_64,
    ):
        return
    if tar is None:
        actual = "no such shard"
    else:
        actual = f"got {tar.xxh3_64}"
    raise PackError(
        f"{shard.name} cannot be restored: expected hash {shard.xxh3_64}, {actual}. Either a "
        "source file has changed but kept its size, or the dataset was packed with another version "
        "of fastpipe, libjpeg-turbo, Pillow, OpenCV or zlib. The shard stays as it is; "
        f"{_ANEW}"
    )


def _rebuild(
    store: Store,
    shards: Sequence[ShardFacts],
    info: dict[str, Any],
    damaged: Collection[str],
) -> None:
    """Writes index.npy and the sidecars that are damaged, in the version's folder.

    `damaged` has their names relative to that folder.
    """
    samples = sum(shard.samples for shard in shards)
    folder = version_folder(info["version"])
    if INDEX_FILE in damaged:
        with store.open_atomic(f"{folder}{INDEX_FILE}") as file:
            # If the check raises, the new file is discarded and the damaged one stays.
            dtype = index_dtype(is_wide=bool(info["index"].get("is_wide", False)))
            chunks = (records_of(shard).astype(dtype).tobytes() for shard in shards)
            _, digest = write_npy(file, dtype, samples, chunks)
            _check_rebuilt(INDEX_FILE, info["index"]["file_xxh3_64"], digest)
    for field in read_fields(info).values():
        for name, column in zip(sidecars(field), columns(field), strict=True):
            file_name = f"{FIELDS_FOLDER}/{name}"
            if file_name not in damaged:
                continue
            # The header of the file needs the number of values, which is known at their end.
            with (
                tempfile.TemporaryFile(dir=store.scratch) as values,
                store.open_atomic(f"{folder}{file_name}") as file,
            ):
                for pieces in _pieces_of_samples(shards, field):
                    values.write(pieces[column.part])
                size_bytes = values.tell()
                values.seek(0)
                value_chunks = iter(partial(values.read, _CHUNK_BYTES), b"")
                digest = write_column(file, column, value_chunks, size_bytes, samples)
                _check_rebuilt(file_name, field.files[name], digest)


def _check_rebuilt(name: str, expected: str, actual: str) -> None:
    """Raises PackError if a file that was made from the shards is not the one that was packed."""
    if actual != expected:
        raise PackError(
            f"the shards give a different {name}: expected hash {expected}, got {actual}. Run "
            "fastpipe verify with --repair and without --quick, which also repairs damaged shards, "
            f"or {_ANEW}"
        )


def _pieces_of_samples(
    shards: Sequence[ShardFacts], field: Field
) -> Iterator[dict[str, bytes]]:
    """What each sample adds to the columns of a field, by the column's part."""
    # KEY.json has the names of classes, and the columns have their numbers.
    label_by_name = {}
    if field.kind == "classes":
        label_by_name = {name: label for label, name in enumerate(field.names)}
    for shard in shards:
        with open_samples(shard, f"field {field.name}") as samples:
            for members, read in samples:
                _, _, note, *field_members = members
                offsets: list[int] = []
                pictures: list[bytes] = []
                for field_member in field_members:
                    if field_member.ending in member_endings(field, len(offsets)):
                        offset = field_member.offset
                        offsets.append(offset)
                        pictures.append(read(offset, field_member.size))
                stored = Stored(members=tuple(pictures))
                if not pictures and field.kind != "images":
                    # The sample has no member of the field. Its value is in KEY.json, or it has
                    # none.
                    values = json.loads(read(note.offset, note.size))
                    value = values.get(field.name)
                    if label_by_name and value:
                        value = [label_by_name[name] for name in value]
                    stored = Stored(value)
                yield piece(field.kind, stored, offsets)
