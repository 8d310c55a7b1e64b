"""A path as an annotation file or a table writes it -> the names of its folders and of its file."""

from __future__ import annotations

import re

# The drive at the start of a Windows path, which no folder here has.
_DRIVE = re.compile(r"^[A-Za-z]:(?=[\\/])")


def split_written_path(path: str) -> list[str]:
    """The names in a path with slashes, or with the drive and the backslashes of Windows."""
    parts = _DRIVE.sub("", path.strip()).replace("\\", "/").split("/")
    return [part for part in parts if part not in ("", ".")]
