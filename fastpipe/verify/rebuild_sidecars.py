"""Intact shards -> the sidecar files of their fields, only from the members."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fastpipe.errors import ImageError, PackError
from fastpipe.format.fields import FIELDS_FOLDER, JPEG, PNG, Field, member, sidecars
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.columns import Column, columns
from fastpipe.packing.output.files import sync_folder, whole_file
from fastpipe.packing.output.journal import Journal
from fastpipe.packing.output.sidecars import Parts, part_file, write_column
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.tar_members import sample_members


def rebuild_sidecars(
    journal: Journal, shards: Sequence[ShardFacts], fields: Mapping[str, Field], damaged: Collection[str]
) -> None:
    """Writes the damaged sidecars from what the shards hold.

    Args:
        journal: of the dataset, locked.
        shards: all.
        fields: of the dataset.
        damaged: paths of the files in the dataset's folder.

    Raises:
        PackError: a shard is damaged, or the shards give a file of another hash than dataset.json has.
    """
    folder = journal.destination / FIELDS_FOLDER
    folder.mkdir(exist_ok=True)
    sync_folder(journal.destination)
    samples = sum(shard.samples for shard in shards)
    for field in fields.values():
        files = {name: f"{FIELDS_FOLDER}/{name}" in damaged for name in sidecars(field)}
        made: list[Path] = []
        try:
            for shard in shards if any(files.values()) else ():
                made += _parts_of(journal, shard, field)
            for (name, wanted), column in zip(files.items(), columns(field), strict=True):
                parts = [part_file(journal.folder, shard.number, field.name, column.part) for shard in shards]
                if wanted:
                    _write(folder / name, journal.folder, field.files[name], column, parts, samples)
        finally:
            for part in made:
                part.unlink(missing_ok=True)


def _parts_of(journal: Journal, shard: ShardFacts, field: Field) -> list[Path]:
    """Writes the parts of one field and shard; returns their files."""
    parts = Parts(journal.folder, shard.number, {field.name: field.kind})
    endings = {member(field, JPEG), member(field, PNG)}
    try:
        with open(shard.path, "rb", buffering=0) as file:
            for _, _, note, *members in sample_members(shard, file):
                found = next((each for each in members if each.ending in endings), None)
                if found is not None:
                    value = Stored(member=read_at(file.fileno(), found.size, found.offset))
                else:
                    value = Stored(json.loads(read_at(file.fileno(), note.size, note.offset)).get(field.name))
                parts.add([value], [found.offset if found else 0])
        return [journal.folder / name for name in parts.finish()]
    except (ImageError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:
        raise PackError(
            f"{shard.name} is damaged, so field {field.name} cannot be rebuilt from it ({problem}); run fastpipe "
            "verify with --repair and without --quick"
        ) from problem
    finally:
        parts.discard()


def _write(final: Path, work: Path, expected: str, column: Column, parts: Sequence[Path], samples: int) -> None:
    with whole_file(final, work) as file:
        found = write_column(file, column, parts, samples)
        if found != expected:
            raise PackError(
                f"the shards give a different {FIELDS_FOLDER}/{final.name}: expected hash {expected}, got {found}. Run "
                "fastpipe verify with --repair and without --quick, which also repairs damaged shards, or pack it "
                "again: fastpipe pack SRC DST --overwrite"
            )
