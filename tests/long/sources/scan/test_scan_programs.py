"""Sources that are not packed, in workers that import everything anew, and in a benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.unpacked_sources import bad_files, odd_pictures, write_mixed
from torch.utils.data import DataLoader

import fastpipe


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("data") / "photos", {**odd_pictures(), **bad_files()})


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_dataset_in_workers_that_are_not_forked(photos: Path, method: str) -> None:
    dataset = fastpipe.open(photos)
    here = [(image.sum().item(), label) for image, label in (dataset[number] for number in range(len(dataset)))]
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    there = [(image.sum().item(), int(label)) for image, label in loader]
    assert there == here


def test_a_benchmark(photos: Path) -> None:
    figures = json.loads(succeeded("bench", photos, "--repeats", 1, "--seconds", 0.2, "--workers", 1, "--json"))
    assert figures["results"][0]["contender"] == "fastpipe"
