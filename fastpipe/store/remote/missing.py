"""A URL without dataset.json -> what is there in its place, and what to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE, shard_name
from fastpipe.errors import DatasetError, nearest_name
from fastpipe.store.remote.connection import Connection, endpoint_of
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.options import BUCKETS, RemoteOptions
from fastpipe.store.remote.requests import request_thread

_NAMES_OF_TARS = re.compile(r"[{}*]|\.tar(\.gz)?$")
_CHECK_URL = "Check the URL: it must be that of the folder of a packed dataset"
# A message does not wait longer for a list that would make it better.
_MAX_LIST_S = 5.0
_NAMES_PER_PAGE = 1000
_MAX_DATASETS_NAMED = 5


def describe_missing(url: Url, options: RemoteOptions, objects: Objects) -> str:
    """The message if there is no dataset.json behind a URL."""
    text = f"{url} holds no packed dataset: expected {DATASET_FILE} there, got HTTP 404"
    if _NAMES_OF_TARS.search(url):
        return (
            f"{text}. Pass the URL of the folder of a packed dataset, without names of tars and without "
            "braces"
        )
    if _has_first_shard(objects):
        return (
            f"{text}. There are shards here: upload {DATASET_FILE} and {INDEX_FILE} of the same pack, "
            f"too; {DATASET_FILE} last"
        )
    if url.scheme in BUCKETS:
        return text + _describe_bucket(url, options)
    return f"{text}. {_CHECK_URL}. {DATASET_FILE} has to be uploaded last"


def _has_first_shard(objects: Objects) -> bool:
    try:
        objects.fetched(shard_name(0), 0, 1)
    except DatasetError:
        return False
    return True


def _describe_bucket(url: Url, options: RemoteOptions) -> str:
    """The end of the message for a folder of a bucket, or a whole bucket."""
    endpoint = endpoint_of(url, options.storage)
    bucket, _, folder = url.path.partition("/")
    if urlsplit(endpoint).path.strip("/") == bucket:
        return (
            f". The endpoint {endpoint} ends with the bucket's name, which {url} has already: leave "
            "the name out of the endpoint"
        )
    names = _first_names(url, options)
    if names is not None and not names:
        return _describe_empty(url, options)
    datasets = _datasets_among(names or [])
    if datasets:
        named = ", ".join(datasets[:_MAX_DATASETS_NAMED])
        return f". There are packed datasets in it: {named}. Pass one of them, such as {url / datasets[0]}"
    # A whole bucket has nothing beside it.
    packed = f"{url}-packed" if folder else "DST"
    return (
        f". {_CHECK_URL}. {DATASET_FILE} has to be uploaded last. Images have to be packed first: "
        f"fastpipe pack {url} {packed}"
    )


def _describe_empty(url: Url, options: RemoteOptions) -> str:
    """The end of the message for a URL that no file has: the most similar folder beside it."""
    parent, _, name = url.rpartition("/")
    nearest: str | None = None
    # A bucket has the scheme in place of a parent.
    if "/" in url.path:
        others = [
            other for other in _folder_names(Url(parent), options) if other != name
        ]
        nearest = nearest_name(name, others)
    if nearest is None:
        return f". No file is there. {_CHECK_URL}"
    return f". No file is there; did you mean '{parent}/{nearest}'?"


def _datasets_among(names: list[str]) -> list[str]:
    """The folders among the names of files that have a dataset.json."""
    datasets: list[str] = []
    for name in names:
        folder, _, file = name.rpartition("/")
        if file == DATASET_FILE:
            datasets.append(folder)
    return datasets


def _first_names(url: Url, options: RemoteOptions) -> list[str] | None:
    """The names of the first files below a URL; None if the server does not list them."""
    import obstore

    store = Connection(url, options).reading

    async def list_first_page() -> list[str]:
        pages = obstore.list(store, chunk_size=_NAMES_PER_PAGE)
        async for page in pages:
            # Some programs mark a folder by an empty object of its name.
            return [entry["path"] for entry in page if entry["path"]]
        return []

    return _ask_once(list_first_page)


def _folder_names(url: Url, options: RemoteOptions) -> list[str]:
    """The names of the folders that lie in a URL; none if the server does not list them."""
    import obstore

    store = Connection(url, options).reading

    async def list_folders() -> list[str]:
        listing = await obstore.list_with_delimiter_async(store)
        prefixes = listing["common_prefixes"]
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes]

    return _ask_once(list_folders) or []


def _ask_once(request: Callable[[], Awaitable[list[str]]]) -> list[str] | None:
    """Makes a request that is not made again. Returns None if it fails, for whatever reason."""

    async def ask() -> list[str] | None:
        with suppress(Exception):
            return await asyncio.wait_for(request(), _MAX_LIST_S)
        return None

    return request_thread().start(ask()).result()
