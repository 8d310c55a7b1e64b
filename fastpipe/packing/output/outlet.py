"""A finished shard of a worker that holds no lock -> its place in the destination, and its part of the journal.

Several workers may make the same shard, also at the same time: each works in a folder of its own, all have the same
bytes, and each file appears whole. The order is that of Note [publishing].
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.format.folder import Place, Url
from fastpipe.format.layout import WORK_FOLDER, shard_name
from fastpipe.packing.output.files import make_in_shared, publish, whole_file
from fastpipe.packing.output.journal import SPOOL_FOLDER, ShardEntry, Tally
from fastpipe.packing.output.shard_writer import FinishedShard
from fastpipe.remote.options import RemoteOptions


class Outlet:
    """Takes the shards of one worker; used in a `with`.

    Args:
        destination: of the dataset, which a pack has begun.

    Attributes:
        destination: of the dataset, in messages.
        folder: of this worker alone.
    """

    destination: Path
    folder: Path

    def __enter__(self) -> Outlet:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def finished(self) -> list[ShardEntry]:
        """None that this worker knows of."""
        return []

    def publish_shard(
        self, number: int, shard: FinishedShard, next_source: int, sources: str, tally: Tally, agreed: dict[str, Any]
    ) -> ShardEntry:
        """See Journal.publish_shard."""
        facts = len(shard.records), shard.size_bytes, shard.xxh3_64
        entry = ShardEntry(shard_name(number), *facts, next_source, sources, tally, shard.parts, agreed)
        records = io.BytesIO()
        np.save(records, shard.records, allow_pickle=False)
        stem = Path(entry.name).stem
        with whole_file(self.folder / f"{stem}.npy", self.folder) as file:
            file.write(records.getbuffer())
        with whole_file(self.folder / f"{stem}.json", self.folder) as file:
            file.write(json.dumps(asdict(entry)).encode())
        self._hand_over(entry, shard.file, [*shard.parts, f"{stem}.npy", f"{stem}.json"])
        return entry

    def _hand_over(self, entry: ShardEntry, shard: Path, journal: list[str]) -> None:
        raise NotImplementedError


class FolderOutlet(Outlet):
    """Into a folder."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.folder = destination / WORK_FOLDER / SPOOL_FOLDER / f"worker-{uuid.uuid4().hex}"

    def __enter__(self) -> Outlet:
        make_in_shared(self.folder.parent)
        return super().__enter__()

    def _hand_over(self, entry: ShardEntry, shard: Path, journal: list[str]) -> None:
        for name in journal:
            publish(self.folder / name, self.destination / WORK_FOLDER / name)
        publish(shard, self.destination / entry.name)


class BucketOutlet(Outlet):
    """Into a bucket. The shard is made in a folder of this machine."""

    def __init__(self, url: Url, remote: RemoteOptions, folder: Path) -> None:
        from fastpipe.remote.objects import Objects

        self.destination = Path(url)  # in messages only
        self._objects = Objects(url, remote, uploads=True)
        _remove_left_behind(folder)
        self.folder = folder / f"worker-{os.getpid()}-{uuid.uuid4().hex}"

    def __exit__(self, *_: object) -> None:
        self._objects.cancel()
        super().__exit__()

    def _hand_over(self, entry: ShardEntry, shard: Path, journal: list[str]) -> None:
        from fastpipe.packing.output.bucket import HASH

        self._objects.run(self._objects.put(entry.name, shard, {HASH: entry.xxh3_64}))
        for name in journal:
            self._objects.run(self._objects.put(f"{WORK_FOLDER}/{name}", self.folder / name))


def outlet(destination: Place, remote: RemoteOptions | None) -> Outlet:
    """Where a worker's shards go."""
    if isinstance(destination, Path):
        return FolderOutlet(destination)
    from fastpipe.packing.output.bucket import default_spool

    return BucketOutlet(destination, remote or RemoteOptions(), default_spool())


def _remove_left_behind(folder: Path) -> None:
    """Removes the folders of workers of this machine that were killed."""
    for left in folder.glob("worker-*-*"):
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(left.name.split("-")[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
