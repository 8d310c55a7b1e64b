"""Shared by all commands: where they print, and how an error ends them.

Exit codes: 0 done, 1 the data or the run failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fastpipe.dataset.format.folder import Place, Url, check_local
from fastpipe.errors import ConfigError, FastpipeError, no_permission, readable
from fastpipe.store.remote.options import place_of
from fastpipe.tools.cli.interrupts import raise_at_ctrl_c
from fastpipe.tools.show.sheet_mark import may_replace

# Of tables in a file or a pipe: wider than any, so that no command in them is broken.
_FILE_WIDTH = 10_000


class _TrimmedConsole(Console):
    """A console that prints no blanks at the ends of lines into a file or a pipe.

    rich fills the lines of a table up to the width of the table, and those of an indented table up
    to the width of the console, which is _FILE_WIDTH there.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        lines = captured.get().split("\n")
        trimmed = [line.rstrip(" ") for line in lines]
        super().print(Text("\n".join(trimmed)), end="", soft_wrap=True)


def _new_console(*, stderr: bool = False) -> Console:
    console = _TrimmedConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    # A terminal would break long lines in the middle of a word, so rich breaks them at words.
    # A file or a pipe gets a line as one line, which grep finds, and a row of a table, too.
    console.soft_wrap = not console.is_terminal
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    return console


# Arguments of the command that runs, as Python calls them -> its options, such as --on.
option_names: ContextVar[Mapping[str, str]] = ContextVar(
    "option_names", default=MappingProxyType({})
)

out = _new_console()
err = _new_console(stderr=True)


def place(data: str) -> Place:
    """DATA as a path or a URL."""
    data_place = place_of(data)
    if isinstance(data_place, (Url, Path)):
        return data_place
    return Path(data)


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Turns errors into a line on standard error and an exit code.

    A command imports its modules before, so that Ctrl-C in an import still ends it at once.
    """
    try:
        raise_at_ctrl_c()
        yield
    except (FastpipeError, OSError) as error:
        if isinstance(error, OSError):
            text = _describe_system_error(error)
        else:
            text = _with_option(error)
        print_problem(readable(text), "red")
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from error
    except KeyboardInterrupt as error:
        err.print("fastpipe: interrupted")
        raise typer.Exit(130) from error


def _with_option(error: FastpipeError) -> str:
    """The message, in which an argument of Python is the option that the user has typed."""
    option = option_names.get().get(error.option)
    return f"{option}: {error.problem}" if option else str(error)


def _describe_system_error(error: OSError) -> str:
    """An error of the system in words, with the folder that may not be read if that is the cause."""
    if not error.filename or not error.strerror:
        return f"system error: {error}"
    path = os.fsdecode(error.filename)
    return no_permission(error) or f"{path}: {error.strerror}"


def print_problem(text: str, style: str = "yellow") -> None:
    """Prints a line on standard error, whose first word is in colour: red for an error."""
    err.print(Text.assemble(("fastpipe:", style), " ", text))


def check_new(file: Path, *, overwrite: bool) -> None:
    """Refuses to write over a file that is no earlier sheet, before the work begins."""
    check_local(str(file), file, "file")
    if not overwrite and not may_replace(file):
        raise ConfigError(
            f"{file} exists, and fastpipe did not draw it; pass another name, or --overwrite to "
            "replace it"
        )


def print_indented(line: str) -> None:
    """Prints a line of a list. In a terminal, the rest of a long line is indented, too."""
    if out.is_terminal:
        out.print(Padding.indent(Text(line), 4))
    else:
        out.print(f"    {line}")


def print_json(content: object) -> None:
    out.print(json.dumps(content, indent=1), soft_wrap=True)
