"""The lists of sizes of buckets, and which of them each image gets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.plan.bucket_sizes import (
    covers_any,
    nearest_covered_sizes,
    nearest_sizes,
    sizes_of_area,
    sort_by_ratio,
)
from fastpipe.plan.buckets import Buckets

SIZES = [(64, 64), (32, 32), (48, 80), (24, 40), (80, 48), (64, 128), (56, 72), (20, 30)]


def kept_part(picture: tuple[int, int], size: tuple[int, int]) -> float:
    """The part of a picture (width, height) that is left when it covers a size and is cut."""
    scale = max(size[0] / picture[0], size[1] / picture[1])
    return size[0] * size[1] / (scale * picture[0] * scale * picture[1])


def random_pictures(count: int, largest: int = 200) -> NDArray[np.int64]:
    return np.random.default_rng(3).integers(1, largest, (count, 2))


def test_the_nearest_size_keeps_most_of_the_picture() -> None:
    sizes = sort_by_ratio(SIZES)
    pictures = random_pictures(5000)
    for picture, position in zip(
        pictures.tolist(), nearest_sizes(sizes, pictures).tolist(), strict=True
    ):
        size = sizes[position].tolist()
        parts = [kept_part(picture, other) for other in sizes.tolist()]
        assert math.isclose(kept_part(picture, size), max(parts), rel_tol=1e-9)
        # Of the sizes of this ratio: the largest that the picture covers, else the smallest.
        same = [other for other in sizes.tolist() if other[0] * size[1] == other[1] * size[0]]
        covered = [other for other in same if picture[0] >= other[0] and picture[1] >= other[1]]
        assert size == (max(covered) if covered else min(same))


def test_without_enlarging_only_covered_sizes_count() -> None:
    sizes = sort_by_ratio(SIZES)
    pictures = random_pictures(5000)
    positions = nearest_covered_sizes(sizes, pictures)
    nearest = nearest_sizes(sizes, pictures)
    covered_count = 0
    for row, (picture, position) in enumerate(
        zip(pictures.tolist(), positions.tolist(), strict=True)
    ):
        covered = [
            other for other in sizes.tolist() if picture[0] >= other[0] and picture[1] >= other[1]
        ]
        if not covered:
            assert position == nearest[row]
            continue
        covered_count += 1
        size = sizes[position].tolist()
        assert size in covered
        parts = [kept_part(picture, other) for other in covered]
        assert math.isclose(kept_part(picture, size), max(parts), rel_tol=1e-9)
    assert covered_count == covers_any(sizes, pictures).sum()
    assert 0 < covered_count < len(pictures)


def test_sizes_of_an_area_have_the_largest_height_for_each_width() -> None:
    sizes = sizes_of_area(1024 * 1024, 64, 2048)
    assert (1024, 1024) in sizes
    assert (832, 1216) in sizes
    assert (1344, 768) in sizes
    for height, width in sizes:
        assert (width, height) in sizes
        assert height % 64 == width % 64 == 0
        assert height * width <= 1024 * 1024
        one_step_more = (min(height, width) + 64) * max(height, width)
        assert one_step_more > 1024 * 1024


def kohya_size(sizes: list[tuple[int, int]], picture: tuple[int, int]) -> tuple[int, int]:
    """The bucket of a script that compares width / height by their difference."""
    if picture in sizes:
        return picture
    ratios = np.array([width / height for width, height in sizes])
    return sizes[int(np.abs(ratios - picture[0] / picture[1]).argmin())]


def test_scripts_that_compare_ratios_by_difference_choose_nearly_the_same() -> None:
    """Of 10,000 shapes; what differs lies between two sizes, near to the middle."""
    rng = np.random.default_rng(5)
    ratios = np.exp(rng.normal(0.0, 0.35, 10_000))
    areas = rng.uniform(0.5e6, 8e6, 10_000)
    pictures = np.stack([np.sqrt(areas * ratios), np.sqrt(areas / ratios)], axis=1).astype(np.int64)
    sizes = sort_by_ratio(sizes_of_area(1024 * 1024, 64, 2048))
    listed = [(width, height) for width, height in sizes.tolist()]
    chosen = [tuple(size) for size in sizes[nearest_sizes(sizes, pictures)].tolist()]
    others = [kohya_size(listed, (width, height)) for width, height in pictures.tolist()]
    same = 0
    for picture, size, other in zip(pictures.tolist(), chosen, others, strict=True):
        same += size == other
        assert abs(listed.index(size) - listed.index(other)) <= 1
        assert kept_part(picture, size) >= kept_part(picture, other) - 1e-12
    assert same >= 9700


def test_a_list_of_sizes_goes_by_itself() -> None:
    for options in ({"area": 9}, {"min_size": 9}, {"max_size": 9}, {"size_divisible": 8}):
        with pytest.raises(ConfigError, match=f"expected one of sizes= and {next(iter(options))}="):
            Buckets(sizes=[32], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": []}, "sizes: expected sizes, for example"),
        ({"sizes": 32}, "sizes: expected sizes, for example"),
        ({"sizes": [(32, 0)]}, "expected 1 to 16384"),
        ({"fit": "crop"}, "'pad' or 'cover'"),
        ({"fit": "cover", "min_size": 20}, "expected sizes= or area="),
        ({"fit": "cover", "fill": 3}, "leave fill and padding_mode out"),
        ({"fit": "cover", "padding_mode": "edge"}, "leave fill and padding_mode out"),
        ({"fit": "cover", "area": 100}, "pass a larger area or a smaller size_divisible"),
        ({"no_upscale": True}, 'works only with fit="cover"'),
        ({"random_crop": True}, 'works only with fit="cover"'),
        ({"fit": "cover", "random_crop": 1}, "expected True or False"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        Buckets(**options)  # type: ignore[arg-type]
