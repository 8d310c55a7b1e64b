"""Files that vanish, shrink or change in mid-epoch, and calls that fail: the same rows, or an error that says where.

One program goes through all cases (faulted_epochs.py), with a library before the system's that lets calls fail.
"""

from __future__ import annotations

import errno
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
    fault,
    opened,
    outcomes_of,
    rows_of_an_epoch,
    twelve_shards,
)
from support.running.soak import Tried, times

from fastpipe.dataset.format.packed_index import PackedIndex

pytestmark = pytest.mark.new_python(
    "the only loader whose calls fail: calls.c has to be there before torch is"
)

WAYS = {"raise": {}, "replace": {"on_error": "replace"}}
LENGTHS = (0, 2000, 60_000)
INDEX = "{data}/index.npy"
INDEX_LENGTHS = (0, 128, 500)
# By name of a case: what happens that changes no batch.
UNNOTICED = {
    "unlinked while open": "a shard unlinked while it is open",
    "replaced by the same while open": "a shard replaced by the same one, open or not",
    "replaced by the same while closed": "a shard replaced by the same one, open or not",
    "replaced by others while open": "a shard replaced by another one while it is open",
    "grown while open": "a shard that grows while it is open",
    "cut behind the samples while open": "a shard cut short behind its last sample",
}
UNUSED = [
    ["unlink", "index.npy"],
    ["replace", "index.npy", "flipped"],
    ["unlink", "dataset.json"],
    ["replace", "dataset.json", "flipped"],
    ["truncate", "dataset.json", 0],
    ["zero", "dataset.json"],
]
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
    "index zeroed in place": {"after": 2, "acts": [["zero", "index.npy"]]},
    "index cut before the first batch": {"acts": [["truncate", "index.npy", 128]]},
    **{
        f"index cut to {length}": {"after": 2, "acts": [["truncate", "index.npy", length]]}
        for length in INDEX_LENGTHS
    },
    **{str(act): {"after": 2, "acts": [act]} for act in UNUSED},
    "each read is short": fault("pread", "short", 0, 0, each=True, under="{data}") | {"shards": ""},
    "each read of a shard is short": fault("pread", "short", 0, 0, each=True),
    "reading fails for ever, replace": fault("pread", "error", errno.EIO, 0, each=True)
    | {"options": {"on_error": "replace"}},
    "opening the index fails": fault("open", "error", errno.EIO, 0, under=INDEX) | {"after": 0},
    "reading the index fails": fault("pread", "error", errno.EIO, 0, each=True, under=INDEX),
}
for way, options in WAYS.items():
    CASES[f"unlinked while closed, {way}"] = closed(["unlink", SHARD], **options)
    CASES[f"longer, {way}"] = closed(["replace", SHARD, "longer"], **options)
    for length in LENGTHS:
        CASES[f"cut to {length}, {way}"] = opened(["truncate", SHARD, length], **options)
    CASES[f"reading fails once, {way}"] = fault("pread", "error", errno.EIO, 9) | {
        "options": options
    }
    opening = fault("open", "error", errno.EIO, 4, under="{data}")
    CASES[f"opening fails once, {way}"] = opening | {
        "options": options,
        "shards": "",
        "open_shards": 1,
    }
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


def test_what_does_not_concern_an_open_shard(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
    for name, happens in UNNOTICED.items():
        assert outcomes[name]["error"] is None, name
        assert outcomes[name]["rows"] == outcomes[name]["again"] == rows, name
        tried(happens, 1, "all batches as ever, byte for byte")


def test_a_shard_that_disappears(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    gone, other = outcomes["unlinked while closed, raise"], outcomes["longer, raise"]
    size = (data / SHARD).stat().st_size
    reason = f"expected {size} bytes, found {size + 512}"
    assert_names_the_sample(
        gone["error"], data, "the shard cannot be opened: No such file or directory"
    )
    assert_names_the_sample(
        other["error"], data, "the shard has changed since it was packed", reason
    )
    for outcome in (gone, other):
        assert outcome["error"]["sample"] == 2 * NUMBER
        assert outcome["rows"] == rows[: 2 * NUMBER], "the batches before it came"
        assert outcome["again"] == outcome["error"]["text"]
    tried(
        "a shard that disappears, or gets another size",
        2,
        "all batches before it, then a SampleError",
    )


def test_a_shard_that_disappears_is_replaced(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
    for name in ("unlinked while closed, replace", "longer, replace"):
        assert outcomes[name]["error"] is None
        assert_all_but(outcomes[name]["rows"], rows, replaced=2)
        assert outcomes[name]["replaced"] == 2
    tried(
        "a shard that disappears, or gets another size",
        2,
        'on_error="replace": other samples, counted',
    )


def test_a_shard_that_shrinks_while_it_is_open(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    places = {
        sample: PackedIndex(data).records[sample][["offset", "size"]].item() for sample in (16, 17)
    }
    for length in LENGTHS:
        bad = [sample for sample, (offset, size) in places.items() if length < offset + size]
        offset, needed = places[bad[0]]
        reasons = (
            "the sample is beyond the end of the shard",
            f"needs {needed} bytes, found {max(0, length - offset)}",
        )
        raised, replaced = (
            outcomes[f"cut to {length}, raise"],
            outcomes[f"cut to {length}, replace"],
        )
        assert_names_the_sample(raised["error"], data, *reasons)
        assert raised["error"]["sample"] == bad[0]
        assert raised["rows"] == rows[: 2 * NUMBER]
        assert replaced["error"] is None
        assert_all_but(replaced["rows"], rows, replaced=len(bad))
        assert replaced["replaced"] == len(bad)
    number, happens = len(LENGTHS), "a shard that shrinks while it is open"
    tried(happens, number, "all batches before it, then a SampleError; no SIGBUS")
    tried(happens, number, 'on_error="replace": other samples, counted')


def test_a_shard_with_other_bytes_in_it(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    raised, replaced = outcomes["flipped, raise"], outcomes["flipped, replace"]
    assert_names_the_sample(raised["error"], data, "expected XXH3-64 ", ", got ")
    assert raised["rows"] == rows[: 2 * NUMBER]
    assert replaced["error"] is None
    assert_all_but(replaced["rows"], rows, replaced=2)
    tried(
        "a shard replaced by one of the same size, verify=True",
        2,
        "a SampleError, or other samples, counted",
    )


def test_a_shard_with_other_bytes_that_nobody_verifies(
    outcomes: dict[str, Outcome], rows: list[str]
) -> None:
    """They may decode or not; nothing else comes of it."""
    got = outcomes["replaced by others, not verified"]["rows"]
    assert got[: 2 * NUMBER] == rows[: 2 * NUMBER]
    assert got[2 * NUMBER + 2 :] in ([], rows[2 * NUMBER + 2 :])


def test_an_index_that_shrinks(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for length in INDEX_LENGTHS:
        outcome = outcomes[f"index cut to {length}"]
        assert outcome["error"]["type"] == "DatasetError"
        for words in (
            "index.npy was truncated after it was opened: expected ",
            " bytes at byte ",
            ", got ",
        ):
            assert words in outcome["error"]["text"]
        assert "While a dataset is in use, pack into another folder" in outcome["error"]["text"]
        assert outcome["rows"] == rows[: len(outcome["rows"])]
        assert len(outcome["rows"]) >= 4
    at_once = outcomes["index cut before the first batch"]
    assert "was truncated after it was opened" in at_once["error"]["text"]
    assert at_once["rows"] == []
    tried(
        "index.npy cut short in place",
        len(INDEX_LENGTHS),
        "all batches planned before, then a DatasetError; no SIGBUS",
    )


def test_an_index_that_is_zeroed_in_place(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
    outcome = outcomes["index zeroed in place"]
    assert outcome["error"]["type"] == "DatasetError"
    assert "is impossible: shard 0, offset 0, size 0" in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    tried(
        "index.npy overwritten in place, or EIO from it",
        1,
        "a DatasetError that says what and where",
    )


def test_what_is_not_needed_any_more(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
    for act in UNUSED:
        outcome = outcomes[str(act)]
        assert outcome["error"] is None, act
        assert outcome["rows"] == outcome["again"] == rows, act
    words = "index.npy unlinked or replaced, dataset.json gone or damaged"
    tried(words, len(UNUSED), "all batches as ever, byte for byte")


def test_a_call_that_fails_once(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    reading, opening = outcomes["reading fails once, raise"], outcomes["opening fails once, raise"]
    reasons = (
        "the shard cannot be read: Input/output error",
        "after 0 of",
        "check the disk or the network",
    )
    assert_names_the_sample(reading["error"], data, *reasons)
    if opening["error"] is None:
        assert opening["rows"] == rows, (
            "the thread that reads ahead has met it; the sample's own thread opens it again"
        )
    else:
        assert_names_the_sample(
            opening["error"], data, "the shard cannot be opened: Input/output error"
        )
    for outcome in (reading, opening):
        assert outcome["rows"] == rows[: len(outcome["rows"])]
        assert outcome["again"] == rows, "the next epoch is whole"
    tried(
        "EIO from reading or opening a shard, once",
        2,
        "a SampleError, or all batches; the next epoch is whole",
    )


def test_a_call_that_fails_once_is_replaced(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
    for call in ("reading", "opening"):
        outcome = outcomes[f"{call} fails once, replace"]
        assert outcome["error"] is None
        assert outcome["replaced"] <= 1
        assert_all_but(outcome["rows"], rows, replaced=outcome["replaced"])
        assert outcome["again"] == rows, "the next epoch is whole"
    tried(
        "EIO from reading or opening a shard, once",
        2,
        'on_error="replace": at most one other sample, counted',
    )


def test_a_disk_that_fails_for_ever(
    outcomes: dict[str, Outcome], rows: list[str], data: Path, tried: Tried
) -> None:
    outcome = outcomes["reading fails for ever, replace"]
    assert_names_the_sample(
        outcome["error"], data, "and 16 other samples that could replace it failed too"
    )
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert outcome["again"] == rows, "once the disk is back"
    tried(
        "EIO from each read",
        1,
        'a SampleError, also with on_error="replace"; once it is over, a whole epoch',
    )


def test_an_index_whose_calls_fail(
    outcomes: dict[str, Outcome], rows: list[str], tried: Tried
) -> None:
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
    tried(
        "index.npy overwritten in place, or EIO from it",
        2,
        "a DatasetError that says what and where",
    )


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
    tried(
        "EINTR from a read or from opening a file",
        len(INTERRUPTED),
        "all batches as ever, byte for byte",
    )
