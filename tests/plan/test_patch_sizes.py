"""Tests of fastpipe.Patches: sizes, and how patches lie in a batch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.patches import PatchLayout


def shapes(count: int, most: int = 3000) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draws = np.random.default_rng(1).integers(1, most, (2, count))
    return draws[0], draws[1]


@pytest.mark.parametrize("enlarge", [False, True])
@pytest.mark.parametrize(
    ("patch_size", "merge", "max_tokens"), [(16, 1, 256), (14, 2, 64), (3, 1, 7)]
)
def test_sizes_are_those_of_native(
    patch_size: int, merge: int, max_tokens: int, enlarge: bool
) -> None:
    widths, heights = shapes(2000)
    multiple = patch_size * merge
    native = fastpipe.Native(
        max_pixels=max_tokens * multiple**2, multiple=multiple, enlarge=enlarge
    )
    patches = fastpipe.Patches(patch_size, max_tokens=max_tokens, merge=merge, enlarge=enlarge)
    sizes = patches.resized(widths, heights)
    expected = native.resized(widths, heights)
    # Of very long images, Native keeps more than max_pixels.
    fits = expected.prod(axis=1) <= max_tokens * multiple**2
    assert fits.mean() > 0.8
    assert np.array_equal(sizes[fits], expected[fits])
    tokens = sizes.prod(axis=1) // multiple**2
    assert tokens.max() <= max_tokens
    assert np.array_equal(tokens, patches.costs(np.stack([widths, heights], axis=1)))


def test_the_longest_images_have_the_most_tokens() -> None:
    patches = fastpipe.Patches(16, max_tokens=64)
    sizes = patches.resized(np.array([65535, 1, 65535]), np.array([1, 65535, 65535]))
    assert sizes.tolist() == [[64 * 16, 16], [16, 64 * 16], [128, 128]]


def test_a_row_that_replaces_another_has_at_most_its_tokens() -> None:
    widths, heights = shapes(2000)
    patches = fastpipe.Patches(4, max_tokens=200, merge=2)
    sizes = patches.resized(widths, heights)
    most = np.random.default_rng(2).integers(1, 200, 2000)
    limited = patches.limit(sizes, most)
    assert (patches.tokens_of_rows(limited) <= most).all()
    assert (limited >= 8).all()
    is_small = patches.tokens_of_rows(sizes) <= most
    assert np.array_equal(limited[is_small], sizes[is_small])


def test_coords_follow_the_order_of_merged_patches() -> None:
    layout = PatchLayout(patch_size=2, merge=2)
    row_sizes = np.array([[4, 8], [8, 4]])  # height, width
    assert layout.coords(row_sizes).tolist() == [
        *([0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]),
        *([0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]),
    ]
    assert layout.starts(row_sizes).tolist() == [0, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 0}, "patch_size: expected 1 to 128, got 0"),
        ({"tokens": 100, "max_tokens": 256}, "tokens=100 cannot hold an image of max_tokens=256"),
        ({"tokens": 512, "max_tokens": 256, "form": "padded"}, "pass batch_size=2"),
        ({"form": "rows"}, "form"),
        ({"enlarge": True, "min_tokens": 2}, "leave min_tokens out"),
        ({"frames": 2}, "pass channels_first=True, too"),
        ({"text_tokens": "n"}, "pass tokens=, too"),
        ({"min_tokens": 2000}, "min_tokens"),
        ({"token": 9}, "token="),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=re.escape(message)):
        fastpipe.Patches(**options)


def test_options_of_patches_go_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Pass fastpipe\.Patches\(16, max_tokens") as refused:
        fastpipe.Patches(16, 1024)
    assert str(refused.value).count("interpolation=") == 1
