"""Shards that are planned while parts are converted: those of the plan of all parts, in any order of parts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster.sources import FIELDS, MAKERS, PHOTO_BYTES, SHARD_BYTES

from fastpipe.packing.options import pack_options
from fastpipe.packing.output.journal import ShardEntry, Tally
from fastpipe.packing.steps.convert_step import convert_step
from fastpipe.packing.steps.job import Job, Part, read_listed, read_parts
from fastpipe.packing.steps.listing_step import list_step
from fastpipe.packing.steps.plan_step import Plan, plan_step
from fastpipe.packing.steps.rolling_plan import rolling_plan
from fastpipe.packing.steps.shard_plan import ShardPlan

RUNS = [kind for kind in MAKERS if kind != "parquet"]


def converted(kind: str, folder: Path) -> tuple[Job, Plan]:
    """A pack whose parts are all converted, and its plan."""
    options = pack_options(shard_size=SHARD_BYTES, fields=FIELDS[kind])
    job = Job.of(MAKERS[kind](folder / "source"), folder / "packed", options, 2 * PHOTO_BYTES)
    (folder / "packed" / ".pack").mkdir(parents=True)  # as the pack does that all steps are of
    list_step(job)
    for part in read_parts(job.store()):
        convert_step(job, part)
    return job, plan_step(job)


def entry(shard: ShardPlan, after: ShardPlan | None) -> ShardEntry:
    """As the journal has it when it is finished."""
    facts = f"shard-{shard.number:06d}.tar", shard.samples, 0, ""
    return ShardEntry(*facts, shard.stop, shard.sources, Tally(), {}, after.agreed or {} if after else {})


@pytest.mark.parametrize("kind", RUNS)
def test_shards_are_those_of_the_whole_plan(tmp_path: Path, kind: str) -> None:
    job, plan = converted(kind, tmp_path)
    shards = list(plan.shards())
    assert len(shards) >= 4
    chance = random.Random(7)
    for done in range(len(shards)):
        rolling = rolling_plan(job, plan.sources, list(map(entry, shards[:done], shards[1:])))
        needed = list(rolling.needed())
        chance.shuffle(needed)
        made = [shard for part in needed for shard in rolling.converted(part)]
        assert made == shards[done:]
        assert rolling.shards == len(shards)


@pytest.mark.parametrize("kind", RUNS)
def test_spool_files_go_when_no_shard_needs_them(tmp_path: Path, kind: str) -> None:
    job, plan = converted(kind, tmp_path)
    rolling = rolling_plan(job, plan.sources, [])
    chance = random.Random(8)
    waiting: list[ShardPlan] = []
    there: set[str] = set()
    most = 0
    parts: list[Part] = list(rolling.needed())
    assert len(parts) >= 3
    while parts or waiting:
        if parts and not (len(waiting) > 2 and chance.random() < 0.8):
            part = parts.pop(0)
            there.add(part.spool_file)
            waiting += rolling.converted(part)
        if waiting:
            done = waiting.pop(chance.randrange(len(waiting)))
            assert {each.file for each in done.ranges} <= there
            there -= {part.spool_file for part in rolling.finished(done)}
        most = max(most, len(there))
    assert not there
    assert most < len(plan.sources.parts), "some went before the last part came"


def test_rows_of_tables_wait_for_all_parts(tmp_path: Path) -> None:
    job, plan = converted("parquet", tmp_path)
    rolling = rolling_plan(job, plan.sources, [])
    *parts, last = rolling.needed()
    assert not any(list(rolling.converted(part)) for part in parts)
    made = list(rolling.converted(last))
    assert made == list(plan.shards())
    assert not any(rolling.finished(shard) for shard in made)


def test_a_change_is_seen_in_the_shards_that_it_can_move(tmp_path: Path) -> None:
    job, plan = converted("folder", tmp_path)
    before = [shard.sources for shard in plan.shards()]
    listed, parts = read_listed(job.store()), read_parts(job.store())
    for changed in range(len(parts)):
        other: Any = list(parts)
        other[changed] = parts[changed]._replace(name=f"{parts[changed].name}0")
        now = [shard.sources for shard in replace(plan, sources=replace(plan.sources, parts=other)).shards()]
        end = int(plan.sources.ends[changed])
        start = end - parts[changed].files
        for shard, one, two in zip(plan.shards(), before, now, strict=True):
            # The sample after it might have fit.
            assert (one != two) == (shard.start < end and shard.stop + 1 > start), (shard.number, changed)
    assert len(set(before)) > 1
    assert plan.sources.digest_with_times() == listed.state
