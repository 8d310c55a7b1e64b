"""A batch knows its samples, which of its rows count, and its epoch, whoever takes it from the loader."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_IMAGES, flat_number

import fastpipe
from fastpipe.format.index import Index


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(dataset, 8, **{"size": 8, "num_workers": 1, **options})


def ahead(batches: Iterator[Any], count: int = 2) -> Iterator[Any]:
    """A prefetcher around a loader, as programs write it."""
    queue: deque[Any] = deque()
    for batch in batches:
        queue.append(batch)
        if len(queue) > count:
            yield queue.popleft()
    yield from queue


@pytest.mark.parametrize("augment", [None, fastpipe.Augment.imagenet(mixup=0.2)])
def test_ids_are_those_of_the_rows(flat: Path, augment: fastpipe.Augment | None) -> None:
    index = Index(flat)
    with loader_of(flat) as plain, loader_of(flat, augment=augment) as loader:
        for (images, labels), batch in zip(plain, loader, strict=True):
            assert (batch.ids.dtype, batch.ids.shape) == (torch.int64, labels.shape)
            assert index.records["label"][batch.ids.numpy()].tolist() == labels.tolist()
            numbers = [flat_number(pixel) for pixel in images[:, :, 4, 4].numpy()]
            assert len(set(batch.ids.tolist())) == len(set(numbers)) == len(labels)
            assert batch.images is batch[0]
            assert batch.labels is batch[1]


def test_ids_and_epochs_go_through_the_dataset_each_epoch(flat: Path) -> None:
    with loader_of(flat, drop_last=False) as loader:
        for epoch in range(3):
            batches = list(loader)
            assert [batch.epoch for batch in batches] == [epoch] * len(loader)
            assert sorted(torch.cat([batch.ids for batch in batches]).tolist()) == list(range(FLAT_IMAGES))
        loader.set_epoch(7)
        assert next(iter(loader)).epoch == 7


def test_valid_stays_right_behind_a_prefetcher(flat: Path) -> None:
    """The mask of the loader is that of another batch there: it may even have another length."""
    seen = []
    for rank in range(3):
        with loader_of(flat, train=False, rank=rank, world_size=3) as loader:
            for batch in ahead(iter(loader)):
                assert len(batch.valid) == len(batch.images)
                seen += batch.ids[batch.valid].tolist()
    assert sorted(seen) == list(range(FLAT_IMAGES))


def test_a_replaced_row_has_the_other_samples_id(flat: Path, copied: Callable[[Path], Path]) -> None:
    bad = copied(flat)
    damage(bad, 5)
    with loader_of(bad, train=False, on_error="replace") as loader:
        first = next(iter(loader))
    assert first.ids.tolist()[:5] == [0, 1, 2, 3, 4]
    assert int(first.ids[5]) != 5
    assert first.labels.tolist() == Index(flat).records["label"][first.ids.numpy()].tolist()


def test_copies_and_pickles_keep_what_a_batch_knows(flat: Path) -> None:
    with loader_of(flat) as loader:
        batch = next(iter(loader))
    for other in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):  # noqa: S301
        assert torch.equal(other.ids, batch.ids)
        assert torch.equal(other.valid, batch.valid)
        assert other.epoch == batch.epoch
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(other, batch, strict=True))


def test_programs_that_rebuild_batches_find_images_and_labels(flat: Path) -> None:
    with loader_of(flat) as loader:
        batch = next(iter(loader))
    made = torch.utils._pytree.tree_map(lambda tensor: tensor + 1, batch)
    assert torch.equal(made.images, batch.images + 1)
    assert torch.equal(made.labels, batch.labels + 1)
    with pytest.raises(
        AttributeError, match=r'has no valid: another program.*fields=\("image", "label", "id", "valid"'
    ):
        _ = made.valid
    with pytest.raises(AttributeError, match="'pixels'; it has images, labels, ids"):
        _ = batch.pixels


def test_programs_that_rebuild_tuples_find_images_and_labels(flat: Path) -> None:
    """tests/long/loading/test_batches_in_frameworks.py has accelerate and transformers do it."""
    with loader_of(flat) as loader:
        batch = next(iter(loader))
    kind = type(batch)
    for made in (
        kind(each for each in batch),
        kind(list(batch)),
        kind(batch),
        kind(images=batch.images, labels=batch.labels),
    ):
        assert isinstance(made, kind)
        assert torch.equal(made.images, batch.images)
        assert torch.equal(made.labels, batch.labels)
        with pytest.raises(AttributeError, match="this batch has no ids: another program has made it anew"):
            _ = made.ids
    with pytest.raises(ValueError, match="not enough values"):
        kind(each for each in batch[:1])


def test_a_dict_has_them_if_they_are_asked_for(flat: Path) -> None:
    with loader_of(flat) as plain, loader_of(flat, fields=("image", "label", "id", "valid", "epoch")) as loader:
        for _ in range(2):
            for batch, found in zip(plain, loader, strict=True):
                assert list(found) == ["image", "label", "id", "valid", "epoch"]
                assert torch.equal(found["id"], batch.ids)
                assert torch.equal(found["valid"], batch.valid)
                assert found["epoch"] == batch.epoch
