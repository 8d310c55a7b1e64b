"""The path of a file as a row writes it -> the path relative to the image root."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TypeGuard
from urllib.parse import unquote

from fastpipe.dataset.format.folder import Url, scheme_of
from fastpipe.sources.files import SourcePath

_MAX_PATH_BYTES = 4096


def is_name(path: object) -> TypeGuard[str]:
    """Whether a file can have this name."""
    if not isinstance(path, str) or not path or "\0" in path:
        return False
    try:
        return len(os.fsencode(path)) <= _MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False


def describe_wrong_path(column: str, path: object) -> str | None:
    """Why a value is not the path of an image; None if it may be one."""
    if isinstance(path, str) and path:
        return None
    got = "none"
    if path not in (None, ""):
        got = repr(path)[:60]
    return f"column {column}: expected the path of an image, got {got}"


def clean_path(path: str) -> str:
    """A path without "." and doubled slashes, which mean nothing; URLs stay as they are."""
    if scheme_of(path):
        return path
    return str(PurePosixPath(path))


def relative_path(path: str, image_root: SourcePath) -> str:
    """A path as it names a sample: clean, and relative to the image root if it is below it."""
    if not isinstance(image_root, Path):
        # A table has %20 for a space in a web address. The names on the server have the space.
        if Url(path).is_web:
            path = unquote(path)
        path = path.removeprefix(f"{image_root}/")
    if scheme_of(path):
        return path
    # Most paths are clean. A PurePosixPath for each of a million rows would take seconds.
    if (
        path[:1] not in ("", ".", "/")
        and "//" not in path
        and "/." not in path
        and path[-1] != "/"
    ):
        return path

    clean = PurePosixPath(path)
    if clean.is_absolute() and isinstance(image_root, Path):
        root = PurePosixPath(os.path.abspath(image_root))
        if clean.is_relative_to(root):
            clean = clean.relative_to(root)
    return str(clean)
