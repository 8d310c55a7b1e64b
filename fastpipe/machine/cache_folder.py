"""Where a user wants caches."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """FASTPIPE_CACHE; else fastpipe's folder in XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("FASTPIPE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "fastpipe"
