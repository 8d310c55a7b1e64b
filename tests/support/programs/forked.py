"""Programs -> how each ended; see forked_programs.py, which runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

_RUNNER = Path(__file__).with_name("forked_programs.py")


def outcomes_of(
    programs: list[dict[str, Any]], dataset: Path | str, loaded: str
) -> list[dict[str, Any]]:
    """In order; all forked off one process, which has loaded that module, and with it no thread."""
    done = subprocess.run(
        [sys.executable, str(_RUNNER), str(dataset), loaded],
        input=json.dumps(
            [{**program, "code": textwrap.dedent(program["code"])} for program in programs]
        ),
        capture_output=True,
        text=True,
        timeout=300 + 60 * len(programs),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]
