"""Tests of fastpipe.wds in DataLoader workers of every start method, told of epochs and not."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from support.checkout import SUPPORT
from support.pictures.drawn import smooth_noise
from support.programs import warm
from support.sources.wds_tars import SIDE, image_bytes, written

import fastpipe

SAMPLES = 12
UNTOLD, AGAIN, FIRST, SECOND, BACK = range(5)  # the epochs of wds_in_workers.py


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tars")
    data = [image_bytes(smooth_noise(80 + 9 * n, 120, seed=n)) for n in range(SAMPLES)]
    samples = [{"__key__": f"k{n}", "jpg": each} for n, each in enumerate(data)]
    written(folder, samples[1::2], "001.tar")
    return written(folder, samples[::2])


@pytest.mark.parametrize("form", ["single", "batched"])
@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
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


@pytest.mark.parametrize("make", [fastpipe.wds.crop, fastpipe.wds.batch_crop])
def test_copies_do_the_same(make: type) -> None:
    original = make(SIDE, seed=3)
    original.set_epoch(4)
    sample = {"__key__": "k", "jpg": image_bytes(smooth_noise(90, 90, seed=0))}
    for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):  # noqa: S301
        given = sample if make is fastpipe.wds.crop else [sample]
        assert torch.equal(twin(given)["jpg"], original(given)["jpg"])
