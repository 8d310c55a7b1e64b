"""Tests of apply() as an accelerator runs it: it never waits for the device, and gives what a CPU gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import photos, tensors_of
from support.devices.launches import launches_of
from support.devices.simulated_gpu import simulated
from torch import Tensor

from fastpipe import Augment
from fastpipe.device.augment import effects, pixels

COUNT, SIZE = 40, (24, 30)
LABELS = torch.arange(COUNT)
MIXED: dict[str, Any] = {
    "erasing": 0.4,
    "mixup": 0.3,
    "cutmix": 1.0,
    "label_smoothing": 0.1,
    "num_classes": 50,
}
AUGMENTS = {
    "imagenet": Augment.imagenet(**MIXED),
    "simclr": Augment.simclr(**MIXED),
    "randaugment": Augment.randaugment(**MIXED),
    "trivial_augment": Augment.trivial_augment(**MIXED),
    "bfloat16": Augment.imagenet(dtype=torch.bfloat16, **MIXED),
    "erasing": Augment.imagenet(erasing=0.5),
    "mixup": Augment.imagenet(mixup=0.5, num_classes=50),
    "smoothing": Augment.imagenet(label_smoothing=0.5, num_classes=50),
}


@pytest.mark.parametrize("name", AUGMENTS)
def test_nothing_waits_for_the_device(name: str) -> None:
    """And all that is made in between is made there: a copy would have to wait for its turn."""
    augment = AUGMENTS[name]
    plan = augment.plan(np.arange(COUNT), SIZE, seed=0, epoch=0, batch=0)
    expected = augment.carry_out(photos(COUNT, *SIZE), LABELS, plan, tensors_of(plan))
    with simulated() as gpu:
        images, labels, tensors = (
            photos(COUNT, *SIZE).to("cuda:0"),
            LABELS.to("cuda:0"),
            tensors_of(plan, "cuda:0"),
        )
        gpu.waits.clear()
        gpu.copies.clear()
        out, soft = augment.carry_out(images, labels, plan, tensors)
        assert gpu.waits == gpu.copies == gpu.races == []
        assert out.device == soft.device == torch.device("cuda", 0)
        assert out.is_contiguous(memory_format=torch.channels_last)
        narrow = out.dtype == torch.bfloat16
        torch.testing.assert_close(out.cpu(), expected[0], atol=2e-2 if narrow else 1e-5, rtol=0)
        torch.testing.assert_close(soft.cpu(), expected[1])


def test_how_a_batch_is_cut_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    images = photos(COUNT, *SIZE)
    for name in ("imagenet", "simclr", "randaugment", "trivial_augment", "bfloat16"):
        expected, _ = AUGMENTS[name](images, LABELS, batch=0)
        for rows in (1, 3, 17):
            monkeypatch.setattr(
                pixels, "PART_BYTES", 12 * SIZE[0] * SIZE[1] * rows // torch.get_num_threads()
            )
            monkeypatch.setattr(pixels, "NORMALISE_BYTES", pixels.PART_BYTES)
            result, _ = AUGMENTS[name](images, LABELS, batch=0)
            assert torch.equal(result, expected), (name, rows)
        monkeypatch.undo()


def test_normalising_is_one_kernel() -> None:
    assert launches_of(Augment.imagenet(dtype=torch.bfloat16), photos(COUNT, *SIZE)) == ["addcmul"]


def test_launches_of_a_batch() -> None:
    """Each takes the training loop's thread some 5 us on a GPU: a step of 15 ms must not see them."""
    most = {
        Augment.imagenet(**MIXED): 40,
        Augment.trivial_augment(): 70,
        Augment.randaugment(2): 136,
        Augment.simclr(): 94,
    }
    for augment, count in most.items():
        assert 20 < len(launches_of(augment, photos(256, *SIZE))) <= count, augment


def test_a_policy_moves_each_image_once_a_layer() -> None:
    for layers in (0, 1, 5):
        kernels = launches_of(Augment.randaugment(layers), photos(256, *SIZE))
        assert kernels.count("index_select") == layers + 1
        assert not {"index_copy_", "index_copy", "index_put_", "index"} & set(kernels)


@pytest.mark.parametrize(("size", "lanes"), [((224, 224), 32), ((30, 40), 16), ((7, 9), 1)])
def test_neighbours_of_a_flat_image_count_in_tables_of_their_own(
    size: tuple[int, int], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pixels of such an image would add to one number, one after the other."""
    flat = torch.full((2, 3, size[0] * size[1]), 77)
    monkeypatch.setattr(pixels, "on_cpu", lambda device: False)
    seen: list[tuple[int, ...]] = []
    add = Tensor.scatter_add_

    def note(self: Tensor, dimension: int, index: Tensor, values: Tensor) -> Tensor:
        seen.append(tuple(self.shape))
        assert self.dtype == torch.int32
        return add(self, dimension, index, values)

    monkeypatch.setattr(Tensor, "scatter_add_", note)
    histogram = effects.count_tones(flat)
    assert seen == [(2, 3, 256, lanes)]
    assert histogram.sum() == flat.numel()
    assert (histogram[:, :, 77] == size[0] * size[1]).all()
