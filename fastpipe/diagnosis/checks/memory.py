"""Snapshots of processes -> memory and open files that grow, and the likely cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastpipe.diagnosis.advice import FEWER_OPEN_FILES, WHY_FILES_ARE_OPEN
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.growth import (
    Growth,
    list_processes,
    measure_growth,
    measure_steady,
)
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Surroundings
from fastpipe.diagnosis.quantities import format_size
from fastpipe.diagnosis.source.files import read_line
from fastpipe.diagnosis.source.keeping import find_keeping_lines
from fastpipe.errors import format_count

# Less growth is noise of the allocator (bytes, as the next three).
_MIN_COPIED = 4 << 20
# Growth that is reported if a line of the program is seen to keep something.
_MIN_KEPT = 16 << 20
# The same without such a line.
_MIN_GROWTH = 48 << 20
# Copies in all workers that are worth a note, even if none has been seen to grow.
_MIN_HEAVY = 200 << 20
# Copies that take more of the free memory are bad.
_MAX_MEMORY_SHARE = 0.1
# Counts of open files are exact, so fewer of them show that they grow.
_MIN_COUNTS = 4
_MIN_OPENED = 32
# A process has to be seen for that many batches, divided by the workers, but not for fewer than
# the second number.
_MIN_BATCHES = 40
_MIN_BATCHES_EACH = 8


def check(observation: Observation, surroundings: Surroundings) -> Iterator[Finding]:
    """Finds workers that copy the dataset's objects, open files that pile up, and other growth."""
    grown = []
    for growth in measure_growth(observation):
        if growth.steadily_grown_bytes > _MIN_COPIED:
            grown.append(growth)
    copying = [growth for growth in grown if not growth.is_main]
    heavy_bytes = sum(container["bytes"] for container in observation.facts["heavy"])
    total_bytes = observation.num_workers * heavy_bytes
    is_copied = observation.facts["method"] == "fork" and bool(copying)
    if total_bytes and (is_copied or total_bytes > _MIN_HEAVY):
        yield _report_heavy_objects(observation, surroundings, total_bytes, copying)
        if is_copied:  # that explains the growth of the workers
            grown = [growth for growth in grown if growth.is_main]
    yield from _check_open_files(observation)
    if grown:
        worst = max(grown, key=lambda growth: growth.kept_bytes)
        yield from _check_kept(observation, worst)


def _report_heavy_objects(
    observation: Observation,
    surroundings: Surroundings,
    total_bytes: int,
    copying: list[Growth],
) -> Finding:
    """Containers of many Python objects in the dataset, of which each worker gets a copy."""
    largest, *similar = observation.facts["heavy"]
    method = observation.facts["method"]
    size = format_size(largest["bytes"])
    symptom = f"{largest['path']} is a {largest['kind']}, about {size}"
    if similar:
        symptom += f", and {format_count(len(similar), 'more object')} like it"
    workers = format_count(observation.num_workers, "worker")
    symptom += f": up to {format_size(total_bytes)} in {workers}"
    if copying:
        most = max(copying, key=lambda growth: growth.grown_bytes)
        batches = format_count(most.batches, "batch")
        symptom += (
            f"; {most.process} grew by {format_size(most.grown_bytes)} in {batches}"
        )
    if method == "fork":
        code = Code.COPY_ON_WRITE
        why = (
            "reading a Python object changes its reference count, "
            "so a forked worker copies the memory pages that it reads"
        )
    else:
        code = Code.OBJECTS_IN_EACH_WORKER
        why = (
            f"with the start method {method} each worker gets its own copy of all objects, "
            "by pickle, when it starts"
        )
    free_bytes = surroundings.free_bytes
    is_large = free_bytes is not None and total_bytes > _MAX_MEMORY_SHARE * free_bytes
    attribute = largest["path"].replace("dataset", "self", 1)
    return Finding(
        code,
        str(observation.facts["dataset_place"]),
        what=symptom,
        why=why,
        change=f"{attribute} = np.array(..., dtype='S') for names, or a tensor for numbers, "
        "instead of Python objects; of lists in lists, one array of all values and one of "
        "where each list begins",
        section=5,
        severity=Severity.BAD if copying or is_large else Severity.NOTE,
    )


def _check_open_files(observation: Observation) -> Iterator[Finding]:
    """Finds a process that has more files open after each batch, up to its limit."""
    limit = observation.facts["files_limit"]
    for process in list_processes(observation):
        counts: list[tuple[int, int]] = []  # (batch, open files)
        for snapshot in process.snapshots:
            if snapshot.files is not None:
                counts.append((snapshot.batch, snapshot.files))
        opened, opened_per_batch = measure_steady(counts, _MIN_COUNTS)
        if opened < _MIN_OPENED:
            continue
        file_count = counts[-1][1]
        batches_to_limit = max(0, round((limit - file_count) / opened_per_batch))
        loop_place = ""
        if process.number == WITHOUT_WORKERS and observation.epochs:
            loop_place = observation.epochs[-1].place
        keeping_lines = find_keeping_lines(loop_place)
        where = keeping_lines[0] if keeping_lines else loop_place
        # A program may keep files for the metrics of an epoch, and let go of them at its end.
        epoch_batches = observation.facts["batches"] or 0
        yield Finding(
            Code.OPEN_FILES,
            where or str(observation.facts["dataset_place"]),
            what=f"{process.name} has {opened:,} more files open than at first, "
            f"{file_count:,} in all, and more after each batch; its limit of {limit:,} is "
            f"{format_count(batches_to_limit, 'batch')} away",
            why=WHY_FILES_ARE_OPEN,
            change=FEWER_OPEN_FILES,
            section=4,
            severity=Severity.BAD
            if batches_to_limit < epoch_batches
            else Severity.NOTE,
        )
        return


def _check_kept(observation: Observation, worst: Growth) -> Iterator[Finding]:
    """Finds memory that a process keeps.

    Where a line of the program keeps something, less growth is enough for a finding.
    """
    # A training has several loops, such as one for validation. The most frequent one counts.
    loop_place = ""
    if worst.is_main:
        loops: Counter[str] = Counter()
        for epoch in observation.epochs:
            if epoch.place:
                loops[epoch.place] += 1
        if loops:
            [(loop_place, _)] = loops.most_common(1)
    # The main process has the dataset, but reads it only where there are no workers.
    reads_dataset = not worst.is_main or observation.num_workers == 0
    dataset_place = ""
    if reads_dataset:
        dataset_place = str(observation.facts["dataset_place"])
    lines = [*find_keeping_lines(loop_place), *find_keeping_lines(dataset_place)]

    if worst.is_main:
        sharing_count = 1
    else:
        sharing_count = max(observation.num_workers, 1)
    least_batches = max(_MIN_BATCHES_EACH, _MIN_BATCHES // sharing_count)
    least_bytes = _MIN_KEPT if lines else _MIN_GROWTH
    if worst.batches < least_batches or worst.kept_bytes < least_bytes:
        return
    if lines:
        keeping_line = lines[0]
        yield _report_memory_grows(worst, keeping_line, read_line(keeping_line))
    else:
        yield _report_memory_grows(worst, loop_place or dataset_place, "")


def _report_memory_grows(growth: Growth, where: str, keeping_line: str) -> Finding:
    symptom = (
        f"{growth.process} grew by {format_size(growth.grown_bytes)} "
        f"in {format_count(growth.batches, 'batch')} (from {format_size(growth.first_bytes)}), "
        "and had not stopped"
    )
    if growth.epoch_bytes is not None:
        symptom += f": {format_size(growth.epoch_bytes)} an epoch"
    if keeping_line:
        symptom += f"; this line keeps something: {keeping_line}"
    if growth.is_main:
        why = (
            "the program keeps something for each sample or batch: "
            "a cache, batches, losses or outputs with their graphs"
        )
        change = (
            "limit the size of the cache; keep numbers (loss.item()) instead of tensors"
        )
    else:
        why = (
            "the dataset or collate_fn keeps something for each sample or batch, "
            "such as a cache; each worker has its own"
        )
        change = "limit the size of the cache, or leave out what is kept"
    return Finding(
        Code.MEMORY_GROWS, where, what=symptom, why=why, change=change, section=5
    )
