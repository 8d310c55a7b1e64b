"""A pack whose destination is a URL: made in a folder of this machine, and uploaded shard by shard.

Note [packing into a bucket]
The journal of the pack is in the bucket, in DST/.pack: the plan, and for each finished shard its records, its parts of
the fields' columns and its entry. They are copied here at the start, so another machine can go on. A shard is uploaded
whole and with its hash as metadata; then records and parts; then the entry. A shard without an entry is made again.
When all shards are there, their sizes and hashes are asked for. Then come index.npy, the sidecars and rejected.jsonl;
last dataset.json, which is created only if there is none. So nobody sees a dataset before it is whole.

To replace a dataset, its dataset.json is removed before its first shard is. From then on nothing loads until the new
dataset.json is there: there is no moment at which old and new shards are a dataset. A loader that has the old one open
finds that a file was replaced (ETag, size, hash) and says so.

Parts of an upload that was killed stay in the bucket, and cost money, until a lifecycle rule of the bucket removes
them: obstore cannot list them. An upload that fails is aborted.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import xxhash

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.description import damage, is_dataset
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.folder import Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, REJECTED_FILE, WORK_FOLDER, shard_name
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.packing.output.journal import PLAN_FILE, REPLACED_FILE, SPOOL_FOLDER, Journal, ShardEntry, Tally
from fastpipe.packing.output.lock import LOCK_FILE
from fastpipe.packing.output.shard_writer import FinishedShard
from fastpipe.remote.objects import REQUEST_BYTES, Objects
from fastpipe.remote.options import RemoteOptions

WRITABLE = ("s3", "gs", "az")

# Metadata of objects. Azure takes only letters and digits in names.
HASH = "fastpipehash"  # of a shard: its XXH3-64
_STATE = "fastpipestate"  # of dataset.json: names the state of the sources
_SHARD = re.compile(r"shard-\d{6,}\.tar")
_ENTRY = re.compile(rf"{re.escape(WORK_FOLDER)}/(shard-\d{{6,}})\.json")
_BESIDE = re.compile(rf"{INDEX_FILE}|{REJECTED_FILE}|{FIELDS_FOLDER}/[^/]+\.npy")
_JOURNAL = re.compile(rf"{PLAN_FILE}|{REPLACED_FILE}|shard-\d{{6,}}\.[\w.-]+")
_AT_A_TIME = 32  # requests
_SPOOLED_SHARDS = 3  # one is written, one uploaded, and one may be waiting to be


def check_writable(url: Url) -> None:
    """Refuses URLs that nobody can write to.

    Raises:
        ConfigError: it is one.
    """
    scheme = url.split("://")[0].lower()
    if scheme not in WRITABLE:
        known = ", ".join(f"{each}://" for each in WRITABLE)
        raise ConfigError(
            f"DST {url}: fastpipe cannot write to {scheme}://; it writes to {known} and to folders. Pack into a folder "
            "and upload it, dataset.json last"
        )


def default_spool() -> Path:
    """Where shards are made if nobody says."""
    return cache_folder() / "pack"


class BucketJournal(Journal):
    """The work of one pack into a bucket. Note [packing into a bucket]

    Its `destination` is a folder of this machine that is like the bucket, but for the shards that are uploaded.

    Args:
        url: of the dataset's folder.
        spool: folder of this machine; one of its folders is used, and locked.
        options: credentials and timeouts.

    Attributes:
        uploaded_bytes: of this run.

    Raises:
        ConfigError: the URL cannot be written to, or an option is unknown.
        PackError: another pack on this machine writes there, or the URL holds something else.
        OSError: the disk refuses.
    """

    def __init__(self, url: Url, spool: Path | None, options: RemoteOptions) -> None:
        check_writable(url)
        self._objects = Objects(url, options, uploads=True)
        self._uploading: Future[None] | None = None
        name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', url.rpartition('/')[2])}-{xxhash.xxh3_64_hexdigest(url.encode())}"
        super().__init__((spool or default_spool()) / name, url)
        self._found: dict[str, int] = {}  # objects that there are, and their sizes
        self._state = ""
        try:
            self.take_stock()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Gives up what is being uploaded, and removes what was made here, but for the spool of tables."""
        self._objects.cancel()
        with contextlib.suppress(OSError):
            self._empty()
        super().__exit__()
        with contextlib.suppress(OSError):
            self.destination.rmdir()

    def begin(self, plan: dict[str, Any], keep: int = 0) -> None:
        """See Journal.begin."""
        super().begin(plan, keep)
        kept = {f"{WORK_FOLDER}/{file.name}" for file in self.folder.iterdir()}
        spool = f"{WORK_FOLDER}/{SPOOL_FOLDER}/"  # its files know themselves what they are of
        stale = [
            name
            for name in self._found
            if name.startswith(f"{WORK_FOLDER}/") and name not in kept and not name.startswith(spool)
        ]
        if DATASET_FILE not in self._found:
            entries = filter(None, map(_ENTRY.fullmatch, stale))
            shards = {f"{entry[1]}.tar" for entry in entries}
            self._remove(name for name in list(self._found) if name in shards or _BESIDE.fullmatch(name))
        name = f"{WORK_FOLDER}/{PLAN_FILE}"
        self._remove(stale)
        self._create(name, (self.folder / PLAN_FILE).read_bytes(), replace=name in self._found)

    def publish_shard(
        self, number: int, shard: FinishedShard, next_source: int, sources: str, tally: Tally, agreed: dict[str, Any]
    ) -> ShardEntry:
        """See Journal.publish_shard. It is uploaded while the next one is made."""
        self._wait()
        entry = super().publish_shard(number, shard, next_source, sources, tally, agreed)
        self._uploading = self._objects.start(self._upload(number, entry))
        return entry

    def commit(self, state: str, on_upload: Callable[[], None] = lambda: None) -> None:
        """Uploads what turns the shards into a dataset; dataset.json last.

        Raises:
            PackError: a shard in the bucket is not the one that was uploaded, or another pack has finished there.
        """
        self._wait()
        on_upload()
        self._check_shards()
        beside = [INDEX_FILE, REJECTED_FILE]
        beside += sorted(f"{FIELDS_FOLDER}/{file.name}" for file in (self.destination / FIELDS_FOLDER).glob("*.npy"))
        ours = [name for name in beside if (self.destination / name).exists()]
        self._remove(name for name in list(self._found) if _BESIDE.fullmatch(name) and name not in ours)
        for name in ours:
            self._objects.run(self._put(name, self.destination / name))
            on_upload()
        self._create(DATASET_FILE, (self.destination / DATASET_FILE).read_bytes(), {_STATE: state})
        on_upload()
        self.clear()

    def clear(self) -> None:
        """Removes the journal, here and in the bucket."""
        super().clear()
        self._remove(name for name in list(self._found) if name.startswith(f"{WORK_FOLDER}/"))

    def recorded_state(self) -> str:
        """The state of the sources that the dataset was packed from; "" if it is not known."""
        return self._state

    def damage(self, index: Index) -> str | None:
        """See `format.description.damage`."""
        return damage(index, self._size_of)

    def check_room(self, shard_size: int, source_bytes: int) -> None:
        """Looks whether there is room for the shards that are on this machine at a time.

        Raises:
            PackError: there is not.
        """
        needed = min(_SPOOLED_SHARDS * shard_size, 2 * source_bytes)
        free = shutil.disk_usage(self.destination).free
        if free < needed:
            raise PackError(
                f"{self.destination} has {free / 1e6:,.1f} MB free; expected at least {needed / 1e6:,.1f} MB, because "
                "shards are made there before they are uploaded. Make room, pass --spool DIR on another disk, or a "
                "smaller --shard-size"
            )

    def take_stock(self) -> None:
        """Copies the description of a dataset, or the journal of an unfinished pack, to this machine."""
        self._empty()
        self._found = {}
        described = self._objects.get(DATASET_FILE)
        if described is not None:
            (self.destination / DATASET_FILE).write_bytes(described.data)
            self._state = described.attributes.get(_STATE, "")
        ours = is_dataset(self.destination / DATASET_FILE)
        ours = ours or self._objects.stat(f"{WORK_FOLDER}/{PLAN_FILE}") is not None
        for name, facts in self._objects.listed(""):
            if not name and not facts.size_bytes:
                continue  # some programs mark a folder by an empty object of its name
            if not ours and not name.startswith(f"{WORK_FOLDER}/"):
                raise PackError(
                    f"{self.shown} is not empty and holds no packed dataset: there is {name}. Choose a new or empty "
                    "folder"
                )
            self._found[name] = facts.size_bytes
        self._copy_here(name for name in self._found if name in (INDEX_FILE, REJECTED_FILE) and described is not None)
        inner = f"{WORK_FOLDER}/"
        self._copy_here(
            name for name in self._found if name.startswith(inner) and _JOURNAL.fullmatch(name.removeprefix(inner))
        )

    def _copy_here(self, names: Iterable[str]) -> None:
        sizes = {name: self._found[name] for name in names}
        small = [name for name, size_bytes in sizes.items() if 0 < size_bytes <= REQUEST_BYTES]
        for at in range(0, len(small), _AT_A_TIME):
            run = small[at : at + _AT_A_TIME]
            begun = [self._objects.begin(name, 0, sizes.pop(name)) for name in run]
            for name, answer in zip(run, begun, strict=True):
                (self.destination / name).write_bytes(answer.result().data)
        for name, size_bytes in sizes.items():
            self._objects.copy(name, self.destination / name, size_bytes)

    def _empty(self) -> None:
        """Removes what is on this machine, but for the lock and the spool of a source that needs one."""
        for file in self.destination.iterdir():
            if file.is_dir() and not file.is_symlink() and file != self.folder:
                shutil.rmtree(file)
            elif file != self.folder:
                file.unlink()
        self._clear({LOCK_FILE, SPOOL_FOLDER})

    def make_way(self) -> None:
        """See Journal.make_way."""
        moved = f"{WORK_FOLDER}/{REPLACED_FILE}"
        described = self.destination / DATASET_FILE
        if described.exists():
            self._objects.run(self._put(moved, described.read_bytes()))
            self._remove([DATASET_FILE])
        elif not (self.folder / REPLACED_FILE).exists():
            return
        self._remove(name for name in list(self._found) if _SHARD.fullmatch(name) or _BESIDE.fullmatch(name))
        super().make_way()
        self._remove([moved])

    def _size_of(self, name: str) -> int:
        try:
            return self._found[name]
        except KeyError:
            raise FileNotFoundError(2, "no such file", str(self._objects.url / name)) from None

    async def _upload(self, number: int, entry: ShardEntry) -> None:
        """A shard, and then its part of the journal."""
        file = self.destination / entry.name
        there = await self._objects.attributes(entry.name) if self._found.get(entry.name) else None
        if there is None or (there[0], there[1].get(HASH)) != (entry.size_bytes, entry.xxh3_64):
            await self._put(entry.name, file, {HASH: entry.xxh3_64})
        for path in (
            self._records_file(number),
            *(self.folder / name for name in entry.parts),
            self._entry_file(number),
        ):
            await self._put(f"{WORK_FOLDER}/{path.name}", path)
        file.unlink()

    def _wait(self) -> None:
        """Waits for the shard that is being uploaded."""
        if self._uploading is not None:
            uploading, self._uploading = self._uploading, None
            uploading.result()

    def _check_shards(self) -> None:
        """Whether the shards are in the bucket as they were uploaded: another program may write there, too."""
        shards = self.finished()
        for at in range(0, len(shards), _AT_A_TIME):
            run = shards[at : at + _AT_A_TIME]
            begun = [self._objects.start(self._objects.attributes(shard.name)) for shard in run]
            for shard, each in zip(run, begun, strict=True):
                there = each.result()
                if there is None or (there[0], there[1].get(HASH, shard.xxh3_64)) != (shard.size_bytes, shard.xxh3_64):
                    number = shards.index(shard)
                    self._remove([f"{WORK_FOLDER}/{self._entry_file(number).name}"])
                    raise PackError(
                        f"{self._objects.url / shard_name(number)} is not the shard that was uploaded: expected hash "
                        f"{shard.xxh3_64}, got {'no file' if there is None else there[1].get(HASH, 'none')}. Another "
                        "program writes there. Wait until it ends, then run the same command again: it uploads the "
                        "shard again"
                    )

    def _create(
        self, name: str, data: bytes, attributes: dict[str, str] | None = None, *, replace: bool = False
    ) -> None:
        """Writes a small file that must not be there, unless it is the same."""
        if self._objects.run(self._put(name, data, attributes, create=not replace)):
            return
        there = self._objects.get(name)  # an answer may have been lost, and the request made twice
        if there is not None and bytes(there.data) == data:
            return
        raise PackError(
            f"{self._objects.url / name} has appeared while packing: another pack writes to {self.shown}. Wait for it, "
            "or choose another folder"
        )

    async def _put(
        self, name: str, content: Path | bytes, attributes: dict[str, str] | None = None, *, create: bool = False
    ) -> bool:
        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        done = await self._objects.put(name, content, attributes, create=create)
        self._found[name] = size_bytes
        self.uploaded_bytes += size_bytes
        return done

    def _remove(self, names: Iterable[str]) -> None:
        """Removes objects that there are."""
        ours: Sequence[str] = [name for name in names if name in self._found]
        self._objects.run(self._objects.remove(ours))
        for name in ours:
            del self._found[name]
