"""Transparent images, whose hidden colours a loader of RGB would show."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed

import fastpipe
from fastpipe.errors import ConfigError, DatasetError

SIZE = (40, 30)


def logo(mode: str = "RGBA") -> Image.Image:
    """A red disc, or a gray one, on what is clear; below the clear pixels lies another colour."""
    y, x = np.mgrid[:30, :40]
    alpha = np.clip(255 - 12 * np.hypot(x - 20, y - 15), 0, 255).astype(np.uint8)
    colors = np.where(alpha[:, :, None] > 0, [200, 10, 20], [0, 90, 255]).astype(np.uint8)
    image = Image.fromarray(np.dstack([colors, alpha]), "RGBA") if mode == "RGBA" else None
    return image or Image.fromarray(np.dstack([colors[:, :, 0], alpha]), "LA")


def palette() -> Image.Image:
    image = Image.new("P", SIZE, 1)
    image.putpalette([0, 90, 255, 200, 10, 20])
    image.paste(0, (0, 0, 10, 30))
    image.info["transparency"] = 0
    return image


def shown(image: Image.Image, color: Any) -> Any:
    """What Pillow makes of it on a colour."""
    image = image.convert("RGBA")
    behind = Image.new("RGB", image.size, color)
    behind.paste(image, mask=image.getchannel("A"))
    return np.array(behind)


def source(root: Path) -> dict[str, Image.Image]:
    images = {
        "a.png": logo(),
        "b.png": logo("LA"),
        "c.png": palette(),
        "d.webp": logo(),
        "e.gif": palette(),
    }
    (root / "src").mkdir()
    for name, image in images.items():
        options = {"lossless": True, "exact": True} if name == "d.webp" else {}
        image.save(root / "src" / name, **options)
    Image.new("RGBA", SIZE, (9, 8, 7, 255)).save(root / "src" / "opaque.png")
    Image.new("RGB", SIZE, (9, 8, 7)).save(root / "src" / "plain.png")
    return images


def pixels(data: Any) -> dict[str, Any]:
    data = data.with_fields(["key", "image"])
    return {
        sample["key"].rpartition("/")[2]: sample["image"].numpy().transpose(1, 2, 0)
        for sample in data
    }


@becomes(
    "transparent PNGs (RGBA, LA, a palette with tRNS), WebPs, GIFs",
    "alpha is kept; their number, and that the colours under transparent pixels show in RGB, is "
    "said. With the option they are put on it",
    "--background white",
)
def test_packed_on_a_background(tmp_path: Path) -> None:
    images = source(tmp_path)
    (said,) = assumed(fastpipe.pack(tmp_path / "src", tmp_path / "packed"))
    assert said.startswith("5 images are transparent in part")
    assert said.endswith("(--background white)")
    assert pixels(fastpipe.open(tmp_path / "packed"))["a.png"][0, 0].tolist() == [0, 90, 255]
    (again,) = assumed(fastpipe.pack(tmp_path / "src", tmp_path / "packed"))
    assert again == said  # of a dataset that was there, too
    for color in ("white", [10, 20, 30], "#0a141e", "10, 20, 30"):
        summary = fastpipe.pack(
            tmp_path / "src", tmp_path / "packed", background=color, overwrite=True
        )
        assert assumed(summary) == []
        found = pixels(fastpipe.open(tmp_path / "packed"))
        for name, image in images.items():
            np.testing.assert_array_equal(
                found[name], shown(image, (255,) * 3 if color == "white" else (10, 20, 30))
            )
        assert found["opaque.png"][0, 0].tolist() == found["plain.png"][0, 0].tolist() == [9, 8, 7]
    assert summary.info["counts"]["reencoded"] == {"put on the background": 5}
    assert summary.info["packs"][0]["options"]["background"] == "#0a141e"


@becomes(
    "the same, loaded without packing",
    "their number is logged",
    'fastpipe.open(DATA, background="white")',
)
def test_loaded_on_a_background(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = source(tmp_path)
    with caplog.at_level(logging.WARNING, "fastpipe"):
        plain = fastpipe.open(tmp_path / "src")
    assert "6 images have alpha, which a loader of RGB drops" in caplog.text
    assert pixels(plain)["a.png"][0, 0].tolist() == [0, 90, 255]
    data = fastpipe.open(tmp_path / "src", background="white")
    assert set(data["channels"].tolist()) == {3}
    found = pixels(data)
    with fastpipe.loader(
        data, 7, size=(30, 40), crop=fastpipe.Resize(), train=False, fields=["key", "image"]
    ) as loader:
        (batch,) = loader
    of_loader = dict(zip(batch["key"], batch["image"].numpy().transpose(0, 2, 3, 1), strict=True))
    for name, image in images.items():
        np.testing.assert_array_equal(found[name], shown(image, "white"))
        np.testing.assert_array_equal(of_loader[name], shown(image, "white"))


def test_samples_of_16_bits(tmp_path: Path) -> None:
    rgba = np.zeros((30, 40, 4), np.uint16)
    rgba[:, :, 0], rgba[:, :20, 3], rgba[:, 20:, 3] = 65535, 65535, 32768
    with fastpipe.Writer(tmp_path / "packed", background="white") as writer:
        writer.add(rgba, key="a")
    import torch

    (sample,) = (
        fastpipe.open(tmp_path / "packed").with_pixels(dtype=torch.uint16).with_fields(["image"])
    )
    assert sample["image"][:, 0, 0].tolist() == [65535, 0, 0]
    assert sample["image"][:, 0, 30].tolist() == [65535, 32767, 32767]


def test_wrong_backgrounds(tmp_path: Path) -> None:
    source(tmp_path)
    for wrong in ("whitish", [1, 2], [1, 2, 256], [0.5, 1, 1], "1,2", 7, [True, None, 1]):
        with pytest.raises(ConfigError, match=r"^background: expected a colour such as"):
            fastpipe.pack(tmp_path / "src", tmp_path / "packed", background=wrong)  # type: ignore[arg-type]
    fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    with pytest.raises((ConfigError, DatasetError), match=r"background: .* is packed"):
        fastpipe.open(tmp_path / "packed", background="white")
    with pytest.raises(ConfigError, match=r"pass fastpipe\.open\(DATA, background=\.\.\.\)"):
        fastpipe.loader(tmp_path / "packed", 2, background="white")  # type: ignore[call-arg]
