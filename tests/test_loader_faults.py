"""Shards and index that vanish, shrink, change, fail or are slow in mid-epoch: the same rows, or an error that says which.

One program goes through all cases (faulted_epochs.py), since a signal would end it: each test looks at some of them.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faults.injector import Fault
from soak import Tried, times

from fastpipe.index import Index

CHILD = Path(__file__).with_name("faulted_epochs.py")
NUMBER = 8  # of the shard that things happen to; it has samples 16 and 17, which are batch 8
SHARD = f"shard-{NUMBER:06d}.tar"
WAYS = {"raise": {}, "raise, verify": {"verify": True}, "replace": {"on_error": "replace"}}

Case = dict[str, Any]


def closed(*acts: list[Any], **options: Any) -> Case:
    """Acts while the shard is not open, after the first batch."""
    return {"after": 1, "open_shards": 1, "acts": [["wait_until_closed", SHARD], *acts], "options": options}


def opened(*acts: list[Any], **options: Any) -> Case:
    """Acts while the shard is open, which it has been since the first batch: it is read ahead."""
    return {"after": 1, "acts": [["wait_until_open", SHARD], *acts], "options": options}


def fault(calls: str, kind: str, number: int, at: int, *, each: bool = False, under: str = "{shards}") -> Case:
    """The call counted from the second batch on."""
    settings = {"UNDER": under, "CALLS": f"{calls},", "KIND": kind, "NUMBER": number, "AT": at, "EACH": int(each)}
    return {
        "after": 1,
        "shards": "linked",
        "fault": {f"FAULT_{name}": str(value) for name, value in settings.items()},
        "options": {},
    }


LENGTHS = (0, 1, 2000, 60_000)
CASES: dict[str, Case] = {
    "quiet": {},
    "unlinked while open": opened(["unlink", SHARD]),
    "replaced by the same while open": opened(["replace", SHARD, "same"]),
    "replaced by the same while closed": closed(["replace", SHARD, "same"]),
    "replaced by others while open": opened(["replace", SHARD, "flipped"], verify=True),
    "grown while open": opened(["grow", SHARD]),
    "cut behind the samples while open": opened(["truncate", SHARD, -1]),
    "replaced by others, not verified": closed(["replace", SHARD, "flipped"]),
    "each read is short": fault("pread", "short", 0, 0, each=True, under="{data}"),
    "each read of a shard is short": fault("pread", "short", 0, 0, each=True),
    "each read is slow": fault("pread", "delay", 200, 0, each=True, under="{data}") | {"options": {"batch_size": 6}},
    "each read of a shard is slow": {
        **fault("pread", "delay", 200, 0, each=True),
        "after": 0,
        "epochs": 3,
        "step_s": 0.002,
        "options": {"batch_size": 1, "num_workers": 8, "prefetch_factor": 8, "stall_timeout": 0.1},
    },
    "reading fails for ever, replace": fault("pread", "error", errno.EIO, 0, each=True)
    | {"options": {"on_error": "replace"}},
    "opening the index fails": fault("open", "error", errno.EIO, 0, under="{data}/index.npy") | {"after": 0},
    "reading the index fails": fault("pread", "error", errno.EIO, 3, each=True, under="{data}/index.npy"),
    "index.npy zeroed in place": {"after": 2, "acts": [["zero", "index.npy"]]},
    "index.npy cut before the first batch": {"acts": [["truncate", "index.npy", 128]]},
}
for way, options in WAYS.items():
    CASES |= {
        f"unlinked while closed, {way}": closed(["unlink", SHARD], **options),
        f"longer, {way}": closed(["replace", SHARD, "longer"], **options),
        f"reading fails once, {way}": fault("pread", "error", errno.EIO, 9) | {"options": options},
        f"opening fails once, {way}": fault("open", "error", errno.EIO, 4, under="{data}")
        | {"options": options, "shards": "", "open_shards": 1},
    }
    for length in LENGTHS:
        CASES[f"cut to {length}, {way}"] = opened(["truncate", SHARD, length], **options)
for way in ("raise", "replace"):
    CASES[f"flipped, {way}"] = closed(["replace", SHARD, "flipped"], verify=True, on_error=way)
INTERRUPTED = [
    *(("pread", at) for at in range(0, times(12, 40), 4)),
    *(("open", at) for at in range(0, times(8, 30), 4)),
]
for call, at in INTERRUPTED:
    case = fault(call, "error", errno.EINTR, at, under="{data}")
    CASES[f"{call} {at} interrupted"] = case | {"after": 0, "shards": "", "open_shards": 1}
for length in (0, 128, 500):
    CASES[f"index.npy cut to {length}"] = {"after": 2, "acts": [["truncate", "index.npy", length]]}
GONE = {
    f"{file} {what[0]}": {"after": 2, "acts": [[what[0], file, *what[1:]]]}
    for file, acts in {
        "index.npy": (["unlink"], ["replace", "flipped"]),
        "dataset.json": (["unlink"], ["replace", "flipped"], ["truncate", 0], ["zero"]),
    }.items()
    for what in acts
}
CASES |= GONE


@pytest.fixture(scope="module")
def outcomes(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By name of the case."""
    work = tmp_path_factory.mktemp("faults")
    done = subprocess.run(
        [sys.executable, str(CHILD), str(many_shards), str(work)],
        input=json.dumps([{**case, "name": name.replace(" ", "-")} for name, case in CASES.items()]),
        capture_output=True,
        text=True,
        env=Fault(work, ()).environment(),
        timeout=300,
        check=False,
    )
    came = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended with {done.returncode} after {list(came[-1])}: {done.stderr}"
    assert done.stderr == ""
    named = {name: outcome for each in came for name, outcome in each.items()}
    return {name: named[name.replace(" ", "-")] for name in CASES}


@pytest.fixture
def rows(outcomes: dict[str, Any]) -> list[str]:
    """Of an epoch without faults."""
    quiet = outcomes["quiet"]
    assert quiet["error"] is None
    assert quiet["rows"] == quiet["again"]
    assert len(set(quiet["rows"])) == 24
    expected: list[str] = quiet["rows"]
    return expected


def assert_names_the_sample(error: dict[str, Any], many_shards: Path, *reasons: str) -> None:
    """Which sample, where, what was expected and got, what to do."""
    assert error["type"] == "SampleError"
    shard, key, offset = Index(many_shards).where(error["sample"])
    assert Path(error["shard"]).name == Path(shard).name
    assert (error["key"], error["offset"]) == (key, offset)
    for part in (f"sample {error['sample']} (key {key})", f"at byte {offset} of {error['shard']}", *reasons):
        assert part in error["text"]
    assert "on_error='replace'" in error["text"]
    assert "fastpipe verify DATA --repair SRC" in error["text"]


def assert_all_but(got: list[str], rows: list[str], replaced: int) -> None:
    """Rows of samples that could be read are as ever; the others are rows of other samples."""
    assert len(got) == len(rows)
    assert sum(a != b for a, b in zip(got, rows, strict=True)) == replaced
    assert set(got) <= set(rows)


def of_shard(name: str) -> bool:
    return name in CASES and any(act[0] not in ("wait_until_open", "wait_until_closed") for act in CASES[name]["acts"])


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
    outcomes: dict[str, Any], rows: list[str], tried: Tried, name: str
) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried(UNNOTICED[name], 1, "all batches as ever, byte for byte")


@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_disappears(
    outcomes: dict[str, Any], rows: list[str], many_shards: Path, tried: Tried, way: str
) -> None:
    gone, other = outcomes[f"unlinked while closed, {way}"], outcomes[f"longer, {way}"]
    if way == "replace":
        for outcome in (gone, other):
            assert outcome["error"] is None
            assert_all_but(outcome["rows"], rows, replaced=2)
            assert outcome["replaced"] == 2
        tried("a shard that disappears, or gets another size", 2, 'on_error="replace": other samples, counted')
        return
    size = (many_shards / SHARD).stat().st_size
    reasons = f"expected {size} bytes, found {size + 512}"
    assert_names_the_sample(gone["error"], many_shards, "the shard cannot be opened: No such file or directory")
    assert_names_the_sample(other["error"], many_shards, "the shard is not the one that was packed", reasons)
    for outcome in (gone, other):
        assert outcome["error"]["sample"] == 2 * NUMBER
        assert outcome["rows"] == rows[: 2 * NUMBER], "the batches before it came"
        assert outcome["again"] == outcome["error"]["text"]
    tried("a shard that disappears, or gets another size", 2, "all batches before it, then a SampleError")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_shrinks_while_it_is_open(
    outcomes: dict[str, Any], rows: list[str], many_shards: Path, tried: Tried, way: str, length: int
) -> None:
    outcome = outcomes[f"cut to {length}, {way}"]
    bad = [sample for sample in (16, 17) if length < sum(Index(many_shards).records[sample][["offset", "size"]].item())]
    if way == "replace":
        assert outcome["error"] is None
        assert_all_but(outcome["rows"], rows, replaced=len(bad))
        assert outcome["replaced"] == len(bad)
        tried("a shard that shrinks while it is open", 1, 'on_error="replace": other samples, counted')
        return
    found = max(0, length - int(Index(many_shards).records[bad[0]]["offset"]))
    needed = int(Index(many_shards).records[bad[0]]["size"])
    reasons = "the sample lies beyond the end of the shard", f"needs {needed} bytes, found {found}"
    assert_names_the_sample(outcome["error"], many_shards, *reasons)
    assert outcome["error"]["sample"] == bad[0]
    assert outcome["rows"] == rows[: 2 * NUMBER]
    tried("a shard that shrinks while it is open", 1, "all batches before it, then a SampleError; no SIGBUS")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("call", "word"), [("reading", "read"), ("opening", "opened")])
def test_a_call_that_fails_once(
    outcomes: dict[str, Any], rows: list[str], many_shards: Path, tried: Tried, way: str, call: str, word: str
) -> None:
    outcome = outcomes[f"{call} fails once, {way}"]
    assert outcome["again"] == rows, "the next epoch is whole"
    if way == "replace":
        assert outcome["error"] is None
        assert outcome["replaced"] <= 1
        assert_all_but(outcome["rows"], rows, replaced=outcome["replaced"])
        tried(f"EIO from {call} a shard, once", 1, 'on_error="replace": at most one other sample, counted')
        return
    if outcome["error"] is None:
        assert call == "opening", "the thread that reads ahead has met it; the sample's own thread opens it again"
        assert outcome["rows"] == rows
    else:
        advice = "after 0 of", "look at the disk or the network"
        reasons = (f"the shard cannot be {word}: Input/output error", *(advice if call == "reading" else ()))
        assert_names_the_sample(outcome["error"], many_shards, *reasons)
        assert outcome["rows"] == rows[: len(outcome["rows"])]
    tried(f"EIO from {call} a shard, once", 1, "a SampleError, or all batches; the next epoch is whole")


def test_a_disk_that_fails_for_ever(
    outcomes: dict[str, Any], rows: list[str], many_shards: Path, tried: Tried
) -> None:
    outcome = outcomes["reading fails for ever, replace"]
    assert_names_the_sample(outcome["error"], many_shards, "and 16 other samples tried in its place failed too")
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert outcome["again"] == rows, "once the disk is back"
    tried("EIO from each read", 1, 'a SampleError, also with on_error="replace"; once it is over, a whole epoch')


@pytest.mark.parametrize("way", ["raise", "replace"])
def test_a_shard_with_other_bytes_in_it(
    outcomes: dict[str, Any], rows: list[str], many_shards: Path, tried: Tried, way: str
) -> None:
    outcome = outcomes[f"flipped, {way}"]
    if way == "replace":
        assert outcome["error"] is None
        assert_all_but(outcome["rows"], rows, replaced=2)
    else:
        assert_names_the_sample(outcome["error"], many_shards, "expected XXH3-64 ", ", got ")
        assert outcome["rows"] == rows[: 2 * NUMBER]
    tried("a shard replaced by one of the same size, verify=True", 1, "a SampleError, or other samples, counted")


def test_a_shard_with_other_bytes_that_nobody_verifies(outcomes: dict[str, Any], rows: list[str]) -> None:
    """They may decode or not; nothing else comes of it."""
    got = outcomes["replaced by others, not verified"]["rows"]
    assert got[: 2 * NUMBER] == rows[: 2 * NUMBER]
    assert got[2 * NUMBER + 2 :] in ([], rows[2 * NUMBER + 2 :])


@pytest.mark.parametrize("name", ["each read is short", "each read of a shard is short"])
def test_short_reads(outcomes: dict[str, Any], rows: list[str], tried: Tried, name: str) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried("each read gives half of what was asked for", 1, "all batches as ever, byte for byte")


def test_interrupted_calls(outcomes: dict[str, Any], rows: list[str], tried: Tried) -> None:
    for call, at in INTERRUPTED:
        outcome = outcomes[f"{call} {at} interrupted"]
        assert outcome["error"] is None
        assert outcome["rows"] == rows
    tried("EINTR from a read or from opening a file", len(INTERRUPTED), "all batches as ever, byte for byte")


def test_slow_reads(outcomes: dict[str, Any], rows: list[str], tried: Tried) -> None:
    for name, epochs in (("each read is slow", 1), ("each read of a shard is slow", 3)):
        assert outcomes[name]["error"] is None
        assert outcomes[name]["rows"] == rows * epochs
    said = outcomes["each read of a shard is slow"]["said"]
    stuck = [line for line in said if line.startswith("no batch for ")]
    for words in ("stuck reading sample ", "(key 00000000", "at byte ", "shard-0000", "does not answer; look at it"):
        assert words in stuck[0]
    (advice,) = (line for line in said if line not in stuck)
    assert "the bottleneck is reading (" in advice
    assert "put the shards on a faster disk" in advice
    shares = [line.split("threads: read ")[1] for line in outcomes["each read of a shard is slow"]["monitor"].split("\n")
              if "threads: read " in line]
    assert int(max(shares, key=lambda share: int(share.split("%")[0])).split("%")[0]) > 80
    tried("each read takes 200 ms", 2, "all batches as ever; watchdog, advice and monitor name reading")


@pytest.mark.parametrize("length", [0, 128, 500])
def test_an_index_that_shrinks(outcomes: dict[str, Any], rows: list[str], tried: Tried, length: int) -> None:
    outcome = outcomes[f"index.npy cut to {length}"]
    assert outcome["error"]["type"] == "DatasetError"
    for words in ("index.npy has become shorter since it was opened: expected ", " bytes at byte ", ", got "):
        assert words in outcome["error"]["text"]
    assert "pack into another folder while a dataset is in use" in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert len(outcome["rows"]) >= 4
    tried("index.npy cut short in place", 1, "all batches planned before, then a DatasetError; no SIGBUS")


def test_an_index_that_is_short_from_the_start(outcomes: dict[str, Any]) -> None:
    outcome = outcomes["index.npy cut before the first batch"]
    assert "has become shorter since it was opened" in outcome["error"]["text"]
    assert outcome["rows"] == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("index.npy zeroed in place", "is impossible: shard 0, offset 0, size 0"),
        ("opening the index fails", "index.npy cannot be opened: Input/output error; look "),
        ("reading the index fails", "index.npy cannot be read: Input/output error, for "),
    ],
)
def test_an_index_that_fails(outcomes: dict[str, Any], rows: list[str], tried: Tried, name: str, says: str) -> None:
    outcome = outcomes[name]
    assert outcome["error"]["type"] == "DatasetError"
    assert says in outcome["error"]["text"]
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    if "fails" in name:
        assert outcome["again"] == rows
    tried("index.npy overwritten in place, or EIO from it", 1, "a DatasetError that says what and where")


@pytest.mark.parametrize("name", GONE)
def test_what_is_not_needed_any_more(outcomes: dict[str, Any], rows: list[str], tried: Tried, name: str) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried("index.npy unlinked or replaced, dataset.json gone or damaged", 1, "all batches as ever, byte for byte")
