"""A bucket in the memory of this process, under an s3:// URL: packs by URL without a server, which would take a hundred
times as long. What servers and networks do is tested with s3.py.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore import delete_async, get_async, head_async, put_async
from obstore import list as list_objects
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from fastpipe.dataset.format.folder import Url
from fastpipe.store.remote import connection
from fastpipe.store.remote.options import RemoteOptions


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        method: "HEAD", "LIST", "GET", "PUT" or "DELETE".
        name: of the object or folder, from the bucket.
    """

    method: str
    name: str


def refusal(status: int) -> GenericError:
    """What obstore raises when a server answers with this status."""
    return GenericError(
        f"Generic S3 error: Server returned non-2xx status code: {status} Injected: no more"
    )


@dataclass
class MemoryBucket:
    """A bucket.

    Attributes:
        name: of it.
        fault: called before each request; gives what goes wrong, or None.
        calls: all requests so far.
    """

    name: str
    fault: Callable[[Call], Exception | None] = lambda _: None
    calls: list[Call] = field(default_factory=list)
    store: MemoryStore = field(default_factory=MemoryStore)

    def url(self, key: str) -> str:
        """Of a folder or object."""
        return f"s3://{self.name}/{key}"

    def put(self, key: str, data: bytes, **attributes: str) -> None:
        """Another program writes an object."""
        obstore.put(self.store, key, data, attributes=attributes)

    def delete(self, key: str) -> None:
        """Another program removes an object."""
        obstore.delete(self.store, key)

    def upload(self, folder: Path, key: str) -> str:
        """Puts the files of a folder into it; gives their URL."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{key}/{file.relative_to(folder)}", file.read_bytes())
        return self.url(key)

    def objects(self, key: str) -> dict[str, bytes]:
        """Name below a folder -> content, of every object. One that is removed meanwhile is left out."""
        contents: dict[str, bytes] = {}
        for page in list_objects(self.store, key):
            for each in page:
                path = each["path"]
                # An error here would pass for one of the request that called `fault`.
                with contextlib.suppress(FileNotFoundError):
                    contents[path.removeprefix(f"{key}/")] = bytes(
                        obstore.get(self.store, path).bytes()
                    )
        return contents

    def puts(self, part: str) -> int:
        """How many objects with this in their name have been written so far."""
        return sum(call.method == "PUT" and part in call.name for call in self.calls)

    def asked(self, method: str, name: str) -> None:
        """Notes a request; raises what is to go wrong."""
        call = Call(method, name)
        self.calls.append(call)
        problem = self.fault(call)
        if problem is not None:
            raise problem


@dataclass(frozen=True)
class _Folder:
    """What stands for obstore's store of a URL."""

    bucket: MemoryBucket
    prefix: str  # with its slash

    def of(self, name: str, method: str) -> tuple[MemoryStore, str]:
        """The store and the whole name of an object, for a request."""
        whole = f"{self.prefix}{name}"
        self.bucket.asked(method, whole)
        return self.bucket.store, whole


async def _head(folder: _Folder, name: str) -> Any:
    return await head_async(*folder.of(name, "HEAD"))


async def _get(folder: _Folder, name: str, *, options: Any) -> Any:
    return await get_async(*folder.of(name, "GET"), options=options)


async def _put(folder: _Folder, name: str, content: Any, **how: Any) -> Any:
    return await put_async(*folder.of(name, "PUT"), content, **how)


async def _delete(folder: _Folder, name: str) -> None:
    await delete_async(*folder.of(name, "DELETE"))


async def _list(
    folder: _Folder, below: str | None, *, offset: str | None, chunk_size: int
) -> AsyncIterator[Any]:
    store, whole = folder.of(below or "", "LIST")
    after = None if offset is None else f"{folder.prefix}{offset}"
    async for page in list_objects(
        store, whole.rstrip("/") or None, offset=after, chunk_size=chunk_size
    ):
        yield [{**each, "path": each["path"].removeprefix(folder.prefix)} for each in page]


def _for_both(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A function of obstore, for our folders and for its own stores."""

    def function(store: Any, *given: Any, **how: Any) -> Any:
        chosen = ours if isinstance(store, _Folder) else theirs
        return chosen(store, *given, **how)

    return function


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """A new bucket, in memory."""
    made = MemoryBucket(f"memory-{uuid.uuid4().hex[:12]}")
    real_store = connection._open_store

    def store(url: Url, options: RemoteOptions, *, uploads: bool = False) -> Any:
        place = str(url).removeprefix(f"s3://{made.name}")
        if place == str(url):
            return real_store(url, options, uploads=uploads)
        prefix = place.strip("/")
        return _Folder(made, f"{prefix}/" if prefix else "")

    monkeypatch.setattr(connection, "_open_store", store)
    ours = {
        "head_async": _head,
        "get_async": _get,
        "put_async": _put,
        "delete_async": _delete,
        "list": _list,
    }
    for name, function in ours.items():
        monkeypatch.setattr(obstore, name, _for_both(function, getattr(obstore, name)))
    return made
