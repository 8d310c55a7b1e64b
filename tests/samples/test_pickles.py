"""Datasets of every kind, pickled and copied: small, the same in another process, and opened when they are read."""

from __future__ import annotations

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.datasets.kinds import KINDS, told
from support.programs.warm import run_script

import fastpipe
from fastpipe.errors import DatasetError


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest, fielded: Path, many_shards: Path, tmp_path: Path) -> fastpipe.Dataset:
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


@pytest.mark.parametrize(
    "data",
    ["fold", "column of a file", "labels of a file", "concat of all that", "mix", "all", "not packed"],
    indirect=True,
)
def test_batches_are_the_same(data: fastpipe.Dataset) -> None:
    again: fastpipe.Dataset = pickle.loads(pickle.dumps(data))  # noqa: S301 (our own)
    options: dict[str, Any] = {"size": 16, "num_workers": 1, "seed": 3, "drop_last": False}
    with fastpipe.loader(data, 2, **options) as one, fastpipe.loader(again, 2, **options) as other:
        for first, second in zip(one, other, strict=True):
            assert torch.equal(first.images, second.images)
            assert first.labels.tolist() == second.labels.tolist()
            assert first.ids.tolist() == second.ids.tolist()
        state = one.state_dict()
        other.load_state_dict(state)


def test_in_another_process(fielded: Path, many_shards: Path, tmp_path: Path) -> None:
    """All kinds in a process that inherits nothing of them, as spawned workers of a DataLoader."""
    datasets: dict[str, fastpipe.Dataset] = {}
    for number, (name, make) in enumerate(KINDS.items()):
        (tmp_path / str(number)).mkdir()
        datasets[name] = make(fastpipe.open(fielded), fastpipe.open(many_shards), tmp_path / str(number))
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


def test_nothing_is_opened_before_it_is_read(fielded: Path, many_shards: Path, tmp_path: Path) -> None:
    """A worker that never reads a dataset pays for none; and what is gone then is named at the first read."""
    gone = Path(shutil.copytree(fielded, tmp_path / "gone"))
    data = fastpipe.open(gone)
    made = [make(data, fastpipe.open(many_shards), tmp_path) for name, make in KINDS.items() if name != "not packed"]
    pickled = pickle.dumps(made)
    shutil.rmtree(gone)
    for again in pickle.loads(pickled):  # noqa: S301 (our own)
        assert not {"index", "content"} & set(vars(again))
        for read in (lambda each=again: each[0], lambda each=again: each["label"][0], lambda each=again: len(each)):
            with pytest.raises(DatasetError, match=f"{gone} does not exist"):
                read()
