"""Intact shards -> the sidecar files of their fields, only from the members."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence

from fastpipe.errors import PackError
from fastpipe.format.fields import FIELDS_FOLDER, JPEG, PNG, Field, member, sidecars
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.columns import columns, piece
from fastpipe.packing.shard.publish import write_column
from fastpipe.store.store import Store
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.tar_members import opened

_CHUNK_BYTES = 1 << 20


def rebuild_sidecars(
    store: Store, shards: Sequence[ShardFacts], fields: Mapping[str, Field], damaged: Collection[str], at: str = ""
) -> None:
    """Writes the damaged sidecars from what the shards hold.

    Args:
        store: of the dataset, locked.
        shards: all.
        fields: of the dataset.
        damaged: paths of the files in the version's folder.
        at: that folder.

    Raises:
        PackError: a shard is damaged, or the shards give a file of another hash than dataset.json has.
    """
    samples = sum(shard.samples for shard in shards)
    for field in fields.values():
        for name, column in zip(sidecars(field), columns(field), strict=True):
            if f"{FIELDS_FOLDER}/{name}" not in damaged:
                continue
            with tempfile.TemporaryFile(dir=store.scratch) as kept, store.whole(f"{at}{FIELDS_FOLDER}/{name}") as file:
                for value in _pieces(shards, field):
                    kept.write(value[column.part])
                size_bytes = kept.tell()
                kept.seek(0)
                found = write_column(file, column, iter(lambda: kept.read(_CHUNK_BYTES), b""), size_bytes, samples)
                if found != field.files[name]:
                    raise PackError(
                        f"the shards give a different {FIELDS_FOLDER}/{name}: expected hash {field.files[name]}, got "
                        f"{found}. Run fastpipe verify with --repair and without --quick, which also repairs damaged "
                        "shards, or pack it again: fastpipe pack SRC DST --overwrite"
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
