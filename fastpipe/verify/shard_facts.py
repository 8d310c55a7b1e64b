"""dataset.json -> the shards that should exist, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastpipe.errors import DatasetError
from fastpipe.format.description import SELF_CHECKSUM, fingerprint, read_info, read_self_checksum
from fastpipe.format.fields import JPEG, PNG, Field, member, read_fields
from fastpipe.format.index import Index, NoRecordsError
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, PICTURE_ENDINGS, shard_number
from fastpipe.format.sample_layout import sample_key
from fastpipe.store.remote.objects import Objects
from fastpipe.verify.damage import Damage


@dataclass(frozen=True)
class ShardFacts:
    """What dataset.json says of a shard."""

    number: int
    name: str
    path: Path
    first_sample: int
    samples: int
    size_bytes: int
    xxh3_64: str  # of the file, in hex
    members: tuple[tuple[str, ...], ...]  # the endings that the member of each field may have, in order
    pictures: tuple[str, ...]  # the endings that the images' members may have
    removed: int  # further samples in it, which this version of the dataset does not have
    direct: Objects | None = None  # the files behind the URL where it is; None: it is a file of this machine

    def key(self, start: int) -> str:
        """The WebDataset key of the sample that begins at a byte of the shard."""
        return sample_key(shard_number(self.name), start)


@dataclass
class Description:
    """What dataset.json says, and what is wrong with it."""

    info: dict[str, Any] | None = None  # None: it is of no use
    shards: list[ShardFacts] = field(default_factory=list)  # in order
    index: Index | None = None  # None: index.npy cannot be opened
    findings: list[Damage] = field(default_factory=list)  # about dataset.json, and an index.npy that cannot be opened

    def blame(self, problem: str, expected: str = "", got: str = "") -> None:
        self.findings.append(Damage(DATASET_FILE, problem, expected, got))


def describe(path: Path) -> Description:
    """Reads and checks dataset.json. DatasetError: there is no dataset, or it is unfinished."""
    found = Description()
    try:
        data = (path / DATASET_FILE).read_bytes()
    except OSError:
        read_info(path)  # says what is there instead
        raise
    checksum = read_self_checksum(data)
    if checksum is None:
        found.blame(f"its own hash ({SELF_CHECKSUM}) is missing or invalid")
    elif checksum[0] != checksum[1]:
        words = "its content has changed since it was written, so its data about other files may be wrong: its own hash"
        found.blame(words, *checksum)
    try:
        info = read_info(path)
        shards = _shards(path, info)
        expected = fingerprint(info)
        if info.get("fingerprint") != expected:
            found.blame("fingerprint does not match the content", expected, repr(info.get("fingerprint")))
        try:
            found.index = Index(path)
        except NoRecordsError as problem:
            found.findings.append(Damage(INDEX_FILE, f"cannot be opened ({problem})"))
    except (DatasetError, KeyError, TypeError, ValueError) as problem:
        found.blame(f"cannot be used ({problem}); nothing else can be checked")
    else:
        found.info, found.shards = info, shards
    return found


def _shards(path: Path, info: dict[str, Any]) -> list[ShardFacts]:
    """What the checks need besides what Index reads. KeyError, TypeError, ValueError: it is missing or impossible."""
    shards: list[ShardFacts] = []
    first = 0
    members = tuple(filter(None, map(_endings, read_fields(info).values())))
    pictures = PICTURE_ENDINGS[info["storage"]]
    for number, entry in enumerate(info["shards"]):
        name, numbers = entry["name"], (entry["samples"], entry["size_bytes"], entry.get("removed", 0))
        if not isinstance(name, str) or shard_number(name) < 0:
            raise ValueError(f"expected the name of a shard, got {name!r}")
        for value in numbers:
            if not isinstance(value, int) or not 0 <= value < 2**63:
                raise ValueError(f"{name}: expected a whole number of 0 or more, got {value!r}")
        (samples, size_bytes, removed), digest = numbers, _digest(entry["xxh3_64"])
        shards.append(
            ShardFacts(number, name, path / name, first, samples, size_bytes, digest, members, pictures, removed)
        )
        first += samples
    if not isinstance(info["index"]["name"], str):
        raise ValueError(f"index: expected a name, got {info['index']['name']!r}")
    for of, name in (("index", "xxh3_64"), ("index", "file_xxh3_64"), ("sources", "file_xxh3_64")):
        _digest(info[of][name])
    return shards


def _endings(field: Field) -> tuple[str, ...]:
    """The endings that a field's member may have; none if it has no member."""
    return tuple(dict.fromkeys(filter(None, (member(field, JPEG), member(field, PNG)))))


def _digest(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{16}", value):
        raise ValueError(f"expected a hash of 16 hex digits, got {value!r}")
    return value
