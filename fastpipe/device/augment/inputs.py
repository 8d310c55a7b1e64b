"""Checks of the inputs of an augmentation; torch's global settings, switched off for its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from fastpipe.device.augment.operation import AugmentPlan, Tensors
from fastpipe.errors import ConfigError

CHANNELS = (1, 3, 4)  # gray, RGB, RGB with alpha


@contextmanager
def without_torch_defaults(device: torch.device) -> Iterator[None]:
    """Switches the program's autocast, default dtype and default device off, for work on `device`.

    Operations work in float32. Tensors that modules of others make on the default device are to be
    where their images are.
    """
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(
            device.type
        ):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        if dtype != torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(device)
        yield


def check_images(images: object) -> None:
    """Raises ConfigError unless they are uint8 or uint16 (N, C, height, width), C 1, 3 or 4."""
    if not isinstance(images, Tensor):
        raise ConfigError(
            f"Augment: expected a torch.Tensor of images, got {type(images).__name__}"
        )
    if images.dtype not in (torch.uint8, torch.uint16):
        raise ConfigError(
            "Augment: expected uint8 images, 0 to 255, or uint16, 0 to 65535, as fastpipe.loader "
            f"gives them, got {images.dtype}; Augment itself converts them to floating point"
        )
    is_batch = images.ndim == 4 and 0 not in images.shape
    if not is_batch or images.shape[1] not in CHANNELS:
        hint = ""
        if images.ndim == 4 and images.shape[3] in CHANNELS:
            hint = "; permute(0, 3, 1, 2) moves the channels to the second place"
        raise ConfigError(
            "Augment: expected images (N, C, height, width), C = 1 of gray, 3 of RGB or 4 of RGB "
            f"with alpha, got shape {tuple(images.shape)}{hint}"
        )


def check_fits(
    images: Tensor, labels: object, plan: AugmentPlan, tensors: Tensors
) -> None:
    """Raises ConfigError unless images, labels and tensors are those of the plan."""
    check_images(images)
    missing = sorted(plan.arrays.keys() - tensors.keys())
    if missing:
        raise ConfigError(
            f"Augment: expected the tensors of all plan.arrays, got none for {', '.join(missing)}"
        )
    first_size = plan.sizes[0]  # before the first stage
    shape = (plan.count, plan.channels, *first_size)
    bits = 8 * images.element_size()
    if tuple(images.shape) != shape or bits != plan.bits:
        raise ConfigError(
            f"Augment: the plan is for images {shape} of {plan.bits} bits, got "
            f"{tuple(images.shape)} of {bits}; call plan() for this batch"
        )
    if not isinstance(labels, Tensor):
        raise ConfigError(
            f"Augment: expected labels ({plan.count},) int64, one per image, got "
            f"{type(labels).__name__}"
        )
    if labels.dtype != torch.int64 or labels.shape != (plan.count,):
        raise ConfigError(
            f"Augment: expected labels ({plan.count},) int64, one per image, got {labels.dtype} "
            f"{tuple(labels.shape)}"
        )
    if labels.device != images.device:
        raise ConfigError(
            f"Augment: images are on {images.device}, labels on {labels.device}; move them to one "
            "device"
        )


def choose_class_count(augment_classes: int | None, dataset_classes: int | None) -> int:
    """The number of classes of soft labels: Augment's num_classes, or else the dataset's."""
    if augment_classes is None and dataset_classes is None:
        raise ConfigError(
            "Augment: soft labels need the number of classes; pass num_classes=, for example "
            "Augment.imagenet(mixup=0.2, num_classes=1000)"
        )
    if augment_classes is None:
        return dataset_classes or 0
    if dataset_classes is not None and augment_classes < dataset_classes:
        raise ConfigError(
            f"Augment: num_classes={augment_classes}, but the dataset has {dataset_classes} "
            "classes; leave out num_classes"
        )
    return augment_classes


def check_labels(labels: Tensor, classes: int) -> None:
    """Raises ConfigError if a label on the CPU is not a class.

    A look at labels on another device would wait for it. There such a label becomes a row of zeros
    before smoothing.
    """
    if labels.device.type != "cpu":
        return
    least, most = (int(label) for label in torch.aminmax(labels))
    if least < 0 or most >= classes:
        raise ConfigError(
            f"Augment: expected labels from 0 to {classes - 1}, got {least} to {most}; pass "
            "num_classes= of the largest label plus 1, or correct the labels"
        )


def check_result(module: torch.nn.Module, result: object, count: int) -> Tensor:
    """Returns a module's result; raises ConfigError unless it is a batch of `count` images."""
    if not isinstance(result, Tensor):
        got = type(result).__name__
    elif not result.dtype.is_floating_point:
        got = f"{result.dtype} of shape {tuple(result.shape)}"
    elif result.ndim == 0 or len(result) != count:
        got = f"shape {tuple(result.shape)}"
    else:
        return result
    raise ConfigError(
        f"augment: {type(module).__name__} returned {got}; expected a floating-point tensor with "
        f"the same number of images as its input, {count} here. Wrap it in a module that returns "
        "only the images"
    )
