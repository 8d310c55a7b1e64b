"""The sidecar files of a dataset's fields -> their damage: whether each has the bytes that it was packed with."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import xxhash

from fastpipe.format.fields import FIELDS_FOLDER, Field
from fastpipe.verify.damage import Damage

_CHUNK_BYTES = 4 << 20
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # no waiting for the writer of a pipe


def check_sidecars(dataset: Path, fields: Iterable[Field]) -> Iterator[Damage]:
    """Hashes each file, in a pass that keeps a few MB."""
    for field in fields:
        for name, expected in field.files.items():
            yield from _check(dataset, f"{FIELDS_FOLDER}/{name}", expected)


def _check(dataset: Path, name: str, expected: str) -> Iterator[Damage]:
    digest = xxhash.xxh3_64()
    try:
        with open(os.open(dataset / name, _FLAGS), "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                yield Damage(name, "is not a regular file")
                return
            while data := file.read(_CHUNK_BYTES):
                digest.update(data)
    except OSError as problem:
        yield Damage(name, f"cannot be read: {problem.strerror or problem}")
        return
    if digest.hexdigest() != expected:
        yield Damage(name, "its content has changed since it was packed: hash", expected, digest.hexdigest())
