"""The scripts of docs/cluster.md: a pack in programs that ssh or Slurm start."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.checkout import ROOT
from support.programs.cli_run import COMMAND, failed
from support.ray.sources import folder
from support.sources.pack_sources import digests

import fastpipe

# In place of the programs that start programs: they run each at once.
STANDINS = """
ssh() { shift; "$@"; }
sbatch() {
    local array=0-0 number
    while [[ $1 != --wrap ]]; do
        if [[ $1 == --array ]]; then array=$2; shift; fi
        shift
    done
    for number in $(seq ${array/-/ }); do SLURM_ARRAY_TASK_ID=$number bash -c "$2" >&2; done
    echo 1
}
"""


@pytest.mark.parametrize("script", [0, 1])
def test_scripts_of_the_page(tmp_path: Path, script: int) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    text = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[script]
    assert len(text.splitlines()) <= 20
    source = folder(tmp_path / "source", images=6)
    fastpipe.pack(source, tmp_path / "local")
    text = text.replace("/shared/photos", str(source)).replace("/shared/train", str(tmp_path / "packed"))
    text = text.replace("fastpipe pack", f"{COMMAND} pack").replace("1-64", "1-1").replace("/64", "/1")
    text = text.replace("node1 node2 node3", "node1 node2")
    for _ in range(2):  # a script that is run again has nothing to do
        ran = subprocess.run(["bash", "-c", STANDINS + text], capture_output=True, text=True, env={**os.environ})
        assert ran.returncode == 0, ran.stderr
        assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    refused = failed(1, "pack", source, tmp_path / "packed", "--seed", "1", "--step", "convert")
    assert "run --step list first" in refused
