"""A user's transform -> a function of a decoded picture, or of a dict of fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.tensors import as_tensor
from fastpipe.errors import ConfigError, choice

# The packages whose transforms are called with image=, and return a dict.
_ALBUMENTATIONS = ("albumentations", "albumentationsx")


def adapt_transform(
    transform: object,
    *,
    dicts: bool = False,
    images: str = "tensor",
    keys: Sequence[str] = (),
) -> Callable[[Any], Any]:
    """Checks a transform, and adapts it to the samples that it gets. See Dataset.with_transform.

    Args:
        transform: of the user; None: samples stay as they are.
        dicts: samples are dicts of fields; else pictures (height, width, channels).
        images: the form of images that the transform gets: "tensor" or "pil".
        keys: those of images in a dict.

    Returns:
        A function of a sample that returns the transformed one.

    Raises:
        ConfigError: the transform is not such a function, or does not fit the other arguments.
    """
    pil = choice("images", images, ("tensor", "pil")) == "pil"
    if transform is None:
        if pil:
            raise ConfigError(
                'images="pil": there is no transform that gets them; a sample itself has a tensor'
            )
        return _identity if dicts else as_tensor
    if isinstance(transform, type):
        raise ConfigError(
            "transform: expected an object that can be called with an image, got the class "
            f"{transform.__name__}; create an object of it: {transform.__name__}(...)"
        )
    if not callable(transform):
        raise ConfigError(f"transform: expected None or a callable, got {transform!r}")

    by_name = _takes_image_by_name(transform)
    if by_name and dicts:
        raise ConfigError(
            "transform: expected a function of the sample, a dict with the fields, got one that "
            "takes image=...; pass a function that calls it with what it needs: lambda sample: "
            "transform(image=sample['image'].permute(1, 2, 0).numpy(), bboxes=sample['boxes'])"
        )
    if by_name and pil:
        raise ConfigError(
            'images="pil": a transform that takes image=... gets an array; leave images= out'
        )
    if by_name:
        return lambda picture: _call_by_name(transform, picture)
    if dicts and pil:
        return lambda sample: transform(_with_pil_images(sample, keys))
    if dicts:
        return transform
    if pil:
        from fastpipe.sources.picture.pillow import to_pil

        return lambda picture: transform(to_pil(picture))
    return lambda picture: transform(as_tensor(picture))


def _identity(sample: Any) -> Any:
    return sample


def _call_by_name(transform: Callable[..., Any], picture: NDArray[Any]) -> Any:
    """Calls transform(image=...), as albumentations' transforms are called."""
    result = transform(image=picture)
    try:
        image = result["image"]
    except (TypeError, KeyError, IndexError):
        raise ConfigError(
            "transform: expected transform(image=...) to return a dict with 'image', as "
            f"albumentations' transforms do, got {type(result).__name__}"
        ) from None
    # ToTensorV2 has made a tensor; without it, the image is still an array.
    is_array = isinstance(image, np.ndarray)
    is_picture = is_array and image.ndim == 3
    if is_picture and image.shape[2] in (1, 3, 4):
        # Contiguous, because torch takes no negative strides, which mirroring leaves.
        return as_tensor(np.ascontiguousarray(image))
    return image


def _with_pil_images(sample: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A sample, with Pillow's images at these keys; of several crops, with lists of them."""
    from fastpipe.sources.picture.pillow import to_pil

    changed = dict(sample)
    for key in keys:
        # (..., channels, height, width) -> (..., height, width, channels), as Pillow has it.
        planes = sample[key].numpy()
        array = np.moveaxis(planes, -3, -1)
        if array.ndim == 3:
            changed[key] = to_pil(array)
        else:
            changed[key] = [to_pil(row) for row in array]
    return changed


def _takes_image_by_name(transform: object) -> bool:
    """Whether it is a transform of albumentations, or takes `image` by name only."""
    for base in type(transform).__mro__:
        if base.__module__.partition(".")[0] in _ALBUMENTATIONS:
            return True
    try:
        parameters = inspect.signature(transform).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some functions written in C have none
        return False
    image = parameters.get("image")
    return image is not None and image.kind is inspect.Parameter.KEYWORD_ONLY
