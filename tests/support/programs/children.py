"""Source text -> what a Python process of its own said and how it ended.

A failure that hangs, dies or takes the machine's memory is shown in such a process: it has a time limit, and everything
that it started ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.programs import warm


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        code: its exit code; None: it was still there at its limit and was killed.
        said: its standard output.
        complained: its standard error.
    """

    code: int | None
    said: str
    complained: str

    def figures(self) -> Any:
        """The JSON in the last line that it said; fails with all its words where it did not end well."""
        assert self.code == 0, f"ended with {self.code}:\n{self.said}\n{self.complained}"
        return json.loads(self.said.splitlines()[-1])


def run(
    source: str,
    *arguments: object,
    limit_s: float = 300,
    environment: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> Ended:
    """Runs a script, with torch there from the start; in a Python of its own if its environment is to be another, or
    with `within`, a command that runs the command after it.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as errors,
    ):
        script = (
            Path(folder) / "script.py"
        )  # a file, since processes that are spawned read it again
        script.write_text(textwrap.dedent(source))
        words = ["-P", "-W", "ignore", str(script), *map(str, arguments)]
        process: subprocess.Popen[bytes] | warm.Started
        if within or environment:
            process = subprocess.Popen(
                [*within, sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        else:
            process = warm.start(*words, stdout=said, stderr=errors)
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(limit_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.wait()
        for stream in (said, errors):
            stream.seek(0)
        return Ended(code, said.read().decode(), errors.read().decode())


def children_of_this() -> set[str]:
    """Processes that this one has started and not ended; other tests may have left a server of multiprocessing's."""
    return {
        child
        for task in Path("/proc/self/task").glob("*/children")
        for child in task.read_text().split()
    }
