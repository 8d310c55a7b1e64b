"""Tests of how a user's transform is called: torchvision's way, albumentations' way, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastpipe.dataset.tensors import as_tensor
from fastpipe.dataset.transforms import adapt_transform
from fastpipe.errors import ConfigError

Picture = NDArray[np.uint8]


@pytest.fixture
def picture() -> Picture:
    return np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)


class Compose:
    """Called as albumentations 1 and 2 are: nothing but keywords, named anyhow, and a dict comes back."""

    def __init__(self, transform: Callable[[Picture], Any]) -> None:
        self.transform = transform

    def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> dict[str, Any]:
        if args:
            raise KeyError("You have to pass data to augmentations as named arguments")
        return {"image": self.transform(data["image"])}


@pytest.fixture(params=["albumentations.core.composition", "albumentationsx"])
def albumentations_compose(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> type[Compose]:
    """As if the class came from that module."""
    monkeypatch.setattr(Compose, "__module__", request.param)
    return Compose


def mirrored(picture: Picture) -> Picture:
    return picture[:, ::-1]


def test_no_transform_gives_the_tensor(picture: Picture) -> None:
    image = adapt_transform(None)(picture)
    assert (image.shape, image.dtype) == ((3, 30, 50), torch.uint8)
    assert np.array_equal(image.permute(1, 2, 0).numpy(), picture)
    assert image.data_ptr() == picture.ctypes.data, "no copy"
    assert image.unsqueeze(0).is_contiguous(memory_format=torch.channels_last)


def test_what_can_be_called_gets_the_tensor(picture: Picture) -> None:
    def plain(image: torch.Tensor) -> torch.Tensor:
        return image.flip(2)

    for transform in (plain, torch.nn.Flatten(0), functools.partial(torch.flip, dims=[2])):
        assert torch.equal(adapt_transform(transform)(picture), transform(as_tensor(picture)))


def test_albumentations(albumentations_compose: type[Compose], picture: Picture) -> None:
    seen = []

    def look(image: Picture) -> Picture:
        seen.append((image.shape, image.dtype, image.flags.c_contiguous, image.flags.writeable))
        return mirrored(image)

    class Mine(albumentations_compose):  # type: ignore[misc, valid-type]
        pass

    Mine.__module__ = "mine"
    for kind in (albumentations_compose, Mine):
        got = adapt_transform(kind(look))(picture)
        assert torch.equal(got, as_tensor(mirrored(picture).copy())), (
            "(3, height, width), as models take it"
        )
    assert seen == [((30, 50, 3), np.dtype(np.uint8), True, True)] * 2


def test_what_albumentations_returns(
    albumentations_compose: type[Compose], picture: Picture
) -> None:
    """Arrays of pictures become tensors; all else stays as it is: ToTensorV2 gives a tensor, for one."""
    for made in (picture, picture.astype(np.float32), picture[..., :1].astype(np.float32)):
        got = adapt_transform(albumentations_compose(lambda _, made=made: made))(picture)
        assert (got.shape, got.dtype) == ((made.shape[2], 30, 50), torch.from_numpy(made).dtype)
        assert np.array_equal(got.permute(1, 2, 0).numpy(), made)
        assert got.data_ptr() == made.ctypes.data or not made.flags.c_contiguous, "no copy"
    for made in (torch.zeros(3, 30, 50), np.zeros((30, 50)), np.zeros((3, 30, 50)), "words"):
        assert adapt_transform(albumentations_compose(lambda _, made=made: made))(picture) is made


def test_a_keyword_only_image_is_passed_by_name(picture: Picture) -> None:
    def mirror(*, image: Picture) -> dict[str, Picture]:
        return {"image": mirrored(image)}

    assert torch.equal(adapt_transform(mirror)(picture), as_tensor(mirrored(picture).copy()))
    for made in (np.zeros(3), {"mask": 1}, None, [1]):

        def transform(*, image: Picture, made: Any = made) -> Any:
            return made

        with pytest.raises(
            ConfigError, match=rf"return a dict with 'image'.*got {type(made).__name__}"
        ):
            adapt_transform(transform)(picture)


def test_an_error_inside_the_transform_is_its_own(
    albumentations_compose: type[Compose], picture: Picture
) -> None:
    def broken(image: Picture) -> Picture:
        raise KeyError("image")

    with pytest.raises(KeyError):
        adapt_transform(albumentations_compose(broken))(picture)


def test_what_cannot_be_called_is_refused() -> None:
    for transform, message in (
        (3, "expected None or a callable, got 3"),
        ("flip", "expected None or a callable, got 'flip'"),
        (torch.nn.Identity, r"got the class Identity; create an object of it: Identity\(\.\.\.\)"),
    ):
        with pytest.raises(ConfigError, match=f"^transform: .*{message}"):
            adapt_transform(transform)
