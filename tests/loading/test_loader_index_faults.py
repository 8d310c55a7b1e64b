"""index.npy and dataset.json that vanish, shrink or change in mid-epoch: the same rows, or a DatasetError."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults.loader_cases import Case, Outcome, outcomes_here, rows_of_an_epoch
from support.running.soak import Tried

LENGTHS = (0, 128, 500)
CASES: dict[str, Case] = {
    "zeroed in place": {"after": 2, "acts": [["zero", "index.npy"]]},
    "cut before the first batch": {"acts": [["truncate", "index.npy", 128]]},
}
for length in LENGTHS:
    CASES[f"cut to {length}"] = {"after": 2, "acts": [["truncate", "index.npy", length]]}
UNUSED = [
    ["unlink", "index.npy"],
    ["replace", "index.npy", "flipped"],
    ["unlink", "dataset.json"],
    ["replace", "dataset.json", "flipped"],
    ["truncate", "dataset.json", 0],
    ["zero", "dataset.json"],
]
for act in UNUSED:
    CASES[str(act)] = {"after": 2, "acts": [act]}


@pytest.fixture(scope="module")
def outcomes(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes_here(CASES, many_shards, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def rows(outcomes: dict[str, Outcome]) -> list[str]:
    return rows_of_an_epoch(outcomes)


def test_an_index_that_shrinks(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for length in LENGTHS:
        outcome = outcomes[f"cut to {length}"]
        assert outcome["error"]["type"] == "DatasetError"
        for words in ("index.npy was truncated after it was opened: expected ", " bytes at byte ", ", got "):
            assert words in outcome["error"]["text"]
        assert "While a dataset is in use, pack into another folder" in outcome["error"]["text"]
        assert outcome["rows"] == rows[: len(outcome["rows"])]
        assert len(outcome["rows"]) >= 4
    tried("index.npy cut short in place", len(LENGTHS), "all batches planned before, then a DatasetError; no SIGBUS")


def test_an_index_that_is_short_from_the_start(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["cut before the first batch"]
    assert "was truncated after it was opened" in outcome["error"]["text"]
    assert outcome["rows"] == []


def test_an_index_that_is_zeroed_in_place(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    outcome = outcomes["zeroed in place"]
    assert outcome["error"]["type"] == "DatasetError"
    assert "is impossible: shard 0, offset 0, size 0" in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    tried("index.npy overwritten in place, or EIO from it", 1, "a DatasetError that says what and where")


def test_what_is_not_needed_any_more(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for act in UNUSED:
        outcome = outcomes[str(act)]
        assert outcome["error"] is None, act
        assert outcome["rows"] == outcome["again"] == rows, act
    words = "index.npy unlinked or replaced, dataset.json gone or damaged"
    tried(words, len(UNUSED), "all batches as ever, byte for byte")
