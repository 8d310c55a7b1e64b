"""The inputs of an augmentation -> errors that say how they are wrong; what the program has set -> not in effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from fastpipe.augment.operation import AugmentPlan, Tensors
from fastpipe.errors import ConfigError

CHANNELS = (1, 3, 4)  # gray, RGB, RGB with alpha


@contextmanager
def unaffected(device: torch.device) -> Iterator[None]:
    """Keeps the program's autocast, default dtype and default device from reaching in. Operations work in float32; what
    modules of others make on no device in particular is where their images are.
    """
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        if dtype != torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(device)
        yield


def check_images(images: object) -> None:
    """Raises ConfigError where they are not uint8 or uint16 (N, C, height, width) with C of 1, 3 or 4."""
    if not isinstance(images, Tensor):
        raise ConfigError(f"Augment: expected a torch.Tensor of images, got {type(images).__name__}")
    if images.dtype not in (torch.uint8, torch.uint16):
        raise ConfigError(
            "Augment: expected uint8 images, 0 to 255, or uint16, 0 to 65535, as fastpipe.loader gives them, got "
            f"{images.dtype}; Augment itself converts them to floating point"
        )
    if images.ndim != 4 or images.shape[1] not in CHANNELS or 0 in images.shape:
        last = images.ndim == 4 and images.shape[3] in CHANNELS
        hint = "; permute(0, 3, 1, 2) moves the channels to the second place" * last
        raise ConfigError(
            "Augment: expected images (N, C, height, width), C = 1 of gray, 3 of RGB or 4 of RGB with alpha, got shape "
            f"{tuple(images.shape)}{hint}"
        )


def check_fits(images: Tensor, labels: object, plan: AugmentPlan, tensors: Tensors) -> None:
    """Raises ConfigError where images, labels or tensors are not those of the plan."""
    check_images(images)
    if missing := sorted(plan.arrays.keys() - tensors.keys()):
        raise ConfigError(f"Augment: expected the tensors of all plan.arrays, got none for {', '.join(missing)}")
    shape, bits = (plan.count, plan.channels, *plan.sizes[0]), 8 * images.element_size()
    if tuple(images.shape) != shape or bits != plan.bits:
        raise ConfigError(
            f"Augment: the plan is for images {shape} of {plan.bits} bits, got {tuple(images.shape)} of {bits}; call "
            "plan() for this batch"
        )
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != (plan.count,):
        came = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ConfigError(f"Augment: expected labels ({plan.count},) int64, one per image, got {came}")
    if labels.device != images.device:
        raise ConfigError(f"Augment: images are on {images.device}, labels on {labels.device}; move them to one device")


def classes_of_labels(own: int | None, dataset: int | None) -> int:
    """How many classes soft labels have: as many as were passed, or as the dataset has."""
    if own is not None and dataset is not None and own < dataset:
        raise ConfigError(f"Augment: num_classes={own}, but the dataset has {dataset} classes; leave out num_classes")
    if own is None and dataset is None:
        raise ConfigError(
            "Augment: soft labels need the number of classes; pass num_classes=, for example "
            "Augment.imagenet(mixup=0.2, num_classes=1000)"
        )
    return own or dataset or 0


def check_labels(labels: Tensor, classes: int) -> None:
    """Raises ConfigError where one is no class, if the labels are on the CPU. A look at others would wait for them:
    there such a label makes a row of zeros before smoothing.
    """
    if labels.device.type != "cpu":
        return
    least, most = (int(label) for label in torch.aminmax(labels))
    if least < 0 or most >= classes:
        raise ConfigError(
            f"Augment: expected labels from 0 to {classes - 1}, got {least} to {most}; pass num_classes= of the "
            "largest label plus 1, or correct the labels"
        )


def checked_result(module: torch.nn.Module, result: object, count: int) -> Tensor:
    """What a module returned; raises ConfigError where it is no batch of `count` images."""
    if not isinstance(result, Tensor):
        came = type(result).__name__
    elif not result.dtype.is_floating_point:
        came = f"{result.dtype} of shape {tuple(result.shape)}"
    elif result.ndim == 0 or len(result) != count:
        came = f"shape {tuple(result.shape)}"
    else:
        return result
    raise ConfigError(
        f"augment: {type(module).__name__} returned {came}; expected a floating-point tensor with the same "
        f"number of images as its input, {count} here. Wrap it in a module that returns only the images"
    )
