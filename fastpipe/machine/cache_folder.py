"""Where a user wants caches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """FASTPIPE_CACHE; else fastpipe's folder in XDG_CACHE_HOME or ~/.cache; for users without a home, a folder of
    temporary files. Absolute: programs change their folder.
    """
    own = os.environ.get("FASTPIPE_CACHE")
    if own:
        return Path(os.path.abspath(own))
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if caches.startswith("~"):  # there is no HOME, and the system does not know the user
        return Path(tempfile.gettempdir()) / f"fastpipe-{os.getuid()}"
    return Path(os.path.abspath(caches)) / "fastpipe"
