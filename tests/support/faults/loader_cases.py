"""What goes wrong with the files of a loader -> a case of faulted_epochs.py; cases -> how the loader came through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from support.faults.injector import Fault

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex

CHILD = Path(__file__).with_name("faulted_epochs.py")
NUMBER = 8  # of the shard that things happen to; it has samples 16 and 17, which are batch 8
SHARD = f"shard-{NUMBER:06d}.tar"
QUIET = "quiet"

Case = dict[str, Any]
Outcome = dict[str, Any]


def twelve_shards(packed: Path) -> Path:
    """A dozen shards of two samples each."""
    rng = np.random.default_rng(5)
    with fastpipe.Writer(packed, shard_size=100_000, quality=95) as writer:
        for _ in range(24):
            writer.add(rng.integers(0, 256, (128, 140, 3), dtype=np.uint8))
    assert [shard.samples for shard in PackedIndex(packed).shards] == 12 * [2]
    return packed


def closed(*acts: list[Any], **options: Any) -> Case:
    """Acts while the shard is not open, after the first batch."""
    return {
        "after": 1,
        "open_shards": 1,
        "acts": [["wait_until_closed", SHARD], *acts],
        "options": options,
    }


def opened(*acts: list[Any], **options: Any) -> Case:
    """Acts while the shard is open, which it has been since the first batch: it is read ahead."""
    return {"after": 1, "acts": [["wait_until_open", SHARD], *acts], "options": options}


def fault(
    calls: str, kind: str, number: int, at: int, *, each: bool = False, under: str = "{shards}"
) -> Case:
    """The call counted from the second batch on."""
    settings = {
        "UNDER": under,
        "CALLS": f"{calls},",
        "KIND": kind,
        "NUMBER": number,
        "AT": at,
        "EACH": int(each),
    }
    return {
        "after": 1,
        "shards": "linked",
        "fault": {f"FAULT_{name}": str(value) for name, value in settings.items()},
        "options": {},
    }


def outcomes_of(cases: dict[str, Case], dataset: Path, work: Path) -> dict[str, Outcome]:
    """By name of the case, and of an epoch in which nothing goes wrong: one program goes through them all."""
    cases = {QUIET: {}, **cases}
    done = subprocess.run(
        [sys.executable, str(CHILD), str(dataset), str(work)],
        input=json.dumps(
            [{**case, "name": str(number)} for number, case in enumerate(cases.values())]
        ),
        capture_output=True,
        text=True,
        env=Fault(work, ()).environment(),
        timeout=600,
        check=False,
    )
    came = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (
        f"ended with {done.returncode} in {list(cases)[len(came)]!r}: {done.stderr}"
    )
    assert done.stderr == ""
    return dict(zip(cases, came, strict=True))


def rows_of_an_epoch(outcomes: dict[str, Outcome]) -> list[str]:
    """A digest of each row, without faults."""
    quiet = outcomes[QUIET]
    assert quiet["error"] is None
    assert quiet["rows"] == quiet["again"]
    assert len(set(quiet["rows"])) == 24
    expected: list[str] = quiet["rows"]
    return expected


def assert_names_the_sample(error: dict[str, Any], many_shards: Path, *reasons: str) -> None:
    """Which sample, where, what was expected and got, what to do."""
    assert error["type"] == "SampleError"
    shard, member, offset = PackedIndex(many_shards).where(error["sample"])
    assert Path(error["shard"]).name == Path(shard).name
    assert (error["member"], error["offset"]) == (member, offset)
    for part in (
        f"sample {error['sample']} ",
        f"shard {error['shard']}, member {member}, byte {offset}",
        *reasons,
    ):
        assert part in error["text"]
    assert "on_error='replace'" in error["text"]
    assert "fastpipe verify DATA --repair SRC" in error["text"]


def assert_all_but(got: list[str], rows: list[str], replaced: int) -> None:
    """Rows of samples that could be read are as ever; the others are rows of other samples."""
    assert len(got) == len(rows)
    assert sum(a != b for a, b in zip(got, rows, strict=True)) == replaced
    assert set(got) <= set(rows)
