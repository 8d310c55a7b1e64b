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
from fastpipe.diagnosis.checks.memory import Growth, growths
from fastpipe.diagnosis.checks.speed import summary
from fastpipe.diagnosis.findings import Finding, Severity, ordered
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stacks import Stack
from fastpipe.diagnosis.stages import Stages, stages
from fastpipe.diagnosis.words import count, milliseconds, say, size
from fastpipe.errors import readable

_WIDTH = 120
_MOST_STACK_LINES = 30
_MOST_PROCESSES = 9
_OPTIONS = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "method")


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
        made_at: file and line that made the loader; "" where that is not known.
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
            "stages": None if self.stages is None else self.stages.as_dict(),
            "memory": [growth.as_dict() for growth in self.memory],
            "processes": self.processes,
            "threads": self.threads,
            "stacks": [asdict(stack) for stack in self.stacks],
        }

    def __str__(self) -> str:
        console = Console(width=_WIDTH, highlight=False, markup=False, soft_wrap=False, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip("\n")

    __repr__ = __str__  # what a notebook and a prompt show

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        arguments = ", ".join(f"{name}={value}" for name, value in self.options.items() if value is not None)
        where = f"{readable(self.made_at)}: " if self.made_at else ""
        yield Text(f"{where}DataLoader({arguments})")
        yield Text(self.summary)
        threads = f", {count(self.threads, 'thread')} in all" if self.threads else ""
        yield Text(f"{count(self.processes + 1, 'process')}{threads}")
        if self.stages is not None:
            yield _stages_table(self.stages, int(self.options["num_workers"]))
        if self.memory:
            yield _memory_table(self.memory)
        yield from _findings_text(self.findings)
        yield from _stacks_text(self.stacks)


def report(
    seen: Observation, around: Surroundings, *, more: tuple[Finding, ...] = (), stacks: tuple[Stack, ...] = ()
) -> Diagnosis:
    """Puts it together; `more` are findings that are not told from the files."""
    time = stages(seen)
    findings = ordered([*more, *check(seen, around)])
    workers = list({worker.number: worker for worker in seen.workers if worker.number >= 0}.values())  # at one time
    last = [snapshots[-1] for snapshots in (seen.snapshots, *(worker.snapshots for worker in workers)) if snapshots]
    if findings and findings[0].severity is Severity.STUCK:
        told = "stuck: " + say("@late", findings[0].evidence)
    elif more or seen.errors:
        told = f"ended by an error after {count(len(seen.batches), 'batch')}"
    elif time is None:
        told = "no batch came" + (": the dataset has no sample" if seen.facts["length"] == 0 else "")
    else:
        told = summary(seen, time, sound=not findings)
    return Diagnosis(
        findings=tuple(findings),
        stages=time,
        summary=told,
        stacks=stacks,
        memory=tuple(growths(seen)),
        threads=sum(snapshot.threads or 0 for snapshot in last),
        processes=len(workers),
        options={name: seen.facts[name] for name in _OPTIONS if seen.num_workers or name != "method"},
        made_at=seen.made_at,
    )


def _findings_text(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    if not findings:
        yield Text("no cause of slow or stuck input found")
    for number, finding in enumerate(findings, 1):
        kind = "" if finding.severity is Severity.STUCK else f"{finding.severity.value}: "
        yield Text(f"{number}. {kind}{finding.name}", style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name in ("what", "why", "change", "where", "more"):
            if text := getattr(finding, name):
                grid.add_row("seen" if name == "what" else name, Text(readable(text)))
        yield Padding(grid, (0, 0, 1, 3))


def _stacks_text(stacks: Sequence[Stack]) -> Iterator[RenderableType]:
    for stack in stacks:
        yield Text(f"{stack.role}, pid {stack.pid}: {stack.status}; {stack.cpu_s:.1f} s of CPU", style="bold")
        lines = list(stack.lines) or ["no Python stack: the process did not answer, or Python had not started"]
        if len(lines) > _MOST_STACK_LINES:
            lines = [*lines[:_MOST_STACK_LINES], f"... {len(lines) - _MOST_STACK_LINES} more lines"]
        if len(stack.threads) > 1:
            lines.append(f"and {count(len(stack.threads) - 1, 'more thread')}; as_dict() and --json show them")
        yield Padding(Text(readable("\n".join(lines))), (0, 0, 1, 3))


def _table(*columns: str) -> Table:
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    return table


def _stages_table(found: Stages, workers: int) -> RenderableType:
    """Where the time of a batch goes."""
    table = _table("stage", "runs in", "a batch", "share of its time")
    loop_s = found.wait_s + (found.step_s or 0.0)
    # Shares of the workers' time add up to how busy they are; those of the loop to 1.
    making, whole_s = (count(workers, "worker"), found.fetch_s / max(found.busy, 1e-9)) if workers else ("loop", loop_s)
    rows: list[tuple[str, str, float | None, float | None]] = [
        ("dataset", making, found.dataset_s, whole_s),
        ("collate", making, found.collate_s, whole_s),
        ("transfer" if workers else "pinning", "loop", found.transfer_s, None),
        ("wait" if workers else "wait (sum)", "loop", found.wait_s, loop_s),
        ("step", "loop", found.step_s, loop_s),
        ("first batch of an epoch", "loop", found.start_s, None),
    ]
    for name, where, seconds, of_s in rows:
        if seconds is not None:
            share = "" if of_s is None else f"{min(seconds / max(of_s, 1e-9), 1.0):.0%}"
            table.add_row(name, where, milliseconds(seconds), share)
    return table


def _memory_table(memory: Sequence[Growth]) -> RenderableType:
    """How the memory of each process grew; of the processes that one worker had in turn, the one that grew most."""
    table = _table("private memory", "batches", "at first", "grew by", "an epoch")
    most = {growth.number: growth for growth in sorted(memory, key=lambda growth: growth.grown_bytes)}
    for _, growth in sorted(most.items())[:_MOST_PROCESSES]:
        grown = f"{'+' if growth.grown_bytes >= 0 else '-'}{size(abs(growth.grown_bytes))}"
        an_epoch = "" if growth.epoch_bytes is None else f"+{size(growth.epoch_bytes)}"
        table.add_row(growth.process, f"{growth.batches:,}", size(growth.first_bytes), grown, an_epoch)
    if len(most) > _MOST_PROCESSES:
        table.add_row(f"... and {len(most) - _MOST_PROCESSES} more")
    return table
