"""hf://datasets/ORG/NAME/FOLDER -> the URL of that folder at one commit, and the headers that requests to it need."""

from __future__ import annotations

from typing import Any

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
    path = "/".join(("datasets", organisation, name, "resolve", _commits[url], *folder))
    return f"{api.endpoint}/{path}", {"authorization": f"Bearer {token}"} if token else {}
