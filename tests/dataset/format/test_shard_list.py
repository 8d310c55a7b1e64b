"""Tests of the list of shards: read into columns, shown as entries, and every impossible entry refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fastpipe.dataset.format.shard_list import Shard, ShardColumns, Shards

FOLDER = Path("data")
ENTRIES = [
    {"name": "a.tar", "samples": 3, "size_bytes": 10, "xxh3_64": "0"},
    {"name": "b.tar", "samples": 0, "size_bytes": 2**40, "xxh3_64": "1"},
    {"name": os.fsdecode(b"caf\xe9.tar"), "samples": 5, "size_bytes": 7},
]


def read(entries: list[Any], **other: Any) -> Shards:
    columns = ShardColumns()
    info = json.loads(json.dumps({"shards": entries, **other}), object_hook=columns.take)
    return columns.of(FOLDER, info["shards"])


def test_entries_by_number_and_in_order() -> None:
    shards = read(ENTRIES, index={"name": "index.npy", "xxh3_64": "3"})
    expected = [
        Shard(FOLDER, each["name"], each["samples"], each["size_bytes"]) for each in ENTRIES
    ]  # type: ignore[arg-type]
    assert list(shards) == expected
    assert [shards[number] for number in range(3)] == expected
    assert [shards[number] for number in range(-3, 0)] == expected
    assert (len(shards), shards.samples) == (3, 8)
    assert (shards.starts.tolist(), shards.sizes.tolist()) == ([0, 3, 3], [10, 2**40, 7])
    assert shards[2].path == FOLDER / os.fsdecode(b"caf\xe9.tar")
    for number in (3, -4):
        with pytest.raises(IndexError):
            shards[number]


def test_no_shards() -> None:
    shards = read([])
    assert (list(shards), len(shards), shards.samples, shards.starts.tolist()) == ([], 0, 0, [])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            {"name": "../a.tar"},
            ValueError,
            "expected a file name without a folder, because shards are in the dataset's own folder, got '../a.tar'",
        ),
        ({"name": ""}, ValueError, "expected a file name without a folder"),
        ({"name": "\0"}, ValueError, "expected a file name without a folder"),
        ({"name": 3}, TypeError, "expected a string, got 3"),
        ({"name": "\ud800"}, ValueError, "surrogates"),
        ({"samples": -1}, ValueError, "expected a whole number of 0 or more, got -1"),
        ({"samples": 2.0}, ValueError, "expected a whole number of 0 or more, got 2.0"),
        (
            {"samples": 2**63 - 1},
            ValueError,
            "the number of samples in all shards together is too large",
        ),
        ({"size_bytes": 2**63}, ValueError, "expected a whole number"),
    ],
)
def test_impossible_entries_are_refused(
    change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        read([ENTRIES[0], {**ENTRIES[1], **change}, ENTRIES[2]])


@pytest.mark.parametrize("missing", ["name", "samples", "size_bytes"])
def test_a_missing_field_is_named(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        read([{name: value for name, value in ENTRIES[0].items() if name != missing}])


def test_shards_stand_in_the_list_alone() -> None:
    with pytest.raises(TypeError, match="expected a list"):
        ShardColumns().of(FOLDER, {})
    with pytest.raises(ValueError, match="outside the list"):
        read(ENTRIES, counts=ENTRIES[0])
    with pytest.raises(ValueError, match="outside the list"):
        read([*ENTRIES, None])
