"""P x K batches: what users of pytorch-metric-learning's MPerClassSampler rely on, on any number of ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise

import fastpipe

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


@pytest.mark.parametrize(
    ("world", "classes", "each"), [(1, 4, 3), (1, None, 4), (2, 4, 3), (4, 6, 2)]
)
def test_each_global_batch_has_p_classes_and_k_of_each(
    classed: Path, world: int, classes: int | None, each: int
) -> None:
    """In four epochs, in which each class comes equally often, and so does each of its samples."""
    rows = 12 if classes is not None else 24
    data = fastpipe.open(classed)
    labels = data.targets
    loaders = [
        opened(
            data,
            rows // world,
            sampler=fastpipe.PerClass(each, classes),
            rank=rank,
            world_size=world,
        )
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
                assert len(set(mine)) == min(each, SIZES[label]), (
                    "none twice, as long as there are others"
                )
                samples[label] += mine
    assert max(often.values()) - min(often.values()) <= 1
    for label, drawn in enumerate(samples):
        times = Counter(drawn)
        counts = [times[at] for at in np.flatnonzero(labels == label).tolist()]
        assert max(counts) - min(counts) <= 1
    assert orders[0] != orders[1] != orders[2]
    for loader in loaders:
        loader.close()


@pytest.mark.usefixtures("warned_anew")
def test_classes_with_fewer_samples_than_a_batch_has_of_each(
    classed: Path, log: pytest.LogCaptureFixture
) -> None:
    opened(classed, 8, sampler=fastpipe.PerClass(2)).close()
    data = fastpipe.open(classed)
    large = [name for name, count in zip(data.classes, data.class_counts, strict=True) if count > 4]
    opened(data.only(large), 8, sampler=fastpipe.PerClass(4)).close()
    assert "PerClass(" not in log.text
    for _ in range(2):
        opened(classed, 10, sampler=fastpipe.PerClass(5)).close()
    assert log.text.count("PerClass(5): 2 of 7 classes of") == 1
    assert "count >= 5" in log.text
