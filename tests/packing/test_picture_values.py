"""Values of masks and second images that a Writer got and that may not be meant so, in the log."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import fastpipe

HALF = np.repeat(np.array([[0, 1]], np.uint8), 8, axis=1).repeat(16, axis=0)  # (16, 16)
DEPTH = np.arange(400, 656, dtype=np.uint16).reshape(16, 16)


def png(pixels: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Any:
    """Writes samples with these values of a field, and returns the messages of the log."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING, "fastpipe.pack")

    def write(kind: str, values: list[Any]) -> list[str]:
        caplog.clear()
        with fastpipe.Writer("packed", fields={"target": kind}, overwrite=True) as writer:
            for value in values:
                writer.add(np.zeros((16, 16, 3), np.uint8), target=value)
        return caplog.messages

    return write


@pytest.mark.parametrize("form", ["array", "bytes", "path"])
def test_masks_of_0_and_255(tmp_path: Path, messages: Any, form: str) -> None:
    mask: Any = HALF * 255
    if form != "array":
        mask = png(mask)
    if form == "path":
        (tmp_path / "mask.png").write_bytes(mask)
        mask = tmp_path / "mask.png"
    (message,) = messages("mask", [None, mask, mask])
    assert "assumed field target: the masks hold the values 0 and 255" in message
    assert "write masks = (batch['target'] > 127).long()" in message
    assert messages("mask", [HALF, HALF * 255]) == [
        "fastpipe.Writer: assumed field target: the masks hold 255, as VOC's have it for borders, "
        "beside numbers up to 1; give losses ignore_index=255"
    ]
    assert messages("mask", [HALF, HALF * 3]) == []


@pytest.mark.parametrize("as_png", [False, True])
def test_masks_of_classes_as_images(messages: Any, as_png: bool) -> None:
    masks: list[Any] = [HALF * 3, HALF * 7]
    if as_png:
        masks = [png(mask) for mask in masks]
    (message,) = messages("image", masks)
    assert "field target: gray images with 3 values, 0, 3 and 7. An 'image' is inter" in message
    assert message.endswith("If they are ids of classes, give the field the kind 'mask'")
    (message,) = messages("image", [np.arange(256, dtype=np.uint8).reshape(16, 16) // 32])
    assert "gray images with 8 values, 0 to 7" in message
    (message,) = messages("image", [HALF.astype(np.uint16) * 7])
    assert "gray images with 2 values, 0 and 7" in message


@pytest.mark.parametrize(
    "image",
    [
        HALF * 255,  # a drawing
        HALF * 128 + 127,
        np.full((16, 16), 7, np.uint8),
        np.arange(256, dtype=np.uint8).reshape(16, 16),
        np.stack([HALF, HALF, HALF * 2], axis=2),
        png(np.stack([HALF, HALF, HALF * 2], axis=2)),
        png(HALF.astype(bool)),  # a PNG of 1 bit
    ],
)
def test_images_that_are_no_masks(messages: Any, image: Any) -> None:
    assert messages("image", [image]) == []


@pytest.mark.parametrize("as_png", [False, True])
def test_depth_as_images(messages: Any, as_png: bool) -> None:
    (message,) = messages("image", [png(DEPTH) if as_png else DEPTH])
    assert "field target: images of 16 bits a channel, with values of up to 10 bits" in message
    assert "(below 1,024). A loader divides them by 256, so they are dark; " in message
    assert "are better packed as kind 'map'" in message


def test_an_image_that_cannot_be_read_is_rejected_as_ever(messages: Any) -> None:
    (message,) = messages("image", [HALF * 255, png(DEPTH)[:-60]])
    assert "1 sample was not packed" in message
