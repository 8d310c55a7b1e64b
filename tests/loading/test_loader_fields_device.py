"""All fields of a batch go to the device in the copy that labels go in; on the way nothing of them changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.batches.asked_fields import asked
from support.devices.fake_stream import FakeStream

import fastpipe

FIELDS = ("image", "label", "boxes", "joints", "tags", "gaze", "count", "caption", "notes", "id", "key", "valid")


class CountingStream(FakeStream):
    """Counts copies, and remembers where they are."""

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        copied = super().copy(tensor)
        self.copied.append(copied)
        return copied

    copied: list[torch.Tensor]


def batches_of(data: Path, fields: tuple[str, ...], **options: Any) -> list[dict[str, Any]]:
    names = asked(fields, options := {"flip_pairs": [(0, 1)], **options})
    with fastpipe.loader(data, 8, size=16, num_workers=2, fields=names, **options) as loader:
        return list(loader)


def tensors_in(batch: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for value in batch.values():
        found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, torch.Tensor)]
    return found


@pytest.mark.parametrize("layout", ["list", "flat", "pad"])
@pytest.mark.parametrize("augmented", [False, True])
def test_one_copy_and_the_same_values(
    fielded: Path, monkeypatch: pytest.MonkeyPatch, layout: str, augmented: bool
) -> None:
    augment = fastpipe.Augment.simclr() if augmented else None
    expected = batches_of(fielded, FIELDS, form=layout, augment=augment)
    stream = CountingStream()
    stream.copied = []
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    got = batches_of(fielded, FIELDS, form=layout, augment=augment)
    assert len(got) == len(expected) > 2
    assert len(stream.copied) == 2 * len(got), "one of the images, one of all the rest"
    places = {tensor.untyped_storage().data_ptr() for tensor in stream.copied}
    for batch, other in zip(got, expected, strict=True):
        assert list(batch) == list(other)
        for name, value in other.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(batch[name], value)
            elif isinstance(value[0], torch.Tensor):
                assert all(map(torch.equal, batch[name], value))
                assert [each.shape for each in batch[name]] == [each.shape for each in value]
            else:
                assert batch[name] == value
        for tensor in tensors_in({name: value for name, value in batch.items() if name != "image"}):
            assert tensor.numel() == 0 or tensor.untyped_storage().data_ptr() in places


def test_a_batch_without_any_box_or_point(fielded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream()
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    for layout, shape in (("list", None), ("flat", (0, 4)), ("pad", (8, 0, 4))):
        for batch in batches_of(fielded, ("image", "boxes", "joints"), form=layout, min_area=1e9):
            if shape is None:
                assert [each.shape for each in batch["boxes"]] == [(0, 4)] * 8
                assert [each.shape for each in batch["boxes_labels"]] == [(0,)] * 8
            else:
                assert batch["boxes"].shape == shape
