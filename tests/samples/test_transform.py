"""Tests of how a user's transform is called: torchvision's way, albumentations' way, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.samples.single import applier, as_tensor

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
def albumentations_compose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Compose]:
    """As if the class came from that module."""
    monkeypatch.setattr(Compose, "__module__", request.param)
    return Compose


def mirrored(picture: Picture) -> Picture:
    return picture[:, ::-1]


def test_no_transform_gives_the_tensor(picture: Picture) -> None:
    image = applier(None)(picture)
    assert (image.shape, image.dtype) == ((3, 30, 50), torch.uint8)
    assert np.array_equal(image.permute(1, 2, 0).numpy(), picture)
    assert image.data_ptr() == picture.ctypes.data, "no copy"
    assert image.unsqueeze(0).is_contiguous(memory_format=torch.channels_last)


def test_a_function_gets_the_tensor(picture: Picture) -> None:
    got = applier(lambda image: (image.shape, image.dtype, int(image.sum())))(picture)
    assert got == ((3, 30, 50), torch.uint8, int(picture.sum()))


def test_a_module_and_a_partial_get_the_tensor(picture: Picture) -> None:
    flat = applier(torch.nn.Flatten(0))(picture)
    assert torch.equal(flat, as_tensor(picture).flatten())
    assert torch.equal(applier(functools.partial(torch.flip, dims=[2]))(picture), as_tensor(picture).flip(2))


def test_torchvision_v2(torchvision: ModuleType, picture: Picture) -> None:
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(24, antialias=True), v2.ToDtype(torch.float32, scale=True)])
    torch.manual_seed(3)
    got = applier(transform)(picture)
    torch.manual_seed(3)
    assert torch.equal(got, transform(as_tensor(picture)))
    assert (got.shape, got.dtype) == ((3, 24, 24), torch.float32)


def test_albumentations(albumentations_compose: type[Compose], picture: Picture) -> None:
    seen = []

    def look(image: Picture) -> Picture:
        seen.append((image.shape, image.dtype, image.flags.c_contiguous, image.flags.writeable))
        return mirrored(image)

    got = applier(albumentations_compose(look))(picture)
    assert torch.equal(got, as_tensor(mirrored(picture).copy())), "(3, height, width), as models take it"
    assert seen == [((30, 50, 3), np.dtype(np.uint8), True, True)]


def test_a_subclass_of_albumentations(albumentations_compose: type[Compose], picture: Picture) -> None:
    class Mine(albumentations_compose):  # type: ignore[misc, valid-type]
        pass

    Mine.__module__ = "mine"
    assert torch.equal(applier(Mine(mirrored))(picture), as_tensor(mirrored(picture).copy()))


@pytest.mark.parametrize(("dtype", "channels"), [(np.uint8, 3), (np.float32, 3), (np.float32, 1)])
def test_an_array_of_albumentations_becomes_a_tensor(
    albumentations_compose: type[Compose], picture: Picture, dtype: type, channels: int
) -> None:
    made = picture[..., :channels].astype(dtype)
    got = applier(albumentations_compose(lambda _: made))(picture)
    assert (got.shape, got.dtype) == ((channels, 30, 50), torch.from_numpy(made).dtype)
    assert np.array_equal(got.permute(1, 2, 0).numpy(), made)
    assert got.data_ptr() == made.ctypes.data or not made.flags.c_contiguous, "no copy"


@pytest.mark.parametrize(
    "made",
    [torch.zeros(3, 30, 50), np.zeros((30, 50)), np.zeros((3, 30, 50)), "words"],
    ids=["tensor", "2D", "CHW", "str"],
)
def test_what_else_albumentations_returns_stays_as_it_is(
    albumentations_compose: type[Compose], picture: Picture, made: Any
) -> None:
    """ToTensorV2 gives a tensor, for one."""
    assert applier(albumentations_compose(lambda _: made))(picture) is made


def test_a_keyword_only_image_is_passed_by_name(picture: Picture) -> None:
    def mirror(*, image: Picture) -> dict[str, Picture]:
        return {"image": mirrored(image)}

    assert torch.equal(applier(mirror)(picture), as_tensor(mirrored(picture).copy()))

    def plain(image: torch.Tensor) -> torch.Tensor:
        return image.flip(2)

    assert torch.equal(applier(plain)(picture), as_tensor(mirrored(picture).copy()))


@pytest.mark.parametrize("made", [np.zeros(3), {"mask": 1}, None, [1]], ids=["array", "no image", "None", "list"])
def test_what_albumentations_would_not_return(picture: Picture, made: Any) -> None:
    def transform(*, image: Picture) -> Any:
        return made

    with pytest.raises(ConfigError, match=rf"return a dict with 'image'.*got {type(made).__name__}"):
        applier(transform)(picture)


def test_an_error_inside_the_transform_is_its_own(albumentations_compose: type[Compose], picture: Picture) -> None:
    def broken(image: Picture) -> Picture:
        raise KeyError("image")

    with pytest.raises(KeyError):
        applier(albumentations_compose(broken))(picture)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (3, "expected None or a callable, got 3"),
        ("flip", "expected None or a callable, got 'flip'"),
        (torch.nn.Identity, r"got the class Identity; create an object of it: Identity\(\.\.\.\)"),
    ],
)
def test_what_cannot_be_called_is_refused(transform: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^transform: .*{message}"):
        applier(transform)
