"""`fastpipe doctor`: this machine, and a dataset -> what was found, whether it is well, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastpipe import tables
from fastpipe.cli.console import AsJson, exit_codes, out, print_json
from fastpipe.doctor import Verdict, examine


def doctor(
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A folder that `fastpipe pack` wrote.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look for what slows training input down, or stops it, on this machine.

    CPUs really granted, memory, /dev/shm, limits, threads, the engine, the GPU; with DATA also the dataset's files, how
    fast it decodes here, and whether the disk keeps up. Changes nothing. Exit code 1 if something is bad.
    """
    with exit_codes():
        checks = examine(data)
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            tables.show(out, tables.doctor(checks))
        if any(check.verdict is Verdict.BAD for check in checks):
            raise typer.Exit(1)
