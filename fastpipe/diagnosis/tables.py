"""A diagnosis -> lines and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fastpipe.diagnosis.checks.memory import Growth
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.stacks import Stack
from fastpipe.diagnosis.stages import Stages
from fastpipe.diagnosis.words import count, milliseconds, size
from fastpipe.errors import readable

_MOST_STACK_LINES = 30
_MOST_PROCESSES = 9


def findings_text(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Each finding: its name, and what was seen, why, what to change and where."""
    if not findings:
        yield Text("no cause of slow or stuck input found")
    for number, finding in enumerate(findings, 1):
        yield Text(f"{number}. {finding.severity.value}: {finding.name}", style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        rows = (
            ("seen", finding.what),
            ("why", finding.why),
            ("change", finding.change),
            ("where", finding.where),
            ("more", finding.more),
        )
        for name, text in rows:
            if text:
                grid.add_row(name, Text(readable(text)))
        yield Padding(grid, (0, 0, 1, 3))


def stacks_text(stacks: Sequence[Stack]) -> Iterator[RenderableType]:
    """The Python stack of each process."""
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


def stages_table(found: Stages, workers: int) -> RenderableType:
    """Where the time of a batch goes."""
    table = _table("stage", "runs in", "a batch", "share of its time")
    loop_s = max(found.wait_s + (found.step_s or 0.0), 1e-9)
    # Shares of the workers' time add up to how busy they are; those of the loop to 1.
    making, whole_s = (count(workers, "worker"), found.fetch_s / max(found.busy, 1e-9)) if workers else ("loop", loop_s)
    rows: list[tuple[str, str, float | None, float | None]] = [
        ("dataset", making, found.dataset_s, whole_s),
        ("collate", making, found.collate_s, whole_s),
        ("transfer" if workers else "pinning", "loop", found.transfer_s, None),
        ("wait" if workers else "wait (sum)", "loop", found.wait_s, loop_s),
        ("step", "loop", found.step_s, loop_s),
    ]
    for name, where, seconds, of_s in rows:
        if seconds is not None:
            share = "" if of_s is None else f"{min(seconds / max(of_s, 1e-9), 1.0):.0%}"
            table.add_row(name, where, milliseconds(seconds), share)
    table.add_row("first batch of an epoch", "loop", milliseconds(found.start_s), "")
    return table


def memory_table(memory: Sequence[Growth]) -> RenderableType:
    """How the memory of each process grew."""
    table = _table("private memory", "batches", "at first", "grew by", "an epoch")
    for growth in memory[:_MOST_PROCESSES]:
        grown = f"{'+' if growth.grown_bytes >= 0 else '-'}{size(abs(growth.grown_bytes))}"
        an_epoch = "" if growth.epoch_bytes is None else f"+{size(growth.epoch_bytes)}"
        table.add_row(growth.process, f"{growth.batches:,}", size(growth.first_bytes), grown, an_epoch)
    if len(memory) > _MOST_PROCESSES:
        table.add_row(f"... and {len(memory) - _MOST_PROCESSES} more")
    return table
