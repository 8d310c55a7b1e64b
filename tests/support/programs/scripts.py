"""Python text -> how a Python of its own ended that ran it. It imports torch anew: warm.py is cheaper."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run_script(
    code: str, *arguments: object, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own; one that hangs fails the test."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
