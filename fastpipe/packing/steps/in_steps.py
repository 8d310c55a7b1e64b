"""One step of a pack, or a part of it, in this process: for Slurm, ssh and all else that starts programs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastpipe.errors import ConfigError
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.job.destination import check_apart, destination_of, first_pack, opened
from fastpipe.packing.job.threads import Made, publish
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import pack_options
from fastpipe.packing.steps.lists import list_all
from fastpipe.packing.steps.parts import Job, Part, read_listed, read_parts
from fastpipe.packing.steps.work import begin, convert_step, finished, make_step, remove_spool
from fastpipe.sources.files import source_path

_PARTED = ("convert", "make")
_PART = re.compile(r"(\d+)/(\d+)")


def run_step(src: str, dst: str, step: str, part: str | None, options: Mapping[str, Any]) -> str:
    """Runs a step. What is done is not done again.

    Args:
        src, dst: as `fastpipe.pack` takes them, the same in each step.
        step: "list", "convert", "make" or "publish", in this order.
        part: I/N: the I-th of N equal parts, for "convert" and "make"; None: all.
        options: those of `fastpipe.pack`, the same in each step.

    Returns:
        A line that says what was done.
    """
    if part is not None and step not in _PARTED:
        raise ConfigError(f"--part: the step {step} has no parts; leave it out")
    share = _share(part)
    checked = pack_options(**options)
    source, destination = source_path(src, checked.source.remote), destination_of(dst)
    check_apart(source, destination, checked.spool)
    job = Job.of(source, destination, checked)
    if step == "list":
        return _list(job)
    if _is_packed(job):
        return f"{job.destination} is already packed with these options; nothing to do"
    if step == "publish":
        listed = read_listed(job)
        with opened(job.destination, checked, shared_spool=True) as journal:
            made = Made(listed.plan, finished(job, journal))
            info = publish(journal, listed, checked, made, time.monotonic()).info
            remove_spool(job)
        return f"packed {info['samples']:,} samples in {len(info['shards']):,} shards into {dst}"
    read_listed(job)
    return _convert(job, share) if step == "convert" else _make(job, share)


def _list(job: Job) -> str:
    with opened(job.destination, job.options, shared_spool=True) as journal:
        listed = list_all(job)
        if begin(job, journal, listed) is not None:
            return f"{job.destination} is already packed from these sources with these options; nothing to do"
        rows = sum(len(part.runs) for part in read_parts(job, "convert"))
        shards = sum(1 for _ in read_parts(job, "make"))
    converted = f"--step convert ({rows:,} runs of rows), then " if rows else ""
    return f"listed {listed.files:,} files; next: {converted}--step make ({shards:,} shards)"


def _is_packed(job: Job) -> bool:
    """Whether the step "list" has found nothing to do: there is a dataset with these options, and no plan."""
    journal = Journal(job.store())
    info = journal.description()
    if info is None or journal.plan() is not None:
        return False
    made = first_pack(info)["options"]
    return bool(made == job.options.shaping(made.get("fields")))


def _convert(job: Job, share: tuple[int, int]) -> str:
    parts = list(read_parts(job, "convert"))
    if not parts:
        return "nothing to convert: only rows of tables are; next: --step make"
    workers = job.options.workers or granted_cpus()
    made = [convert_step(job, part, workers) for part in _shared(parts, share)]
    files, rejected = sum(each.files for each in made), sum(each.rejected for each in made)
    return f"converted {files:,} rows, {rejected:,} rejected; the others of this part were there"


def _make(job: Job, share: tuple[int, int]) -> str:
    ours = _shared(list(read_parts(job, "make")), share)
    there = job.store().sizes(WORK_FOLDER)
    left = [part for part in ours if part.name not in there]
    workers = job.options.workers or granted_cpus()
    made = [make_step(job, part, workers) for part in left]
    files, rejected = sum(each.files for each in made), sum(each.rejected for each in made)
    were = f"{len(ours) - len(left)} of {len(ours)} were there"
    return f"made {len(left):,} shards of {files:,} files, {rejected:,} rejected; {were}"


def _shared(all_parts: Sequence[Part], share: tuple[int, int]) -> Sequence[Part]:
    part, parts = share
    return all_parts[part - 1 :: parts]


def _share(part: str | None) -> tuple[int, int]:
    if part is None:
        return 1, 1
    found = _PART.fullmatch(part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--part: expected I/N with I from 1 to N, such as 3/64, got {part!r}")
    return int(found[1]), int(found[2])
