"""What a user passes as a dataset -> a URL, or a folder of this machine."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fastpipe.errors import ConfigError
from fastpipe.format.folder import Url

SCHEMES = ("s3", "gs", "az", "http", "https", "hf")

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # what begins so is a URL


def place_of(data: object) -> object:
    """A Url where `data` is the URL of a dataset, a Path where it is file://, else `data` as it is.

    Raises:
        ConfigError: a URL of a scheme that nobody here reads, or one that names no folder.
    """
    found = SCHEME.match(data) if isinstance(data, str) else None
    if found is None:
        return data
    assert isinstance(data, str)
    scheme, url = found[1].lower(), data.rstrip("/")
    rest = data[found.end() :].strip("/")
    if scheme == "file":
        parts = urlsplit(data)
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"data: expected file:///FOLDER, got {data!r}, which names the host {parts.netloc!r}")
        if parts.query or parts.fragment:
            raise ConfigError(
                f"data: {data!r} has a query or a fragment, but file:// names a folder; write %3F for ? and %23 for #, "
                "or pass the folder without file://"
            )
        return Path(unquote(parts.path))
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in (*SCHEMES, "file"))
        raise ConfigError(f"data: {data!r} has the scheme {scheme}://, which fastpipe cannot read; it reads {known}")
    if scheme == "hf" and (not rest.startswith("datasets/") or rest.count("/") < 2):
        raise ConfigError(f"data: expected hf://datasets/ORG/NAME/FOLDER, got {data!r}")
    if not rest:
        raise ConfigError(f"data: expected {scheme}://BUCKET/FOLDER, got {data!r}")
    names = url[found.end() :].split("/")
    if scheme in ("s3", "gs", "az") and not {"", ".", ".."}.isdisjoint(names):
        raise ConfigError(
            f"data: {data!r} has an empty name between slashes, or a name . or ..; expected {scheme}://BUCKET/FOLDER "
            "with one slash between names"
        )
    host = rest.split("/")[0]
    if "@" in host and scheme in ("http", "https"):
        raise ConfigError(
            f"data: the URL of {host.rpartition('@')[2]} has a user name or a password, which messages would show; "
            'leave them out, and pass storage_options={"client_options": {"default_headers": {"authorization": "Basic '
            '..."}}}'
        )
    if "?" in rest or "#" in rest:
        raise ConfigError(
            f"data: {data!r} has a query or a fragment, but names of files are put behind a URL; pass the URL of the "
            "folder, and credentials by storage_options="
        )
    return Url(url)
