"""Random options of fastpipe over data of all kinds: what the docs say comes, or an error that says why not."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.checkout import TESTS
from support.programs import warm
from support.running.soak import Tried, times

COUNT = times(800, 20_000)
SEED = times(90, 0)


def test_random_draws(tmp_path: Path, tried: Tried) -> None:
    """In processes of their own; see walking.py. A failure prints a program that does the draw again."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = warm.run(
        *("-c", "from support.walk.walking import main; main()"),
        *("--seed", SEED, "--count", COUNT, "--folder", tmp_path / "walk"),
        environment={**os.environ, "PYTHONPATH": path, "FASTPIPE_CACHE": str(tmp_path / "cache")},
        timeout_s=times(3_000, 40_000),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "--- draw" not in done.stdout, done.stdout[-8000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    ends = sum(
        count for how, count in counts.items() if how.split()[0] in ("done", "refused:", "dataset", "bad", "too")
    )
    assert ends == COUNT
    assert counts["epochs"] > COUNT / 2
    tried("options and data at random", COUNT, "batches as documented, or an error that names the option")
