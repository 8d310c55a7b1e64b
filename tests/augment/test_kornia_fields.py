"""Masks on a device: moved without asking it for a value, and alike however a batch is cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.batches.augment_batches import differing, tensors_of
from support.batches.kornia_cases import CASES, k
from support.devices.simulated_gpu import simulated
from torch import Tensor

from fastpipe import Augment
from fastpipe.augment import kornia_operation
from fastpipe.augment.kornia_modules import movable

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = (32, 40)
MOVING = [name for name, make in CASES.items() if "mask" in movable(make()) and "Sequential" not in name]


def keyed(name: str) -> Augment:
    return Augment(k.AugmentationSequential(CASES[name](), data_keys=["input", "mask"]), mean=None, std=None)


def ids(count: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    numbers = torch.randint(0, 200, (count, *SIZE), generator=torch.Generator().manual_seed(0))
    return (numbers * (300 if dtype == torch.int32 else 1)).to(dtype)


def moved(augment: Augment, masks: Tensor, device: str = "cpu") -> Tensor:
    plan = augment.plan(np.arange(len(masks)), SIZE, seed=0, epoch=0, batch=0)
    tensors: dict[str, Any] = tensors_of(plan, device)
    images = torch.zeros(len(masks), 3, *SIZE, dtype=torch.uint8, device=device)
    augment.carry_out(images, torch.zeros(len(masks), dtype=torch.int64, device=device), plan, tensors)
    return augment.move_masks(masks.to(device), plan, tensors)


def test_the_table_has_all_modules_that_move() -> None:
    assert {"RandomAffine", "RandomElasticTransform", "RandomErasing", "RandomResizedCrop", "Resize"} < set(MOVING)
    assert len(MOVING) == 17


@pytest.mark.parametrize("name", MOVING)
def test_the_host_waits_for_no_mask(name: str) -> None:
    augment, expected = keyed(name), moved(keyed(name), ids(4))
    with simulated() as gpu:
        made = moved(augment, ids(4), "cuda:0")
        own = ("test_kornia_fields.py", "augment_batches.py")
        assert not [wait for wait in gpu.waits if not any(name in wait for name in own)]
        assert made.device.type == "cuda"
        assert differing(made.cpu(), expected, by=0.5) < 0.01


@pytest.mark.parametrize("name", MOVING)
def test_ids_stay_ids(name: str) -> None:
    masks = ids(6, torch.int32)
    made = moved(keyed(name), masks)
    assert made.dtype == torch.int32
    assert (made % 300 == 0).all()
    assert torch.equal(masks, ids(6, torch.int32)), "its input is not overwritten"


def test_how_a_batch_is_cut_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = ids(11)
    expected = {name: moved(keyed(name), masks) for name in MOVING}
    monkeypatch.setattr(kornia_operation, "CPU_BYTES", 4 * masks[0].numel() * 3)
    for name in MOVING:
        assert torch.equal(moved(keyed(name), masks), expected[name]), name


def test_one_sample_gets_what_it_gets_among_others() -> None:
    masks = ids(3)
    for name in MOVING:
        assert torch.equal(moved(keyed(name), masks[:1]), moved(keyed(name), masks)[:1]), name


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["RandomAffine", "RandomHorizontalFlip", "RandomPerspective", "RandomRotation"])
def test_a_gpu_gives_what_a_cpu_gives_and_the_host_never_waits(name: str) -> None:
    augment, masks = keyed(name), ids(12)
    expected = moved(augment, masks)
    moved(augment, masks, "cuda")  # finds out what may go to the device
    plan = augment.plan(np.arange(12), SIZE, seed=0, epoch=0, batch=0)
    tensors, there = tensors_of(plan, "cuda"), masks.to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        made = augment.move_masks(there, plan, tensors)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (made.cpu() == expected).float().mean() > 0.98


def shown_after(augment: Augment, shown: Tensor, device: str = "cpu") -> Tensor:
    plan = augment.plan(np.arange(len(shown)), SIZE, seed=0, epoch=0, batch=0)
    return augment.move_shown(shown.to(device), plan, tensors_of(plan, device))


@pytest.mark.parametrize("name", MOVING)
def test_where_images_are_moves_as_a_mask_does_without_a_key(name: str) -> None:
    shown = ids(5) > 60
    bare = Augment(CASES[name](), mean=None, std=None)
    made = shown_after(bare, shown)
    assert made.dtype == torch.bool
    if name == "RandomErasing":  # what is erased is still the image
        assert "shown" not in bare.moves
        assert torch.equal(made, shown)
    else:
        assert torch.equal(made, moved(keyed(name), shown.to(torch.uint8)) > 0)


@pytest.mark.parametrize("name", [*MOVING, "randaugment", "mixup", "cutmix"])
def test_the_host_does_not_wait_for_where_images_are(name: str) -> None:
    own: dict[str, Augment] = {
        "randaugment": Augment.randaugment(),
        "mixup": Augment(mixup=0.3, num_classes=2),
        "cutmix": Augment(cutmix=1.0, num_classes=2),
    }
    augment = own[name] if name in own else Augment(CASES[name](), mean=None, std=None)
    shown = ids(4) > 60
    expected = shown_after(augment, shown)
    with simulated() as gpu:
        made = shown_after(augment, shown, "cuda:0")
        mine = ("test_kornia_fields.py", "augment_batches.py")
        assert not [wait for wait in gpu.waits if not any(file in wait for file in mine)]
        assert made.device.type == "cuda"
        assert differing(made.cpu().float(), expected.float(), by=0.5) < 0.01
