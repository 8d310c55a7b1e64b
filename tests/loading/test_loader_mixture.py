"""fastpipe.mix({folder: weight, ...}): the rows of each dataset by weight, their labels, and where to go on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.packed import damage, flip_unseen
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES, smooth_noise
from support.remote.range_server import RangeServer

import fastpipe
from fastpipe.errors import ConfigError, SampleError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.plan.epoch import EpochPlan

Copy = Callable[[Path], Path]
Row = tuple[int, bytes]
OTHERS = 53


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """53 pictures of two classes, one of which `flat` has, too; and their source beside them."""
    source = tmp_path_factory.mktemp("other") / "source"
    for number in range(OTHERS):
        folder = source / ("cow" if number % 2 else "yak")
        folder.mkdir(parents=True, exist_ok=True)
        smooth_noise(40 + number, 90 - number, seed=number).save(folder / f"{number}.jpg")
    pack(source, source.parent / "packed", PackOptions(workers=1))
    return source.parent / "packed"


def loader_of(data: Any, batch_size: int = 8, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, batch_size, **{"size": 12, "num_workers": 1, **options})


def rows_of(batch: Any) -> list[Row]:
    pixels = [image.contiguous().numpy().tobytes() for image in batch.images]
    return list(zip(batch.ids.tolist(), pixels, strict=True))


def test_each_dataset_goes_through_all_its_samples_at_its_own_pace(flat: Path, other: Path) -> None:
    seen = np.zeros(FLAT_IMAGES + OTHERS, dtype=np.int64)
    with loader_of(fastpipe.mix({flat: 1, other: 3})) as loader:
        for _ in range(9):
            for batch in loader:
                np.add.at(seen, batch.ids.numpy(), 1)
                for dataset in (seen[:FLAT_IMAGES], seen[FLAT_IMAGES:]):
                    assert np.ptp(dataset) <= 1, "a sample comes again when all have come"
    assert seen.min() >= 3


def test_datasets_behind_urls_beside_photos_as_they_lie(
    flat: Path, many_shards: Path, remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    """In any order, with a cache that keeps nothing. Some of the photos are no JPEGs, so they are converted."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(6):
        smooth_noise(40 + number, 90 - number, seed=number).save(
            photos / f"{number}.{'bmp' if number % 3 else 'jpg'}"
        )
    options: dict[str, Any] = {"seed": 3, "epoch_size": 96, "verify": True}
    with RangeServer(many_shards) as other:
        first, last = (
            fastpipe.open(each.url, cache_dir=tmp_path / "cache", cache_limit=0)
            for each in (other, range_server)
        )
        with (
            loader_of(
                fastpipe.mix({many_shards: 1, flat: 1, photos: 1, remote_packed: 2}), 16, **options
            ) as local,
            loader_of(
                fastpipe.mix({first: 1, flat: 1, photos: 1, last: 2}), 16, **options
            ) as remote,
        ):
            for mine, theirs in zip(remote, local, strict=True):
                assert rows_of(mine) == rows_of(theirs)
                assert torch.equal(mine.labels, theirs.labels)
            assert {True} == {
                any("shard" in name for name in each.sent_by_name) for each in (other, range_server)
            }
            assert min(remote.stats().images_converted, local.stats().images_converted) > 0
            assert remote.stats().fetched_bytes > 0


@pytest.mark.parametrize("change", [damage, flip_unseen])
def test_damage_here_is_not_said_to_be_of_the_network(
    other: Path,
    range_server: RangeServer,
    copied: Copy,
    tmp_path: Path,
    change: Callable[[Path, int], None],
) -> None:
    """Nor is it fetched again. A changed byte is found without verify= beside a dataset behind a URL."""
    here = copied(other)
    change(here, 5)
    there = fastpipe.open(range_server.url, cache_dir=tmp_path / "cache")
    with (
        loader_of(fastpipe.mix({there: 1, here: 1}), seed=3) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    assert caught.value.sample == 5
    assert caught.value.shard.startswith(str(here))
    assert "behind the URL" not in str(caught.value)
    assert "fetched" not in str(caught.value)


@pytest.mark.parametrize("first", [0, 5])
def test_a_dataset_that_the_first_batch_lacks_is_read_ahead(
    flat: Path, other: Path, first: int
) -> None:
    with loader_of(fastpipe.mix({flat: 0.01, other: 0.99}), epoch_size=800) as loader:
        plan = EpochPlan(loader.recipe, epoch=1)
        named: set[int] = set()
        shards: set[int] = set()
        rare = 0
        for number in range(first, len(plan)):
            batch = plan.batch(number)
            named.update(plan.upcoming(number, is_first=number == first).tolist())
            shards.update(plan.reads(number, batch, is_first=number == first)["shard"].tolist())
            assert named >= set(batch.samples.tolist())
            assert shards >= set(batch.records["shard"].tolist())
            rare += int((batch.samples < FLAT_IMAGES).sum())
            assert rare or number > first or named & set(range(FLAT_IMAGES)), "before it is due"
    assert rare


def test_ranks_fetch_their_own_samples_only(
    flat: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    """A quarter of 300 pictures, and a first batch twice."""
    there = fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=0)
    with loader_of(fastpipe.mix({flat: 1, there: 9}), 4, rank=1, world_size=4) as loader:
        ids = [number for batch in loader for number in batch.ids.tolist()]
        sizes = loader.dataset.index.records["size"]
        used = int(sizes[[number for number in set(ids) if number >= FLAT_IMAGES]].sum())
        assert loader.stats().fetched_bytes < 1.4 * used


def test_a_bad_sample_is_named_in_its_own_dataset(flat: Path, other: Path, copied: Copy) -> None:
    bad = copied(other)
    damage(bad, 5)
    mixture = fastpipe.mix({flat: 1, bad: 1})
    with (
        loader_of(mixture, epoch_size="largest") as loader,
        pytest.raises(SampleError, match=re.escape(str(bad))) as caught,
    ):
        list(loader)
    assert caught.value.sample == 5
    with loader_of(mixture, epoch_size="largest", on_error="replace") as loader:
        assert FLAT_IMAGES + 5 not in [number for batch in loader for number in batch.ids.tolist()]


def test_a_state_of_another_mixture_is_refused(flat: Path, other: Path) -> None:
    with loader_of(fastpipe.mix({flat: 1, other: 1})) as loader:
        state = loader.state_dict()
        assert len(json.dumps(state)) < 500
    for data, options, words in (
        (
            fastpipe.mix({flat: 1, other: 2}),
            {},
            r"mixture was \[0.5, 0.5\] and is now .* \(the weights of fastpipe.mix\)",
        ),
        (
            fastpipe.mix({flat: 2, other: 2}),
            {"epoch_size": 40},
            "epoch_size was 'smallest' and is now 40",
        ),
        (fastpipe.mix({other: 1, flat: 1}), {}, "dataset"),
        (
            fastpipe.mix({flat: 1, other: 1}, labels="offset"),
            {},
            "labels was 'union' and is now 'offset'",
        ),
        (fastpipe.concat(flat, other), {}, "mixture was"),
        (flat, {}, "dataset"),
    ):
        with loader_of(data, **options) as loader, pytest.raises(ConfigError, match=words):
            loader.load_state_dict(state)
    for size in (None, "smallest"):
        with loader_of(fastpipe.mix({flat: 5, other: 5}), epoch_size=size) as loader:
            loader.load_state_dict(state)


# (two datasets -> what a loader gets, options of the loader, words of the error)
WRONG: list[tuple[Callable[[Path, Path], Any], dict[str, Any], str]] = [
    (lambda a, b: fastpipe.mix({}), {}, r"expected \{dataset: weight\}, got \{\}"),
    (
        lambda a, b: fastpipe.mix({a: 0, b: 1}),
        {},
        "the weight of .*: expected a number above 0, got 0",
    ),
    (lambda a, b: fastpipe.mix({a: "much", b: 1}), {}, "got 'much'"),
    (
        lambda a, b: fastpipe.mix({a: 1e308, b: 1e308}),
        {},
        r"weights with a sum below 1e\+300, got inf; divide them all",
    ),
    (lambda a, b: fastpipe.mix({3: 1}), {}, "got 3"),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1}, labels="keep"),
        {},
        "expected 'union' or 'offset' or 'own', got 'keep'",
    ),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1}).select([1]),
        {},
        "none of the .* is left of share 1, .* some of each",
    ),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1}).only(["yak"]),
        {},
        "none of the .* is left of share 0, .* some of each",
    ),
    (lambda a, b: fastpipe.mix({a: 1, b: 1}).only(["gnu"]), {}, "no class 'gnu'"),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1}, labels="own").only(["cow"]),
        {},
        "no class 'cow'; it has '0', '1', '2'",
    ),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1e-300}),
        {"epoch_size": "largest"},
        'epoch_size="largest": the dataset with the smallest weight comes to its end .* pass a number',
    ),
    (
        lambda a, b: fastpipe.mix({a: 1, b: 1}),
        {"epoch_size": "medium"},
        "epoch_size: expected 'smallest' or 'largest'",
    ),
    (lambda a, b: fastpipe.mix({a: 1, b: 1}), {"fields": ("image", "boxes")}, "got 'boxes'"),
    (lambda a, b: a, {"epoch_size": "smallest"}, "epoch_size: expected a whole number"),
    (lambda a, b: {a: 1, b: 1}, {}, r"got a dict. For a mixture pass fastpipe.mix\("),
]


def test_wrong_mixtures(flat: Path, other: Path) -> None:
    for make, options, words in WRONG:
        with pytest.raises(ConfigError, match=words):
            loader_of(make(flat, other), **options)


def test_samples_of_a_mixture_can_be_chosen_and_weighted(flat: Path, other: Path) -> None:
    """A share stays what it is; inside of it samples come by their weights."""
    data = fastpipe.mix({flat: 1, other: 3}).select([40, 2, 41, 3, 42])
    assert data["source"][:].tolist() == [0, 0, 1, 1, 1]
    weights = dict.fromkeys(data["key"][[1, 3]], 0.0)
    with loader_of(data, sampler=fastpipe.Weighted(weights), epoch_size=80) as loader:
        counts = sum(np.bincount(batch.ids.numpy(), minlength=5) for batch in loader)
    assert counts[[0, 1, 3]].tolist() == [20, 0, 0]
    assert counts.sum() == 80
    assert 20 <= counts[2] <= 40, "once or twice in each 3 draws"


def test_a_preview_of_a_mixture(flat: Path, other: Path, tmp_path: Path) -> None:
    with loader_of(fastpipe.mix({flat: 1, other: 1})) as loader:
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=4).photos == 4
        assert len(loader.dataset) == FLAT_IMAGES + OTHERS
        assert len(FLAT_CLASSES) + 1 == len(loader.classes)
