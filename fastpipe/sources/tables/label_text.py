"""A file of labels beside an image -> its text."""

from __future__ import annotations

from pathlib import Path

from fastpipe.errors import ImageError
from fastpipe.sources.files import SourcePath

_MAX_BYTES = 4 << 20


def read_label_text(path: Path) -> str:
    """The text of a small file; "" if it does not exist. ImageError: it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ImageError(f"{path.name}: expected at most {_MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise ImageError(
            f"{path.name} cannot be read: {getattr(problem, 'strerror', problem)}"
        ) from None


def local_path(path: SourcePath) -> Path:
    """The path of a folder of VOC or YOLO, which are read only on this machine."""
    return Path(str(path))
