"""Tests of fastpipe.wds on shards whose images are stored as coefficients: KEY.fpc in place of KEY.jpg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from support.pictures.drawn import smooth_noise
from support.sources.wds_tars import SIDE, collected, image_bytes, opened, written  # noqa: F401 (a fixture)

import fastpipe
from fastpipe import SampleError

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]

SAMPLES = 7


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Both storages of the same photos, in the same order."""
    root = tmp_path_factory.mktemp("coefficients")
    for number in range(SAMPLES):
        folder = root / "photos" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        data = image_bytes(smooth_noise(70 + 9 * number, 160 - 7 * number, seed=number))
        (folder / f"{number}.jpg").write_bytes(data)
    for storage in ("jpeg", "coefficients"):
        fastpipe.pack(root / "photos", root / storage, storage=storage)
    return {
        storage: str(root / storage / "shard-000000.tar") for storage in ("jpeg", "coefficients")
    }


def keyed(tar: str) -> Any:
    """Its samples, with keys by number: draws go by the key, and keys of fastpipe depend on the sizes of samples."""

    def numbered(samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return ({**sample, "__key__": f"{number:04d}"} for number, sample in enumerate(samples))

    return opened(tar).compose(numbered)


def crops(tar: str, function: Any) -> list[dict[str, Any]]:
    function.set_epoch(3)
    return list(keyed(tar).map(function))


def test_a_pipeline_gives_the_crops_of_the_jpegs(shards: dict[str, str]) -> None:
    one, other = (
        crops(shards[name], fastpipe.wds.crop(SIDE, seed=5)) for name in ("jpeg", "coefficients")
    )
    assert len(one) == len(other) == SAMPLES
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine["jpg"], theirs["fpc"])
        assert (mine["cls"], mine["__key__"]) == (theirs["cls"], theirs["__key__"])


def test_a_batch_gives_the_crops_of_the_jpegs(shards: dict[str, str]) -> None:
    function = fastpipe.wds.batch_crop(SIDE, seed=5, num_workers=3)
    function.set_epoch(3)
    (one,), (other,) = (
        list(keyed(shards[name]).batched(10).map(function)) for name in ("jpeg", "coefficients")
    )
    assert torch.equal(one["jpg"], other["fpc"])


def test_renamed_members_are_cropped_together_with_jpegs(shards: dict[str, str]) -> None:
    """`jpg` may hold either: the bytes tell."""
    function = fastpipe.wds.crop(SIDE, train=False)
    found = [
        list(opened(shards[name]).rename(jpg="jpg;fpc").decode(function))
        for name in ("jpeg", "coefficients")
    ]
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine["jpg"], theirs["jpg"])


def test_damaged_coefficients_are_an_error_that_names_them(
    shards: dict[str, str], tmp_path: Path
) -> None:
    samples = [sample["fpc"] for sample in opened(shards["coefficients"])]
    damaged = samples[1][:300] + bytes(200) + samples[1][500:]
    tar = written(tmp_path, [{"fpc": data, "cls": 0} for data in (samples[0], damaged, samples[2])])
    with pytest.raises(SampleError, match=r"'fpc' of the sample 'n0001'.*coefficients are damaged"):
        list(opened(tar).map(fastpipe.wds.crop(SIDE, train=False)))
    function = fastpipe.wds.batch_crop(SIDE, train=False, handler=webdataset.ignore_and_continue)
    (batch,) = opened(tar).batched(3).map(function)
    assert batch["__key__"] == ["n0000", "n0002"]


def test_a_large_picture_is_refused(shards: dict[str, str]) -> None:
    with pytest.raises(SampleError, match="pixels"):
        list(opened(shards["coefficients"]).map(fastpipe.wds.crop(SIDE, max_pixels=100)))
