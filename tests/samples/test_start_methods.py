"""A DataLoader's workers of each start method give the samples of the process that starts them."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.pictures.drawn import FLAT_IMAGES
from torch.utils.data import DataLoader

import fastpipe

ROWS = np.random.default_rng(0).random((FLAT_IMAGES, 2), dtype=np.float32)
# Spawned workers import torch anew, each of them.
WORKERS = {"fork": 2, "forkserver": 2, "spawn": 1}


@pytest.fixture
def preloaded() -> Iterator[None]:
    """The process that forks the workers of forkserver imports torch, for all of them."""
    multiprocessing.set_forkserver_preload(["torch", "fastpipe"])
    yield
    multiprocessing.set_forkserver_preload(["__main__"])


@pytest.mark.new_python("DataLoader workers by start method")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork where there are threads
@pytest.mark.usefixtures("preloaded")
@pytest.mark.parametrize("method", WORKERS)
def test_workers_give_the_same_samples(fielded: Path, tmp_path: Path, method: str) -> None:
    """Columns of the dataset, of an array and of a file, and crops of the epoch that was set last."""
    np.save(tmp_path / "rows.npy", ROWS)
    data = fastpipe.open(fielded).with_column("array", ROWS).with_column("file", tmp_path / "rows.npy")
    data = data.select(range(FLAT_IMAGES - 1, -1, -6)).with_fields(["image", "caption", "key", "array", "file", "id"])
    data = data.cropped(fastpipe.RandomResizedCrop(), size=20, hflip=True)
    mine: fastpipe.Dataset = pickle.loads(pickle.dumps(data))  # noqa: S301 (our own)
    assert data[0]["id"] == 0  # its files are open in the parent
    batches = DataLoader(
        data, 2, num_workers=WORKERS[method], multiprocessing_context=method, persistent_workers=True, timeout=300
    )
    for epoch in (0, 5):
        data.set_epoch(epoch)
        mine.set_epoch(epoch)
        seen = list(batches)
        assert torch.cat([batch["id"] for batch in seen]).tolist() == list(range(len(data)))
        for name in ("image", "array", "file"):
            found = torch.cat([batch[name] for batch in seen])
            assert torch.equal(found, torch.stack([torch.as_tensor(sample[name]) for sample in mine])), name
        for name in ("caption", "key"):
            assert [text for batch in seen for text in batch[name]] == [sample[name] for sample in mine], name
