"""Masks on a device: moved without asking it for a value, and alike however a batch is cut into parts."""

from __future__ import annotations

import kornia.augmentation as K  # noqa: N812
import pytest
import torch
from support.batches.augment_batches import differing, tensors_of
from support.batches.moved_masks import MOVING, bare, ids, keyed, moved, plan_of, shown_after
from support.devices.simulated_gpu import simulated

import fastpipe
from fastpipe.device.augment import kornia_operation

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_table_has_all_modules_that_move() -> None:
    assert {
        "RandomAffine",
        "RandomElasticTransform",
        "RandomErasing",
        "RandomResizedCrop",
        "Resize",
    } < set(MOVING)
    assert len(MOVING) == 17


def test_the_host_waits_for_no_mask() -> None:
    names = (
        "PadTo",
        "RandomCrop",
        "RandomElasticTransform",
        "RandomErasing",
        "RandomHorizontalFlip",
        "RandomShear",
    )
    for name in names:
        augment, masks = keyed(name), ids(4)
        plan = plan_of(augment, 4)
        expected = moved(augment, masks, plan)
        with simulated() as gpu:
            result = moved(augment, masks, plan, gpu)
            assert differing(result.cpu(), expected, by=0.5) < 0.01, name


def test_the_host_does_not_wait_for_where_images_are() -> None:
    for name in (
        "RandomCrop",
        "RandomElasticTransform",
        "RandomTranslate",
        "randaugment",
        "mixup",
        "cutmix",
    ):
        augment, shown = bare(name), ids(4) > 60
        plan = plan_of(augment, 4)
        expected = shown_after(augment, shown, plan)
        with simulated() as gpu:
            result = shown_after(augment, shown, plan, gpu)
            assert differing(result.cpu().float(), expected.float(), by=0.5) < 0.01, name


def test_ids_stay_ids() -> None:
    for name in MOVING:
        masks = ids(6, torch.int32)
        result = moved(keyed(name), masks)
        assert result.dtype == torch.int32
        assert (result % 300 == 0).all(), name
        assert torch.equal(masks, ids(6, torch.int32)), f"{name}: its input is not overwritten"


def test_how_a_batch_is_cut_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = ids(11)
    expected = {name: moved(keyed(name), masks) for name in MOVING}
    monkeypatch.setattr(kornia_operation, "CPU_BYTES", 4 * masks[0].numel() * 3)
    for name in MOVING:
        assert torch.equal(moved(keyed(name), masks), expected[name]), name
        assert torch.equal(moved(keyed(name), masks[:1]), expected[name][:1]), f"{name}: alone"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["RandomAffine", "RandomHorizontalFlip", "RandomPerspective", "RandomRotation"]
)
def test_a_gpu_gives_what_a_cpu_gives_and_the_host_never_waits(name: str) -> None:
    augment, masks = keyed(name), ids(12)
    plan = plan_of(augment, 12)
    expected = moved(augment, masks, plan)
    tensors, there = tensors_of(plan, "cuda"), masks.to("cuda")
    images = torch.zeros(12, 3, *masks.shape[1:], dtype=torch.uint8, device="cuda")
    labels = torch.zeros(12, dtype=torch.int64, device="cuda")
    augment.carry_out(images, labels, plan, tensors)  # finds out what may go to the device
    augment.move_masks(there, plan, tensors)
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = augment.move_masks(there, plan, tensors)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (result.cpu() == expected).float().mean() > 0.98


def test_where_images_are_moves_as_a_mask_does_without_a_key() -> None:
    shown = ids(5) > 60
    for name in MOVING:
        augment = bare(name)
        result = shown_after(augment, shown)
        assert result.dtype == torch.bool
        if name == "RandomErasing":  # what is erased is still the image
            assert "shown" not in augment.moves
            assert torch.equal(result, shown)
        else:
            expected = moved(keyed(name), shown.to(torch.uint8)) > 0
            assert torch.equal(result, expected), name


def test_keys_of_extra_args_that_are_texts() -> None:
    """kornia takes "mask" as a key, too, and then uses the options in another way than for DataKey.MASK."""
    module = K.AugmentationSequential(
        K.RandomAffine(30),
        data_keys=["input", "mask"],
        extra_args={"mask": {"align_corners": True}},
    )
    with pytest.raises(fastpipe.ConfigError, match=r"got 'mask'; write DataKey\.MASK"):
        fastpipe.Augment([module])
