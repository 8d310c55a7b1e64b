"""The Slurm script of docs/how-to/cluster.md: a pack on a Ray cluster of two nodes, which the script starts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.checkout import ROOT
from support.programs.cli_run import COMMAND
from support.ray.ray_cluster import environment
from support.ray.sources import folder
from support.sources.pack_sources import digests

import fastpipe

# In place of Slurm: it starts the program on this machine.
STANDINS = """
srun() {
    while [[ $1 == -* ]]; do shift; done
    "$@" >&2
}
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def end_ray(home: Path) -> None:
    """Ends the daemons of the script's cluster, which Slurm would end with the job: those with this HOME."""
    ours = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                process.kill()
                ours.append(process)
        except psutil.Error:
            continue
    psutil.wait_procs(ours, timeout=60)


def test_the_script_of_the_page(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    page = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert len(script.splitlines()) <= 12
    source = folder(tmp_path / "source", images=6)
    fastpipe.pack(source, tmp_path / "local")
    address = ray._private.services.get_node_ip_address()
    script = script.replace("/shared/photos", str(source)).replace(
        "/shared/train", str(tmp_path / "packed")
    )
    script = script.replace("$(hostname)", address).replace("6379", str(free_port()))
    script = script.replace("fastpipe pack", f"{COMMAND} pack")
    home = tmp_path / "home"
    home.mkdir()
    slurm = {"SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    log = tmp_path / "log"  # no pipe, which the nodes would hold open
    try:
        with log.open("w") as out:
            ran = subprocess.run(
                ["bash", "-c", STANDINS + script],
                stdout=out,
                stderr=out,
                env={**environment(), **slurm, "HOME": str(home), "PATH": path},
                timeout=300,
            )
    finally:
        end_ray(home)
    assert ran.returncode == 0, log.read_text()
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
