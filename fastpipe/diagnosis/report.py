"""The observation of a DataLoader, and its findings -> a table for people, a dict for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fastpipe.diagnosis.checks import check
from fastpipe.diagnosis.checks.speed import summarize
from fastpipe.diagnosis.findings import Finding, Severity, sort_findings
from fastpipe.diagnosis.growth import Growth, measure_growth
from fastpipe.diagnosis.observation import Observation, Surroundings, Worker
from fastpipe.diagnosis.quantities import format_ms, format_size
from fastpipe.diagnosis.stacks import Stack
from fastpipe.diagnosis.stages import Stages, measure_stages
from fastpipe.errors import format_count, readable

_WIDTH = 120
_MAX_STACK_LINES = 30
_MAX_PROCESSES = 9
_OPTIONS = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "method",
)


@dataclass(frozen=True)
class Diagnosis:
    """Why a DataLoader is slow or stuck; `print(diagnosis)` shows all of it.

    Attributes:
        findings: what is wrong, the worst first; empty for a sound loader.
        stages: where the time goes; None if no batch came.
        summary: one sentence.
        stacks: of all processes, where the loader was stuck.
        memory: how it grew, a process at a time.
        threads: of the process that iterates and its workers, at the last snapshot; 0: not known.
        processes: that made batches at the same time.
        options: the loader's.
        made_at: file and line that made the loader; "" if that is not known.
    """

    findings: tuple[Finding, ...]
    stages: Stages | None
    summary: str
    stacks: tuple[Stack, ...]
    memory: tuple[Growth, ...]
    threads: int
    processes: int
    options: dict[str, Any]
    made_at: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON: findings, stages, memory, processes, threads, options, stacks."""
        return {
            "made_at": self.made_at,
            "options": self.options,
            "summary": self.summary,
            "findings": [finding.as_dict() for finding in self.findings],
            "stages": self.stages.as_dict() if self.stages is not None else None,
            "memory": [growth.as_dict() for growth in self.memory],
            "processes": self.processes,
            "threads": self.threads,
            "stacks": [asdict(stack) for stack in self.stacks],
        }

    def __str__(self) -> str:
        console = Console(
            width=_WIDTH,
            highlight=False,
            markup=False,
            soft_wrap=False,
            color_system=None,
        )
        with console.capture() as captured:
            console.print(self)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        return "\n".join(lines).rstrip("\n")

    __repr__ = __str__  # a notebook and a prompt show it

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        arguments = ", ".join(
            f"{name}={value}"
            for name, value in self.options.items()
            if value is not None
        )
        where = ""
        if self.made_at:
            where = f"{readable(self.made_at)}: "
        yield Text(f"{where}DataLoader({arguments})")
        yield Text(self.summary)
        threads = (
            f", {format_count(self.threads, 'thread')} in all" if self.threads else ""
        )
        yield Text(f"{format_count(self.processes + 1, 'process')}{threads}")
        if self.stages is not None:
            yield _make_stages_table(self.stages)
        if self.memory:
            yield _make_memory_table(self.memory)
        yield from _render_findings(self.findings)
        yield from _render_stacks(self.stacks)


def make_diagnosis(
    observation: Observation,
    surroundings: Surroundings,
    *,
    more: tuple[Finding, ...] = (),
    stacks: tuple[Stack, ...] = (),
) -> Diagnosis:
    """Checks an observation. `more` are findings about the end of the loader."""
    stages = measure_stages(observation)
    findings = sort_findings([*more, *check(observation, surroundings)])
    workers = _list_last_workers(observation)
    options = {name: observation.facts[name] for name in _OPTIONS}
    if observation.num_workers == 0:
        del options["method"]  # of starting workers
    return Diagnosis(
        findings=tuple(findings),
        stages=stages,
        summary=_summarize(
            observation, surroundings, stages, findings, has_ended=bool(more)
        ),
        stacks=stacks,
        memory=tuple(measure_growth(observation)),
        threads=_count_threads(observation, workers),
        processes=len(workers),
        options=options,
        made_at=observation.made_at,
    )


def _list_last_workers(observation: Observation) -> list[Worker]:
    """Lists the last worker of each number: these ran at the same time."""
    by_number = {
        worker.number: worker for worker in observation.workers if worker.number >= 0
    }
    return list(by_number.values())


def _count_threads(observation: Observation, workers: list[Worker]) -> int:
    """Counts the threads of the process that iterates and its workers, at their last snapshots."""
    count = 0
    for snapshots in (observation.snapshots, *(worker.snapshots for worker in workers)):
        if snapshots:
            count += snapshots[-1].threads or 0
    return count


def _summarize(
    observation: Observation,
    surroundings: Surroundings,
    stages: Stages | None,
    findings: list[Finding],
    *,
    has_ended: bool,
) -> str:
    if findings and findings[0].severity is Severity.STUCK:
        return f"stuck: {findings[0].headline}"
    if has_ended or observation.errors:
        return (
            f"ended by an error after {format_count(len(observation.batches), 'batch')}"
        )
    if stages is not None:
        return summarize(observation, surroundings, stages, is_sound=not findings)
    if observation.facts["length"] == 0:
        return "no batch came: the dataset has no sample"
    return "no batch came"


def _render_findings(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    if not findings:
        yield Text("no cause of slow or stuck input found")
    for number, finding in enumerate(findings, 1):
        title = finding.name
        if finding.severity is not Severity.STUCK:
            title = f"{finding.severity.value}: {title}"
        yield Text(f"{number}. {title}", style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        rows = {
            "seen": finding.what,
            "why": finding.why,
            "change": finding.change,
            "where": finding.where,
            "more": finding.more,
        }
        for name, text in rows.items():
            if text:
                grid.add_row(name, Text(readable(text)))
        yield Padding(grid, (0, 0, 1, 3))


def _render_stacks(stacks: Sequence[Stack]) -> Iterator[RenderableType]:
    for stack in stacks:
        title = (
            f"{stack.role}, pid {stack.pid}: {stack.status}; {stack.cpu_s:.1f} s of CPU"
        )
        yield Text(title, style="bold")
        lines = stack.lines
        if not lines:
            lines = [
                "no Python stack: the process did not answer, or Python had not started"
            ]
        hidden_count = len(lines) - _MAX_STACK_LINES
        if hidden_count > 0:
            lines = [*lines[:_MAX_STACK_LINES], f"... {hidden_count} more lines"]
        if len(stack.threads) > 1:
            others = format_count(len(stack.threads) - 1, "more thread")
            lines.append(f"and {others}; as_dict() and --json show them")
        text = Text(readable("\n".join(lines)))
        yield Padding(text, (0, 0, 1, 3))


def _make_table(*columns: str) -> Table:
    """A table whose first two columns are words, and the others figures."""
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    return table


def _make_stages_table(stages: Stages) -> RenderableType:
    """Shows where the time of a batch goes."""
    table = _make_table("stage", "runs in", "a batch", "share of its time")

    def add(
        name: str, runs_in: str, seconds: float | None, whole_s: float | None = None
    ) -> None:
        if seconds is None:
            return
        share = ""
        if whole_s is not None:
            share = f"{min(seconds / max(whole_s, 1e-9), 1.0):.0%}"
        table.add_row(name, runs_in, format_ms(seconds), share)

    loop_s = stages.wait_s + (stages.step_s or 0.0)
    if stages.working_workers:
        # The shares of the workers' time add up to how busy they are.
        maker = format_count(stages.working_workers, "worker")
        making_s = stages.fetch_s / max(stages.busy, 1e-9)
    else:
        maker = "loop"
        making_s = loop_s
    add("dataset", maker, stages.dataset_s, making_s)
    add("collate", maker, stages.collate_s, making_s)
    transfer = "transfer" if stages.working_workers else "pinning"
    add(transfer, "loop", stages.transfer_s)
    add("wait", "loop", stages.wait_s, loop_s)
    add("step", "loop", stages.step_s, loop_s)
    add("first batch of an epoch", "loop", stages.start_s)
    return table


def _make_memory_table(memory: Sequence[Growth]) -> RenderableType:
    """Shows how the memory of each process grew.

    Of the processes that one worker had in turn, it shows the one that grew most.
    """
    table = _make_table("private memory", "batches", "at first", "grew by", "an epoch")
    largest: dict[int, Growth] = {}  # by the number of the worker
    for growth in sorted(memory, key=lambda growth: growth.grown_bytes):
        largest[growth.number] = growth
    for number in sorted(largest)[:_MAX_PROCESSES]:
        growth = largest[number]
        sign = "+" if growth.grown_bytes >= 0 else "-"
        epoch = ""
        if growth.epoch_bytes is not None:
            epoch_sign = "+" if growth.epoch_bytes >= 0 else "-"
            epoch = f"{epoch_sign}{format_size(abs(growth.epoch_bytes))}"
        table.add_row(
            growth.process,
            f"{growth.batches:,}",
            format_size(growth.first_bytes),
            f"{sign}{format_size(abs(growth.grown_bytes))}",
            epoch,
        )
    if len(largest) > _MAX_PROCESSES:
        table.add_row(f"... and {len(largest) - _MAX_PROCESSES} more")
    return table
