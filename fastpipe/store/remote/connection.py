"""A URL, also of the Hub -> obstore's stores for it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.folder import Url
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.retry import failure_of

# Options that name another server than the cloud's own.
_ENDPOINT = re.compile("(aws_|azure_|azure_storage_)?endpoint(_url)?|(google_)?base_url")
# A part is sent and answered within _UPLOAD times read_timeout: at a slow link 8 MiB take their time.
_UPLOAD = 3
_PART_RETRIES = 6


class Connection:
    """obstore's stores for a URL: one to read, and one with more patience to write."""

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        self._url, self.options = url, options
        self.renew()

    def renew(self) -> None:
        self.reading = _store(self._url, self.options)
        self.__dict__.pop("writing", None)
        self.made_at = time.monotonic()

    @cached_property
    def writing(self) -> Any:
        return _store(self._url, self.options, uploads=True)


def _store(url: Url, options: RemoteOptions, *, uploads: bool = False) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import HTTPStore, from_url

    web: Any = HTTPStore  # their options are typed one by one
    cloud: Any = from_url
    config = dict(options.storage)
    client: dict[str, Any] = {
        # Of a whole answer: at a slow link 8 MiB take their time, and a stalled one is seen by read_timeout.
        "timeout": timedelta(hours=1),
        "connect_timeout": timedelta(seconds=min(options.read_timeout_s, 10.0)),
        "read_timeout": timedelta(seconds=options.read_timeout_s * (_UPLOAD if uploads else 1)),
        "pool_max_idle_per_host": "64",
        **config.pop("client_options", {}),
    }
    # Tries are counted and told by Objects; but parts are uploaded by obstore, and not all of them should go again.
    retry: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
    if uploads:
        retry = {"max_retries": _PART_RETRIES, "retry_timeout": timedelta(seconds=options.patience_s)}
    is_s3, is_hub = url.scheme == "s3", url.scheme == "hf"
    server = next((str(value) for name, value in config.items() if _ENDPOINT.fullmatch(name)), "")
    server = server or (os.environ.get("AWS_ENDPOINT_URL", "") if is_s3 else "")
    try:
        if is_hub or url.is_web:
            server, headers = _resolved(url, config) if is_hub else (str(url), {})
            if url.is_web and config:
                raise ConfigError(
                    f"storage_options: expected only client_options for {url.scheme}://, got {', '.join(config)}"
                )
            client["default_headers"] = {**headers, **client.get("default_headers", {})}
        elif server and not server.startswith(("http://", "https://")):  # obstore would panic at each request
            raise ConfigError(f"storage_options: the endpoint {server} of {url} has to begin with https:// or http://")
        client = {"allow_http": server.lower().startswith("http://"), **client}
        if is_hub or url.is_web:
            return web(server, client_options=client, retry_config=retry)
        if is_s3:
            config = {**_aws_profile(config), **config}
        # Names in buckets have no escapes, but obstore takes %20 of a URL for a space.
        return cloud(quote(url, safe=":/@"), client_options=client, retry_config=retry, **config)
    except (BaseError, ValueError, TypeError) as problem:
        if isinstance(problem, ConfigError):
            raise
        raise ConfigError(
            f"storage_options: {url} cannot be opened with {', '.join(config) or 'none'}: "
            f"{failure_of(problem).words.rstrip('.')}; pass them as obstore's stores name them: "
            "https://developmentseed.org/obstore/latest/api/store/aws/"
        ) from problem


def _aws_profile(config: dict[str, Any]) -> dict[str, Any]:
    """Credentials of ~/.aws, by boto3, where nothing else says who one is; obstore itself reads all others."""
    said = any(
        "key" in name or name.removeprefix("aws_") in ("skip_signature", "credential_provider") for name in config
    )
    files = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), "~/.aws/config"
    there = "AWS_PROFILE" in os.environ or any(os.path.exists(os.path.expanduser(each)) for each in files)
    if there and not said and "AWS_ACCESS_KEY_ID" not in os.environ:
        with suppress(ImportError):
            from obstore.auth.boto3 import Boto3CredentialProvider

            return {"credential_provider": Boto3CredentialProvider()}
    return {}


_commits: dict[Url, str] = {}  # found out once in a process: a branch that moves does not change a running epoch


def _resolved(url: Url, config: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The web address of hf://datasets/ORG/NAME[@REVISION]/FOLDER, and headers. Raises as `_repository`."""
    api, name, commit, folder = _repository(url, config)
    headers = {"authorization": f"Bearer {api.token}"} if api.token else {}
    return "/".join((api.endpoint, "datasets", name, "resolve", commit, *folder)), headers


def listed_by_hub(url: Url, config: dict[str, Any], folder: str) -> Iterator[tuple[str, int, str]]:
    """The files below a folder of the URL's, if it is there: name, size in bytes, and what names the content."""
    api, name, commit, folders = _repository(url, config)
    before = "".join(f"{part}/" for part in folders)
    top = f"{before}{folder}".rstrip("/") or None
    try:
        for each in api.list_repo_tree(name, top, recursive=True, revision=commit, repo_type="dataset"):
            if (size_bytes := getattr(each, "size", None)) is not None:  # else it is a folder
                yield each.path.removeprefix(before), int(size_bytes), str(each.blob_id)
    except Exception as problem:  # of whichever client the library uses
        if type(problem).__name__ not in ("EntryNotFoundError", "RemoteEntryNotFoundError"):
            raise _refused(url, "does not list its files", problem, "Try again later") from problem


class _Repository(NamedTuple):
    api: Any
    name: str
    commit: str
    folder: list[str]


def _repository(url: Url, config: dict[str, Any]) -> _Repository:
    """ConfigError: huggingface_hub is not installed, or an option is unknown. DatasetError: the Hub does not know the
    dataset, or does not answer.
    """
    try:
        from huggingface_hub import HfApi, get_token
    except ImportError as missing:
        raise ConfigError("hf:// needs huggingface_hub: pip install huggingface_hub") from missing
    if strange := config.keys() - {"token", "revision"}:
        raise ConfigError(f"storage_options: hf:// takes token and revision, got {', '.join(sorted(strange))}")
    _, organisation, name, *folder = url.path.split("/")
    name, _, revision = f"{organisation}/{name}".partition("@")
    api = HfApi(token=config.get("token") or get_token())
    if url not in _commits:
        try:
            found = api.dataset_info(name, revision=config.get("revision") or revision or None, timeout=30)
        except Exception as problem:  # of whichever client the library uses
            advice = "Check the name, and for a private one run `hf auth login` or set HF_TOKEN"
            raise _refused(url, f"does not give the dataset {name}", problem, advice) from problem
        _commits[url] = str(found.sha)
    return _Repository(api, name, _commits[url], folder)


def _refused(url: Url, how: str, problem: Exception, advice: str) -> DatasetError:
    return DatasetError(f"{url}: the Hub {how}: {' '.join(str(problem).split())[:300]}. {advice}")
