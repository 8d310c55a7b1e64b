"""Programs of several ranks, started as torchrun starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def torchrun(program: object, *arguments: object, processes: int = 2, timeout_s: float = 300) -> str:
    """Runs it with a process a rank; all end with it. Returns what they printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [str(program), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as run:
        try:
            output, _ = run.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    assert run.returncode == 0, output
    return output
