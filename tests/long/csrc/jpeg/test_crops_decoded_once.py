"""Several crops of one picture are decoded together: they take little more time than one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pictures.coefficient_sources import packed
from support.pictures.jpegs import encoded, picture

from fastpipe import _engine


@pytest.mark.serial
@pytest.mark.parametrize("coefficients", [False, True])
def test_crops_together_are_decoded_once(coefficients: bool, tmp_path: Path) -> None:
    """Eight crops that need all of a photo take little more CPU time than one."""
    jpeg, blocks = packed(encoded(picture(1600, 1200), "444"))
    stored = blocks if coefficients else jpeg
    shard = tmp_path / "shard"
    shard.write_bytes(stored)
    engine = _engine.Engine([(os.fsencode(shard), len(stored))], 1, 1)
    task = np.zeros(1, dtype=_engine.TASK_DTYPE)
    task["size"], task["width"], task["height"], task["coefficients"] = (
        len(stored),
        1600,
        1200,
        coefficients,
    )
    task["box"] = task["bounds"] = (0, 0, 1600, 1200)
    outs = [np.zeros((1, 8, 8, 3), np.uint8) for _ in range(8)]
    options: dict[str, Any] = {
        "interpolation": "nearest"
    }  # so that next to no time goes into the resize

    def seconds(crops: int) -> float:
        """CPU time of a job; the least of several."""
        found = []
        for _ in range(5):
            started = time.process_time()
            views = [(out, True, options) for out in outs[:crops]]
            job = _engine.Job(engine, np.repeat(task, crops), views, False)
            assert job.wait(60)
            found.append(time.process_time() - started)
            assert job.errors() == []
        return min(found)

    assert seconds(8) < 1.6 * seconds(1)
    engine.close(60)
