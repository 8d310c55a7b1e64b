"""Programs of several ranks, started by torchrun, or as torchrun starts them."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor

from support.programs import warm

HANG_S = 600.0  # only what hangs takes so long


def torchrun(
    program: object, *arguments: object, processes: int = 2, timeout_s: float = HANG_S
) -> str:
    """Runs it with a process a rank; all end with it. Returns what they printed."""
    launch = "from torch.distributed.run import main; main()"
    options = ("--standalone", f"--nproc-per-node={processes}", program, *arguments)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = warm.run("-c", launch, *options, environment=environment, timeout_s=timeout_s)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def ranks(
    program: object, *arguments: object, processes: int = 2, timeout_s: float = HANG_S
) -> list[tuple[int, str]]:
    """Runs it with the environment that torchrun gives each rank, but without torchrun, and without the seconds in
    which each would import torch. Returns how each rank ended: its exit code, and what it printed.
    """
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    environment |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}

    def ended(rank: int) -> tuple[int, str]:
        own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        done = warm.run(program, *arguments, environment=own, timeout_s=timeout_s)
        return done.returncode, done.stdout + done.stderr

    with ThreadPoolExecutor(processes) as threads:
        return list(threads.map(ended, range(processes)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
