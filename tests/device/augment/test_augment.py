"""Tests of Augment as users see it: normalising, dtypes, labels, errors, what may be passed for it."""

from __future__ import annotations

import copy
import pickle
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.batches.augment_batches import photos, tensors_of
from torch import Tensor

import fastpipe
from fastpipe import Augment, ConfigError
from fastpipe.device.augment import as_augment
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD

LABELS = torch.arange(8)


def plain(images: Tensor, mean: Any = IMAGENET_MEAN, std: Any = IMAGENET_STD) -> Tensor:
    """As everybody writes it."""
    shape = (1, 3, 1, 1)
    return (
        images.float()
        .div(255)
        .sub(torch.tensor(mean).view(shape))
        .div(torch.tensor(std).view(shape))
    )


@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(
        [(IMAGENET_MEAN, IMAGENET_STD), ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0, 0, 0), (1, 2, 3))]
    ),
)
def test_normalising_is_the_plain_one(count: int, height: int, width: int, moments: Any) -> None:
    images = torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    result = Augment(mean=moments[0], std=moments[1])(images)
    torch.testing.assert_close(result, plain(images, *moments), atol=1e-6, rtol=0)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_narrow_dtypes_are_the_float32_result_rounded_once() -> None:
    images = photos(8, 30, 20)
    options: dict[str, Any]
    for preset, dtype, options in product(
        (Augment.imagenet, Augment.simclr),
        (torch.bfloat16, torch.float16),
        ({}, {"mixup": 0.3, "cutmix": 1.0, "num_classes": 9}),
    ):
        narrow, labels = preset(dtype=dtype, **options)(images, LABELS)
        wide, wide_labels = preset(**options)(images, LABELS)
        assert narrow.dtype == dtype
        assert narrow.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(narrow, wide.to(dtype))
        assert torch.equal(labels, wide_labels)


def test_images_in_another_memory_order_give_the_same() -> None:
    images = photos(8, 30, 20)
    for augment in (Augment.imagenet(), Augment.simclr(), Augment([torch.nn.Identity()])):
        assert torch.equal(augment(images, batch=0), augment(images.contiguous(), batch=0))


def test_labels_stay_as_they_are_unless_something_makes_them_soft() -> None:
    _, labels = Augment.randaugment(erasing=0.5)(photos(8, 30, 20), LABELS)
    assert labels is LABELS
    assert Augment.imagenet().soft is False
    assert Augment.imagenet(label_smoothing=0.1, num_classes=9).soft is True


def test_label_smoothing_is_cross_entropys() -> None:
    logits = torch.randn(8, 11)
    _, soft = Augment.imagenet(label_smoothing=0.1, num_classes=11)(photos(8, 9, 9), LABELS)
    expected = torch.nn.functional.cross_entropy(logits, LABELS, label_smoothing=0.1)
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits, soft), expected)
    assert soft.dtype == torch.float32


def test_the_datasets_classes_count_where_none_were_given() -> None:
    images = photos(8, 9, 9)
    for given_classes, dataset, expected in ((None, 12, 12), (20, 12, 20), (9, None, 9)):
        augment = Augment.imagenet(mixup=0.2, num_classes=given_classes)
        plan = augment.plan(np.arange(8), (9, 9), seed=0, epoch=0, batch=0)
        _, labels = augment.carry_out(images, LABELS, plan, tensors_of(plan), num_classes=dataset)
        assert labels.shape == (8, expected)


def test_autocast_does_not_reach_in() -> None:
    images = photos(8, 30, 20)
    for augment in (Augment.simclr(), Augment([torch.nn.Conv2d(3, 3, 1)])):
        expected = augment(images, batch=0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(augment(images, batch=0), expected)


def test_no_gradient_is_recorded() -> None:
    augment = Augment(torch.nn.Conv2d(3, 4, 3), mean=None, std=None)
    assert not augment(photos(2, 9, 9)).requires_grad


def test_copies_and_pickles_give_the_same() -> None:
    images = photos(8, 30, 20)
    augment = Augment.simclr(erasing=0.3)
    expected = augment(images, batch=0)
    for again in (copy.deepcopy(augment), pickle.loads(pickle.dumps(augment))):  # noqa: S301
        assert torch.equal(again(images, batch=0), expected)


def test_two_batches_never_share_memory_and_what_is_let_go_is_used_again() -> None:
    augment, images = Augment.imagenet(), photos(8, 64, 64)
    kept = [augment(images, batch=number) for number in range(6)]
    assert len({batch.data_ptr() for batch in kept}) == 6
    expected = [batch.clone() for batch in kept]
    augment(torch.zeros_like(images))
    assert all(torch.equal(one, other) for one, other in zip(kept, expected, strict=True))
    views = [batch[:1] for batch in kept]
    addresses = {batch.data_ptr() for batch in kept}
    del kept
    assert augment(images).data_ptr() not in addresses, "a view is still looked at"
    del views
    assert augment(images).data_ptr() in addresses


def test_a_smaller_last_batch_is_its_own() -> None:
    augment, images = Augment.imagenet(), photos(8, 20, 20)
    augment(images)
    assert torch.equal(augment(images[:3]), augment(images)[:3])


def test_repr_tells_what_it_does() -> None:
    shown = repr(
        Augment.simclr(strength=0.5, mixup=0.2, num_classes=10, erasing=0.25, dtype=torch.bfloat16)
    )
    for part in (
        "bfloat16",
        "strength=0.5",
        "mixup=0.2",
        "num_classes=10",
        "erasing=0.25",
        "Blur(probability=0.5)",
    ):
        assert part in shown


WRONG: list[tuple[Any, str]] = [
    (lambda: Augment(3), "expected a torch.nn.Module or a list of them, got int"),
    (lambda: Augment([torch.nn.Identity(), len]), "operation 1: expected a torch.nn.Module"),
    (lambda: Augment([torch.nn.Identity]), "create an object of it: Identity(...)"),
    (lambda: Augment([Augment.imagenet()]), "is an Augment; pass its operations instead"),
    (
        lambda: Augment(torch.nn.Sequential(Augment.imagenet())),
        "is an Augment; pass its operations instead",
    ),
    (
        lambda: Augment(dtype=torch.float64),
        "dtype: expected torch.float32 or torch.bfloat16 or torch.float16",
    ),
    (lambda: Augment(dtype="float32"), "got 'float32'"),
    (lambda: Augment(mean=None), "expected both, or None for both"),
    (lambda: Augment(mean="0.5"), "mean: expected one number for all channels, or one per channel"),
    (
        lambda: Augment(std=(1, 1)),
        "std: expected one number for all channels, or one per channel: 1 (gray), 3",
    ),
    (lambda: Augment(std=0), "std: expected numbers above 0, got 0"),
    (lambda: Augment(std=(1, 1, 0)), "std: expected numbers above 0"),
    (lambda: Augment(mean=(123.7, 116.3, 103.5)), "divide values for bytes by 255"),
    (lambda: Augment(mean=IMAGENET_STD, std=IMAGENET_MEAN), "They look exchanged"),
    (lambda: Augment(mean=0.2686, std=0.4815), "pass mean=0.4815, std=0.2686"),
    (lambda: Augment(erasing=1.5), "erasing: expected a number from 0 to 1, got 1.5"),
    (lambda: Augment(mixup=-1), "mixup: expected a number at least 0, got -1"),
    (lambda: Augment(cutmix=float("inf")), "cutmix: expected a number"),
    (lambda: Augment(cutmix=True), "cutmix: expected a number"),
    (lambda: Augment(label_smoothing=1), "label_smoothing: expected a number from 0 to below 1"),
    (lambda: Augment(num_classes=0), "num_classes: expected 1 to"),
    (lambda: Augment(compile=1), "compile: expected True or False"),
    (lambda: Augment(compile=True), "contain nothing that fastpipe can compile"),
    (lambda: Augment([torch.nn.Identity()], compile=True), "pass torch.compile(module)"),
    (lambda: Augment.simclr(strength=3), "strength: expected a number from 0 to 2.5"),
    (lambda: Augment.randaugment(n=17), "n: expected 0 to 16"),
    (lambda: Augment.randaugment(m=31), "m: expected 0 to 30"),
    (lambda: as_augment("imagenet"), "fastpipe.Augment.imagenet()"),
    (lambda: as_augment(Augment), "expected a fastpipe.Augment"),
    (lambda: Augment.imagenet()([1]), "expected a torch.Tensor of images, got list"),
    (lambda: Augment.imagenet()(torch.zeros(1, 3, 4, 4)), "expected uint8 images"),
    (
        lambda: Augment.imagenet()(torch.zeros(3, 4, 4, dtype=torch.uint8)),
        "expected images (N, C, height, width), C = 1",
    ),
    (
        lambda: Augment.imagenet()(torch.zeros(1, 2, 4, 4, dtype=torch.uint8)),
        "3 of RGB or 4 of RGB with alpha, got",
    ),
    (lambda: Augment.imagenet()(torch.zeros(1, 5, 4, 3, dtype=torch.uint8)), "permute(0, 3, 1, 2)"),
    (
        lambda: Augment.imagenet()(torch.zeros(0, 3, 4, 4, dtype=torch.uint8)),
        "expected images (N, C, height, width)",
    ),
    (lambda: Augment.imagenet(mixup=1)(photos(8, 4, 4)), "pass labels"),
    (lambda: Augment.imagenet(mixup=1)(photos(8, 4, 4), LABELS), "pass num_classes="),
    (lambda: Augment.imagenet()(photos(8, 4, 4), LABELS[:3]), "expected labels (8,) int64"),
    (lambda: Augment.imagenet()(photos(8, 4, 4), LABELS.float()), "got torch.float32 (8,)"),
    (lambda: Augment.imagenet()(photos(8, 4, 4), [1] * 8), "got list"),
    (
        lambda: Augment.imagenet(mixup=1, num_classes=7)(photos(8, 4, 4), LABELS),
        "labels from 0 to 6, got 0 to 7",
    ),
    (lambda: Augment.imagenet(mixup=1, num_classes=9)(photos(8, 4, 4), LABELS - 1), "got -1 to 6"),
    (
        lambda: Augment.imagenet()(photos(8, 4, 4), LABELS.to("meta")),
        "images are on cpu, labels on meta",
    ),
    (
        lambda: Augment.imagenet()(photos(8, 4, 4), samples=[1, 2]),
        "samples: expected 8 whole numbers",
    ),
    (lambda: Augment.imagenet()(photos(8, 4, 4), samples=np.ones(8)), "float64"),
    (lambda: Augment.imagenet()(photos(8, 4, 4), seed=-1), "seed: expected 0 to"),
    (lambda: Augment.imagenet()(photos(8, 4, 4), epoch=0.5), "epoch: expected a whole number"),
    (lambda: Augment.imagenet()(photos(8, 4, 4), batch=-1), "batch: expected 0 to"),
]


def test_mistakes_are_named() -> None:
    for wrong, message in WRONG:
        with pytest.raises(ConfigError, match=re.escape(message)):
            wrong()


def test_a_plan_of_another_batch_is_refused() -> None:
    augment = Augment.imagenet()
    plan = augment.plan(np.arange(4), (9, 9), seed=0, epoch=0, batch=0)
    with pytest.raises(
        ConfigError,
        match=re.escape("the plan is for images (4, 3, 9, 9) of 8 bits, got (8, 3, 9, 9) of 8"),
    ):
        augment.carry_out(photos(8, 9, 9), LABELS, plan, tensors_of(plan))


def test_tensors_of_another_plan_are_refused() -> None:
    augment, images = Augment.simclr(), photos(8, 9, 9)
    plan = augment.plan(np.arange(8), (9, 9), seed=0, epoch=0, batch=0)
    with pytest.raises(
        ConfigError, match=re.escape("got none for 0.factors, 0.rows, 1.rows, 2.rows, 2.sigmas")
    ):
        augment.carry_out(
            images, LABELS, plan, {name: torch.zeros(3) for name in ("3.scale", "3.shift")}
        )


def test_fewer_classes_than_the_dataset_has_are_refused() -> None:
    augment = Augment.imagenet(cutmix=1.0, num_classes=10)
    plan = augment.plan(np.arange(8), (9, 9), seed=0, epoch=0, batch=0)
    with pytest.raises(ConfigError, match="num_classes=10, but the dataset has 11 classes"):
        augment.carry_out(photos(8, 9, 9), LABELS, plan, tensors_of(plan), num_classes=11)


def test_what_the_loader_accepts() -> None:
    images = photos(4, 9, 9)
    augment = Augment.imagenet()
    assert as_augment(augment) is augment
    for value in (torch.nn.Identity(), [torch.nn.Identity()], (torch.nn.Identity(),)):
        torch.testing.assert_close(as_augment(value)(images), plain(images), atol=1e-6, rtol=0)
    assert fastpipe.Augment is Augment


def test_two_views_of_the_same_images_differ() -> None:
    images = photos(8, 30, 20)
    for samples in (None, list(range(8))):
        augment, again = Augment.simclr(), Augment.simclr()
        first, second = augment(images, samples=samples), augment(images, samples=samples)
        assert not torch.equal(first, second)
        assert torch.equal(first, again(images, samples=samples))
        assert torch.equal(second, again(images, samples=samples))
        assert torch.equal(
            augment(images, batch=3, samples=samples), again(images, batch=3, samples=samples)
        )


@pytest.mark.parametrize(
    "moments", [(0.5, 0.5), (0, 1), (0.1307, 0.3081), (0.4815, 0.2686), (0.5, 1), (0.9, 0.35)]
)
def test_usual_moments_are_not_taken_for_exchanged_ones(moments: tuple[float, float]) -> None:
    mean, std = moments
    assert Augment(mean=mean, std=std).std == std
