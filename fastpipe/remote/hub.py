"""hf://datasets/ORG/NAME/FOLDER -> the URL of that folder at one commit, and the headers that requests to it need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.folder import Url

_commits: dict[Url, str] = {}  # found out once in a process: a branch that moves does not change a running epoch


def resolved(url: Url, config: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The web address of the folder, and headers.

    Args:
        url: hf://datasets/ORG/NAME[@REVISION]/FOLDER.
        config: `token` and `revision` are taken; other options are refused.

    Raises:
        ConfigError: huggingface_hub is not installed, or an option is unknown.
        DatasetError: the Hub does not know the dataset, or does not answer.
    """
    repository = _repository(url, config)
    token = repository.token
    path = "/".join(("datasets", repository.name, "resolve", repository.commit, *repository.folder))
    return f"{repository.api.endpoint}/{path}", {"authorization": f"Bearer {token}"} if token else {}


def listed(url: Url, config: dict[str, Any], folder: str) -> Iterator[tuple[str, int, str]]:
    """The files below a folder of a dataset, as often as needed: name, size in bytes, and what names the content.

    Args:
        url, config: as of `resolved`.
        folder: in it; "" is the URL's own. One that is not there has no files.

    Raises:
        ConfigError, DatasetError: as `resolved`.
    """
    repository = _repository(url, config)
    before = "".join(f"{part}/" for part in repository.folder)
    try:
        found = repository.api.list_repo_tree(
            repository.name,
            f"{before}{folder}".rstrip("/") or None,
            recursive=True,
            revision=repository.commit,
            repo_type="dataset",
        )
        for each in found:
            if (size_bytes := getattr(each, "size", None)) is not None:  # else it is a folder
                yield each.path.removeprefix(before), int(size_bytes), str(each.blob_id)
    except Exception as problem:  # of whichever client the library uses
        if type(problem).__name__ in ("EntryNotFoundError", "RemoteEntryNotFoundError"):
            return
        words = " ".join(str(problem).split())[:300]
        raise DatasetError(f"{url}: the Hub does not list its files: {words}. Try again later") from problem


class _Repository(NamedTuple):
    """A dataset of the Hub at one commit."""

    api: Any
    name: str
    commit: str
    folder: tuple[str, ...]
    token: str | None


def _repository(url: Url, config: dict[str, Any]) -> _Repository:
    try:
        from huggingface_hub import HfApi, get_token
    except ImportError as missing:
        raise ConfigError("hf:// needs huggingface_hub: pip install huggingface_hub") from missing
    strange = config.keys() - {"token", "revision"}
    if strange:
        raise ConfigError(f"storage_options: hf:// takes token and revision, got {', '.join(sorted(strange))}")
    organisation, name, *folder = url.split("://", 1)[1].split("/")[1:]
    name, _, revision = name.partition("@")
    token = config.get("token") or get_token()
    api = HfApi(token=token)
    if url not in _commits:
        try:
            wanted = config.get("revision") or revision or None
            found = api.dataset_info(f"{organisation}/{name}", revision=wanted, timeout=30)
        except Exception as problem:  # of whichever client the library uses
            words = " ".join(str(problem).split())[:300]
            raise DatasetError(
                f"{url}: the Hub does not give the dataset {organisation}/{name}: {words}. Check the name, and for a "
                "private one run `hf auth login` or set HF_TOKEN"
            ) from problem
        _commits[url] = str(found.sha)
    return _Repository(api, f"{organisation}/{name}", _commits[url], tuple(folder), token)
