"""Runs the `fastpipe` command for tests."""

from __future__ import annotations

import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from fastpipe.tools.cli.commands import app

COMMAND = str(Path(sys.executable).with_name("fastpipe"))


def fp(*arguments: object) -> Result:
    """Runs the command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeeded(*arguments: object) -> str:
    """Standard output of a command that must work."""
    result = fp(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def failed(code: int, *arguments: object) -> str:
    """Standard error of a command that must not work; as one line."""
    result = fp(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit), "ended by an exception that nobody caught"
    return " ".join(result.stderr.split())
