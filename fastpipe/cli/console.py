"""Shared by all commands: consoles, common options and exit codes.

Exit codes: 0 done, 1 the data or the run failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastpipe.cli.interrupts import raise_at_ctrl_c
from fastpipe.errors import ConfigError, FastpipeError, readable
from fastpipe.format.folder import Place, Url
from fastpipe.store.remote.options import place_of

out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the figures as JSON on standard output.")
]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder that `fastpipe pack` wrote, or its URL (s3://, https://, ...); or what is not packed: a folder "
        "of photos, tars, a pattern.",
    ),
]
Packed = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder that `fastpipe pack` wrote, or its URL (s3://, https://, ...).",
    ),
]


def place(data: str) -> Place:
    """DATA as a path or a URL."""
    found = place_of(data)
    return found if isinstance(found, (Url, Path)) else Path(data)


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Turns errors into a line on standard error and an exit code. A command imports its modules before."""
    try:
        raise_at_ctrl_c()
        yield
    except (FastpipeError, OSError) as problem:
        whose = "" if isinstance(problem, FastpipeError) else "system error: "
        err.print(f"fastpipe: {whose}{readable(str(problem))}")
        raise typer.Exit(2 if isinstance(problem, ConfigError) else 1) from problem
    except KeyboardInterrupt as problem:
        err.print("fastpipe: interrupted")
        raise typer.Exit(130) from problem


def check_new(file: Path, *, overwrite: bool) -> None:
    """Refuses to write over a file, before the work begins."""
    if not overwrite and os.path.lexists(file):
        raise ConfigError(f"{file} exists; pass another name, or --overwrite to replace it")


def print_json(content: object) -> None:
    out.print(json.dumps(content, indent=1))
