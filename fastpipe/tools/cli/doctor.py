"""`fastpipe doctor`: this machine, a dataset, or a training command -> findings and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.errors import ConfigError, positive, readable, whole
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import exit_codes, out, place, print_json, print_problem
from fastpipe.tools.cli.tables import show

if TYPE_CHECKING:
    from fastpipe.diagnosis.command import Watched
    from fastpipe.tools.doctor import Check

_BATCHES = 100
_SECONDS = 120.0
_STALL_TIMEOUT_S = 60.0
# Of verdicts, by name: the verdicts themselves are of a module that imports torch.
_STYLES = {"OK": "green", "NOTE": "yellow", "BAD": "red"}
_WATCHING = "Watching a training command"


def doctor(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A packed dataset (folder or URL), or images or tars that are not packed.",
        ),
    ] = None,
    train_script: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this training command, such as 'python train.py --lr 1', and say why its "
            "DataLoader is slow or stuck.",
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    as_json: options.AsJson = False,
    batches: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop the command after this number of batches.",
            show_default=str(_BATCHES),
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Stop the command after this number of seconds with batches.",
            show_default=f"{_SECONDS:g}",
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Report the command as stuck after this number of seconds without a batch.",
            show_default=f"{_STALL_TIMEOUT_S:g}",
            rich_help_panel=_WATCHING,
        ),
    ] = None,
) -> None:
    """Find causes of slow or stopped training input.

    Checks the CPUs granted, memory, /dev/shm, limits, threads, the engine and the GPU; with DATA
    also the dataset's files, the speed of decoding, and whether the disk is fast enough. Changes
    nothing. Exit code 1 if a check is bad.

    With --train-script, doctor runs COMMAND unchanged, shows its output, and watches its torch
    DataLoaders: the time of each stage, processes and threads, memory that grows, slow samples,
    wrong options, and the line to change. If no more batches come, it shows the Python stack of
    every process. Then it stops the command.
    """
    # This imports torch, which takes seconds.
    from fastpipe.tools.doctor import Verdict, examine

    with exit_codes():
        if train_script is not None:
            if data is not None:
                raise ConfigError(
                    "expected DATA or --train-script COMMAND, got both: run doctor once with each"
                )
            _watch(
                train_script,
                as_json=as_json,
                batches=_BATCHES if batches is None else batches,
                seconds=_SECONDS if seconds is None else seconds,
                stall_timeout=_STALL_TIMEOUT_S
                if stall_timeout is None
                else stall_timeout,
            )
            return
        limits = (
            ("--batches", batches),
            ("--seconds", seconds),
            ("--stall-timeout", stall_timeout),
        )
        for option, limit in limits:
            if limit is not None:
                raise ConfigError(
                    f"{option} needs --train-script COMMAND: it says when the command is stopped"
                )
        path = None if data is None else place(data)
        checks = examine(path)
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            show(out, doctor_table(checks))
        if any(check.verdict is Verdict.BAD for check in checks):
            raise typer.Exit(1)


def _watch(
    command: str, *, as_json: bool, batches: int, seconds: float, stall_timeout: float
) -> None:
    """Runs a training command, and reports on its DataLoaders. Exit code 1 if one is bad."""
    from fastpipe.diagnosis.command import watch_command
    from fastpipe.diagnosis.findings import Severity

    # With --json, standard output has only the figures: the command gets standard error.
    output = 2 if as_json else None
    watched = watch_command(
        command,
        batches=whole("batches", batches, least=1, most=10**9),
        seconds=positive("seconds", seconds),
        stall_timeout=positive("stall-timeout", stall_timeout),
        output=output,
        say=lambda reason: print_problem(f"stopping the command: {reason}"),
    )
    if as_json:
        print_json(
            {
                "ended": watched.ended,
                "loaders": [diagnosis.as_dict() for diagnosis in watched.diagnoses],
                "refused": [finding.as_dict() for finding in watched.program_findings],
                "trouble": watched.trouble,
            }
        )
    else:
        _print_watched(watched)
    findings = list(watched.program_findings)
    for diagnosis in watched.diagnoses:
        findings += diagnosis.findings
    has_fault = any(finding.severity is not Severity.NOTE for finding in findings)
    if has_fault or not watched.diagnoses:
        raise typer.Exit(1)


def _print_watched(watched: Watched) -> None:
    out.print()
    out.print(f"fastpipe doctor: {watched.ended}")
    for finding in watched.program_findings:
        out.print(finding.what)
        out.print(f"  where   {readable(finding.where)}")
        out.print(f"  change  {finding.change}")
        out.print(f"  more    {finding.more}")
    for diagnosis in watched.diagnoses:
        out.print()
        out.print(diagnosis, soft_wrap=False)
    if not watched.python:
        out.print(
            "doctor could watch no Python program of this command: it starts no Python, or starts "
            "it with -I, -E or -S"
        )
    elif not watched.diagnoses and not watched.program_findings:
        out.print(
            "this command iterated over no torch DataLoader: there is nothing to diagnose. How "
            "long a loop waits for a fastpipe loader: loader.stats(), or fastpipe.monitor"
        )
    if watched.trouble:
        out.print(f"doctor had an error while it watched: {readable(watched.trouble)}")


def doctor_table(checks: Sequence[Check]) -> RenderableType:
    """One row a check: the verdict, the finding, and below it what to do.

    The two share a column: it is wide enough in 80 characters for a setting that a user copies.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for check in checks:
        lines = readable(check.found)
        if check.advice:
            lines += f"\n-> {readable(check.advice)}"
        table.add_row(
            check.name,
            Text(check.verdict.value, style=_STYLES[check.verdict.name]),
            lines,
        )
    return table
