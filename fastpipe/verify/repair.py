"""A damaged dataset and its source -> the same dataset, intact: damaged shards packed again, with the same bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.pictures import size_of
from fastpipe.errors import PackError, readable
from fastpipe.format.fields import FIELDS_FOLDER, read_fields
from fastpipe.format.intact import file_hash
from fastpipe.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, REJECTED_FILE
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import named_in
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.job import PackProgress
from fastpipe.packing.options import PackOptions
from fastpipe.packing.output.destination import check_apart
from fastpipe.packing.output.files import cannot_write, publish, whole_file
from fastpipe.packing.output.journal import SPOOL_FOLDER, Journal
from fastpipe.packing.output.publish import index_head
from fastpipe.packing.output.shard_writer import FinishedShard, ShardWriter
from fastpipe.packing.picture.convert import EncodeOptions
from fastpipe.packing.shard_series import disk_errors
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import list_sources
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.source.options import recorded_options
from fastpipe.packing.source.tables import TableListing
from fastpipe.packing.spooled import in_order
from fastpipe.verify.damage import Report
from fastpipe.verify.rebuild_sidecars import rebuild_sidecars
from fastpipe.verify.shard_facts import ShardFacts, describe
from fastpipe.verify.tar_members import sample_members

_OPTIONAL = {"fields", "source"}  # that dataset.json names only where there is something to say
_ANEW = "pack it again: fastpipe pack SRC DST --overwrite"


def repair(
    path: Path,
    source: SourcePath,
    report: Report,
    *,
    image_root: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on_progress: Callable[[PackProgress], None] = lambda _: None,
) -> list[str]:
    """Packs the damaged shards again, and puts a damaged index and damaged sidecars together from the shards.

    Nothing takes the place of a damaged file but one of exactly the hash that dataset.json has.

    Args:
        path: the dataset's folder.
        source: what it was packed from, as it was.
        image_root: the folder that paths of images are relative to, if the pack was told one.
        report: of the dataset.
        workers: threads; None: the CPUs granted to this process.
        on_progress: called now and then, in this thread.

    Returns:
        The names of the files that were made anew.

    Raises:
        PackError: dataset.json is damaged, the source is not what was packed, or it gives other bytes now.
        ConfigError: the source lies in the dataset or the other way round.
    """
    check_apart(source, path)
    said = describe(path)
    damaged = {found.file for found in report.findings}
    if DATASET_FILE in damaged or said.info is None:
        raise PackError(
            f"{path / DATASET_FILE} is damaged, and only this file defines the correct content of the "
            f"other files; {_ANEW}"
        )
    shards = [shard for shard in said.shards if shard.name in damaged]
    sidecars = sorted(name for name in damaged if name.startswith(f"{FIELDS_FOLDER}/"))
    fields = read_fields(said.info)
    options = _options(path, said.info, image_root)
    threads = workers or granted_cpus()
    with Journal(path) as journal:
        if journal.read_plan() is not None:
            raise PackError(
                f"{path} holds an unfinished pack; run the same fastpipe pack command again to finish it, then repair"
            )
        if shards:
            how, shuffle = options.source, options.shuffle
            listing = list_sources(source, options.seed, shuffle=shuffle, how=how)
            sources = _packed_sources(path, said.info, listing)
            agreement = Agreement.of(fields.values())
            for shard in shards:
                _repack(journal, shard, listing, sources, agreement, options, threads, on_progress)
        journal.clear()  # the spool, if there was one
        if INDEX_FILE in damaged:
            _rebuild_index(journal, said.shards, said.info)
        if sidecars:
            with disk_errors(path / FIELDS_FOLDER, "write"):
                rebuild_sidecars(journal, said.shards, fields, sidecars)
    return [shard.name for shard in shards] + [INDEX_FILE] * (INDEX_FILE in damaged) + sidecars


def _options(path: Path, info: dict[str, Any], image_root: str | os.PathLike[str] | None) -> PackOptions:
    """The options that the dataset was packed with."""
    said = info.get("pack")
    ours = PackOptions().shaping()
    if not isinstance(said, dict) or said.keys() - _OPTIONAL != ours.keys() - _OPTIONAL:
        raise PackError(
            f"{path} was packed by another version of fastpipe, with other options ({said!r}); repair it "
            "with that version"
        )
    encode = EncodeOptions(**{field.name: said[field.name] for field in fields_of(EncodeOptions) if field.name in said})
    given = {name: said[name] for name in ("shard_size", "seed", "shuffle")}
    how = recorded_options(said.get("source", {}), None if image_root is None else os.fspath(image_root))
    return PackOptions(encode, source=how, **given)


def _packed_sources(path: Path, info: dict[str, Any], listing: Listing) -> list[Source]:
    """The source of each sample, in order."""
    if listing.digest() != info["source"]["xxh3_128"]:
        if "made_by" in info["source"]:
            raise PackError(
                f"{path} was written by {info['source']['made_by']}, so its shards cannot be packed again from a "
                "folder; run the program that wrote it again, into a new folder. index.npy and the files in "
                f"{FIELDS_FOLDER} can be repaired if all shards are intact"
            )
        raise PackError(
            f"{listing.root} differs from the source of {path}: {_difference(info, listing)}. "
            f"{'If the pack had an --image-root, pass it here, too. ' if listing.notes is not None else ''}"
            f"Restore the source, or {_ANEW}"
        )
    try:
        lines = (path / REJECTED_FILE).read_bytes().splitlines() if info["counts"]["rejected"] else []
        rejected = {json.loads(line)["path"] for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise PackError(
            f"{path / REJECTED_FILE}, the list of files that were not packed, cannot be read ({problem}); {_ANEW}"
        ) from problem
    sources = [source for source in listing.sources if readable(source.path) not in rejected]
    if len(sources) != info["samples"]:
        raise PackError(
            f"{path / REJECTED_FILE} does not belong to this dataset: of {len(listing.sources):,} files it names "
            f"{len(rejected):,}; {len(sources):,} remain, expected {info['samples']:,}; {_ANEW}"
        )
    return sources


def _difference(info: dict[str, Any], listing: Listing) -> str:
    """What can be said of two sources that differ."""
    files, size = len(listing.sources), listing.size_bytes
    words = [f"no class {readable(name)!r} now" for name in info["classes"] if name not in listing.classes][:5]
    words += [f"class {readable(name)!r} is new" for name in listing.classes if name not in info["classes"]][:5]
    if files != info["source"]["files"]:
        words.append(f"{info['source']['files']:,} files then, {files:,} now")
    if size != info["source"]["bytes"] and not isinstance(listing, TableListing):  # a table's are not only images
        words.append(f"{info['source']['bytes']:,} bytes then, {size:,} now")
    return "; ".join(words) or "the same number of files and bytes, but a path or the size of a file is different"


def _repack(
    journal: Journal,
    shard: ShardFacts,
    listing: Listing,
    sources: list[Source],
    agreement: Agreement,
    options: PackOptions,
    threads: int,
    on_progress: Callable[[PackProgress], None],
) -> None:
    """Packs one shard; it takes the damaged one's place if it is the one that was packed."""
    if _is_as_packed(shard):
        raise PackError(f"{shard.name} is unchanged, so packing it again repairs nothing; {_ANEW}")
    ours = sources[shard.first_sample : shard.first_sample + shard.samples]
    total = sum(source.size_bytes for source in ours) or listing.size_bytes * len(ours) // len(listing.sources)
    done = 0
    finished: FinishedShard | None = None
    try:
        file = journal.folder / shard.name
        place = shard.number, shard.first_sample, options.shard_size
        writer = ShardWriter(file, *place, agreement.kinds, with_parts=False)
        try:
            with closing(in_order(listing, ours, options, threads, journal.folder / SPOOL_FOLDER)) as pictures:
                for position, source, packed in pictures:
                    if isinstance(packed, str):
                        name = readable(str(listing.root / source.path))
                        raise PackError(
                            f"{name} could be packed before, but now it cannot: {packed}. Restore the file, or {_ANEW}"
                        )
                    if packed.values:
                        packed = replace(packed, values=tuple(agreement.admit(packed.values)))
                    if not writer.add(packed, source.label, source.path):
                        raise PackError(_other(shard, f"{readable(source.path)} no longer fits into it"))
                    done += source.size_bytes
                    on_progress(PackProgress(position + 1, len(ours), done, total, 0))
            finished = writer.finish()
        finally:
            if finished is None:
                writer.discard()
        if (finished.size_bytes, finished.xxh3_64) != (shard.size_bytes, shard.xxh3_64):
            finished.file.unlink()
            raise PackError(_other(shard, f"expected hash {shard.xxh3_64}, got {finished.xxh3_64}"))
        publish(finished.file, shard.path)
    except OSError as problem:
        raise cannot_write(shard.path, problem) from problem


def _is_as_packed(shard: ShardFacts) -> bool:
    try:
        return file_hash(shard.path) == shard.xxh3_64
    except OSError:
        return False


def _other(shard: ShardFacts, what: str) -> str:
    return (
        f"{shard.name} cannot be restored: {what}. Either a source file has changed but kept its size, or the dataset "
        "was packed with another version of fastpipe, libjpeg-turbo, Pillow or OpenCV. The shard stays unchanged; "
        f"{_ANEW}"
    )


def _rebuild_index(journal: Journal, shards: list[ShardFacts], info: dict[str, Any]) -> None:
    """Writes index.npy from what the shards hold."""
    head = index_head(sum(shard.samples for shard in shards))
    records, whole = xxhash.xxh3_64(), xxhash.xxh3_64(head)
    with whole_file(journal.destination / INDEX_FILE, journal.folder) as file:
        file.write(head)
        for shard in shards:
            data = records_of(shard).tobytes()
            records.update(data)
            whole.update(data)
            file.write(data)
        expected = info["index"]["xxh3_64"]
        if records.hexdigest() != expected:
            raise PackError(
                f"the shards give a different index: expected hash {expected}, got {records.hexdigest()}. Run "
                f"fastpipe verify with --repair and without --quick, which also repairs damaged shards, or {_ANEW}"
            )
        if whole.hexdigest() != info["index"]["file_xxh3_64"]:
            raise PackError(
                f"this version of numpy writes a different header of {INDEX_FILE} than the version that "
                f"packed it; {_ANEW}"
            )


def records_of(shard: ShardFacts) -> NDArray[np.void]:
    """(samples,) of INDEX_DTYPE: the records that pack wrote.

    Raises:
        PackError: the shard is damaged.
    """
    damaged = (
        f"{shard.name} is damaged, so the index cannot be rebuilt from it; run fastpipe verify with --repair and "
        "without --quick"
    )
    records: list[tuple[int, ...]] = []
    try:
        with open(shard.path, "rb", buffering=0) as file:
            for members in sample_members(shard, file):
                digits, jpeg, note = (read_at(file.fileno(), each.size, each.offset) for each in members[:3])
                known = *size_of(jpeg), int(digits), xxhash.xxh3_64_intdigest(jpeg), *named_in(note)
                records.append((shard.number, members[1].offset, len(jpeg), *known))
    except (OSError, ValueError) as problem:
        raise PackError(f"{damaged} ({problem})") from problem
    return np.array(records, dtype=INDEX_DTYPE)
