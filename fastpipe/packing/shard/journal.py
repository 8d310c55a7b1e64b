"""The journal of a pack: its plan, and an entry for each finished shard, so that an interrupted
pack continues.

Note [publishing]
A shard is written under a temporary name and synced, and gets its final name. Then its entry
appears in DST/.pack; the name of the entry says in which state the shard's sources were. So a file
with a final name is never unfinished, and shards can be made in any order, by any worker, and
several times: the same sources give the same bytes. When all shards are finished, index.npy, the
columns of the fields, rejected.jsonl and, last, dataset.json follow. Then the work folder is
removed. A folder without dataset.json is unfinished.

A dataset that is replaced stays until the first new shard is finished. Then its dataset.json is
removed first, so that there is no moment at which old and new shards look like a dataset.

Note [one Writer at a time]
A bucket has no lock. Two packs of the same sources make the same shards, so they do no harm there.
But nobody knows which samples a `Writer` will get: two of them give other shards the same names,
and the one that ends last would replace the dataset of the other. So the plan of a Writer has a
number of its own. The Writer that begins last writes its number into the plan, as it may follow one
that was killed. A Writer that does not find its own number in the plan stops with an error: it
looks before each shard gets its name, and before it publishes. It never removes a dataset that has
appeared since it began.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    LOCK_FILE,
    REJECTED_FILE,
    SOURCES_FILE,
    WORK_FOLDER,
    shard_number,
)
from fastpipe.errors import PackError
from fastpipe.packing.shard.entry import Entry, read_entry
from fastpipe.packing.shard.tar import Tar
from fastpipe.store.files import PARTIAL, WorkFolder
from fastpipe.store.store import Store

PLAN_FILE = f"{WORK_FOLDER}/plan.json"
# The name of the folder, in the work folder, of converted rows and of lists of sources.
SPOOL_NAME = "spool"
SPOOL_FOLDER = f"{WORK_FOLDER}/{SPOOL_NAME}"
# The end of an error after which the shards that are finished can be used.
KEPT = ". What is packed stays"


class Journal:
    """The plan and the entries of one pack into a store, which is locked in a `with` block.

    PackError: the store refuses.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._work: WorkFolder | None = None
        # Of a Writer into a bucket: its plan.json, and the dataset.json that it replaces.
        # Note [one Writer at a time]
        self._plan_of_writer: bytes | None = None
        self._replaced_dataset: bytes | None = None

    def __enter__(self) -> Journal:
        self._work = WorkFolder(self.store.scratch, self.store.place)
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the lock, and removes the work folder if nothing is left in it."""
        assert self._work is not None  # __enter__ has run
        for partial_file in self.store.scratch.glob(f"*{PARTIAL}"):
            # An error here would hide the one that ended the block.
            with contextlib.suppress(OSError):
                partial_file.unlink()
        self._work.release()
        self.store.close()

    def description(self) -> dict[str, Any] | None:
        """The content of the dataset.json in the store; None if there is none that can be read."""
        return _parse_object(_read_if_present(self.store, DATASET_FILE))

    def plan(self) -> dict[str, Any] | None:
        """The plan of an unfinished pack; None if there is none."""
        return _parse_object(_read_if_present(self.store, PLAN_FILE))

    def begin(self, plan: dict[str, Any]) -> bytes:
        """Writes the plan, and returns its bytes. Shards of an earlier pack stay as long as they
        fit.
        """
        old = _read_if_present(self.store, PLAN_FILE)
        data = _encode_plan(plan)
        if data != old and not self.store.swap(PLAN_FILE, data, old):
            raise in_use_error(self.store, PLAN_FILE, "has changed meanwhile")
        return data

    def begin_writer(self, plan: dict[str, Any], *, overwrite: bool) -> None:
        """As `begin`, of a Writer. Note [one Writer at a time]"""
        if isinstance(self.store.place, Path):
            self.begin(plan)  # the lock of a folder keeps others out
            return
        numbered = {**plan, "writer": uuid.uuid4().hex}
        if overwrite:
            self._replaced_dataset = _read_if_present(self.store, DATASET_FILE)
        self._plan_of_writer = self.begin(numbered)

    def check_only_writer(self) -> None:
        """Raises PackError if another program has begun to write here. Note [one Writer at a time]

        A pack may share its place with another run of the same pack.
        """
        if self._plan_of_writer is None:
            return
        if _read_if_present(self.store, PLAN_FILE) != self._plan_of_writer:
            raise _other_writer_error(self.store)

    def begin_growth(self, plan: dict[str, Any]) -> bool:
        """Writes the plan of a change to the dataset; False if this very plan is there already.

        PackError: another program has begun to change the dataset.
        """
        old = _read_if_present(self.store, PLAN_FILE)
        old_plan = _parse_object(old)
        if old_plan == plan:
            return False

        # Only one program at a time has the lock of a folder. So a plan in a folder is of a program
        # that has ended. A bucket has no lock.
        is_folder = isinstance(self.store.place, Path)
        can_replace = old_plan is None or ("grows" in old_plan and is_folder)
        if can_replace and self.store.swap(PLAN_FILE, _encode_plan(plan), old):
            return True

        command = (self.plan() or {}).get("command", "fastpipe pack")
        raise PackError(
            f"{self.store.place} is in use: {command} is still running there, or was interrupted. Wait "
            "for it, or run it again. To give it up, remove "
            f"{self.store.place / PLAN_FILE}"
        )

    def give_up(self) -> None:
        """Removes the plan. Finished shards stay for the next run."""
        self.store.remove([PLAN_FILE])

    def remove_old_dataset(self) -> None:
        """Removes the dataset that this pack replaces, if there is one; dataset.json first.

        PackError: another program writes here, or has written a dataset.
        """
        self.check_only_writer()
        data = _read_if_present(self.store, DATASET_FILE)
        if _parse_object(data) is None:
            return
        if self._plan_of_writer is not None and data != self._replaced_dataset:
            raise _other_writer_error(self.store)
        # First, so that nobody opens a dataset of which files are gone.
        self.store.remove([DATASET_FILE])
        self.store.remove([INDEX_FILE, REJECTED_FILE, SOURCES_FILE])
        # Versions have no gaps in their numbers, but version 1 may have no folder of its own.
        version = 1
        while version == 1 or self.store.sizes(f"v{version}"):
            self._empty(f"v{version}/{FIELDS_FOLDER}", f"v{version}")
            version += 1

    def entry_names(self) -> set[str]:
        """The names of all entries. Whether their shards are intact is not checked."""
        return {
            name for name in self.store.sizes(WORK_FOLDER) if name.endswith(".done")
        }

    def read_finished(self, names: Iterable[str]) -> Iterator[Entry | None]:
        """The finished shards of some entries, in order; None for one that has to be made."""
        entry_names = self.entry_names()
        shard_sizes = self.store.sizes()

        def read(name: str) -> Entry | None:
            return (
                read_entry(self.store, name, shard_sizes)
                if name in entry_names
                else None
            )

        return self.store.map(read, names)

    def check_shards(self, entries: Iterable[Entry]) -> None:
        """Raises PackError if a shard is not as this pack wrote it, as another program may write to
        a bucket.

        The entry of such a shard is removed, so that the next run makes the shard again.
        """
        sizes = self.store.sizes()

        def list_tars() -> Iterator[tuple[str, Tar]]:
            for entry in entries:
                for tar in entry.tars:
                    yield entry.name, tar

        def read_note(pair: tuple[str, Tar]) -> tuple[str, Tar, str]:
            entry_name, tar = pair
            return entry_name, tar, self.store.note(tar.name)

        for entry_name, tar, note in self.store.map(read_note, list_tars()):
            # Only files in a bucket have notes: the hash of their bytes.
            has_size = sizes.get(tar.name) == tar.size_bytes
            if not has_size or note not in ("", tar.xxh3_64):
                self.store.remove([f"{WORK_FOLDER}/{entry_name}"])
                raise in_use_error(
                    self.store,
                    tar.name,
                    "is not what this pack has written there",
                    KEPT,
                )

    def remove_stale(self, entries: Iterable[Entry], base: int = 0) -> None:
        """Removes all other entries, and the shards from number `base` on that are of no entry."""
        shard_numbers = {tar.number for entry in entries for tar in entry.tars}
        stale = []
        for name in self.store.sizes():
            number = shard_number(name)
            if number >= base and number not in shard_numbers:
                stale.append(name)
        self.store.remove(stale)

        del shard_numbers  # there may be a million
        self._remove_entries(self.entry_names() - {entry.name for entry in entries})

    def forget_shards(self) -> None:
        """Removes all entries, so that each shard is made again. An old dataset stays."""
        self._remove_entries(self.entry_names())

    def _remove_entries(self, names: Iterable[str]) -> None:
        self.store.remove([f"{WORK_FOLDER}/{name}" for name in names])

    def clear(self) -> None:
        """Empties the work folder, except for the lock."""
        self._plan_of_writer = None  # it goes, too
        with contextlib.suppress(FileNotFoundError):  # only tables need a spool
            shutil.rmtree(self.store.scratch / SPOOL_NAME)
        self._empty(SPOOL_FOLDER, WORK_FOLDER)

    def _empty(self, *folders: str) -> None:
        for folder in folders:
            self.store.remove(
                [
                    f"{folder}/{name}"
                    for name in self.store.sizes(folder)
                    if name != LOCK_FILE
                ]
            )


def in_use_error(store: Store, name: str, problem: str, ending: str = "") -> PackError:
    """The error if another program has written to the file `name`; `problem` says how."""
    return PackError(
        f"{store.place}/{name} {problem}: another program writes to {store.place}. Wait until it "
        f"ends, then run the same command again, or choose another folder{ending}"
    )


def _other_writer_error(store: Store) -> PackError:
    return PackError(
        f"another program has begun to write a dataset to {store.place}, or has written one, since "
        "this one began; this one has stopped. Give each program, such as each rank, a folder of "
        "its own and the same classes=, and join their datasets with fastpipe.concat"
    )


def _read_if_present(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _encode_plan(plan: dict[str, Any]) -> bytes:
    return json.dumps(plan, sort_keys=True).encode()


def _parse_object(data: bytes | None) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is something else."""
    try:
        content = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
