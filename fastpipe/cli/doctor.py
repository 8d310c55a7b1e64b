"""`fastpipe doctor`: this machine, a dataset, or a training command -> what was found, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from fastpipe.cli.console import AsJson, err, exit_codes, out, place, print_json
from fastpipe.cli.options import takes
from fastpipe.cli.tables import show
from fastpipe.errors import ConfigError, positive, readable, whole

if TYPE_CHECKING:
    from fastpipe.diagnosis.command import Watched
    from fastpipe.doctor import Check


@takes()
def doctor(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="A folder that `fastpipe pack` wrote, or its URL, or photos or tars that are not packed.",
            show_default=False,
        ),
    ] = None,
    train_script: str | None = None,
    batches: int | None = None,
    seconds: float | None = None,
    stall_timeout: float | None = None,
    as_json: AsJson = False,
) -> None:
    """Find causes of slow or stopped training input on this machine.

    Checks the CPUs granted, memory, /dev/shm, limits, threads, the engine and the GPU; with DATA also the dataset's
    files, the speed of decoding, and whether the disk is fast enough. Changes nothing. Exit code 1 if a check is bad.

    With --train-script, doctor runs COMMAND unchanged, shows its output, and watches its torch DataLoaders: the time of
    each stage, processes and threads, memory that grows, slow samples, wrong options, and the line to change. If no
    more batches come, it shows the Python stack of every process. Then it stops the command.

    Args:
        train_script (COMMAND): run this training command, such as 'python train.py --lr 1', and say why its DataLoader
            is slow or stuck.
        batches: with --train-script: stop it after this number of batches; None: 100.
        seconds: with --train-script: stop it after this number of seconds with batches; None: 120.
        stall_timeout: with --train-script: report it as stuck after this number of seconds without a batch; None: 60.
    """
    from fastpipe.doctor import Verdict, examine

    limits = {"batches": batches, "seconds": seconds, "stall_timeout": stall_timeout}
    given = {name: value for name, value in limits.items() if value is not None}
    with exit_codes():
        if train_script is not None:
            if data is not None:
                raise ConfigError(
                    "expected DATA or --train-script COMMAND, got both: run doctor once with each"
                )
            _train_script(train_script, as_json, **given)
            return
        if given:
            option = "--" + next(iter(given)).replace("_", "-")
            raise ConfigError(
                f"{option} needs --train-script COMMAND: it says when the command is stopped"
            )
        checks = examine(None if data is None else place(data))
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            show(out, doctor_table(checks))
        if any(check.verdict is Verdict.BAD for check in checks):
            raise typer.Exit(1)


def _train_script(
    command: str,
    as_json: bool,
    *,
    batches: float = 100,
    seconds: float = 120.0,
    stall_timeout: float = 60.0,
) -> None:
    from fastpipe.diagnosis.command import watch_command
    from fastpipe.diagnosis.findings import Severity

    watched = watch_command(
        command,
        batches=whole("batches", batches, least=1, most=10**9),
        seconds=positive("seconds", seconds),
        stall_timeout=positive("stall-timeout", stall_timeout),
        output=2
        if as_json
        else None,  # standard error: the figures have standard output to themselves
        say=lambda why: err.print(f"fastpipe: stopping the command: {why}"),
    )
    if as_json:
        print_json(
            {
                "ended": watched.ended,
                "loaders": [diagnosis.as_dict() for diagnosis in watched.diagnoses],
                "refused": [finding.as_dict() for finding in watched.refused],
                "trouble": watched.trouble,
            }
        )
    else:
        _tell(watched)
    findings = [
        *watched.refused,
        *(finding for each in watched.diagnoses for finding in each.findings),
    ]
    if any(finding.severity is not Severity.NOTE for finding in findings) or not watched.diagnoses:
        raise typer.Exit(1)


def _tell(watched: Watched) -> None:
    out.print()
    out.print(f"fastpipe doctor: {watched.ended}")
    for finding in watched.refused:
        out.print(
            f"{finding.what}\n  where   {readable(finding.where)}\n  change  {finding.change}\n  more    {finding.more}"
        )
    for diagnosis in watched.diagnoses:
        out.print()
        out.print(diagnosis, soft_wrap=False)
    if not watched.python:
        out.print(
            "doctor could watch no Python program of this command: it starts no Python, or starts it with -I, -E or -S"
        )
    elif not watched.diagnoses and not watched.refused:
        out.print("this command iterated over no torch DataLoader: there is nothing to diagnose")
    if watched.trouble:
        out.print(f"doctor had an error while it watched: {readable(watched.trouble)}")


def doctor_table(checks: Sequence[Check]) -> RenderableType:
    """One line a check: what was found, the verdict, and what to do."""
    table = Table("check", "found", "verdict", "what to do", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    table.columns[1].overflow = table.columns[3].overflow = "fold"
    for check in checks:
        table.add_row(
            check.name, readable(check.found), check.verdict.value, readable(check.advice)
        )
    return table
