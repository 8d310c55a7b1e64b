"""The observation of a DataLoader, and its findings -> a table for people, a dict for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastpipe.diagnosis.checks import check
from fastpipe.diagnosis.checks.memory import Growth, growths
from fastpipe.diagnosis.checks.speed import evidence_of
from fastpipe.diagnosis.findings import Code, Finding, Severity, ordered
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.stacks import Stack
from fastpipe.diagnosis.stages import Stages, stages
from fastpipe.diagnosis.surroundings import Surroundings
from fastpipe.diagnosis.words import BOTTLENECK, LATE, count, say
from fastpipe.errors import readable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WIDTH = 120
_ENDS = {
    *(Code.BAD_SAMPLE, Code.PASSING_ERROR, Code.WORKER_KILLED, Code.ERROR),
    *(Code.NOT_PICKLABLE, Code.OUT_OF_MEMORY, Code.NO_MAIN_GUARD),
}
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
        threads: of the process that iterates and its workers, at the last snapshot.
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
    options: dict[str, Any] = field(default_factory=dict)
    made_at: str = ""

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
            "stacks": [
                {"pid": stack.pid, "role": stack.role, "status": stack.status, "cpu_s": stack.cpu_s, "text": stack.text}
                for stack in self.stacks
            ],
        }

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=_WIDTH, highlight=False, markup=False, soft_wrap=False, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip("\n")

    __repr__ = __str__  # what a notebook and a prompt show

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from fastpipe.diagnosis.tables import findings_text, memory_table, stacks_text, stages_table

        arguments = ", ".join(f"{name}={value}" for name, value in self.options.items() if value is not None)
        where = f"{readable(self.made_at)}: " if self.made_at else ""
        yield Text(f"{where}DataLoader({arguments})")
        yield Text(self.summary)
        yield Text(f"{count(self.processes + 1, 'process')}, {count(self.threads, 'thread')} in all")
        if self.stages is not None:
            yield stages_table(self.stages, int(self.options["num_workers"]))
        if self.memory:
            yield memory_table(self.memory)
        yield from findings_text(self.findings)
        yield from stacks_text(self.stacks)


def report(
    seen: Observation,
    around: Surroundings,
    *,
    more: tuple[Finding, ...] = (),
    stacks: tuple[Stack, ...] = (),
) -> Diagnosis:
    """Puts it together; `more` are findings that are not told from the files."""
    time = stages(seen)
    findings = ordered([*more, *check(seen, around)])
    last = [worker.snapshots[-1] for worker in _together(seen) if worker.snapshots]
    return Diagnosis(
        findings=tuple(findings),
        stages=time,
        summary=_summary(seen, time, findings),
        stacks=stacks,
        memory=tuple(growths(seen)),
        threads=sum(snapshot.threads or 0 for snapshot in [*seen.snapshots[-1:], *last]),
        processes=len(_together(seen)),
        options={name: seen.facts[name] for name in _OPTIONS if seen.num_workers or name != "method"},
        made_at=seen.made_at,
    )


def _summary(seen: Observation, time: Stages | None, findings: list[Finding]) -> str:
    if findings and findings[0].severity is Severity.STUCK:
        return f"stuck: {say(LATE, findings[0].evidence)}"
    if any(finding.code in _ENDS for finding in findings) or seen.errors:
        return f"ended by an error after {count(len(seen.batches), 'batch')}"
    if time is None:
        return "no batch came: the dataset has no sample" if seen.facts["length"] == 0 else "no batch came"
    return say(BOTTLENECK, evidence_of(seen, time))


def _together(seen: Observation) -> list[Any]:
    return list({worker.number: worker for worker in seen.workers if worker.number >= 0}.values())
