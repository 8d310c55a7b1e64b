"""The `fastpipe` command as a program of its own: what it measures, and Ctrl-C in the middle of its work."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.programs.cli_run import COMMAND
from support.sources.pack_sources import write_folder, write_large_folder

from fastpipe.packing.job.threads import pack


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    pack(write_folder(root / "source"), root / "packed")
    return root / "packed"


def test_bench_as_json(packed: Path) -> None:
    run = subprocess.run(
        [
            COMMAND,
            "bench",
            str(packed),
            *[
                "--json",
                "--repeats",
                "1",
                "--seconds",
                "0.1",
                "--batch-size",
                "8",
                "--workers",
                "1",
                "--size",
                "32",
            ],
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    content = json.loads(run.stdout)
    assert content["task"] == {
        "data": str(packed),
        "batch_size": 8,
        "workers": 1,
        "size": 32,
        "seed": 0,
    }
    (result,) = content["results"]
    assert result["contender"] == "fastpipe"
    assert result["median"]["images_per_s"] > 0
    assert result["ratio"] == 1
    assert content["skipped"] == {}
    assert "images/s" in run.stderr


def test_an_interrupt_ends_a_pack_with_130(tmp_path: Path) -> None:
    source, packed = write_large_folder(tmp_path / "source", images=24), tmp_path / "packed"
    for number in range(80):  # long enough to be caught in the middle
        for name in ("00", "02", "04", "06"):
            (source / "class-0" / f"{number}-{name}.jpg").symlink_to(f"{name}.jpg")
    command = [COMMAND, "pack", str(source), str(packed), "--shard-size", "100kB", "--workers", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 300
        while not (packed / "shard-000001.tar").exists():
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines() == [
        "fastpipe: finished shards are kept; run the same command again to continue",
        "fastpipe: interrupted",
    ]
    assert not (packed / "dataset.json").exists()

    run = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    content = json.loads(run.stdout)
    assert content["resumed_shards"] >= 2
    assert content["samples"] == 24 + 320
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", run.stdout + run.stderr)
