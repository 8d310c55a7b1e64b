"""One step of a pack, or a part of it, in this process: for Slurm, ssh and all else that starts programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastpipe.errors import ConfigError
from fastpipe.format.folder import Place
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER, shard_name
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.options import pack_options
from fastpipe.packing.output.destination import check_apart, destination_of
from fastpipe.packing.output.journal import entry_name
from fastpipe.packing.source.files import source_path
from fastpipe.packing.steps.assemble_step import assemble_step
from fastpipe.packing.steps.convert_step import convert_step
from fastpipe.packing.steps.dataset import begin, opened, publish
from fastpipe.packing.steps.job import JOB_FILE, PART_BYTES, Job, read_listed, read_parts
from fastpipe.packing.steps.listing_step import list_step
from fastpipe.packing.steps.plan_step import plan_step, read_plan
from fastpipe.packing.steps.sources import Sources
from fastpipe.packing.steps.store import store_of

_PARTED = ("convert", "assemble")
_PART = re.compile(r"(\d+)/(\d+)")

Each = TypeVar("Each")


def run_step(src: str, dst: str, step: str, part: str | None, options: Mapping[str, Any]) -> str:
    """Runs a step. Steps that are done are not done again.

    Args:
        src, dst: as `fastpipe.pack` takes them, the same in each step.
        step: "list", "convert", "plan", "assemble" or "publish", in this order.
        part: I/N: the I-th of N equal parts, for "convert" and "assemble"; None: all.
        options: those of `fastpipe.pack`, the same in each step.

    Returns:
        A line that says what was done.

    Raises:
        ConfigError: an option is wrong.
        PackError: the step before has not run, or see `fastpipe.pack`.
    """
    if part is not None and step not in _PARTED:
        raise ConfigError(f"--part: the step {step} has no parts; leave it out")
    share = _share(part)
    checked = pack_options(**options)
    source, destination = source_path(src, checked.source.remote), destination_of(dst)
    check_apart(source, destination, checked.spool)
    job = Job.of(source, destination, checked, PART_BYTES)
    if step == "list":
        return _list(job)
    if _is_packed(job):
        return f"{job.destination} is already packed with these options; nothing to do"
    if step == "plan":
        plan = plan_step(job)
        return f"planned {len(plan):,} shards of {sum(plan.samples):,} samples; next: --step assemble"
    if step == "publish":
        with opened(job) as journal:
            plan = read_plan(job)
            info = publish(job, journal, plan.sources, len(plan))["info"]
        return f"packed {info['samples']:,} samples in {len(info['shards']):,} shards into {dst}"
    return _convert(job, share) if step == "convert" else _assemble(job, share)


def _list(job: Job) -> str:
    with opened(job) as journal:
        listed = list_step(job)
        sources = Sources(listed, read_parts(job.store()))
        if begin(job, journal, sources) is not None:
            return f"{job.destination} is already packed from these sources with these options; nothing to do"
    parts = len(sources.parts)
    return f"listed {listed.files:,} files in {parts:,} pieces; next: --step convert, in at most so many parts"


def _is_packed(job: Job) -> bool:
    """Whether the step "list" has found nothing to do: there is a dataset with these options, and nothing is listed."""
    if JOB_FILE in job.store().sizes():
        return False
    try:
        info = json.loads(store_of(job.destination, job.options.source.remote).read(DATASET_FILE))
    except (FileNotFoundError, ValueError):
        return False
    made = info.get("pack") if isinstance(info, dict) else None
    return isinstance(made, dict) and made == job.options.shaping(made.get("fields"))


def _convert(job: Job, share: tuple[int, int]) -> str:
    store = job.store()
    job.check(read_listed(store))
    parts, there = read_parts(store), store.sizes()
    ours = _shared(parts, share)
    left = [part for part in ours if not part.is_converted(there)]
    workers = job.options.workers or granted_cpus()
    made = [convert_step(job, part, workers) for part in left]
    files, rejected = sum(each.files for each in made), sum(each.rejected for each in made)
    return f"converted {files:,} files, {rejected:,} rejected; {len(ours) - len(left)} of {len(ours)} pieces were there"


def _assemble(job: Job, share: tuple[int, int]) -> str:
    remote = job.options.source.remote
    journal: Place = job.destination / WORK_FOLDER
    entries, shards = store_of(journal, remote).sizes(), store_of(job.destination, remote).sizes()
    ours = _shared(list(read_plan(job).shards()), share)
    left = [each for each in ours if shard_name(each.number) not in shards or entry_name(each.number) not in entries]
    samples = sum(assemble_step(job, each).samples for each in left)
    return f"made {len(left):,} shards of {samples:,} samples; {len(ours) - len(left)} of {len(ours)} were there"


def _shared(each: Sequence[Each], share: tuple[int, int]) -> Sequence[Each]:
    part, parts = share
    return each[part - 1 :: parts]


def _share(part: str | None) -> tuple[int, int]:
    if part is None:
        return 1, 1
    found = _PART.fullmatch(part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--part: expected I/N with I from 1 to N, such as 3/64, got {part!r}")
    return int(found[1]), int(found[2])
