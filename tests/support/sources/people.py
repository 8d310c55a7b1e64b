"""Small sources as people have them, packed, for the tests of `tests/sources/people`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import fastpipe
from fastpipe.packing.job.summary import Summary


def photos(folder: Path, *names: str, size: tuple[int, int] = (40, 30)) -> Path:
    """Photos of one size, each a little brighter than the one before."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (20 * number, 0, 0)).save(folder / name)
    return folder


def write(file: Path, content: Any) -> Path:
    """Writes a text, or JSON of another value, with the folders around it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return file


def pack_text(folder: Path, name: str, text: str, **options: Any) -> Summary:
    """Packs a file of this text in the folder into FOLDER/packed."""
    file = folder / name
    file.write_text(text, "utf-8")
    return fastpipe.pack(file, folder / "packed", **options)


def labels(folder: Path) -> dict[str, str | None]:
    """Key -> the name of its class, of FOLDER/packed."""
    data = fastpipe.open(folder / "packed")
    return {
        key: None if label < 0 else data.classes[label]
        for key, label in zip(data["key"], data["label"], strict=True)
    }


def values(folder: Path, *fields: str) -> dict[str, Any]:
    """Key -> the values of fields, as lists, of FOLDER/packed; of one the value itself."""
    found: dict[str, Any] = {}
    for sample in fastpipe.open(folder / "packed").with_fields(("key", *fields)):  # type: ignore[attr-defined]
        key, *rest = (
            np.asarray(each).tolist() if hasattr(each, "tolist") else each
            for each in sample.values()
        )
        found[key] = rest[0] if len(rest) == 1 else rest
    return found


def masks(folder: Path) -> dict[str, list[list[int]]]:
    """Key -> the rows of its mask, of FOLDER/packed."""
    return {key: np.squeeze(mask).tolist() for key, mask in values(folder, "mask").items()}


def tags(folder: Path, field: str) -> dict[str, set[str]]:
    """Key -> the names of its classes in a field of classes."""
    names = fastpipe.open(folder / "packed").fields[field].names
    return {
        key: {names[at] for at, there in enumerate(row) if there}
        for key, row in values(folder, field).items()
    }


def assumed(summary: Summary) -> list[str]:
    return [str(each) for each in summary.assumed]
