"""The sidecar files of a dataset's fields -> their damage: whether each has the bytes that it was packed with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fastpipe.format.fields import FIELDS_FOLDER, Field
from fastpipe.format.intact import file_hash
from fastpipe.verify.damage import Damage


def check_sidecars(dataset: Path, fields: Iterable[Field]) -> Iterator[Damage]:
    """Hashes each file, in a pass that keeps a few MB."""
    for name, expected in (each for field in fields for each in field.files.items()):
        name = f"{FIELDS_FOLDER}/{name}"
        try:
            found = file_hash(dataset / name)
        except OSError as problem:
            yield Damage(name, f"cannot be read: {problem.strerror or problem}")
            continue
        if found != expected:
            yield Damage(name, "its content has changed since it was packed: hash", expected, found)
