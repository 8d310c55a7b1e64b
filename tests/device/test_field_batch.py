"""The batch of a loop that asks for fields: a dict for programs, and an error for two mistakes."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree

import fastpipe
from fastpipe.device.field_batch import FieldBatch
from fastpipe.errors import ConfigError


@pytest.fixture
def batch() -> FieldBatch:
    return FieldBatch(image=torch.zeros(2, 3, 4, 4), label=torch.tensor([1, 0]))


def test_a_batch_of_a_loader_that_is_unpacked(flat: Path) -> None:
    """Python would give the keys, and a loop would pass the text "image" to its model."""
    loader = fastpipe.loader(flat, batch_size=4, size=8, fields=["image", "label"])
    words = r"write `for batch in loader:` and batch\['image'\], batch\['label'\]"
    with pytest.raises(ConfigError, match=words):
        for _images, _labels in loader:
            pass
    with pytest.raises(ConfigError, match=words):
        _image, *_others = next(iter(loader))
    assert list(next(iter(loader))) == ["image", "label"]


def test_a_key_that_a_batch_lacks(batch: FieldBatch) -> None:
    with pytest.raises(KeyError, match="the batch has image, label; got 'images'; did you mean 'i"):
        batch["images"]
    with pytest.raises(KeyError, match=r"got 'boxes'\. Add 'boxes' to fields= of fastpipe\.loader"):
        batch["boxes"]
    with pytest.raises(KeyError, match=r"got 0; it is a dict: write batch\['image'\]"):
        batch[0]  # type: ignore[index]
    assert batch.get("boxes") is None
    with pytest.raises(AttributeError, match=r"write batch\['image'\]"):
        batch.image  # noqa: B018
    assert not hasattr(batch, "to")


def test_it_is_a_dict_for_programs(batch: FieldBatch) -> None:
    def named(**entries: Any) -> list[str]:
        return list(entries)

    keys = ["image", "label"]
    assert [key for key in batch] == keys  # noqa: C416
    assert list(batch) == list(dict(batch)) == list({**batch}) == named(**batch) == keys
    assert sorted(batch) == keys
    assert next(iter(batch)) == "image"
    for same in (copy.copy(batch), pickle.loads(pickle.dumps(batch))):  # noqa: S301
        assert list(same) == keys
    halves = _pytree.tree_map(lambda tensor: tensor.half(), {"inputs": [batch]})
    assert halves["inputs"][0]["image"].dtype == torch.float16
    assert type(halves["inputs"][0]) is FieldBatch


def test_torch_loads_a_saved_batch(batch: FieldBatch) -> None:
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert list(loaded) == ["image", "label"]
    assert torch.equal(loaded["label"], batch["label"])


def test_it_compiles_without_a_break(batch: FieldBatch) -> None:
    def total(entries: FieldBatch) -> torch.Tensor:
        return sum((entries[key].sum() for key in entries), torch.zeros(()))

    compiled = torch.compile(total, fullgraph=True, backend="eager")
    assert float(compiled(batch)) == 1
