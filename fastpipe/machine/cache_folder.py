"""The environment -> the folder for fastpipe's caches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Finds the folder for caches; absolute, because programs change their folder.

    It is FASTPIPE_CACHE, else fastpipe's folder in XDG_CACHE_HOME or ~/.cache. A user without a
    home gets a folder of temporary files.
    """
    chosen = os.environ.get("FASTPIPE_CACHE")
    if chosen:
        return Path(os.path.abspath(chosen))
    # Source: the XDG Base Directory Specification.
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if caches.startswith("~"):  # without HOME, and the system does not know the user
        return Path(tempfile.gettempdir()) / f"fastpipe-{os.getuid()}"
    return Path(os.path.abspath(caches)) / "fastpipe"
