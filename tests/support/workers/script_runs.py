"""Scripts of strangers.py -> what `fastpipe doctor --train-script` finds in them.

The gate runs them in its own process, whose DataLoaders are watched meanwhile. The long tier watches programs, several
at a time: most of a watch is waiting, and most of a start is the import of torch, so they are forked off a process that
has done it (warm.py). Those whose memory is looked at run in a Python of their own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from support.programs import warm
from support.running.patience import slowdown
from torch.utils.data import dataloader

from fastpipe.diagnosis import command, loader_diagnoses
from fastpipe.diagnosis.command import Watched, watch_command
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.generators import preserve_generators
from fastpipe.diagnosis.inject.fastpipe_probe.patch import patch
from fastpipe.diagnosis.observation import Surroundings, read_observations, read_programs

_AT_ONCE = 4
_LOOKED_AT = "memory-grows"
_HOOK = Path(__file__).with_name("hook")
_SURROUNDINGS = Surroundings(8, None, 0)
_PATCHED = (
    (dataloader.DataLoader, "__init__"),
    (dataloader.DataLoader, "_get_iterator"),
    (dataloader._BaseDataLoaderIter, "_reset"),
    (dataloader._BaseDataLoaderIter, "__next__"),
)


def watched_here(source: str, folder: Path) -> Watched:
    """Runs a script train.py of that source in this process; an error ends it, and is found."""
    script, files = folder / "train.py", folder / "files"
    files.mkdir()
    script.write_text(source)
    names = {"__name__": "__main__", "__file__": str(script)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(preserve_generators())
        for owner, method in _PATCHED:
            stack.enter_context(
                mock.patch.object(owner, method, getattr(owner, method))
            )  # put back at the end
        patch(dataloader, str(files))
        try:
            exec(compile(source, str(script), "exec"), names)
        except Exception as problem:
            traceback.clear_frames(problem.__traceback__)
        finally:
            # What is left of an iterator would be freed in a worker of the next script, which waits in vain for it.
            names.clear()
            gc.collect()
    ran = read_programs(files)
    diagnosed = loader_diagnoses.diagnose_loaders(
        read_observations(files), ran, None, _SURROUNDINGS, files
    )
    diagnoses = loader_diagnoses.choose_worst(diagnosed)
    program_findings = tuple(
        loader_diagnoses.report_option_error(error)
        for program in ran
        for error in program.option_errors
    )
    trouble = files / "trouble.txt"
    return Watched(
        diagnoses, "", program_findings, bool(ran), trouble.read_text() if trouble.exists() else ""
    )


def watched(source: str, folder: Path, **limits: Any) -> Watched:
    """Watches a script train.py of that source in a folder of its own."""
    script = folder / "train.py"
    script.write_text(source)
    if "stall_timeout" not in limits:
        limits["stall_timeout"] = 4.0 * slowdown()
    limits = {
        "batches": 60,
        "seconds": max(60.0, 3 * limits["stall_timeout"]),
        "output": 2,
        **limits,
    }
    return watch_command(f"{sys.executable} {script}", **limits)


def findings(found: Watched) -> list[Finding]:
    return [
        *found.program_findings,
        *(finding for diagnosis in found.diagnoses for finding in diagnosis.findings),
    ]


@contextmanager
def started_warm() -> Iterator[None]:
    """Commands `python SCRIPT ...` that are watched are forked, each in its script's folder, as on eight CPUs."""

    def start(
        words: list[str], *, env: Mapping[str, str], stdout: Any, start_new_session: bool
    ) -> Any:
        folder = Path(words[1]).parent
        if folder.name.startswith(_LOOKED_AT):
            return popen(
                words, env=env, stdout=stdout, start_new_session=start_new_session, cwd=folder
            )
        return warm.start(*words[1:], environment=env, folder=folder, stdout=stdout)

    popen = command.Popen
    own_path = os.pathsep.join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))
    with (
        mock.patch.dict(os.environ, PYTHONWARNINGS="ignore", PYTHONPATH=own_path),
        mock.patch.object(command, "Popen", start),
        mock.patch.object(command, "measure_surroundings", return_value=_SURROUNDINGS),
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
            starts_s = (
                20.0 if "spawn" in source else 4.0
            )  # a worker that is spawned imports torch first
            limits = {"batches": batches, "stall_timeout": starts_s * slowdown()}
            self._runs[name] = self._pool.submit(watched, source, self.path(name).parent, **limits)

    def path(self, name: str) -> Path:
        """Of the script."""
        return self._root / name.replace(" ", "-").replace(",", "") / "train.py"

    def __getitem__(self, name: str) -> Watched:
        return self._runs[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
