"""A peer and what it is to do -> the figures of a fresh process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.roster import INSTALLED, SCRIPTS, Peer

_GRACE_S = 180.0


class RunError(Exception):
    """A run failed or gave no figures; the text says why."""


@dataclass(frozen=True)
class Load:
    """How much each run does.

    Attributes:
        workers: threads or processes.
        batch_size: samples a batch.
        size: of the output in pixels, square.
        warmup_s, seconds: not measured, then measured.
    """

    workers: int
    batch_size: int
    size: int
    warmup_s: float
    seconds: float


def read(peer: Peer, work: Path, load: Load) -> dict[str, Any]:
    """Measures a peer on its dataset."""
    if peer.small:
        load = replace(load, batch_size=4 * load.batch_size, size=32)
    data, workers = str(work / peer.data), str(peer.workers or load.workers)
    seconds = 10 * (load.warmup_s + load.seconds) + _GRACE_S
    if peer.script.endswith(".c"):
        decode = str(INSTALLED / peer.environment / "decode")
        return run(
            [decode, data, workers, str(load.warmup_s), str(load.seconds)],
            peer.environment,
            work,
            seconds,
        )
    task = [
        *("--workers", workers, "--batch-size", str(load.batch_size), "--size", str(load.size)),
        *(
            "--warmup",
            str(load.warmup_s),
            "--seconds",
            str(load.seconds),
            "--variant",
            peer.variant,
        ),
    ]
    return run([*_script(peer), "read", data, *task], peer.environment, work, seconds)


def write(peer: Peer, work: Path, photos: str, workers: int) -> dict[str, Any]:
    """Lets a peer make its dataset of the photos."""
    task = [
        "write",
        str(work / photos),
        str(work / peer.data),
        "--workers",
        str(workers),
        "--variant",
        peer.variant,
    ]
    return run([*_script(peer), *task], peer.environment, work, 24 * 3600)


def python(environment: str) -> str:
    """An environment's interpreter; "" is this one."""
    return str(INSTALLED / environment / "bin" / "python") if environment else sys.executable


def _script(peer: Peer) -> list[str]:
    return [python(peer.environment), "-W", "ignore", str(SCRIPTS / peer.script)]


def run(command: Sequence[str], environment: str, work: Path, timeout_s: float) -> dict[str, Any]:
    """Runs a command and reads the JSON object at the end of what it says; its workers end with it, and free the CPUs.

    Raises:
        RunError: it failed, said nothing or took too long.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=work,
            env=_surroundings(environment, work),
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RunError(f"gave no results within {timeout_s:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        errors.seek(0)
        said, complained = "\n" + out.read().decode(), errors.read().decode().strip()
    begin = said.rfind("\n{")
    if process.returncode != 0 or begin < 0:
        last = (complained.splitlines() or ["no word"])[-1]
        raise RunError(f"ended with code {process.returncode}: {last[:300]}")
    return dict(json.loads(said[begin:]))


def _surroundings(environment: str, work: Path) -> dict[str, str]:
    """Environment variables: caches go to the work folder; only the checkout's own Python looks at PYTHONPATH."""
    ours = ("PYTHONSAFEPATH",) if not environment else ("PYTHONSAFEPATH", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    caches = ("LITDATA_CACHE_DIR", "DATA_OPTIMIZER_CACHE_FOLDER", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    return {**kept, **{name: str(work / "caches" / name.lower()) for name in caches}}
