"""The URL of a packed dataset -> an Index of it: its small files are here, its shards come when they are needed."""

from __future__ import annotations

import os
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.description import described_in, file_hash, fingerprint, info_in, read_self_checksum
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, REJECTED_FILE, SOURCES_FILE, version_folder
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.format.packed_index import PackedIndex
from fastpipe.store.remote.blocks import Blocks
from fastpipe.store.remote.cache import Cache, Caches
from fastpipe.store.remote.cache_root import Hold, make_root
from fastpipe.store.remote.objects import Answer, Objects, ShardError
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.reader import Reader
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.retry import ATTEMPTS

_GZIP = b"\x1f\x8b"


class RemoteIndex(PackedIndex):
    """The description of a dataset behind a URL. Its folder is that of the cache; see Index."""

    restored_by = "open the dataset again, which fetches this file of the cache anew"

    def __init__(
        self, url: Url, options: RemoteOptions, *, max_pixels: int | None = None, version: int | None = None
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(
                f"{url}: datasets are read by URL on Linux only, because the cache needs its file locks; copy the "
                "dataset to this machine"
            )
        self.url, self.options = url, options
        # The last reader of its shards, if it still lives, and which number the first shard has there.
        self.read_by: tuple[Callable[[], Reader | None], int] = (lambda: None), 0
        self._objects = Objects(url, options)
        self.past_cache = self._objects.apart(ShardError)  # the files as they are behind the URL
        data, info = self._description()
        if version is not None and (at := described_in(url, version, info["version"])):
            data, info = self._description(at)
        make_root(options.cache_dir)
        self._hold = Hold(options.cache_dir, info["fingerprint"], url)
        os.utime(self._hold.descriptor)  # it is used now: the states change only while blocks come
        self._bring(DATASET_FILE, xxhash.xxh3_64_hexdigest(data), data)
        self._at = version_folder(info["version"])
        self._bring(self._at + INDEX_FILE, info.get("index", {}).get("file_xxh3_64"))
        super().__init__(self._hold.folder, max_pixels=max_pixels, shown_as=url)

    def fetch_columns(self, fields: Iterable[str]) -> None:
        """Brings the files of fields, as far as the dataset has these."""
        for field in (self.fields[name] for name in fields if name in self.fields):
            for file in sidecars(field):
                self._bring(f"{self._at}{FIELDS_FOLDER}/{file}", field.files.get(file))

    def fetch_small(self) -> None:
        self.fetch_columns(self.fields)
        self.fetch_sources()
        if self.counts["rejected"]:
            self._bring(self._at + REJECTED_FILE, None)

    def fetch_sources(self) -> None:
        self._bring(self._at + SOURCES_FILE, self.info["sources"]["file_xxh3_64"])

    def reader(self, of: Index | None = None) -> Reader:
        """Brings the bytes of its shards, or of a mixture's. EngineError: a forked child. DatasetError: no cache."""
        index: Index = self if of is None else of
        parts = index.parts if isinstance(index, MixedIndex) else (index,)
        blocks = Blocks(np.concatenate([part.shard_sizes for part in parts]))
        begins = np.cumsum([0, *(len(part.shards) for part in parts)]).tolist()
        remote = [(part, first) for part, first in zip(parts, begins, strict=False) if isinstance(part, RemoteIndex)]
        reader = Reader(index, Caches(blocks, [part._cache(blocks, first) for part, first in remote]))
        for part, first in remote:
            part.read_by = weakref.ref(reader), first
        return reader

    def _cache(self, blocks: Blocks, first_shard: int) -> Cache:
        request_thread()  # a forked child is refused before it touches the locks that it shares
        names = [shard.name for shard in self.shards]
        hold = Hold(self.options.cache_dir, self.fingerprint, self.url)
        limit = self.options.cache_limit
        return Cache(hold, names, blocks, first_shard, self._objects.apart(), limit, self._hold)

    def open_shard(self, number: int) -> RemoteShard:
        """A shard, to read notes in it: those of samples that are in use lie beside them."""
        reader = self.read_by[0]() or self.reader()
        return RemoteShard(self.path / self.shards[number].name, self.read_by[1] + number, reader)

    def _description(self, at: str = "") -> tuple[bytes, dict[str, Any]]:
        """The bytes of dataset.json, or of that in a version's folder, and what they say."""

        def complaint(answer: Answer) -> str | None:  # bytes may be garbled on their way
            try:
                _checked(at + DATASET_FILE, bytes(answer.data))
            except DatasetError as problem:
                return str(problem)
            return None

        try:
            work = self._objects.fetch(at + DATASET_FILE, 0, None, check=complaint)
            data = bytes(self._objects.wait(work).data)
        except DatasetError as problem:
            if not isinstance(problem.__cause__, FileNotFoundError):
                raise
            raise DatasetError(
                f"{self.url} holds no packed dataset: expected {DATASET_FILE} there, got HTTP 404. Check the URL: "
                f"it is that of the folder which `fastpipe pack` wrote. {DATASET_FILE} is to be uploaded last"
            ) from problem
        return data, _checked(str(self.url / (at + DATASET_FILE)), data)

    def _bring(self, name: str, expected: object, data: bytes | None = None) -> None:
        """A file that the cache keeps whatever its limit is; other processes see all of it or nothing."""
        file = self._hold.folder / name
        with suppress(OSError):
            if expected is not None and file_hash(file) == expected:
                return
        new = file.with_name(f".{file.name}.{uuid.uuid4().hex}")  # no other thread, process or container has it
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(ATTEMPTS):
                digest = xxhash.xxh3_64()
                with open(new, "wb") as out:
                    for piece in self._objects.whole(name) if data is None else [data]:
                        digest.update(piece)
                        out.write(piece)
                found = digest.hexdigest()
                if expected in (None, found):
                    os.replace(new, file)
                    return
        except OSError as problem:
            raise DatasetError(
                f"the cache cannot keep {file}: {problem.strerror or problem}. It keeps this file of the dataset "
                "whatever cache_limit= is. Make room, or pass another cache_dir="
            ) from problem
        finally:
            new.unlink(missing_ok=True)
        raise DatasetError(
            f"{self.url / name} has been changed: expected XXH3-64 {expected}, as {DATASET_FILE} has it, got {found}, "
            f"after {ATTEMPTS} attempts. Upload the dataset again"
        )


@dataclass(frozen=True)
class RemoteShard:
    """A shard behind a URL, as a ReadableShard."""

    path: Place
    number: int  # that its reader knows it by
    reader: Reader  # the index has none of its own: the two would keep each other, and open files

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A range. DatasetError: it does not come."""
        return self.reader.read(self.number, offset_bytes, offset_bytes + size_bytes)


def _checked(file: str, data: bytes) -> dict[str, Any]:
    """The content of dataset.json. Its fingerprint, which names the dataset's folder in the cache, is computed: who
    serves a dataset does not choose whose folder it gets.
    """
    if data.startswith(_GZIP):
        raise DatasetError(
            f"{file} comes compressed by gzip; expected the file that `fastpipe pack` wrote. Turn the server's "
            "compression off, or upload the dataset without Content-Encoding"
        )
    info, carried = info_in(data, file), read_self_checksum(data)
    try:
        hashes = {
            "hash that it carries": carried or ("", ""),
            "fingerprint of its content": (fingerprint(info), info.get("fingerprint")),
        }
    except (KeyError, TypeError, ValueError) as problem:
        raise DatasetError(
            f"{file} has a missing or invalid field ({problem!r}). Upload the dataset again"
        ) from problem
    for what, (expected, found) in hashes.items():
        if found != expected:
            raise DatasetError(
                f"{file} has been changed: expected the {what}, {expected}, got {found!r:.80}. Upload the dataset again"
            )
    return info
