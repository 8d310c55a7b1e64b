"""A path as an annotation file or a table writes it -> the names of its folders and of its file."""

from __future__ import annotations


def split_written_path(path: str) -> list[str]:
    """The names in a path with slashes or with the backslashes of Windows."""
    parts = path.replace("\\", "/").split("/")
    return [part for part in parts if part not in ("", ".")]
