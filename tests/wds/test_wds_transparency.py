"""Transparent pictures of a WebDataset pipeline: on a background, or a word that alpha is dropped."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import torch
from PIL import Image

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError

SIDE = 16


def picture(kind: str, mode: str) -> bytes:
    """Red that is hidden: wholly transparent."""
    image = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    options: dict[str, Any] = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    if mode == "P":
        image = Image.new("P", (20, 20), 0)
        image.putpalette([255, 0, 0, 0, 255, 0])
        options = {"transparency": 0}
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


KINDS = pytest.mark.parametrize(("kind", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("WEBP", "RGBA")])


def colour(row: torch.Tensor) -> list[int]:
    assert (row == row[:, :1, :1]).all()
    return [int(value) for value in row[:, 0, 0]]


@KINDS
@pytest.mark.parametrize(
    ("background", "expected"), [("white", [255] * 3), ([0, 0, 255], [0, 0, 255])]
)
def test_on_a_background(kind: str, mode: str, background: Any, expected: list[int]) -> None:
    data = picture(kind, mode)
    single = fastpipe.wds.crop(SIDE, train=False, background=background)
    assert colour(single(data)) == expected
    batch = fastpipe.wds.batch_crop(SIDE, train=False, background=background)(
        [{"__key__": "a", "jpg": data}]
    )
    assert batch is not None
    assert colour(batch["jpg"][0]) == expected


@KINDS
def test_dropped_alpha_is_told_once(
    kind: str, mode: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings_once.forget_all()
    function = fastpipe.wds.crop(SIDE, train=False)
    with caplog.at_level(logging.WARNING, "fastpipe"):
        for _ in range(2):
            assert colour(function(picture(kind, mode))) == [255, 0, 0]
    assert caplog.text.count("some images have alpha, which is dropped") == 1
    assert 'background="white"' in caplog.text


def test_opaque_pictures_say_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings_once.forget_all()
    file = io.BytesIO()
    Image.new("RGB", (20, 20), (1, 2, 3)).save(file, "PNG")
    for background in (None, "white"):
        assert colour(
            fastpipe.wds.crop(SIDE, train=False, background=background)(file.getvalue())
        ) == [1, 2, 3]
    assert caplog.text == ""


def test_a_background_is_a_colour() -> None:
    with pytest.raises(ConfigError, match="background: expected a colour"):
        fastpipe.wds.crop(SIDE, background="no colour")
