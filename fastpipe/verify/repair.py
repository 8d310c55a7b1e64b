"""A damaged dataset and its source -> the same dataset, intact: damaged shards made again, with the same bytes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.format.description import file_hash, read_info
from fastpipe.format.fields import FIELDS_FOLDER, JPEG, PNG, Field, member, read_fields, sidecars
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, SOURCES_FILE, shard_number, version_folder
from fastpipe.format.sample_layout import Stored, key_hash
from fastpipe.packing.fields.stored import columns, piece
from fastpipe.packing.growth.fit import relabelled
from fastpipe.packing.growth.version import packed_options, packs_of
from fastpipe.packing.job.destination import check_apart, disk_errors
from fastpipe.packing.job.progress import PackProgress, Progress
from fastpipe.packing.job.repack import Repack
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.npy import write_column, write_npy
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.sources.files import SourcePath
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.options import recorded_options
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.tables import TableListing
from fastpipe.store.files import publish
from fastpipe.store.store import Folder, Store
from fastpipe.verify.check_sample import opened, records_of
from fastpipe.verify.damage import Report
from fastpipe.verify.shard_facts import ShardFacts, describe

_ANEW = "pack it again: fastpipe pack SRC DST --overwrite"
_CHUNK_BYTES = 1 << 20


def repair(
    path: Path,
    source: SourcePath,
    report: Report,
    *,
    image_root: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on_progress: Progress = lambda _: None,
) -> list[str]:
    """Makes the damaged shards again, and puts a damaged index and damaged sidecars together from the shards; gives
    the names of these files. The other arguments are as of the pack.

    Nothing takes the place of a damaged file but one of exactly the hash that dataset.json has. PackError: dataset.json
    is damaged, the source is not what was packed, or it gives other bytes now. ConfigError: as of `check_apart`.
    """
    check_apart(source, path)
    said = describe(path)
    damaged = {found.file for found in report.findings}
    if DATASET_FILE in damaged or said.info is None:
        raise PackError(
            f"{path / DATASET_FILE} is damaged, and only this file defines the correct content of the "
            f"other files; {_ANEW}"
        )
    info, at = said.info, version_folder(said.info["version"])
    damaged = {name.removeprefix(at) for name in damaged}
    shards = [shard for shard in said.shards if shard.name in damaged]
    broken = sorted(name for name in damaged if name.startswith(f"{FIELDS_FOLDER}/"))
    if (INDEX_FILE in damaged or broken) and any(shard.removed for shard in said.shards):
        raise PackError(
            f"{path / at}: index.npy and columns cannot be made again, for the shards do not say which samples were "
            f"removed. Version {info['version'] - 1} may be whole: fastpipe.open({str(path)!r}, "
            f"version={info['version'] - 1})"
        )
    if SOURCES_FILE in damaged:
        raise PackError(
            f"{path / at / SOURCES_FILE} cannot be made again. Only fastpipe add and remove need it, and no loader; if "
            f"you need these, {_ANEW}"
        )
    with disk_errors(path), Journal(Folder(path)) as journal:
        if journal.plan() is not None:
            raise PackError(
                f"{path} holds an unfinished pack or add; run the same command again to finish it, then repair"
            )
        refused: PackError | None = None
        made_by = list(zip(packs_of(info, (shard.name for shard in shards)), shards, strict=True))
        for pack in info["packs"]:
            if not (ours := [shard for maker, shard in made_by if maker is pack]):
                continue
            how = recorded_options(pack["options"]["source"], None if image_root is None else os.fspath(image_root))
            options = replace(packed_options(pack["options"], how), workers=workers)
            try:
                listing = _listed(path, info, pack, source, options)
            except PackError as problem:
                refused = refused or problem
                continue
            _remake_shards(path, journal, ours, Repack(info, pack, listing, options), on_progress)
        if refused is not None:
            raise refused
        _rebuild(journal.store, said.shards, info, damaged)
    return [shard.name for shard in shards] + [at + name for name in [INDEX_FILE] * (INDEX_FILE in damaged) + broken]


def _listed(
    path: Path, info: dict[str, Any], pack: dict[str, Any], source: SourcePath, options: PackOptions
) -> Listing:
    """The sources of a pack, as they were listed. PackError: they are not in this source."""
    if "made_by" in pack["source"]:
        raise PackError(
            f"{path} was written by {pack['source']['made_by']}, so its shards cannot be packed again from a "
            "folder; run the program that wrote it again, into a new folder. index.npy and the files in "
            f"{FIELDS_FOLDER} can be repaired if all shards are intact"
        )
    now = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
    for listing in chain([now], _parts(path, pack, now)):  # it looks at parts only where `now` does not fit
        if listing.digest() == pack["source"]["xxh3_128"]:
            return listing
    raise PackError(
        f"{now.root} differs from the source of {path}: {_difference(info, pack, now)}. "
        f"{'If the pack had an --image-root, pass it here, too. ' if now.notes is not None else ''}"
        f"Restore the source, or {_ANEW}"
    )


def _parts(path: Path, pack: dict[str, Any], listing: Listing) -> Iterator[Listing]:
    """What a later pack may have added of a source: the rest was in the dataset before."""
    if pack["version"] == 1:
        return
    then = read_info(path, version=pack["version"])
    listing = relabelled(listing, then["classes"])
    for version in (pack["version"], pack["version"] - 1):  # one of the two indexes may be damaged
        try:
            index = Index(path, version=version)
        except DatasetError:
            continue
        after = version == pack["version"]
        ours = [not after or shard_number(shard.name) >= pack["plan"]["base"] for shard in index.shards]
        keys = set(index.records["key"][np.repeat(ours, [shard.samples for shard in index.shards])].tolist())
        if after and index.counts["rejected"]:
            keys |= {key_hash(entry["path"]) for entry in read_rejected(path, version)}
        taken = [each for each in listing.sources if (key_hash(readable(each.path)) in keys) is after]
        yield replace(listing, classes=then["classes"], sources=taken)


def _difference(info: dict[str, Any], pack: dict[str, Any], listing: Listing) -> str:
    """What can be said of two sources that differ."""
    files, size = len(listing.sources), listing.size_bytes
    words = [f"no class {readable(name)!r} now" for name in info["classes"] if name not in listing.classes][:5]
    words += [f"class {readable(name)!r} is new" for name in listing.classes if name not in info["classes"]][:5]
    if files != pack["source"]["files"]:
        words.append(f"{pack['source']['files']:,} files then, {files:,} now")
    if size != pack["source"]["bytes"] and not isinstance(listing, TableListing):  # a table's are not only images
        words.append(f"{pack['source']['bytes']:,} bytes then, {size:,} now")
    return "; ".join(words) or "the same number of files and bytes, but a path or the size of a file is different"


def _remake_shards(
    path: Path, journal: Journal, shards: Sequence[ShardFacts], again: Repack, on_progress: Progress
) -> None:
    """Makes shards again; each takes the damaged one's place if it is the one that was packed."""
    listing = again.listing
    wanted = {shard.name: shard for shard in shards}
    for shard in shards:
        with suppress(OSError):
            if file_hash(shard.path) == shard.xxh3_64:
                raise PackError(f"{shard.name} is unchanged, so packing it again repairs nothing; {_ANEW}")
    ours = [(run, names) for run, names in again.runs(wanted) if names]
    files = sum(run.stop - run.start for run, _ in ours)
    total = sum(source.size_bytes for run, _ in ours for source in listing.sources[run.start : run.stop])
    total = total or listing.size_bytes * files // len(listing.sources)
    rejected = {entry["path"] for entry in read_rejected(path, again.info["version"])}
    done = done_bytes = 0

    def told(source: Source, outcome: Packed | str) -> None:
        nonlocal done, done_bytes
        if isinstance(outcome, str) and readable(source.path) not in rejected:
            name = readable(str(listing.root / source.path))
            raise PackError(
                f"{name} could be packed before, but now it cannot: {outcome}. Restore the file, or {_ANEW}"
            )
        done, done_bytes = done + 1, done_bytes + source.size_bytes
        on_progress(PackProgress(done, files, done_bytes, total, 0))

    for run, names in ours:
        with again.remade(run, journal.store.scratch, told) as (folder, tars):
            for shard in (wanted[name] for name in sorted(names)):
                tar = tars.get(shard.name)
                if tar is None or (tar.size_bytes, tar.xxh3_64) != (shard.size_bytes, shard.xxh3_64):
                    got = "no such shard" if tar is None else f"got {tar.xxh3_64}"
                    raise PackError(
                        f"{shard.name} cannot be restored: expected hash {shard.xxh3_64}, {got}. Either a source file "
                        "has changed but kept its size, or the dataset was packed with another version of fastpipe, "
                        f"libjpeg-turbo, Pillow, OpenCV or zlib. The shard stays as it is; {_ANEW}"
                    )
                publish(folder / shard.name, shard.path)


def _rebuild(store: Store, shards: Sequence[ShardFacts], info: dict[str, Any], damaged: Collection[str]) -> None:
    """Writes index.npy and the sidecars that are damaged, in the version's folder, from what the shards hold."""
    samples, at = sum(shard.samples for shard in shards), version_folder(info["version"])
    if INDEX_FILE in damaged:
        with store.whole(f"{at}{INDEX_FILE}") as file:
            _, found = write_npy(file, INDEX_DTYPE, samples, (records_of(shard).tobytes() for shard in shards))
            _refuse_other(INDEX_FILE, info["index"]["file_xxh3_64"], found)
    for field in read_fields(info).values():
        for name, column in zip(sidecars(field), columns(field), strict=True):
            file_name = f"{FIELDS_FOLDER}/{name}"
            if file_name not in damaged:
                continue
            with tempfile.TemporaryFile(dir=store.scratch) as kept, store.whole(f"{at}{file_name}") as file:
                for value in _pieces(shards, field):
                    kept.write(value[column.part])
                size_bytes = kept.tell()
                kept.seek(0)
                found = write_column(file, column, iter(lambda: kept.read(_CHUNK_BYTES), b""), size_bytes, samples)
                _refuse_other(file_name, field.files[name], found)


def _refuse_other(name: str, expected: str, found: str) -> None:
    """PackError: a file that was made from the shards is not the one that was packed."""
    if found != expected:
        raise PackError(
            f"the shards give a different {name}: expected hash {expected}, got {found}. Run fastpipe verify with "
            f"--repair and without --quick, which also repairs damaged shards, or {_ANEW}"
        )


def _pieces(shards: Sequence[ShardFacts], field: Field) -> Iterator[dict[str, bytes]]:
    """What each sample adds to the columns of a field."""
    endings = {member(field, JPEG), member(field, PNG)}
    numbers = {name: number for number, name in enumerate(field.names)} if field.kind == "classes" else {}
    for shard in shards:
        with opened(shard, f"field {field.name}") as samples:
            for (_, _, note, *members), read in samples:
                found = next((each for each in members if each.ending in endings), None)
                if found is not None:
                    value = Stored(member=read(found.offset, found.size))
                else:
                    told = json.loads(read(note.offset, note.size)).get(field.name)
                    value = Stored([numbers[each] for each in told] if numbers and told else told)
                yield piece(field.kind, value, found.offset if found else 0)
