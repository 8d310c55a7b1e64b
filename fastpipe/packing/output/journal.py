"""The finished parts of a pack -> files in DST/.pack, so an interrupted pack continues where it stopped.

Note [publishing]
A shard is written under a temporary name and synced; then its parts of the fields' columns, its records and its entry
in the journal; then it gets its final name. index.npy, the sidecars of fields, rejected.jsonl and dataset.json follow
in that order when all shards are there. So a final name never holds an unfinished file, a shard without an entry is
made again, and a folder without dataset.json is unfinished.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.description import damage
from fastpipe.format.fields import is_name
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, REJECTED_FILE, shard_name
from fastpipe.packing.output.files import publish, sync_folder, whole_file
from fastpipe.packing.output.lock import LOCK_FILE, WorkFolder
from fastpipe.packing.output.shard_writer import FinishedShard
from fastpipe.packing.output.sidecars import remove_sidecars
from fastpipe.packing.picture.convert import Packed

PLAN_FILE = "plan.json"
REPLACED_FILE = "replaced.json"
SPOOL_FOLDER = "spool"  # its files know themselves what they are of


@dataclass
class Tally:
    """What became of a run of sources.

    Attributes:
        source_bytes: of all files read.
        packed_bytes: of the images written.
        jpeg_bytes: of these as JPEGs.
        changes: pictures that were encoded anew, by reason.
        oriented: pictures whose source carries an EXIF orientation other than upright.
        stray_bytes: pictures whose source had bytes that belong to no segment.
        multi_frame: pictures whose source has more frames, of which the first was packed.
        rejected: (path, reason) of files that were not packed.
    """

    source_bytes: int = 0
    packed_bytes: int = 0
    jpeg_bytes: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    oriented: int = 0
    stray_bytes: int = 0
    multi_frame: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)

    def count(self, packed: Packed) -> None:
        """Adds one picture."""
        self.packed_bytes += len(packed.jpeg)
        self.jpeg_bytes += packed.jpeg_bytes
        if packed.change is not None:
            self.changes[packed.change] = self.changes.get(packed.change, 0) + 1
        self.oriented += packed.oriented
        self.stray_bytes += packed.stray_bytes
        self.multi_frame += packed.multi_frame

    def add(self, other: Tally) -> None:
        """Adds another run's."""
        self.source_bytes += other.source_bytes
        self.packed_bytes += other.packed_bytes
        self.jpeg_bytes += other.jpeg_bytes
        for change, count in other.changes.items():
            self.changes[change] = self.changes.get(change, 0) + count
        self.oriented += other.oriented
        self.stray_bytes += other.stray_bytes
        self.multi_frame += other.multi_frame
        self.rejected.extend(other.rejected)


@dataclass(frozen=True)
class ShardEntry:
    """A shard that is done.

    Attributes:
        name: its file.
        samples, size_bytes, xxh3_64: of the file.
        next_source: position in the packing order of the first source after it.
        sources: `Listing.digest_with_times` of its sources, and of the one after it, for another might have fit.
        tally: of the sources up to there since the shard before.
        parts: the files with the values of its fields, and their sizes in bytes.
        agreed: `Agreement.state` after it.
    """

    name: str
    samples: int
    size_bytes: int
    xxh3_64: str
    next_source: int
    sources: str
    tally: Tally
    parts: dict[str, int] = field(default_factory=dict)
    agreed: dict[str, Any] = field(default_factory=dict)


def entry_name(number: int) -> str:
    """The file of the journal that says that a shard is finished."""
    return f"shard-{number:06d}.json"


class Journal:
    """The work folder of one pack, locked while the pack runs.

    Args:
        destination: the dataset's folder; made if it is not there.
        shown: the dataset in messages; None: its folder.

    Attributes:
        destination, shown: as given.
        folder: the work folder.
        uploaded_bytes: where the dataset is in a bucket.
    """

    def __init__(self, destination: Path, shown: Url | None = None) -> None:
        self.destination = destination
        self.shown: Place = shown or destination
        self._work = WorkFolder(destination, self.shown)
        self.folder = self._work.path
        self.uploaded_bytes = 0

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of the lock, and removes the work folder if there is no work in it."""
        self._work.release()

    def read_plan(self) -> dict[str, Any] | None:
        """What the interrupted pack was about; None if there was none."""
        try:
            plan = json.loads((self.folder / PLAN_FILE).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        return plan if isinstance(plan, dict) else None

    def begin(self, plan: dict[str, Any], keep: int = 0) -> None:
        """Begins a pack; of an earlier one's work the first `keep` shards stay, and the rest is removed.

        A finished dataset stays until there is a new shard. The plan is replaced last: whatever happens before, the
        folder can be told as a pack's. A shard goes before its entry, or else nobody would know it for a pack's.
        """
        if (self.folder / REPLACED_FILE).exists():
            self.make_way()
        kept = {file.name for number in range(keep) for file in (self._entry_file(number), self._records_file(number))}
        kept |= {name for shard in self.finished()[:keep] for name in shard.parts}
        if not (self.destination / DATASET_FILE).exists():
            remove_sidecars(self.destination, _field_names((self.read_plan() or {}).get("options")))
        for entry in self.folder.glob("shard-*.json"):
            if entry.name not in kept and not (self.destination / DATASET_FILE).exists():
                (self.destination / f"{entry.stem}.tar").unlink(missing_ok=True)
        self._clear(kept | {LOCK_FILE, PLAN_FILE, SPOOL_FOLDER})
        with whole_file(self.folder / PLAN_FILE, self.folder) as file:
            file.write(json.dumps(plan, sort_keys=True).encode())

    def finished(self) -> list[ShardEntry]:
        """The unbroken run of shards that are done, from number 0."""
        entries: list[ShardEntry] = []
        while (entry := self.entry(len(entries))) is not None:
            entries.append(entry)
        return entries

    def publish_shard(
        self, number: int, shard: FinishedShard, next_source: int, sources: str, tally: Tally, agreed: dict[str, Any]
    ) -> ShardEntry:
        """Records a shard and gives it its final name. Note [publishing]"""
        self.make_way()  # before the entry: else the old shard of that name could pass for the new one
        samples, name = len(shard.records), shard_name(number)
        facts = samples, shard.size_bytes, shard.xxh3_64
        entry = ShardEntry(name, *facts, next_source, sources, tally, shard.parts, agreed)
        records = io.BytesIO()  # given a file, numpy writes past Python and does not tell what the disk refuses last
        np.save(records, shard.records, allow_pickle=False)
        with whole_file(self._records_file(number), self.folder) as file:
            file.write(records.getbuffer())
        with whole_file(self._entry_file(number), self.folder) as file:
            file.write(json.dumps(asdict(entry)).encode())
        publish(shard.file, self.destination / entry.name)
        return entry

    def take_stock(self) -> None:
        """Finds out what workers of a cluster have finished; in a folder it is there to see."""

    def records(self, shards: int) -> Iterator[NDArray[np.void]]:
        """The index records of each shard, in order."""
        for number in range(shards):
            yield np.load(self._records_file(number), allow_pickle=False)

    def commit(self, state: str, on_upload: Callable[[], None] = lambda: None) -> None:
        """Ends the pack: the dataset is whole.

        Args:
            state: names the state of the sources.
            on_upload: called now and then while it is uploaded.
        """
        self.clear()

    def recorded_state(self) -> str | None:
        """The state of the sources that the dataset was packed from; None: the times of files tell what is newer."""
        return None

    def damage(self, index: Index) -> str | None:
        """Shards of the dataset that are gone or of another size."""
        return damage(index)

    def check_room(self, shard_size: int, source_bytes: int) -> None:
        """Looks whether there is room; in a folder, the disk says it when it is full."""

    def clear(self) -> None:
        """Empties the work folder, but for the lock."""
        self._clear({LOCK_FILE})

    def _clear(self, but: set[str]) -> None:
        for file in self.folder.iterdir():
            if file.name == SPOOL_FOLDER not in but and not file.is_symlink():
                shutil.rmtree(file)
            elif file.name not in but:
                file.unlink()

    def make_way(self) -> None:
        """Removes the dataset that this pack replaces, if there is one: the files that its dataset.json names.

        dataset.json is moved away first, so the folder is unfinished from then on; after a stop in between, the
        next shard goes on with the removal.
        """
        current, moved = self.destination / DATASET_FILE, self.folder / REPLACED_FILE
        if current.exists():
            os.replace(current, moved)
            sync_folder(self.folder)
            sync_folder(self.destination)
        if not moved.exists():
            return
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            info = json.loads(moved.read_bytes())
            for shard in info["shards"]:
                if re.fullmatch(r"shard-\d{6,}\.tar", shard["name"]):
                    (self.destination / shard["name"]).unlink(missing_ok=True)
            remove_sidecars(self.destination, _field_names(info))
        for name in (INDEX_FILE, REJECTED_FILE):
            (self.destination / name).unlink(missing_ok=True)
        moved.unlink()

    def _size_of(self, name: str) -> int:
        """Of a file of the dataset; raises OSError."""
        return os.stat(self.destination / name).st_size

    def _entry_file(self, number: int) -> Path:
        return self.folder / entry_name(number)

    def _records_file(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}.npy"

    def entry(self, number: int) -> ShardEntry | None:
        """The shard of this number, if it is done: workers of a cluster finish them in any order."""
        try:
            saved = json.loads(self._entry_file(number).read_bytes())
            records = np.load(self._records_file(number), allow_pickle=False, mmap_mode="r")
            tally = saved.pop("tally")
            tally["rejected"] = [(path, reason) for path, reason in tally["rejected"]]
            entry = ShardEntry(**saved, tally=Tally(**tally))
            known = entry.name == shard_name(number) and records.dtype == INDEX_DTYPE
            whole = known and self._size_of(entry.name) == entry.size_bytes
            whole &= all((self.folder / name).stat().st_size == size for name, size in entry.parts.items())
            return entry if whole and len(records) == entry.samples else None
        except Exception:  # whatever is wrong with these files, the shard is made again
            return None


def _field_names(described: object) -> list[str]:
    """The names of fields in a dataset.json or in a plan's options: in doubt anything."""
    fields = described.get("fields") if isinstance(described, dict) else None
    return [name for name in fields if is_name(name)] if isinstance(fields, dict) else []
