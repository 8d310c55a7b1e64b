"""Reads and opens of a loader that fail, stop half-way or are interrupted: the same rows, or an error that says where.

One program goes through all cases (faulted_epochs.py), with a library before the system's that lets calls fail.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.faults.loader_cases import (
    Case,
    Outcome,
    assert_all_but,
    assert_names_the_sample,
    fault,
    outcomes_of,
    rows_of_an_epoch,
    twelve_shards,
)
from support.running.soak import Tried, times

pytestmark = pytest.mark.new_python("the only loader whose calls fail: calls.c has to be there before torch is")

WAYS = {"raise": {}, "raise, verify": {"verify": True}, "replace": {"on_error": "replace"}}
INDEX = "{data}/index.npy"
CASES: dict[str, Case] = {
    "each read is short": fault("pread", "short", 0, 0, each=True, under="{data}") | {"shards": ""},
    "each read of a shard is short": fault("pread", "short", 0, 0, each=True),
    "reading fails for ever, replace": fault("pread", "error", errno.EIO, 0, each=True)
    | {"options": {"on_error": "replace"}},
    "opening the index fails": fault("open", "error", errno.EIO, 0, under=INDEX) | {"after": 0},
    "reading the index fails": fault("pread", "error", errno.EIO, 0, each=True, under=INDEX),
}
for way, options in WAYS.items():
    CASES[f"reading fails once, {way}"] = fault("pread", "error", errno.EIO, 9) | {"options": options}
    opening = fault("open", "error", errno.EIO, 4, under="{data}")
    CASES[f"opening fails once, {way}"] = opening | {"options": options, "shards": "", "open_shards": 1}
INTERRUPTED = [
    *(("pread", at) for at in range(0, times(12, 40), 4)),
    *(("open", at) for at in range(0, times(8, 30), 4)),
]
for call, at in INTERRUPTED:
    case = fault(call, "error", errno.EINTR, at, under="{data}")
    CASES[f"{call} {at} interrupted"] = case | {"after": 0, "shards": "", "open_shards": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twelve_shards(tmp_path_factory.mktemp("pairs") / "packed")


@pytest.fixture(scope="module")
def outcomes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes_of(CASES, data, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def rows(outcomes: dict[str, Outcome]) -> list[str]:
    return rows_of_an_epoch(outcomes)


@pytest.mark.parametrize("way", ["raise", "raise, verify"])
def test_a_call_that_fails_once(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried, way: str
) -> None:
    reading, opening = outcomes[f"reading fails once, {way}"], outcomes[f"opening fails once, {way}"]
    reasons = "the shard cannot be read: Input/output error", "after 0 of", "check the disk or the network"
    assert_names_the_sample(reading["error"], data, *reasons)
    if opening["error"] is None:
        assert opening["rows"] == rows, "the thread that reads ahead has met it; the sample's own thread opens it again"
    else:
        assert_names_the_sample(opening["error"], data, "the shard cannot be opened: Input/output error")
    for outcome in (reading, opening):
        assert outcome["rows"] == rows[: len(outcome["rows"])]
        assert outcome["again"] == rows, "the next epoch is whole"
    tried("EIO from reading or opening a shard, once", 2, "a SampleError, or all batches; the next epoch is whole")


def test_a_call_that_fails_once_is_replaced(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for call in ("reading", "opening"):
        outcome = outcomes[f"{call} fails once, replace"]
        assert outcome["error"] is None
        assert outcome["replaced"] <= 1
        assert_all_but(outcome["rows"], rows, replaced=outcome["replaced"])
        assert outcome["again"] == rows, "the next epoch is whole"
    tried("EIO from reading or opening a shard, once", 2, 'on_error="replace": at most one other sample, counted')


def test_a_disk_that_fails_for_ever(outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried) -> None:
    outcome = outcomes["reading fails for ever, replace"]
    assert_names_the_sample(outcome["error"], data, "and 16 other samples that could replace it failed too")
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert outcome["again"] == rows, "once the disk is back"
    tried("EIO from each read", 1, 'a SampleError, also with on_error="replace"; once it is over, a whole epoch')


def test_an_index_whose_calls_fail(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    words = {
        "opening": "index.npy cannot be opened: Input/output error; check ",
        "reading": "index.npy cannot be read: Input/output error, for ",
    }
    for call, says in words.items():
        outcome = outcomes[f"{call} the index fails"]
        assert outcome["error"]["type"] == "DatasetError"
        assert says in outcome["error"]["text"]
        assert outcome["rows"] == rows[: len(outcome["rows"])]
        assert outcome["again"] == rows
    tried("index.npy overwritten in place, or EIO from it", 2, "a DatasetError that says what and where")


def test_short_reads(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for name in ("each read is short", "each read of a shard is short"):
        assert outcomes[name]["error"] is None
        assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried("each read gives half of what was asked for", 2, "all batches as ever, byte for byte")


def test_interrupted_calls(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for call, at in INTERRUPTED:
        outcome = outcomes[f"{call} {at} interrupted"]
        assert outcome["error"] is None
        assert outcome["rows"] == rows
    tried("EINTR from a read or from opening a file", len(INTERRUPTED), "all batches as ever, byte for byte")
