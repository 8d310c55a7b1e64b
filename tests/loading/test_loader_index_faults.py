"""index.npy and dataset.json that vanish, shrink, change or fail in mid-epoch: the same rows, or a DatasetError."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.faults.loader_cases import Case, Outcome, fault, outcomes_of, rows_of_an_epoch
from support.running.soak import Tried

LENGTHS = (0, 128, 500)
UNUSED = {
    f"{file}: {what[0]}": {"after": 2, "acts": [[what[0], file, *what[1:]]]}
    for file, acts in {
        "index.npy": (["unlink"], ["replace", "flipped"]),
        "dataset.json": (["unlink"], ["replace", "flipped"], ["truncate", 0], ["zero"]),
    }.items()
    for what in acts
}
CASES: dict[str, Case] = {
    "opening fails": fault("open", "error", errno.EIO, 0, under="{data}/index.npy") | {"after": 0},
    "reading fails": fault("pread", "error", errno.EIO, 0, each=True, under="{data}/index.npy"),
    "zeroed in place": {"after": 2, "acts": [["zero", "index.npy"]]},
    "cut before the first batch": {"acts": [["truncate", "index.npy", 128]]},
    **{f"cut to {length}": {"after": 2, "acts": [["truncate", "index.npy", length]]} for length in LENGTHS},
    **UNUSED,
}


@pytest.fixture(scope="module")
def outcomes(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes_of(CASES, many_shards, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def rows(outcomes: dict[str, Outcome]) -> list[str]:
    return rows_of_an_epoch(outcomes)


@pytest.mark.parametrize("length", LENGTHS)
def test_an_index_that_shrinks(outcomes: dict[str, Outcome], rows: list[str], tried: Tried, length: int) -> None:
    outcome = outcomes[f"cut to {length}"]
    assert outcome["error"]["type"] == "DatasetError"
    for words in ("index.npy was truncated after it was opened: expected ", " bytes at byte ", ", got "):
        assert words in outcome["error"]["text"]
    assert "While a dataset is in use, pack into another folder" in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert len(outcome["rows"]) >= 4
    tried("index.npy cut short in place", 1, "all batches planned before, then a DatasetError; no SIGBUS")


def test_an_index_that_is_short_from_the_start(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["cut before the first batch"]
    assert "was truncated after it was opened" in outcome["error"]["text"]
    assert outcome["rows"] == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("zeroed in place", "is impossible: shard 0, offset 0, size 0"),
        ("opening fails", "index.npy cannot be opened: Input/output error; check "),
        ("reading fails", "index.npy cannot be read: Input/output error, for "),
    ],
)
def test_an_index_that_fails(outcomes: dict[str, Outcome], rows: list[str], tried: Tried, name: str, says: str) -> None:
    outcome = outcomes[name]
    assert outcome["error"]["type"] == "DatasetError"
    assert says in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    if "fails" in name:
        assert outcome["again"] == rows
    tried("index.npy overwritten in place, or EIO from it", 1, "a DatasetError that says what and where")


@pytest.mark.parametrize("name", UNUSED)
def test_what_is_not_needed_any_more(outcomes: dict[str, Outcome], rows: list[str], tried: Tried, name: str) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried("index.npy unlinked or replaced, dataset.json gone or damaged", 1, "all batches as ever, byte for byte")
