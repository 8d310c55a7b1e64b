"""Datasets of every kind, pickled and copied: small, the same in other processes, and opened when they are read."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.datasets.kinds import KINDS, told
from support.pictures.drawn import FLAT_IMAGES
from support.programs.warm import run_script
from torch.utils.data import DataLoader

import fastpipe
from fastpipe.errors import DatasetError

ROWS = np.random.default_rng(0).random((FLAT_IMAGES, 2), dtype=np.float32)
# Spawned workers import torch anew, each of them.
WORKERS = {"fork": 2, "forkserver": 2, "spawn": 1}


@pytest.fixture(params=KINDS)
def data(
    request: pytest.FixtureRequest, fielded: Path, many_shards: Path, tmp_path: Path
) -> fastpipe.Dataset:
    return KINDS[request.param](fastpipe.open(fielded), fastpipe.open(many_shards), tmp_path)


def test_a_copy_is_the_same_and_a_pickle_small(data: fastpipe.Dataset) -> None:
    """However much of the dataset was read before."""
    fresh = len(pickle.dumps(data))
    assert fresh < 3500 + 8 * 4 * len(data)
    expected = told(data)
    assert len(pickle.dumps(data)) == fresh
    for again in (pickle.loads(pickle.dumps(data)), copy.copy(data), copy.deepcopy(data)):  # noqa: S301 (our own)
        assert told(again) == expected
    assert told(data) == expected


def test_in_another_process(fielded: Path, many_shards: Path, tmp_path: Path) -> None:
    """All kinds in a process that inherits nothing of them, as spawned workers of a DataLoader."""
    datasets: dict[str, fastpipe.Dataset] = {}
    for number, (name, make) in enumerate(KINDS.items()):
        (tmp_path / str(number)).mkdir()
        datasets[name] = make(
            fastpipe.open(fielded), fastpipe.open(many_shards), tmp_path / str(number)
        )
    (tmp_path / "datasets").write_bytes(pickle.dumps(datasets))
    script = """
        import pickle, sys
        from pathlib import Path
        from support.datasets.kinds import told
        datasets = pickle.loads(Path(sys.argv[1]).read_bytes())
        Path(sys.argv[2]).write_bytes(pickle.dumps({name: told(data) for name, data in datasets.items()}))
    """
    ran = run_script(script, tmp_path / "datasets", tmp_path / "told", timeout_s=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    there = pickle.loads((tmp_path / "told").read_bytes())  # noqa: S301 (our own)
    for name, data in datasets.items():
        assert there[name] == told(data), name


def test_nothing_is_opened_before_it_is_read(
    fielded: Path, many_shards: Path, tmp_path: Path
) -> None:
    """A worker that never reads a dataset pays for none; and what is gone then is named at the first read."""
    gone = Path(shutil.copytree(fielded, tmp_path / "gone"))
    data = fastpipe.open(gone)
    made = [
        make(data, fastpipe.open(many_shards), tmp_path)
        for name, make in KINDS.items()
        if name != "not packed"
    ]
    pickled = pickle.dumps(made)
    shutil.rmtree(gone)
    for again in pickle.loads(pickled):  # noqa: S301 (our own)
        assert not {"index", "content"} & set(vars(again._selection))
        for read in (
            lambda each=again: each[0],
            lambda each=again: each["label"][0],
            lambda each=again: len(each),
        ):
            with pytest.raises(DatasetError, match=f"{gone} does not exist"):
                read()


@pytest.fixture
def preloaded() -> Iterator[None]:
    """The process that forks the workers of forkserver imports torch, for all of them."""
    multiprocessing.set_forkserver_preload(["torch", "fastpipe"])
    yield
    multiprocessing.set_forkserver_preload(["__main__"])


@pytest.mark.new_python("DataLoader workers by start method")
@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # a fork where there are threads
@pytest.mark.usefixtures("preloaded")
@pytest.mark.parametrize("method", WORKERS)
def test_workers_give_the_same_samples(fielded: Path, tmp_path: Path, method: str) -> None:
    """Columns of the dataset, of an array and of a file, and crops of the epoch that was set last."""
    np.save(tmp_path / "rows.npy", ROWS)
    data = (
        fastpipe.open(fielded).with_column("array", ROWS).with_column("file", tmp_path / "rows.npy")
    )
    data = data.select(range(FLAT_IMAGES - 1, -1, -6)).with_fields(
        ["image", "caption", "key", "array", "file", "id"]
    )
    data = data.cropped(fastpipe.RandomResizedCrop(), size=20, hflip=True)
    mine: fastpipe.Dataset = pickle.loads(pickle.dumps(data))  # noqa: S301 (our own)
    assert data[0]["id"] == 0  # its files are open in the parent
    batches = DataLoader(
        data,
        2,
        num_workers=WORKERS[method],
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=300,
    )
    for epoch in (0, 5):
        data.set_epoch(epoch)
        mine.set_epoch(epoch)
        seen = list(batches)
        assert torch.cat([batch["id"] for batch in seen]).tolist() == list(range(len(data)))
        for name in ("image", "array", "file"):
            found = torch.cat([batch[name] for batch in seen])
            assert torch.equal(
                found, torch.stack([torch.as_tensor(sample[name]) for sample in mine])
            ), name
        for name in ("caption", "key"):
            assert [text for batch in seen for text in batch[name]] == [
                sample[name] for sample in mine
            ], name
