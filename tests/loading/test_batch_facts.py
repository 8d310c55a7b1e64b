"""A batch knows its samples, which of its rows count, and its epoch, whoever takes it from the loader."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import fastpipe


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(dataset, 8, **{"size": 8, "num_workers": 1, **options})


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
        AttributeError,
        match=r'has no valid: another library.*fields=\("image", "label", "id", "valid"',
    ):
        _ = made.valid
    with pytest.raises(AttributeError, match="'pixels'; it has images, labels, ids"):
        _ = batch.pixels


def test_programs_that_rebuild_tuples_find_images_and_labels(flat: Path) -> None:
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
        with pytest.raises(
            AttributeError, match="this batch has no ids: another library rebuilt it"
        ):
            _ = made.ids
    with pytest.raises(ValueError, match="not enough values"):
        kind(each for each in batch[:1])


def test_a_batch_without_fields_is_no_dict(flat: Path) -> None:
    with loader_of(flat) as loader:
        batch = next(iter(loader))
    with pytest.raises(TypeError, match=r'pass fields=\("image", "label"\) to fastpipe\.loader'):
        batch["image"]
    assert batch[0] is batch.images
    assert len(batch[:1]) == 1


def test_a_dict_has_them_if_they_are_asked_for(flat: Path) -> None:
    with (
        loader_of(flat) as plain,
        loader_of(flat, fields=("image", "label", "id", "valid", "epoch")) as loader,
    ):
        for _ in range(2):
            for batch, found in zip(plain, loader, strict=True):
                assert list(found) == ["image", "label", "id", "valid", "epoch"]
                assert torch.equal(found["id"], batch.ids)
                assert torch.equal(found["valid"], batch.valid)
                assert found["epoch"] == batch.epoch
