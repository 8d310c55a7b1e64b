"""A user's transform -> a function of a decoded image, with the transform's own calling convention."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

_ALBUMENTATIONS = ("albumentations", "albumentationsx")

Picture = NDArray[np.uint8]


def as_tensor(picture: Picture) -> torch.Tensor:
    """(height, width, 3) -> a (3, height, width) view of the same memory, as torch's channels_last has it."""
    return torch.from_numpy(picture).permute(2, 0, 1)


def applier(transform: object) -> Callable[[Picture], Any]:
    """Checks `transform` and returns the function that gives it a picture and returns what it makes of it.

    Raises:
        ConfigError: it cannot be called.
    """
    if transform is None:
        return as_tensor
    function = _function(transform)
    if not _takes_image_by_name(transform):
        return lambda picture: function(as_tensor(picture))

    def by_name(picture: Picture) -> Any:
        made = function(image=picture)
        try:
            return made["image"]
        except (TypeError, KeyError, IndexError):
            raise ConfigError(
                "transform: expected transform(image=...) to return a dict with 'image', as albumentations' "
                f"transforms do, got {type(made).__name__}"
            ) from None

    return by_name


def sample_applier(transform: object) -> Callable[[dict[str, Any]], Any]:
    """Checks `transform` and returns the function of a sample with fields, a dict.

    Raises:
        ConfigError: it cannot be called with one.
    """
    if transform is None:
        return lambda sample: sample
    function = _function(transform)
    if _takes_image_by_name(transform):
        raise ConfigError(
            "transform: expected a function of the sample, a dict with the fields, got one that takes image=...; pass "
            "a function that calls it with what it needs: lambda sample: transform(image=sample['image'].permute(1, 2, "
            "0).numpy(), bboxes=sample['boxes'])"
        )
    return function


def _function(transform: object) -> Callable[..., Any]:
    if isinstance(transform, type):
        raise ConfigError(
            f"transform: expected an object that can be called with an image, got the class {transform.__name__}; "
            f"create an object of it: {transform.__name__}(...)"
        )
    if not callable(transform):
        raise ConfigError(f"transform: expected None or a callable, got {transform!r}")
    return transform


def _takes_image_by_name(transform: object) -> bool:
    """Whether it is one of albumentations' transforms, or its signature says that `image` is passed by name."""
    if any(kind.__module__.partition(".")[0] in _ALBUMENTATIONS for kind in type(transform).__mro__):
        return True
    try:
        image = inspect.signature(transform).parameters.get("image")  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some functions written in C have none
        return False
    return image is not None and image.kind is inspect.Parameter.KEYWORD_ONLY
