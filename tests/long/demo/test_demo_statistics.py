"""150 demo photos have the sizes, bits and subsampling of ImageNet's, and no colour that tells the class."""

from __future__ import annotations

import numpy as np
import pytest

from fastpipe.demo.photos import CLASSES, make_photo
from fastpipe.demo.render import DemoPhoto

SAMPLE = 150


@pytest.fixture(scope="module")
def sample() -> list[DemoPhoto]:
    return [make_photo(0, index, index % len(CLASSES)) for index in range(SAMPLE)]


def test_sizes_like_imagenet(sample: list[DemoPhoto]) -> None:
    sizes = np.array([(photo.width, photo.height) for photo in sample])
    assert 0.17 < sizes.prod(axis=1).mean() / 1e6 < 0.24
    assert np.median(sizes, axis=0).tolist() == [500, 375]
    assert 0.55 < np.mean(sizes.max(axis=1) == 500) < 0.85
    assert 0.60 < np.mean(sizes[:, 0] >= sizes[:, 1]) < 0.85
    assert sizes.min() >= 100
    assert sizes.max() <= 2000
    assert sizes.max(axis=1).min() < 250
    assert sizes.max() > 640


def test_bits_per_pixel_like_imagenet(sample: list[DemoPhoto]) -> None:
    pixels = np.array([photo.width * photo.height for photo in sample])
    bits = 8.0 * np.array([len(photo.jpeg) for photo in sample])
    assert 3.7 < bits.sum() / pixels.sum() < 4.9
    low, middle, high = np.percentile(bits / pixels, (10, 50, 90))
    assert 0.9 < low < 2.2
    assert 3.6 < middle < 5.2
    assert 6.8 < high < 8.8


def test_subsampling_like_imagenet(sample: list[DemoPhoto]) -> None:
    from turbojpeg import TJSAMP_420, TJSAMP_444, TJSAMP_GRAY, TurboJPEG

    codec = TurboJPEG()
    found = np.array([codec.decode_header(photo.jpeg)[2] for photo in sample])
    assert 0.62 < np.mean(found == TJSAMP_444) < 0.86
    assert 0.12 < np.mean(found == TJSAMP_420) < 0.32
    assert 0.0 < np.mean(found == TJSAMP_GRAY) < 0.10


def test_mean_colour_does_not_tell_the_class(sample: list[DemoPhoto]) -> None:
    from turbojpeg import TurboJPEG

    codec = TurboJPEG()
    colours = np.array([codec.decode(photo.jpeg).reshape(-1, 3).mean(axis=0) for photo in sample])
    labels = np.arange(SAMPLE) % len(CLASSES)
    hits = 0
    for left_out in range(SAMPLE):
        known = np.arange(SAMPLE) != left_out
        means = np.array([colours[known & (labels == label)].mean(axis=0) for label in range(len(CLASSES))])
        hits += int(np.argmin(np.linalg.norm(means - colours[left_out], axis=1)) == labels[left_out])
    assert hits / SAMPLE <= 0.2
