"""P x K batches: what users of pytorch-metric-learning's MPerClassSampler rely on, on any number of ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise
from torch.utils.data import DistributedSampler

import fastpipe
from fastpipe.errors import ConfigError

SIZES = (2, 7, 12, 30, 9, 20, 4)  # samples of each class
COUNT = sum(SIZES) + 5  # and some without a label


@pytest.fixture(scope="module")
def classed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes") / "packed"
    labels = np.random.default_rng(0).permutation(np.repeat([*range(len(SIZES)), -1], [*SIZES, 5]))
    with fastpipe.Writer(folder, classes=[f"c{label}" for label in range(len(SIZES))]) as writer:
        for number, label in enumerate(labels.tolist()):
            writer.add(smooth_noise(20, 16, seed=number), label=None if label < 0 else label)
    return folder


def opened(data: Any, batch_size: int, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, batch_size, size=8, num_workers=1, **options)


@pytest.mark.parametrize(("world", "classes", "each"), [(1, 4, 3), (1, None, 4), (2, 4, 3), (4, 6, 2)])
def test_each_global_batch_has_p_classes_and_k_of_each(
    classed: Path, world: int, classes: int | None, each: int
) -> None:
    """In four epochs, in which each class comes equally often, and so does each of its samples."""
    rows = 12 if classes is not None else 24
    data = fastpipe.open(classed)
    labels = data.targets
    loaders = [
        opened(data, rows // world, sampler=fastpipe.PerClass(each, classes), rank=rank, world_size=world)
        for rank in range(world)
    ]
    often: Counter[int] = Counter()
    samples: list[list[int]] = [[] for _ in SIZES]
    orders = []
    for _ in range(4):
        epoch = [[batch.ids for batch in loader] for loader in loaders]
        batches = [torch.cat(parts).tolist() for parts in zip(*epoch, strict=True)]
        assert len(batches) == COUNT // rows == len(loaders[0])
        orders.append(batches)
        for batch in batches:
            found = Counter(labels[batch].tolist())
            assert set(found.values()) == {each}
            assert len(found) == rows // each
            assert -1 not in found
            often.update(found.keys())
            for label in found:
                mine = [sample for sample in batch if labels[sample] == label]
                assert len(set(mine)) == min(each, SIZES[label]), "none twice, as long as there are others"
                samples[label] += mine
    assert max(often.values()) - min(often.values()) <= 1
    for label, drawn in enumerate(samples):
        times = Counter(drawn)
        counts = [times[at] for at in np.flatnonzero(labels == label).tolist()]
        assert max(counts) - min(counts) <= 1
    assert orders[0] != orders[1] != orders[2]
    for loader in loaders:
        loader.close()


def test_it_is_resumed_and_the_same_on_any_number_of_ranks(classed: Path) -> None:
    sampler = fastpipe.PerClass(2)
    with opened(classed, 8, sampler=sampler) as alone:
        whole = [batch.ids.tolist() for _ in range(2) for batch in alone]
    found: list[list[int]] = [[] for _ in whole]
    for rank in range(2):
        with opened(classed, 4, sampler=sampler, rank=rank, world_size=2) as loader:
            for at, batch in enumerate(batch for _ in range(2) for batch in loader):
                found[at] += batch.ids.tolist()
    assert found == whole
    with opened(classed, 8, sampler=sampler) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with opened(classed, 8, sampler=sampler) as loader:
        loader.load_state_dict(state)
        assert [batch.ids.tolist() for batch in loader] == whole[1 : len(whole) // 2]


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (fastpipe.PerClass(3, classes=2), r"PerClass\(classes=2, samples=3\) makes batches of 6 .*batch_size=8 times"),
        (fastpipe.PerClass(1), "from 7 classes; expected batch_size=8 .* at most 7 classes"),
        (fastpipe.PerClass(0), r"PerClass\(samples=\): expected 1 to"),
        (fastpipe.PerClass(2, classes=2.5), r"PerClass\(classes=\): expected a whole number"),  # type: ignore[arg-type]
    ],
)
def test_wrong_numbers(classed: Path, sampler: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        opened(classed, 8, sampler=sampler)


def test_a_sampler_that_deals_out_to_ranks(classed: Path) -> None:
    """Each id once, and each rank its own ones, in the order of torch's sampler."""
    shuffled = [DistributedSampler(range(COUNT), num_replicas=2, rank=rank, drop_last=True) for rank in range(2)]
    seen: list[int] = []
    for rank, sampler in enumerate(shuffled):
        with opened(classed, 4, sampler=sampler, rank=rank, world_size=2, drop_last=False) as loader:
            for epoch in range(2):
                found = [sample for batch in loader for sample in batch.ids[batch.valid].tolist()]
                sampler.set_epoch(epoch)
                assert found == [*sampler]
                seen += found if epoch == 0 else []
    assert len(set(seen)) == len(seen) == COUNT // 2 * 2
