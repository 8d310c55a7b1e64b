"""Sources that are lists of files, for the tests of packing them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.sources.pack_sources import jpeg_bytes

from fastpipe.dataset.format.packed_index import PackedIndex

CLASSES = ("ant", "bee", "cow")


def class_folders(root: Path, photos: int = 24) -> Path:
    """Small photos in folders by class."""
    for number in range(photos):
        path = root / CLASSES[number % 3] / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg_bytes((120 + number, 90), seed=number))
    return root


def flat_photos(root: Path, photos: int = 12) -> Path:
    """Small photos 000.jpg, 001.jpg, ... of width 40 + number and height 30."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(photos):
        (root / f"{number:03d}.jpg").write_bytes(jpeg_bytes((40 + number, 30), seed=number))
    return root


def names_of(root: Path) -> list[tuple[str, str]]:
    """Path and class of each photo."""
    return [
        (path.relative_to(root).as_posix(), path.parent.name)
        for path in sorted(root.glob("*/*.jpg"))
    ]


def shard_bytes(packed: Path) -> list[bytes]:
    """The bytes of the shards."""
    return [shard.path.read_bytes() for shard in PackedIndex(packed).shards]


def write_lines(path: Path, *rows: object) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def paths_of(packed: Path) -> list[str]:
    """Names of the samples, in order."""
    from support.datasets.field_values import notes

    return [note["path"] for note in notes(packed)]


def by_path(packed: Path, *fields: str) -> dict[str, Any]:
    """Name -> the values of these fields, labels of boxes behind the boxes; of one field the value itself."""
    import fastpipe

    found = {}
    for sample in fastpipe.open(packed).with_fields(("key", *fields)):  # type: ignore[attr-defined]
        key = sample.pop("key")
        values = tuple(sample.values())
        found[key] = values[0] if len(values) == 1 else values
    return found


def refuse_to_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system refuses it; but root, who runs tests, can list everything."""
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
