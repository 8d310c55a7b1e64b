"""fastpipe.wds in DataLoader workers of every start method, told of epochs and not, beside a busy loader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkout import SUPPORT
from support.pictures.drawn import smooth_noise
from support.programs import warm
from support.sources.wds_tars import image_bytes, written

SAMPLES = 12
UNTOLD, AGAIN, FIRST, SECOND, BACK = range(5)  # the epochs of wds_in_workers.py


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tars")
    data = [image_bytes(smooth_noise(80 + 9 * n, 120, seed=n)) for n in range(SAMPLES)]
    samples = [{"__key__": f"k{n}", "jpg": each} for n, each in enumerate(data)]
    written(folder, samples[1::2], "001.tar")
    return written(folder, samples[::2])


@pytest.mark.parametrize(
    ("start_method", "form"),
    [("fork", "single"), ("fork", "batched"), ("forkserver", "single"), ("spawn", "batched")],
)
def test_workers(tar: str, flat: Path, start_method: str, form: str) -> None:
    done = warm.run(SUPPORT / "workers" / "wds_in_workers.py", tar, flat, start_method, form, timeout_s=300)
    assert done.returncode == 0, done.stderr
    *epochs, alone = json.loads(done.stdout)
    assert len(epochs) == (5 if start_method == "spawn" else 10)
    for found in (*epochs, alone):
        assert found.keys() == {f"k{n}" for n in range(SAMPLES)}, "no sample twice, none lost"
    for each in filter(None, (epochs[:5], epochs[5:])):  # fresh workers in each epoch; the same ones in all
        assert sum(each[UNTOLD][key] == each[AGAIN][key] for key in alone) == 0, "new crops without set_epoch"
        assert each[FIRST] == each[BACK] == alone, "by seed, epoch and key alone, in any process"
        assert sum(each[FIRST][key] == each[SECOND][key] for key in alone) == 0
