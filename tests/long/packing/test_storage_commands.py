"""`fastpipe doctor` and `bench`, which measure, of a dataset whose images are stored as coefficients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.programs.cli_run import fp, succeeded
from support.sources.pack_sources import write_large_folder


@pytest.mark.serial
def test_doctor_and_bench_measure_coefficients(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    succeeded("pack", write_large_folder(tmp_path / "source", images=12), packed, "--storage", "coefficients")
    checks = {check["name"]: check["found"] for check in json.loads(fp("doctor", packed, "--json").stdout)}
    assert "images/s of random crops" in checks["decoding"]
    measured = ("--seconds", 0.1, "--repeats", 1, "--size", 32, "--workers", 1)
    assert "images/s" in succeeded("bench", packed, *measured)
