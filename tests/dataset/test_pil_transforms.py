"""Transforms that expect Pillow's images, as torchvision's first ones: `with_transform(..., images="pil")`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastpipe


def to_tensor(picture: Any) -> torch.Tensor:
    """As torchvision's ToTensor."""
    if not isinstance(picture, Image.Image):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(picture)}")
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255


def test_a_transform_gets_pillows_images(textured: Path) -> None:
    data = fastpipe.open(textured)
    changed = data.with_transform(to_tensor, images="pil")
    for number in (0, 1):
        image, label = changed[number]
        assert torch.equal(image, data[number][0] / 255)
        assert label == data[number][1]
    assert "images='pil'" in repr(changed)


def test_torchvisions_first_transforms(torchvision: ModuleType, textured: Path) -> None:
    from torchvision.transforms import Compose, Resize, ToTensor

    data = fastpipe.open(textured)
    transform = Compose([Resize((8, 8)), ToTensor()])
    image = data.with_transform(transform, images="pil")[0][0]
    expected = transform(Image.fromarray(data[0][0].permute(1, 2, 0).numpy()))
    assert torch.equal(image, expected)


def test_the_error_of_a_transform_that_expects_pillows_images_says_so(textured: Path) -> None:
    with pytest.raises(TypeError, match="PIL Image") as raised:
        fastpipe.open(textured).with_transform(to_tensor)[0]
    assert 'data.with_transform(transform, images="pil")' in "\n".join(raised.value.__notes__)
    with pytest.raises(TypeError) as raised:
        fastpipe.open(textured).with_transform(lambda picture: picture + "a", images="pil")[0]
    assert len(raised.value.__notes__) == 1, "it got one"


def test_the_image_of_a_dict_of_fields_is_pillows(textured: Path) -> None:
    data = fastpipe.open(textured).with_fields({"pixel_values": "image", "label": "label"})
    sample = data.with_transform(lambda sample: sample, images="pil")[0]
    assert isinstance(sample["pixel_values"], Image.Image)
    assert np.array_equal(
        np.array(sample["pixel_values"]), data[0]["pixel_values"].permute(1, 2, 0).numpy()
    )
    assert sample["label"] == data[0]["label"]


@pytest.mark.parametrize(("channels", "mode"), [("gray", "L"), ("rgb", "RGB"), ("rgba", "RGBA")])
def test_channels(textured: Path, channels: str, mode: str) -> None:
    data = fastpipe.open(textured).with_pixels(channels)
    assert data.with_transform(lambda picture: picture.mode, images="pil")[0][0] == mode


def test_several_crops_are_given_one_by_one(textured: Path) -> None:
    data = fastpipe.open(textured).cropped(fastpipe.FiveCrop(), 8)
    assert data.with_transform(to_tensor, images="pil")[0][0].shape == (5, 3, 8, 8)


def test_what_does_not_go_together_is_refused(textured: Path) -> None:
    data = fastpipe.open(textured)
    with pytest.raises(fastpipe.ConfigError, match="images: expected"):
        data.with_transform(to_tensor, images="PIL")
    with pytest.raises(fastpipe.ConfigError, match="no transform that gets them"):
        data.with_transform(None, images="pil")
    with pytest.raises(fastpipe.ConfigError, match="no images of 3 channels of uint16"):
        data.with_pixels(dtype=torch.uint16).with_transform(to_tensor, images="pil")[0]
