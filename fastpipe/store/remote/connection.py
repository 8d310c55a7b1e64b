"""A URL, also of the Hub -> obstore's stores for it."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote

from fastpipe.dataset.format.folder import Url
from fastpipe.errors import ConfigError, DatasetError, in_one_line
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.retry import failure_of

# Options that name another server than the cloud's own.
_ENDPOINT = re.compile(
    "(aws_|azure_|azure_storage_)?endpoint(_url)?|(google_)?base_url"
)
# An upload may take so many times read_timeout without an answer: on a slow link, a part of 8 MiB
# takes long.
_UPLOAD_PATIENCE = 3
_PART_RETRIES = 6
# Options of obstore's HTTP client. It panics if they stand among those of a bucket.
_CLIENT_OPTIONS = frozenset(
    [
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "timeout",
        "user_agent",
    ]
)
# Variables of the environment with credentials, or with the place where they are.
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Variables of the environment that obstore puts into the header of each request to S3.
_AWS_HEADER_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
)
# HTTP has no other characters in headers, and obstore panics at each request.
_NOT_IN_HEADERS = re.compile(r"[^\x20-\x7e]")
# Options of s3fs and boto3 -> what obstore calls them.
_INSTEAD_OF_OTHERS = {
    "key": '"access_key_id": "..."',
    "secret": '"secret_access_key": "..."',
    "anon": '"skip_signature": True',
    "client_kwargs": '"endpoint": "https://...", "region": "..."',
    "profile_name": '"access_key_id": "...", "secret_access_key": "..."',
    "region_name": '"region": "..."',
    "requester_pays": '"request_payer": True',
    "use_ssl": '"endpoint": "http://..."',
}
# Options by which a user says who they are.
_IDENTITY_OPTIONS = ("skip_signature", "credential_provider")


class Connection:
    """obstore's stores for a URL: one to read, and one with more patience to write."""

    def __init__(self, url: Url, options: RemoteOptions) -> None:
        self._url = url
        self.options = options
        # Whether the server has ever answered, if only with an error.
        self.has_answered = False
        # When the log last said that requests fail, by time.monotonic().
        self.told_at = -math.inf
        self.renew()

    def renew(self) -> None:
        """Opens the stores anew, with the credentials of now."""
        self.reading = _open_store(self._url, self.options)
        self.__dict__.pop("writing", None)
        self.made_at = time.monotonic()

    @cached_property
    def writing(self) -> Any:
        return _open_store(self._url, self.options, uploads=True)


def _refuse_options_of_others(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that has all options with the names that s3fs or boto3 gives them."""
    names = [name for name in config if name in _INSTEAD_OF_OTHERS]
    if not names:
        return
    verb = "is an option" if len(names) == 1 else "are options"
    pronoun = "it" if len(names) == 1 else "them"
    instead = ", ".join(_INSTEAD_OF_OTHERS[name] for name in names)
    raise ConfigError(
        f"storage_options: {', '.join(names)} {verb} of s3fs or boto3; obstore, which fastpipe uses, calls "
        f"{pronoun} otherwise: {{{instead}}}"
    )


def _open_store(url: Url, options: RemoteOptions, *, uploads: bool = False) -> Any:
    """obstore's store of a URL.

    Raises:
        ConfigError: an option is unknown or wrong.
        DatasetError: the Hub does not know the dataset.
    """
    from obstore.exceptions import BaseError

    config = dict(options.storage)
    client = _client_options(options, uploads=uploads)
    client.update(config.pop("client_options", {}))
    for name, value in config.items():
        if name in _CLIENT_OPTIONS:
            raise ConfigError(
                f"storage_options: {name} is an option of the HTTP client; pass "
                f'{{"client_options": {{"{name}": {value!r}}}}}'
            )
    if url.scheme == "s3":
        _refuse_options_of_others(config)
        # Other clouds have keys of several lines.
        for name, value in config.items():
            _check_header_value(f"storage_options: {name}", value)
        for name in _AWS_HEADER_VARIABLES:
            _check_header_value(name, os.environ.get(name))
    # Objects counts and makes all tries. Only the parts of an upload are tried again by obstore,
    # because otherwise all parts would be sent again.
    retry: dict[str, Any] = {"max_retries": 0, "retry_timeout": timedelta(0)}
    if uploads:
        retry["max_retries"] = _PART_RETRIES
        retry["retry_timeout"] = timedelta(seconds=options.patience_s)
    try:
        if url.scheme == "hf":
            address, headers = _hub_address(url, config)
            client["default_headers"] = {**headers, **client.get("default_headers", {})}
            return _open_web(address, client, retry)
        if url.is_web:
            if config:
                raise ConfigError(
                    f"storage_options: expected only client_options for {url.scheme}://, got "
                    f"{', '.join(config)}"
                )
            return _open_web(str(url), client, retry)
        return _open_bucket(url, config, client, retry)
    except ConfigError:
        raise
    except (BaseError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"storage_options: {url} cannot be opened with {', '.join(config) or 'none'}: "
            f"{failure_of(problem).words.rstrip('.')}; pass them as obstore's stores name them: "
            "https://developmentseed.org/obstore/latest/api/store/aws/"
        ) from problem


def _check_header_value(name: str, value: object) -> None:
    """Raises ConfigError if a credential has a character that no header can have, without the value.

    A variable that a shell or an editor of Windows has set often ends in a carriage return.
    """
    if not isinstance(value, str):
        return
    match = _NOT_IN_HEADERS.search(value)
    if match is None:
        return
    kind = "a control character"
    if ord(match[0]) > 0x7E:
        kind = "a character that is not ASCII"
    place = f"at position {match.start()}"
    if not _NOT_IN_HEADERS.sub("", value[match.start() :]).strip():
        place = "at its end"
    raise ConfigError(
        f"{name} has {kind} ({match[0]!a}) {place}; set it again without that"
    )


def _client_options(options: RemoteOptions, *, uploads: bool) -> dict[str, Any]:
    read_timeout_s = options.read_timeout_s
    if uploads:
        read_timeout_s *= _UPLOAD_PATIENCE
    return {
        # The time of a whole answer: on a slow link 8 MiB take long. read_timeout notices an answer
        # that has stopped.
        "timeout": timedelta(hours=1),
        "connect_timeout": timedelta(seconds=min(options.read_timeout_s, 10.0)),
        "read_timeout": timedelta(seconds=read_timeout_s),
        "pool_max_idle_per_host": "64",
    }


def _open_web(address: str, client: dict[str, Any], retry: dict[str, Any]) -> Any:
    from obstore.store import HTTPStore

    # obstore types its options one by one.
    open_store: Any = HTTPStore
    client.setdefault("allow_http", address.lower().startswith("http://"))
    return open_store(address, client_options=client, retry_config=retry)


def _open_bucket(
    url: Url, config: dict[str, Any], client: dict[str, Any], retry: dict[str, Any]
) -> Any:
    from obstore.store import from_url

    # obstore types its options one by one.
    open_store: Any = from_url
    server = endpoint_of(url, config)
    if server and not server.startswith(("http://", "https://")):
        # obstore would panic at each request.
        raise ConfigError(
            f"storage_options: the endpoint {server} of {url} has to begin with https:// or http://"
        )
    client.setdefault("allow_http", server.lower().startswith("http://"))
    if url.scheme == "s3":
        config = {**_aws_profile(config), **config}
    # Names in buckets have no escapes, but obstore takes %20 of a URL for a space.
    escaped = quote(url, safe=":/@")
    return open_store(escaped, client_options=client, retry_config=retry, **config)


def endpoint_of(url: Url, config: Mapping[str, Any]) -> str:
    """The server that the user named; "" for the cloud's own."""
    for name, value in config.items():
        if _ENDPOINT.fullmatch(name) and str(value):
            return str(value)
    if url.scheme == "s3":
        # obstore reads both.
        return os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT", "")
    return ""


def _aws_profile(config: dict[str, Any]) -> dict[str, Any]:
    """Credentials of ~/.aws, read by boto3. obstore itself reads all other credentials.

    Empty if the options or the environment have credentials, if there is no profile, or if boto3
    is not installed.
    """
    for name in config:
        if "key" in name or name.removeprefix("aws_") in _IDENTITY_OPTIONS:
            return {}
    if "AWS_ACCESS_KEY_ID" in os.environ or not _has_aws_profile():
        return {}
    with suppress(ImportError):
        from obstore.auth.boto3 import Boto3CredentialProvider

        return {"credential_provider": Boto3CredentialProvider()}
    return {}


def lacks_credentials(url: Url, config: dict[str, Any]) -> bool:
    """Whether a request to S3 is made without any credentials, as far as this machine knows.

    A machine of AWS may have those of its role, which are not looked up here.
    """
    if url.scheme != "s3" or _has_aws_profile():
        return False
    for name in config:
        if "key" in name or name.removeprefix("aws_") in _IDENTITY_OPTIONS:
            return False
    return not any(os.environ.get(name) for name in _AWS_VARIABLES)


def _has_aws_profile() -> bool:
    if "AWS_PROFILE" in os.environ:
        return True
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    files = [credentials, "~/.aws/config"]
    paths = [os.path.expanduser(file) for file in files]
    return any(map(os.path.exists, paths))


# The commit of each URL of the Hub, looked up once in a process: a branch that moves does not
# change a running epoch.
_commits: dict[Url, str] = {}


def _hub_address(url: Url, config: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The web address of hf://datasets/ORG/NAME[@REVISION]/FOLDER, and headers. Raises as
    `_repository` does.
    """
    repository = _repository(url, config)
    headers: dict[str, str] = {}
    if repository.api.token:
        headers["authorization"] = f"Bearer {repository.api.token}"
    parts = [
        "datasets",
        repository.name,
        "resolve",
        repository.commit,
        *repository.folder,
    ]
    return "/".join([repository.api.endpoint, *parts]), headers


def listed_by_hub(
    url: Url, config: dict[str, Any], folder: str
) -> Iterator[tuple[str, int, str]]:
    """The files below a folder of the URL's, if it exists.

    Yields the name, the size in bytes, and the id of the content.
    """
    repository = _repository(url, config)
    prefix = "".join(f"{part}/" for part in repository.folder)
    top = f"{prefix}{folder}".rstrip("/") or None
    try:
        entries = repository.api.list_repo_tree(
            repository.name,
            top,
            recursive=True,
            revision=repository.commit,
            repo_type="dataset",
        )
        for entry in entries:
            # A folder has no size.
            size_bytes = getattr(entry, "size", None)
            if size_bytes is not None:
                yield (
                    entry.path.removeprefix(prefix),
                    int(size_bytes),
                    str(entry.blob_id),
                )
    except Exception as problem:
        # The library raises errors of whichever client it uses, so the name has to do.
        if type(problem).__name__ not in (
            "EntryNotFoundError",
            "RemoteEntryNotFoundError",
        ):
            message = "does not list its files"
            raise _hub_error(url, message, problem, "Try again later") from problem


class _Repository(NamedTuple):
    api: Any
    name: str
    commit: str
    # The parts of the path below the repository.
    folder: list[str]


def _repository(url: Url, config: dict[str, Any]) -> _Repository:
    """The repository of a URL, at the commit of now.

    Raises:
        ConfigError: huggingface_hub is not installed, or an option is unknown.
        DatasetError: the Hub does not know the dataset, or does not answer.
    """
    try:
        from huggingface_hub import HfApi, get_token
    except ImportError as missing:
        raise ConfigError(
            "hf:// needs huggingface_hub: pip install huggingface_hub"
        ) from missing
    unknown = config.keys() - {"token", "revision"}
    if unknown:
        raise ConfigError(
            f"storage_options: hf:// takes token and revision, got {', '.join(sorted(unknown))}"
        )
    _, organisation, name_and_revision, *folder = url.path.split("/")
    name, _, revision = f"{organisation}/{name_and_revision}".partition("@")
    api = HfApi(token=config.get("token") or get_token())
    if url not in _commits:
        revision = config.get("revision") or revision
        try:
            info = api.dataset_info(name, revision=revision or None, timeout=30)
        except Exception as problem:
            advice = "Check the name, and for a private one run `hf auth login` or set HF_TOKEN"
            message = f"does not give the dataset {name}"
            raise _hub_error(url, message, problem, advice) from problem
        _commits[url] = str(info.sha)
    return _Repository(api, name, _commits[url], folder)


def _hub_error(url: Url, message: str, problem: Exception, advice: str) -> DatasetError:
    reason = in_one_line(problem, 300)
    return DatasetError(f"{url}: the Hub {message}: {reason}. {advice}")
