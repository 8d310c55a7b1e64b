"""A short run of the fuzzer (support/fuzz): damaged JPEGs are refused or decoded right, soon and in little memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.checkout import SUPPORT
from support.fuzz.seeds import write
from support.native.native_build import build
from support.running.soak import Tried, times

INPUTS = times(20_000, 300_000)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SUPPORT / "fuzz", tmp_path_factory.mktemp("fuzz") / "build")


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "jpegs"
    assert write(folder) > 60
    return folder


def run(fuzzer: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(fuzzer), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=times(300, 7200), check=False
    )


def test_damaged_jpegs_do_no_harm(fuzzer: Path, jpegs: Path, tried: Tried) -> None:
    ended = run(fuzzer, "--seed", 0, "--count", INPUTS, jpegs)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    inputs, rows, compared, transcoded, coefficients, wrong = (
        int(re.findall(rf"(\d+) {what}", ended.stdout)[0])
        for what in ("inputs", "rows", "compared", "transcoded", "KEY.fpcs decoded", "wrong")
    )
    assert (inputs, wrong) == (INPUTS, 0)
    # Most damage would be found by the first look at the header, and prove little.
    assert min(rows, compared, transcoded) > INPUTS / 10
    assert coefficients > INPUTS / 20
    tried(
        "damaged JPEGs (fuzzer), decoded both ways and transcoded",
        INPUTS,
        "a named error, or the right pixels",
    )


def test_an_input_depends_on_its_number_alone(fuzzer: Path, jpegs: Path, tmp_path: Path) -> None:
    inputs = []
    for number in (3, 4, 3):
        run(
            fuzzer, "--seed", 7, "--first", number, "--write", tmp_path / "input", jpegs
        ).check_returncode()
        inputs.append((tmp_path / "input").read_bytes())
    assert inputs[0] == inputs[2] != inputs[1]
    assert all(inputs[0] != seed.read_bytes() for seed in jpegs.iterdir())


@pytest.mark.parametrize("limit", ["--most-seconds", "--most-mb"])
def test_limits_are_kept_watch_over(fuzzer: Path, jpegs: Path, limit: str) -> None:
    ended = run(fuzzer, "--count", 50, limit, 0, jpegs)
    assert ended.returncode == 1
    assert ended.stdout.startswith("seed 0: 50 inputs")
