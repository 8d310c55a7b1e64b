"""fold: parts with all classes, and groups that stay together."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.errors import ConfigError

OF = 4


def parts(data: fastpipe.Dataset, of: int = OF, **how: Any) -> list[set[str]]:
    """The keys of each part; the rest is all but these."""
    found = []
    for number in range(of):
        rest, part = data.fold(number, of=of, **how)
        found.append(set(part["key"]))
        assert set(rest["key"]) == set(data["key"]) - found[-1]
    assert sum(map(len, found)) == len(data)
    return found


@pytest.fixture
def data(flat: Path) -> fastpipe.Dataset:
    """With one class of 4 samples, one of 5 and the others."""
    everything = fastpipe.open(flat)
    labels = np.full(FLAT_IMAGES, 2)
    labels[:4] = 0
    labels[4:9] = 1
    return everything.with_labels(labels, classes=["few", "some", "many"])


def test_each_part_has_its_share_of_each_class(data: fastpipe.Dataset) -> None:
    sizes = []
    for number in range(OF):
        rest, part = data.fold(number, of=OF, stratify="label")
        few, some, many = part.class_counts
        assert few == 1
        assert some in (1, 2)
        assert many in ((FLAT_IMAGES - 9) // OF, -(-(FLAT_IMAGES - 9) // OF))
        assert [
            sum(pair) for pair in zip(part.class_counts, rest.class_counts, strict=True)
        ] == data.class_counts
        sizes.append(len(part))
    assert max(sizes) - min(sizes) <= 1
    assert parts(data, stratify="label") == parts(data, stratify="label")
    shuffled = data.select(np.random.default_rng(0).permutation(FLAT_IMAGES))
    assert parts(shuffled, stratify="label") == parts(data, stratify="label")


def test_without_it_the_hash_decides_as_ever(flat: Path) -> None:
    data = fastpipe.open(flat)
    smaller = data.select(np.arange(0, FLAT_IMAGES, 2))
    for whole, part in zip(parts(data), parts(smaller), strict=True):
        assert part == whole & set(smaller["key"])


@pytest.mark.parametrize("stratify", [None, "label"])
def test_no_group_is_in_two_parts(data: fastpipe.Dataset, stratify: str | None) -> None:
    patients = np.arange(FLAT_IMAGES) % 12
    found = parts(data, groups=patients, stratify=stratify)
    owners = dict(zip(data["key"], patients.tolist(), strict=True))
    per_part = [{owners[key] for key in part} for part in found]
    assert sum(map(len, per_part)) == 12
    texts = data.with_column("patient", [f"p{number}" for number in patients])
    assert parts(texts, groups="patient", stratify=stratify) == parts(
        data, groups=[f"p{number}" for number in patients], stratify=stratify
    )
    if stratify is None:  # a group keeps its part when others go
        some = data.select(patients < 8)
        found = parts(data, 2, groups=patients)
        for whole, part in zip(found, parts(some, 2, groups=patients[patients < 8]), strict=True):
            assert part == {key for key in whole if owners[key] < 8}


def test_groups_share_classes_and_sizes(data: fastpipe.Dataset) -> None:
    groups = np.arange(FLAT_IMAGES)
    groups[9:21] = 100  # a large one
    for number in range(OF):
        _, part = data.fold(number, of=OF, stratify="label", groups=groups)
        few, some, _ = part.class_counts
        assert few == 1
        assert some in (1, 2)
        assert len(part) <= 12 + 1 + 1


@pytest.mark.parametrize("stratify", [None, "label"])
def test_a_picture_that_two_groups_have_joins_them(flat: Path, stratify: str | None) -> None:
    one = fastpipe.open(flat)
    data = one + one.select([0])  # the last one is the first again
    groups = [*(f"g{number // 4}" for number in range(FLAT_IMAGES)), "g5"]
    together = {0, 1, 2, 3, 20, 21, 22, 23, FLAT_IMAGES}
    numbered = data.with_column("number", np.arange(len(data)))
    for number in range(OF):
        _, part = numbered.fold(number, of=OF, stratify=stratify, groups=groups)
        assert len(together & set(part["number"].tolist())) in (0, len(together))
        _, part = numbered.fold(number, of=OF, stratify=stratify)
        assert len({0, FLAT_IMAGES} & set(part["number"].tolist())) in (0, 2)


def test_folds_of_a_fold_are_others(data: fastpipe.Dataset) -> None:
    rest, _ = data.fold(0, of=2, stratify="label")
    inner = parts(rest, 2, stratify="label")
    assert all(inner)
    assert inner != [part & set(rest["key"]) for part in parts(data, 2, stratify="label")]


def test_missing_classes_are_told(data: fastpipe.Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        data.fold(0, of=OF, stratify="label")
    assert not caplog.records
    only_one = np.full(FLAT_IMAGES, 1)
    only_one[3] = 0
    small = data.with_labels(only_one, classes=["rare", "usual", "never"])
    for stratify in (None, "label"):
        caplog.clear()
        for number in range(OF):
            small.fold(number, of=OF, stratify=stratify)
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == OF
        rest = "the rest has no sample of 1 class: 'rare' (1 sample)"
        part = "the part has no sample of 1 class: 'rare' (1 sample)"
        assert sum(rest in text for text in texts) == 1
        assert sum(part in text for text in texts) == OF - 1
        assert all(text.endswith("a class with one sample cannot be in both") for text in texts)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, 'fold(..., stratify="label") divides each class that has several samples'),
        (
            {"groups": np.arange(FLAT_IMAGES)},
            'fold(..., stratify="label", groups=...) divides the classes, and keeps each group in '
            "one part",
        ),
        ({"stratify": "label"}, "they have fewer samples or groups than there are parts"),
    ],
)
def test_what_helps_against_missing_classes(
    data: fastpipe.Dataset,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    remedy: str,
) -> None:
    two = np.full(FLAT_IMAGES, 1)
    two[3:5] = 0
    small = data.with_labels(two, classes=["rare", "usual"])
    for number in range(OF):
        small.fold(number, of=OF, **options)
    assert len(caplog.records) >= OF - 2
    for record in caplog.records:
        assert "'rare' (2 samples)" in record.getMessage()
        assert record.getMessage().endswith(remedy)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"stratify": "labels"}, "stratify"),
        ({"groups": "patient"}, "has the columns"),
        ({"groups": [1, 2, 3]}, "for each of"),
        ({"groups": np.zeros(FLAT_IMAGES)}, "sample 0 has 0.0"),
        ({"groups": [None] * FLAT_IMAGES}, "sample 0 has None"),
        ({"groups": np.zeros(FLAT_IMAGES, dtype=int)}, 'has no sample.*or pass stratify="label"'),
        ({"groups": np.zeros(FLAT_IMAGES, dtype=int), "stratify": "label"}, "has no sample"),
    ],
)
def test_wrong_arguments(flat: Path, how: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parts(fastpipe.open(flat), **how)
