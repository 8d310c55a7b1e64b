"""Tests of fastpipe.wds.batch_crop: the rows of fastpipe.wds.crop, on threads, and batches with damaged pictures."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from support.pictures.drawn import smooth_noise
from support.sources.wds_tars import SIDE, collected, image_bytes, opened, written  # noqa: F401 (a fixture)

import fastpipe
from fastpipe import ConfigError, SampleError
from fastpipe.wds import stages

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]

SAMPLES = 13


def data_of(number: int) -> bytes:
    """Every kind that goes another way: by the engine, by the transcoder, by Pillow."""
    picture = smooth_noise(70 + 9 * number, 160 - 7 * number, seed=number)
    kind, options = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WebP", {})][
        max(0, number % 8 - 4)
    ]
    return image_bytes(picture, kind, **options)


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> str:
    samples = [{"jpg": data_of(n), "txt": f"caption {n}", "cls": n} for n in range(SAMPLES)]
    return written(tmp_path_factory.mktemp("tars"), samples)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of each four samples, the second is damaged."""
    whole = {n: data_of(0) for n in range(SAMPLES)}
    samples = [
        {"jpg": data[: 500 if n % 4 == 1 else None], "txt": f"{n}", "cls": n}
        for n, data in whole.items()
    ]
    return written(tmp_path_factory.mktemp("damaged"), samples)


@pytest.mark.parametrize("train", [True, False])
def test_rows_are_those_of_single_samples(tar: str, train: bool) -> None:
    single = fastpipe.wds.crop(SIDE, train=train, seed=9)
    single.set_epoch(6)
    rows = torch.stack([sample["jpg"] for sample in opened(tar).map(single)])
    for num_workers in (1, 2, 5, None):
        function = fastpipe.wds.batch_crop(SIDE, train=train, seed=9, num_workers=num_workers)
        function.set_epoch(6)
        batches = list(opened(tar).batched(5).map(function))
        assert [len(batch["jpg"]) for batch in batches] == [5, 5, 3]
        assert torch.equal(torch.cat([batch["jpg"] for batch in batches]), rows), num_workers
        images = batches[0]["jpg"]
        assert images.dtype == torch.uint8
        assert images.is_contiguous(memory_format=torch.channels_last)
        texts = [text for batch in batches for text in batch["txt"]]
        assert texts == [f"caption {number}".encode() for number in range(SAMPLES)]


def test_listed_samples_are_collated_by_webdataset(tar: str) -> None:
    function = fastpipe.wds.batch_crop(SIDE)
    function.set_epoch(0)
    stages = opened(tar).decode(only=["txt", "cls"]).listed(SAMPLES).map(function)
    (listed,) = stages
    (batched,) = opened(tar).batched(SAMPLES).map(function)
    assert torch.equal(listed["jpg"], batched["jpg"])
    assert listed["txt"] == [f"caption {n}" for n in range(SAMPLES)]
    assert isinstance(listed["cls"], np.ndarray)
    assert listed["cls"].tolist() == list(range(SAMPLES))
    (collated,) = opened(tar).batched(SAMPLES, collation_fn=function)
    assert torch.equal(collated["jpg"], batched["jpg"])


def test_without_an_epoch_batches_are_new_each_time(tar: str) -> None:
    function = fastpipe.wds.batch_crop(SIDE)
    torch.manual_seed(1)
    first, second, third = (
        next(iter(opened(tar).batched(SAMPLES).map(function)))["jpg"] for _ in range(3)
    )
    same = [torch.equal(a, b) for a, b in zip(first, second, strict=True)]
    assert sum(same) == 0
    torch.manual_seed(1)
    assert torch.equal(next(iter(opened(tar).batched(SAMPLES).map(function)))["jpg"], first)
    assert not torch.equal(second, third)


def test_no_thread_is_left(tar: str) -> None:
    stages = opened(tar).batched(6).map(fastpipe.wds.batch_crop(SIDE, num_workers=4))
    list(stages)  # libraries that are imported for some pictures may keep threads
    before = len(os.listdir("/proc/self/task"))
    for _ in stages:
        patience = time.monotonic() + 300  # a thread that has been joined stays listed for a moment
        while len(os.listdir("/proc/self/task")) > before:
            assert time.monotonic() < patience


def test_damage_is_named(damaged: str) -> None:
    words = f"(?s)'jpg' of the sample 'n0001' cannot be decoded: .*truncated.*{damaged}"
    with pytest.raises(SampleError, match=words):
        list(opened(damaged).batched(6).map(fastpipe.wds.batch_crop(SIDE)))
    stage = (
        opened(damaged)
        .batched(6)
        .map(fastpipe.wds.batch_crop(SIDE), handler=webdataset.ignore_and_continue)
    )
    assert [each["__key__"] for each in stage] == [["n0012"]], (
        "the stage's own handler leaves out whole batches"
    )


@pytest.mark.parametrize("listed", [False, True])
def test_a_handler_leaves_out_samples(damaged: str, listed: bool) -> None:
    """The rows that stay are the crops of their own samples."""
    seen: list[Exception] = []

    def handler(problem: Exception) -> bool:
        seen.append(problem)
        return True

    function = fastpipe.wds.batch_crop(SIDE, handler=handler)
    single = fastpipe.wds.crop(SIDE)
    function.set_epoch(2)
    single.set_epoch(2)
    stages = opened(damaged).decode(only="cls")
    batches = list((stages.listed(6) if listed else stages.batched(6)).map(function))
    left = [number for number in range(SAMPLES) if number % 4 != 1]
    assert [int(label) for batch in batches for label in batch["cls"]] == left
    assert [text for batch in batches for text in batch["txt"]] == [
        str(number).encode() for number in left
    ]
    assert [key for batch in batches for key in batch["__key__"]] == [
        f"n{number:04d}" for number in left
    ]
    rows = [
        sample["jpg"]
        for sample in opened(damaged).map(single, handler=webdataset.ignore_and_continue)
    ]
    assert torch.equal(torch.cat([batch["jpg"] for batch in batches]), torch.stack(rows))
    assert [problem.key for problem in seen if isinstance(problem, SampleError)] == [
        "n0001",
        "n0005",
        "n0009",
    ]


def test_a_batch_without_samples_is_left_out(damaged: str) -> None:
    function = fastpipe.wds.batch_crop(SIDE, handler=webdataset.ignore_and_continue)
    for pipeline in (opened(damaged).batched(1), opened(damaged).listed(1)):
        assert len(list(pipeline.map(function))) == SAMPLES - 3


def test_a_handler_that_says_stop_raises(damaged: str) -> None:
    function = fastpipe.wds.batch_crop(SIDE, handler=webdataset.ignore_and_stop)
    with pytest.raises(SampleError, match="n0001"):
        list(opened(damaged).batched(6).map(function))


def test_pictures_of_several_names(tmp_path: Path) -> None:
    tar = written(tmp_path, [{"jpg": data_of(0)}, {"png": data_of(2)}])
    with pytest.raises(
        SampleError,
        match=r"(?s)'n0001' .* it has the images \['png'\]; expected \['jpg'\].*rename",
    ):
        list(opened(tar).listed(2).map(fastpipe.wds.batch_crop(SIDE)))
    (batch,) = opened(tar).rename(jpg="jpg;png").batched(2).map(fastpipe.wds.batch_crop(SIDE))
    assert batch["jpg"].shape == (2, 3, SIDE, SIDE)
    pairs = written(
        tmp_path, [{"left.jpg": data_of(n), "right.jpg": data_of(n)} for n in range(3)], "pairs.tar"
    )
    (batch,) = opened(pairs).batched(3).map(fastpipe.wds.batch_crop(SIDE))
    assert torch.equal(batch["left.jpg"], batch["right.jpg"])


def test_a_handler_leaves_out_samples_with_other_pictures(tmp_path: Path) -> None:
    """Most samples of a batch say which pictures are expected, not the first one."""
    members = [
        {"png": data_of(2)},
        {},
        *({"jpg": data_of(n)} for n in range(3)),
        {"jpg": data_of(0)[:500]},
    ]
    tar = written(tmp_path, [{"cls": n, **each} for n, each in enumerate(members)])
    seen: list[SampleError] = []
    function = fastpipe.wds.batch_crop(SIDE, handler=lambda problem: not seen.append(problem))
    single = fastpipe.wds.crop(SIDE)
    function.set_epoch(1)
    single.set_epoch(1)
    (batch,) = opened(tar).decode(only="cls").listed(6).map(function)
    assert batch["cls"].tolist() == [2, 3, 4]
    rows = [
        single(sample)["jpg"] for sample in opened(tar) if sample["__key__"] in batch["__key__"]
    ]
    assert torch.equal(batch["jpg"], torch.stack(rows))
    assert [problem.key for problem in seen] == ["n0000", "n0001", "n0005"]
    assert "it has no image; expected ['jpg']" in str(seen[1])
    assert tar in str(seen[1])
    with pytest.raises(SampleError, match="n0000"):
        list(opened(tar).listed(6).map(fastpipe.wds.batch_crop(SIDE)))


def test_threads_are_shared_among_workers_and_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "count_granted_cpus", lambda: 12)
    function = fastpipe.wds.batch_crop(SIDE)
    assert function._threads() == 12
    monkeypatch.setattr(stages, "get_worker_info", lambda: SimpleNamespace(num_workers=2))
    assert function._threads() == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert function._threads() == 2
    assert fastpipe.wds.batch_crop(SIDE, num_workers=7)._threads() == 7
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert function._threads() == 1


def test_mistakes_are_errors() -> None:
    picture = data_of(0)
    uses: list[Any] = [{"jpg": picture}, [], [b"x"], (1, 2), {"__key__": "k", "jpg": picture}]
    for given in uses:
        with pytest.raises(
            ConfigError, match=r"expected a batch of samples with __key__, got .*batched\(N\)"
        ):
            fastpipe.wds.batch_crop(SIDE)(given)
    with pytest.raises(ConfigError, match="num_workers: expected 1 to"):
        fastpipe.wds.batch_crop(SIDE, num_workers=0)
    with pytest.raises(ConfigError, match="handler: expected None or a function"):
        fastpipe.wds.batch_crop(SIDE, handler="warn")  # type: ignore[arg-type]
