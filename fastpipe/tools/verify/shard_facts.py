"""dataset.json -> the shards that should exist, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import (
    SELF_CHECKSUM,
    NewerFormatError,
    fingerprint,
    parse_info,
    read_info,
    read_self_checksum,
)
from fastpipe.dataset.format.fields import JPEG, PNG, Field, member_ending, read_fields
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    PICTURE_ENDINGS,
    shard_number,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import sample_key
from fastpipe.errors import DatasetError
from fastpipe.store.remote.objects import Objects
from fastpipe.tools.verify.damage import Damage


class _RecordsError(DatasetError):
    """A dataset's index.npy cannot be opened, while its dataset.json is as it should be."""


@dataclass(frozen=True)
class ShardFacts:
    """A shard as dataset.json describes it."""

    number: int
    name: str
    path: Path
    first_sample: int
    samples: int
    size_bytes: int
    xxh3_64: str  # of the file, in hex
    members: tuple[Field, ...]  # the fields that have members, in order
    pictures: tuple[str, ...]  # the endings that the images' members may have
    # Further samples in it, which this version of the dataset does not have.
    removed: int
    # The files behind its URL; None: it is a file of this machine.
    direct: Objects | None = None

    def member(self, start: int) -> str:
        """The name in the tar, without an ending, of the sample that begins at a byte of the shard."""
        return sample_key(shard_number(self.name), start)


@dataclass
class Description:
    """The content of dataset.json, and what is wrong with it."""

    info: dict[str, Any] | None = None  # None: it is of no use
    shards: list[ShardFacts] = field(default_factory=list)  # in order
    index: PackedIndex | None = None  # None: index.npy cannot be opened
    # About dataset.json, and an index.npy that cannot be opened.
    findings: list[Damage] = field(default_factory=list)

    def blame(self, problem: str, expected: str = "", got: str = "") -> None:
        """Adds a finding about dataset.json."""
        self.findings.append(Damage(DATASET_FILE, problem, expected, got))


def read_description(path: Path) -> Description:
    """Reads and checks dataset.json.

    Raises:
        DatasetError: there is no dataset, it is unfinished, or it has a newer format.
    """
    description = Description()
    try:
        data = (path / DATASET_FILE).read_bytes()
    except OSError:
        # It raises DatasetError, with what the folder holds instead.
        read_info(path)
        raise
    checksum = read_self_checksum(data)
    if checksum is None:
        description.blame(f"its own hash ({SELF_CHECKSUM}) is missing or invalid")
    else:
        written_hash, actual_hash = checksum
        if actual_hash != written_hash:
            description.blame(
                "its content has changed since it was written, so its data about other files may "
                "be wrong: its own hash",
                expected=written_hash,
                got=actual_hash,
            )
    # A file whose own hash is wrong is used as far as it makes sense: a user wants to know which
    # other files are damaged.
    try:
        info = parse_info(data, path / DATASET_FILE)
        shards = _read_shards(path, info)
        expected = fingerprint(info)
        if info.get("fingerprint") != expected:
            actual = repr(info.get("fingerprint"))
            description.blame(
                "fingerprint does not match the content", expected, actual
            )
        try:
            description.index = PackedIndex(path, records_error=_RecordsError)
        except _RecordsError as problem:
            description.findings.append(
                Damage(INDEX_FILE, f"cannot be opened ({problem})")
            )
    except (DatasetError, KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, NewerFormatError) and not description.findings:
            raise  # the file is as a newer fastpipe wrote it
        description.blame(f"cannot be used ({problem}); nothing else can be checked")
        return description
    description.info = info
    description.shards = shards
    return description


def _read_shards(path: Path, info: dict[str, Any]) -> list[ShardFacts]:
    """The entries that checks need beside those that the index reads.

    Raises:
        KeyError, TypeError, ValueError: an entry is missing or impossible.
    """
    # Fields whose values are members of the shard.
    members = []
    for sample_field in read_fields(info).values():
        if member_ending(sample_field) is not None:
            members.append(sample_field)

    picture_endings = PICTURE_ENDINGS[info["storage"]]
    shards: list[ShardFacts] = []
    first_sample = 0
    for number, entry in enumerate(info["shards"]):
        name = entry["name"]
        if not isinstance(name, str) or shard_number(name) < 0:
            raise ValueError(f"expected the name of a shard, got {name!r}")
        num_samples = _parse_count(name, entry["samples"])
        shards.append(
            ShardFacts(
                number=number,
                name=name,
                path=path / name,
                first_sample=first_sample,
                samples=num_samples,
                size_bytes=_parse_count(name, entry["size_bytes"]),
                xxh3_64=_parse_hash(entry["xxh3_64"]),
                members=tuple(members),
                pictures=picture_endings,
                removed=_parse_count(name, entry.get("removed", 0)),
            )
        )
        first_sample += num_samples

    # Later checks rely on these names and hashes, so a wrong one is an error here.
    index_entry = info["index"]
    if not isinstance(index_entry["name"], str):
        raise ValueError(f"index: expected a name, got {index_entry['name']!r}")
    _parse_hash(index_entry["xxh3_64"])
    _parse_hash(index_entry["file_xxh3_64"])
    _parse_hash(info["sources"]["file_xxh3_64"])
    return shards


def member_endings(field: Field, number: int = 0) -> tuple[str, ...]:
    """The endings that a field's member may have; none if it has no member.

    `number`: of the picture in a list of pictures.
    """
    endings = [
        member_ending(field, image_format, number) for image_format in (JPEG, PNG)
    ]
    return tuple(dict.fromkeys(ending for ending in endings if ending is not None))


def _parse_count(name: str, value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{name}: expected a whole number of 0 or more, got {value!r}")
    return value


def _parse_hash(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{16}", value):
        raise ValueError(f"expected a hash of 16 hex digits, got {value!r}")
    return value
