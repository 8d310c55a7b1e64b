"""Shards that vanish, shrink or change in mid-epoch: the same rows, or an error that says which sample.

In test_loader_failing_calls.py the system's calls fail, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults.loader_cases import (
    NUMBER,
    SHARD,
    Case,
    Outcome,
    assert_all_but,
    assert_names_the_sample,
    closed,
    opened,
    outcomes_here,
    rows_of_an_epoch,
    twelve_shards,
)
from support.running.soak import Tried

from fastpipe.format.index import Index

WAYS = {"raise": {}, "raise, verify": {"verify": True}, "replace": {"on_error": "replace"}}
LENGTHS = (0, 2000, 60_000)
CASES: dict[str, Case] = {
    "unlinked while open": opened(["unlink", SHARD]),
    "replaced by the same while open": opened(["replace", SHARD, "same"]),
    "replaced by the same while closed": closed(["replace", SHARD, "same"]),
    "replaced by others while open": opened(["replace", SHARD, "flipped"], verify=True),
    "grown while open": opened(["grow", SHARD]),
    "cut behind the samples while open": opened(["truncate", SHARD, -1]),
    "replaced by others, not verified": closed(["replace", SHARD, "flipped"]),
    "flipped, raise": closed(["replace", SHARD, "flipped"], verify=True),
    "flipped, replace": closed(["replace", SHARD, "flipped"], verify=True, on_error="replace"),
}
for way, options in WAYS.items():
    CASES[f"unlinked while closed, {way}"] = closed(["unlink", SHARD], **options)
    CASES[f"longer, {way}"] = closed(["replace", SHARD, "longer"], **options)
    for length in LENGTHS:
        CASES[f"cut to {length}, {way}"] = opened(["truncate", SHARD, length], **options)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twelve_shards(tmp_path_factory.mktemp("pairs") / "packed")


@pytest.fixture(scope="module")
def outcomes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes_here(CASES, data, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def rows(outcomes: dict[str, Outcome]) -> list[str]:
    return rows_of_an_epoch(outcomes)


UNNOTICED = {
    "unlinked while open": "a shard unlinked while it is open",
    "replaced by the same while open": "a shard replaced by the same one, open or not",
    "replaced by the same while closed": "a shard replaced by the same one, open or not",
    "replaced by others while open": "a shard replaced by another one while it is open",
    "grown while open": "a shard that grows while it is open",
    "cut behind the samples while open": "a shard cut short behind its last sample",
}


@pytest.mark.parametrize("name", UNNOTICED)
def test_what_does_not_concern_an_open_shard(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried, name: str
) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried(UNNOTICED[name], 1, "all batches as ever, byte for byte")


@pytest.mark.parametrize("way", ["raise", "raise, verify"])
def test_a_shard_that_disappears(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried, way: str
) -> None:
    gone, other = outcomes[f"unlinked while closed, {way}"], outcomes[f"longer, {way}"]
    size = (data / SHARD).stat().st_size
    reason = f"expected {size} bytes, found {size + 512}"
    assert_names_the_sample(gone["error"], data, "the shard cannot be opened: No such file or directory")
    assert_names_the_sample(other["error"], data, "the shard has changed since it was packed", reason)
    for outcome in (gone, other):
        assert outcome["error"]["sample"] == 2 * NUMBER
        assert outcome["rows"] == rows[: 2 * NUMBER], "the batches before it came"
        assert outcome["again"] == outcome["error"]["text"]
    tried("a shard that disappears, or gets another size", 2, "all batches before it, then a SampleError")


def test_a_shard_that_disappears_is_replaced(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for name in ("unlinked while closed, replace", "longer, replace"):
        assert outcomes[name]["error"] is None
        assert_all_but(outcomes[name]["rows"], rows, replaced=2)
        assert outcomes[name]["replaced"] == 2
    tried("a shard that disappears, or gets another size", 2, 'on_error="replace": other samples, counted')


@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_shrinks_while_it_is_open(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried, way: str
) -> None:
    places = {sample: Index(data).records[sample][["offset", "size"]].item() for sample in (16, 17)}
    for length in LENGTHS:
        outcome = outcomes[f"cut to {length}, {way}"]
        bad = [sample for sample, (offset, size) in places.items() if length < offset + size]
        if way == "replace":
            assert outcome["error"] is None
            assert_all_but(outcome["rows"], rows, replaced=len(bad))
            assert outcome["replaced"] == len(bad)
            continue
        offset, needed = places[bad[0]]
        reasons = "the sample is beyond the end of the shard", f"needs {needed} bytes, found {max(0, length - offset)}"
        assert_names_the_sample(outcome["error"], data, *reasons)
        assert outcome["error"]["sample"] == bad[0]
        assert outcome["rows"] == rows[: 2 * NUMBER]
    if way == "replace":
        result = 'on_error="replace": other samples, counted'
    else:
        result = "all batches before it, then a SampleError; no SIGBUS"
    tried("a shard that shrinks while it is open", len(LENGTHS), result)


def test_a_shard_with_other_bytes_in_it(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    raised, replaced = outcomes["flipped, raise"], outcomes["flipped, replace"]
    assert_names_the_sample(raised["error"], data, "expected XXH3-64 ", ", got ")
    assert raised["rows"] == rows[: 2 * NUMBER]
    assert replaced["error"] is None
    assert_all_but(replaced["rows"], rows, replaced=2)
    tried("a shard replaced by one of the same size, verify=True", 2, "a SampleError, or other samples, counted")


def test_a_shard_with_other_bytes_that_nobody_verifies(outcomes: dict[str, Outcome], rows: list[str]) -> None:
    """They may decode or not; nothing else comes of it."""
    got = outcomes["replaced by others, not verified"]["rows"]
    assert got[: 2 * NUMBER] == rows[: 2 * NUMBER]
    assert got[2 * NUMBER + 2 :] in ([], rows[2 * NUMBER + 2 :])
