"""Scripts of strangers.py -> how `fastpipe doctor --train-script` found them, several watched at a time.

Most of a watch is waiting, and most of a start is the import of torch: the scripts are forked off a process that has
done it (warm.py). Those whose memory is looked at run in a Python of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from support.programs import warm
from support.running.patience import slowdown

from fastpipe.diagnosis import command
from fastpipe.diagnosis.command import Watched, watch_command
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.observation import Surroundings

_AT_ONCE = 4
_LOOKED_AT = ("memory-grows", "memory-that-is-taken-once")
_HOOK = Path(__file__).with_name("hook")


def watched(source: str, folder: Path, **limits: Any) -> Watched:
    """Watches a script train.py of that source in a folder of its own."""
    script = folder / "train.py"
    script.write_text(source)
    if "stall_timeout" not in limits:
        limits["stall_timeout"] = 4.0 * slowdown()
    limits = {"batches": 60, "seconds": max(60.0, 3 * limits["stall_timeout"]), "output": 2, **limits}
    return watch_command(f"{sys.executable} {script}", **limits)


def findings(found: Watched) -> list[Finding]:
    return [*found.refused, *(finding for diagnosis in found.diagnoses for finding in diagnosis.findings)]


@contextmanager
def started_warm() -> Iterator[None]:
    """Commands `python SCRIPT ...` that are watched are forked, each in its script's folder, as on eight CPUs."""

    def start(words: list[str], *, env: Mapping[str, str], stdout: Any, start_new_session: bool) -> Any:
        folder = Path(words[1]).parent
        if folder.name.startswith(_LOOKED_AT):
            return popen(words, env=env, stdout=stdout, start_new_session=start_new_session, cwd=folder)
        return warm.start(*words[1:], environment=env, folder=folder, stdout=stdout)

    popen = command.Popen
    own_path = os.pathsep.join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))
    with (
        mock.patch.dict(os.environ, PYTHONWARNINGS="ignore", PYTHONPATH=own_path),
        mock.patch.object(command, "Popen", start),
        mock.patch.object(command, "surroundings", return_value=Surroundings(8, None, 0)),
    ):
        warm.ready()
        yield


class Runs:
    """What came of scripts, by name; they run while others are waited for."""

    def __init__(self, scripts: Mapping[str, tuple[str, int]], root: Path) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._runs: dict[str, Future[Watched]] = {}
        for name, (source, batches) in scripts.items():
            self.path(name).parent.mkdir()
            starts_s = 20.0 if "spawn" in source else 4.0  # a worker that is spawned imports torch first
            limits = {"batches": batches, "stall_timeout": starts_s * slowdown()}
            self._runs[name] = self._pool.submit(watched, source, self.path(name).parent, **limits)

    def path(self, name: str) -> Path:
        """Of the script."""
        return self._root / name.replace(" ", "-").replace(",", "") / "train.py"

    def __getitem__(self, name: str) -> Watched:
        return self._runs[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
