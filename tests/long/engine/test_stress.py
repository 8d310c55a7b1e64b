"""Runs of the stress program (support/stress): threads use engines in every way at once, and nothing is left behind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkout import SUPPORT
from support.native.native_build import build
from support.running.soak import Tried, long_form, times
from support.stress.run import write_rows

SOURCES = SUPPORT / "stress"
# What a run under a sanitizer ends with where it has something to report, if the program itself found nothing.
FINDINGS = {
    "TSAN_OPTIONS": "exitcode=66",
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=66",
    "PATH": "/usr/bin:/bin",
}

Stress = Callable[..., list[int]]


@pytest.fixture
def stress(request: pytest.FixtureRequest, many_shards: Path, tmp_path: Path) -> Stress:
    """Builds the program with the sanitizers of the parameter; each call is a run and returns what it counts.

    The gate's few epochs do without optimisation, which costs ASan and UBSan more time than it saves.
    """
    optimised = long_form() or request.param == "thread"
    program = build(SOURCES, tmp_path / "build", request.param, optimised=optimised)
    write_rows(many_shards, tmp_path / "rows")

    def run(*options: object, timeout_s: float) -> list[int]:
        command = [str(program), *map(str, options), str(tmp_path / "rows")]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=FINDINGS
        )
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
        return [int(number) for number in re.findall(r"\d+", ended.stdout)]

    return run


@pytest.mark.parametrize("stress", ["thread"], indirect=True)
def test_threads_do_not_race(stress: Stress, tried: Tried) -> None:
    seconds = times(5, 600)
    engines, least = 0, 0
    for seed in range(10):  # on a busy machine a run gets through little
        *counts, wrong = stress("--seconds", seconds, "--seed", seed, timeout_s=120 + 3 * seconds)
        assert wrong == 0
        engines, least = engines + counts[0], least + min(counts)
        if least > seconds / 5:
            break
    assert least > seconds / 5, "engines, batches, rows, cancelled or transcoded"
    tried(
        "engines made, shared by five threads, cancelled and closed, under TSan",
        engines,
        "no report; right pixels",
    )


@pytest.mark.parametrize("stress", ["address,undefined"], indirect=True)
def test_nothing_is_leaked(stress: Stress, tried: Tried) -> None:
    epochs = times(20, 2000)
    rows = stress("--epochs", epochs, timeout_s=120 + epochs)[2]
    assert rows == epochs * 24
    engines = stress("--seconds", times(3, 300), timeout_s=1200)[0]
    tried("rows decoded, under ASan, UBSan and LeakSanitizer", rows, "no report, no leak")
    tried(
        "engines made, shared, cancelled and closed, under the same", engines, "no report, no leak"
    )
