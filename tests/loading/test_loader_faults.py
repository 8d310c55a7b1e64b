"""Shards that vanish, shrink, change, fail or are slow in mid-epoch: the same rows, or an error that says which sample.

One program goes through all cases (faulted_epochs.py), since a signal would end it; each test looks at some of them.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

import numpy as np
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
)
from support.running.soak import Tried, times

import fastpipe
from fastpipe.format.index import Index

WAYS = {"raise": {}, "raise, verify": {"verify": True}, "replace": {"on_error": "replace"}}

LENGTHS = (0, 1, 2000, 60_000)
CASES: dict[str, Case] = {
    "unlinked while open": opened(["unlink", SHARD]),
    "replaced by the same while open": opened(["replace", SHARD, "same"]),
    "replaced by the same while closed": closed(["replace", SHARD, "same"]),
    "replaced by others while open": opened(["replace", SHARD, "flipped"], verify=True),
    "grown while open": opened(["grow", SHARD]),
    "cut behind the samples while open": opened(["truncate", SHARD, -1]),
    "replaced by others, not verified": closed(["replace", SHARD, "flipped"]),
    "each read is short": fault("pread", "short", 0, 0, each=True, under="{data}") | {"shards": ""},
    "each read of a shard is short": fault("pread", "short", 0, 0, each=True),
    "each read is slow": fault("pread", "delay", 200, 0, each=True, under="{data}")
    | {"shards": "", "options": {"batch_size": 6}},
    "each read of a shard is slow": {
        **fault("pread", "delay", 200, 0, each=True),
        "after": 0,
        "epochs": 3,
        "step_s": 0.002,
        "options": {"batch_size": 1, "num_workers": 8, "prefetch_factor": 8, "stall_timeout": 0.15},
    },
    "reading fails for ever, replace": fault("pread", "error", errno.EIO, 0, each=True)
    | {"options": {"on_error": "replace"}},
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


@pytest.fixture(scope="module")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen shards of two samples each."""
    packed, rng = tmp_path_factory.mktemp("pairs") / "packed", np.random.default_rng(5)
    with fastpipe.Writer(packed, shard_size=100_000, quality=95) as writer:
        for _ in range(24):
            writer.add(rng.integers(0, 256, (128, 140, 3), dtype=np.uint8))
    assert [shard.samples for shard in Index(packed).shards] == 12 * [2]
    return packed


@pytest.fixture(scope="module")
def outcomes(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes_of(CASES, many_shards, tmp_path_factory.mktemp("faults"))


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


@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_disappears(
    outcomes: dict[str, Outcome], rows: list[str], many_shards: Path, tried: Tried, way: str
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
    assert_names_the_sample(other["error"], many_shards, "the shard has changed since it was packed", reasons)
    for outcome in (gone, other):
        assert outcome["error"]["sample"] == 2 * NUMBER
        assert outcome["rows"] == rows[: 2 * NUMBER], "the batches before it came"
        assert outcome["again"] == outcome["error"]["text"]
    tried("a shard that disappears, or gets another size", 2, "all batches before it, then a SampleError")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
def test_a_shard_that_shrinks_while_it_is_open(
    outcomes: dict[str, Outcome], rows: list[str], many_shards: Path, tried: Tried, way: str, length: int
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
    reasons = "the sample is beyond the end of the shard", f"needs {needed} bytes, found {found}"
    assert_names_the_sample(outcome["error"], many_shards, *reasons)
    assert outcome["error"]["sample"] == bad[0]
    assert outcome["rows"] == rows[: 2 * NUMBER]
    tried("a shard that shrinks while it is open", 1, "all batches before it, then a SampleError; no SIGBUS")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("call", "word"), [("reading", "read"), ("opening", "opened")])
def test_a_call_that_fails_once(
    outcomes: dict[str, Outcome], rows: list[str], many_shards: Path, tried: Tried, way: str, call: str, word: str
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
        advice = "after 0 of", "check the disk or the network"
        reasons = (f"the shard cannot be {word}: Input/output error", *(advice if call == "reading" else ()))
        assert_names_the_sample(outcome["error"], many_shards, *reasons)
        assert outcome["rows"] == rows[: len(outcome["rows"])]
    tried(f"EIO from {call} a shard, once", 1, "a SampleError, or all batches; the next epoch is whole")


def test_a_disk_that_fails_for_ever(
    outcomes: dict[str, Outcome], rows: list[str], many_shards: Path, tried: Tried
) -> None:
    outcome = outcomes["reading fails for ever, replace"]
    assert_names_the_sample(outcome["error"], many_shards, "and 16 other samples that could replace it failed too")
    assert outcome["rows"] == rows[: len(outcome["rows"])]
    assert outcome["again"] == rows, "once the disk is back"
    tried("EIO from each read", 1, 'a SampleError, also with on_error="replace"; once it is over, a whole epoch')


@pytest.mark.parametrize("way", ["raise", "replace"])
def test_a_shard_with_other_bytes_in_it(
    outcomes: dict[str, Outcome], rows: list[str], many_shards: Path, tried: Tried, way: str
) -> None:
    outcome = outcomes[f"flipped, {way}"]
    if way == "replace":
        assert outcome["error"] is None
        assert_all_but(outcome["rows"], rows, replaced=2)
    else:
        assert_names_the_sample(outcome["error"], many_shards, "expected XXH3-64 ", ", got ")
        assert outcome["rows"] == rows[: 2 * NUMBER]
    tried("a shard replaced by one of the same size, verify=True", 1, "a SampleError, or other samples, counted")


def test_a_shard_with_other_bytes_that_nobody_verifies(outcomes: dict[str, Outcome], rows: list[str]) -> None:
    """They may decode or not; nothing else comes of it."""
    got = outcomes["replaced by others, not verified"]["rows"]
    assert got[: 2 * NUMBER] == rows[: 2 * NUMBER]
    assert got[2 * NUMBER + 2 :] in ([], rows[2 * NUMBER + 2 :])


@pytest.mark.parametrize("name", ["each read is short", "each read of a shard is short"])
def test_short_reads(outcomes: dict[str, Outcome], rows: list[str], tried: Tried, name: str) -> None:
    assert outcomes[name]["error"] is None
    assert outcomes[name]["rows"] == outcomes[name]["again"] == rows
    tried("each read gives half of what was asked for", 1, "all batches as ever, byte for byte")


def test_interrupted_calls(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for call, at in INTERRUPTED:
        outcome = outcomes[f"{call} {at} interrupted"]
        assert outcome["error"] is None
        assert outcome["rows"] == rows
    tried("EINTR from a read or from opening a file", len(INTERRUPTED), "all batches as ever, byte for byte")


def test_slow_reads(outcomes: dict[str, Outcome], rows: list[str], tried: Tried) -> None:
    for name, epochs in (("each read is slow", 1), ("each read of a shard is slow", 3)):
        assert outcomes[name]["error"] is None
        assert outcomes[name]["rows"] == rows * epochs
    said = outcomes["each read of a shard is slow"]["said"]
    stuck = [line for line in said if line.startswith("no batch for ")]
    for words in ("stuck reading sample ", "(key 0000", "at byte ", "shard-0000", "does not answer; check it"):
        assert words in stuck[0]
    (advice,) = (line for line in said if line not in stuck)
    assert "the bottleneck is reading (" in advice
    assert "put the shards on a faster disk" in advice
    shares = re.findall(r"busy, read (\d+)%", outcomes["each read of a shard is slow"]["monitor"])
    assert max(map(int, shares)) > 80
    tried("each read takes 200 ms", 2, "all batches as ever; watchdog, advice and monitor name reading")
