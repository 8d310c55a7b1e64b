"""select, only, take and fold: which samples of a dataset stay, under which numbers and labels."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES, smooth_noise

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions


def numbered(dataset: Path) -> fastpipe.Dataset:
    """With a column that says which sample of the whole each one is."""
    data = fastpipe.open(dataset)
    return data.with_column("number", np.arange(len(data)))


def numbers_of(data: fastpipe.Dataset) -> list[int]:
    found: list[int] = data["number"].tolist()
    return found


def in_epoch(data: fastpipe.Dataset, **options: Any) -> list[int]:
    """The numbers that a loader gives in an epoch."""
    options = {"size": 12, "num_workers": 1, "drop_last": False, **options}
    with fastpipe.loader(data, 4, fields=["image", "number", "valid"], **options) as loader:
        return [int(each) for batch in loader for each in batch["number"][batch["valid"]]]


def test_numbers_in_any_form(flat: Path) -> None:
    chosen, data = [30, 2, 11, 5, 7], numbered(flat)
    for form in (
        chosen,
        tuple(chosen),
        np.array(chosen),
        torch.tensor(chosen),
        np.array(chosen, dtype=np.uint16),
    ):
        some = data.select(form)
        assert len(some) == 5
        assert numbers_of(some) == chosen
    assert some["label"].tolist() == data["label"][chosen].tolist()
    assert some["key"].tolist() == data["key"][chosen].tolist()
    for at, number in enumerate(chosen):
        (mine, label), (theirs, expected) = some[at], data[number]
        assert torch.equal(mine, theirs)
        assert label == expected
    assert in_epoch(some, train=False) == chosen
    assert sorted(in_epoch(some)) == sorted(chosen)
    mask = np.isin(np.arange(FLAT_IMAGES), chosen)
    for form in (mask, torch.from_numpy(mask), mask.tolist()):
        assert numbers_of(data.select(form)) == sorted(chosen)


def test_keys_and_functions_of_columns(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fastpipe.dataset.column_values._AT_ONCE", 5
    )  # a function gets some samples at a time
    data = numbered(flat)
    keys = data["key"][[30, 2, 11]].tolist()
    assert numbers_of(data.select(keys)) == [30, 2, 11]
    assert numbers_of(data.select(keys[1])) == [2]
    calls: list[int] = []

    def narrow_cows(columns: Any) -> NDArray[np.bool_]:
        calls.append(len(columns["label"]))
        found: NDArray[np.bool_] = (columns["label"] == 2) & (columns["width"] < columns["height"])
        return found

    assert sorted(data.select(narrow_cows)["key"]) == [
        f"cow/{number:02d}.jpg" for number in range(2, 18, 3)
    ]
    assert calls == [5] * 7 + [2]
    ants = data.select((data["number"] % 2 == 0) & (data["label"] == 0))
    assert numbers_of(ants) == [
        number for number in range(0, FLAT_IMAGES, 2) if data["label"][number] == 0
    ]


def test_one_choice_after_the_other(flat: Path) -> None:
    """Numbers are places in what is left; the columns and labels that a user has given go along."""
    data = numbered(flat).with_labels(np.arange(FLAT_IMAGES) % 2, classes=["even", "odd"])
    some = data.select([5, 4, 3, 2, 1]).select([1, 0, 4]).with_column("score", [0.1, 0.2, 0.3])
    assert numbers_of(some) == [4, 5, 1]
    assert some["label"].tolist() == [0, 1, 1]
    odd = some.only(["odd"])
    assert numbers_of(odd) == [5, 1]
    assert odd["label"].tolist() == [0, 0]
    assert odd["score"].tolist() == [0.2, 0.3]
    assert odd.class_counts == [2]
    assert odd.classes == ["odd"]
    assert data.class_counts == [19, 18]


def test_classes_are_renumbered_or_kept(flat: Path) -> None:
    data = numbered(flat)
    labels = data["label"]
    for names in (["cow", "ant"], ["bee"]):
        old = [FLAT_CLASSES.index(name) for name in names]
        new, kept = data.only(names), data.only(names, keep_labels=True)
        assert new.classes == names
        assert kept.classes == list(FLAT_CLASSES)
        assert numbers_of(new) == numbers_of(kept) == np.flatnonzero(np.isin(labels, old)).tolist()
        assert [old[label] for label in new["label"]] == kept["label"].tolist()
        options: dict[str, Any] = {
            "size": 12,
            "num_workers": 1,
            "fields": ["image", "label", "number"],
        }
        with (
            fastpipe.loader(new, 4, **options) as one,
            fastpipe.loader(kept, 4, **options) as other,
        ):
            assert one.classes == names
            assert other.classes == list(FLAT_CLASSES)
            for mine, theirs in zip(one, other, strict=True):
                assert mine["number"].tolist() == theirs["number"].tolist()
                assert [old[label] for label in mine["label"].tolist()] == theirs["label"].tolist()
                assert labels[mine["number"].numpy()].tolist() == theirs["label"].tolist()


def test_a_fraction_is_fixed_and_nested(thousand: Path) -> None:
    data = numbered(thousand)
    tenth, third, most = (numbers_of(data.take(fraction)) for fraction in (0.1, 0.3, 0.9))
    assert 70 < len(tenth) < 130
    assert 240 < len(third) < 360
    assert set(tenth) < set(third) < set(most)
    assert numbers_of(data.take(0.3).take(0.1)) == tenth
    assert sorted(in_epoch(data.take(0.1))) == tenth
    assert numbers_of(data.take(1.0)) == list(range(1000))
    assert data.take(1.0).content.samples is None, "its numbers take no memory"


def test_folds_are_parts_that_never_leak(thousand: Path) -> None:
    hashes = PackedIndex(thousand).records["xxh3_64"]
    assert len(np.unique(hashes)) == 900
    data, parts = numbered(thousand), []
    for fold in range(5):
        train, val = map(numbers_of, data.fold(fold, of=5))
        assert sorted([*train, *val]) == list(range(1000))
        assert not set(hashes[train]) & set(hashes[val]), (
            "the same picture is in training and in evaluation"
        )
        assert 140 < len(val) < 260
        parts.append(val)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    train = data.fold(0, of=5)[0]
    few = numbers_of(train.take(0.3))
    assert set(few) < set(numbers_of(train))
    assert 180 < len(few) < 300, "take and fold are independent"


def test_a_part_is_divided_as_evenly_as_the_whole(thousand: Path) -> None:
    """Training, validation and test: a tenth is cut off, then a ninth of the rest; and folds in each fold."""
    rest, test = numbered(thousand).fold(0, of=10)
    train, val = rest.fold(0, of=9)
    assert sorted(each for part in (train, val, test) for each in numbers_of(part)) == list(
        range(1000)
    )
    assert all(60 < len(part) < 150 for part in (val, test))
    for outer in (rest, test, fastpipe.concat(rest, test)):
        sizes = [len(outer.fold(inner, of=10)[1]) / len(outer) for inner in range(10)]
        assert sum(sizes) == pytest.approx(1)
        assert max(sizes) < 0.25, "the parts of a part are those of the whole"


def test_folds_and_fractions_do_not_depend_on_the_order_of_packing(
    thousand: Path, tmp_path: Path
) -> None:
    source = thousand.parent / "source"
    pack(source, tmp_path / "other", PackOptions(workers=1, shuffle=False))
    one, other, unpacked = (fastpipe.open(data) for data in (thousand, tmp_path / "other", source))
    assert one["key"].tolist() != other["key"].tolist()
    choices: list[Callable[[fastpipe.Dataset], fastpipe.Dataset]] = [
        lambda data: data.fold(0, of=3)[0],
        lambda data: data.take(0.2),
    ]
    for choose in choices:
        chosen = set(choose(one)["key"])
        assert 100 < len(chosen) < 900
        assert set(choose(other)["key"]) == chosen
        assert set(choose(unpacked)["key"]) == chosen


def test_a_part_gives_the_rows_of_the_whole(textured: Path) -> None:
    """The same crops and flips in the same epoch: nothing of a sample depends on which others are chosen."""
    data, chosen = numbered(textured), [3, 17, 4, 20, 8]
    options: dict[str, Any] = {
        "size": 12,
        "num_workers": 1,
        "drop_last": False,
        "fields": ["image", "number"],
    }
    with (
        fastpipe.loader(data, 4, **options) as whole,
        fastpipe.loader(data.select(chosen), 4, **options) as part,
    ):
        for _ in range(2):
            rows, some = (
                {
                    int(number): image.numpy().tobytes()
                    for batch in loader
                    for number, image in zip(batch["number"], batch["image"], strict=True)
                }
                for loader in (whole, part)
            )
            assert some == {number: rows[number] for number in chosen}


WRONG_CHOICES: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda data: data.select([0, 37]),
        "select: expected numbers of samples from 0 to 36, .*; got 37",
    ),
    (lambda data: data.select([-1]), "got -1"),
    (
        lambda data: data.select([3, 1, 3]),
        r"expected each number once, got 3 again; .* pass sampler=fastpipe\.",
    ),
    (lambda data: data.select([]), "select: none of the 37 samples of .* is left; choose more"),
    (lambda data: data.select(5), "got 5"),
    (lambda data: data.select("photos"), "no sample with the source path 'photos'"),
    (lambda data: data.select([1.5]), "got float64"),
    (lambda data: data.select(["no.jpg"]), "no sample with the source path 'no.jpg'"),
    (lambda data: data.select([[1], [2, 3]]), "got list"),
    (lambda data: data.select(np.ones(36, dtype=bool)), "got a mask of 36"),
    (
        lambda data: data.select(np.zeros(37, dtype=bool)),
        "select: none of the 37 samples of .* is left",
    ),
    (
        lambda data: data.select(lambda columns: [1, 2]),
        "the function returned int64 of .* for 37 samples",
    ),
    (
        lambda data: data.select(lambda columns: columns["score"] > 1),
        "has the columns label, .*; got 'score'",
    ),
    (
        lambda data: data.only("cow"),
        r"only: expected a list of names of classes, for example \['ant', 'bee'\], got 'cow'; "
        r"write data\.only\(\['cow'\]\)$",
    ),
    (lambda data: data.only("cows"), r"got 'cows'; write data\.only\(\['cow'\]\)$"),
    (lambda data: data.only(0), r"got 0; write data\.only\(\['ant'\]\)$"),
    (
        lambda data: data.only([np.int64(1)]),
        r"got the number 1; write data\.only\(\['bee'\]\), or data\.only\(\[data\.classes\[1\]\]\)$",
    ),
    (lambda data: data.only([7]), "no class 7; it has 'ant', 'bee', 'cow'"),
    (lambda data: data.only([]), "only: expected a list of names"),
    (
        lambda data: data.select(np.isin(data["label"], ["cow"])),
        r"is left; choose more\. To choose classes by name: data\.only\(\['ant'\]\)$",
    ),
    (lambda data: data.only(["cows"]), "no class 'cows'; did you mean 'cow'"),
    (lambda data: data.only(["cow", "cow"]), "expected each name once, got 'cow' again"),
    (
        lambda data: data.only(["cow"], keep_labels="new"),
        "keep_labels: expected True or False, got 'new'",
    ),
    (lambda data: data.only([["cow"]]), r"no class \['cow'\]"),
    (lambda data: data.only(["cow"]).only(["ant"]), "no class 'ant'; it has 'cow'"),
    (
        lambda data: data.take(0),
        "take: expected a fraction above 0 and at most 1, such as 0.1, got 0",
    ),
    (lambda data: data.take(10), "got 10"),
    (lambda data: data.take(1e-9), "take: none of the 37 samples"),
    (lambda data: data.fold(5, of=5), "fold: expected 0 to 4, got 5"),
    (lambda data: data.fold(0, of=1), "fold: of: expected 2 to"),
    (
        lambda data: data.select(lambda c: c["width"] > 1 and c["height"] > 1),
        r"select: the function gets columns, .* Write & for and, \| for or, ~ for not, and brackets",
    ),
]


def test_wrong_choices(flat: Path) -> None:
    for choose, words in WRONG_CHOICES:
        with pytest.raises(ConfigError, match=words):
            choose(fastpipe.open(flat))


def test_a_class_that_is_not_there_is_told_those_that_are(tmp_path: Path) -> None:
    data = io.BytesIO()
    smooth_noise(20, 16, seed=0).save(data, "JPEG")
    for classes, words in (
        ([], "no class 'x': it has no classes$"),
        ([*map(str, range(1234))], "'4' and 1,229 more$"),
    ):
        with fastpipe.Writer(tmp_path / str(len(classes)), classes=classes) as writer:
            writer.add(data.getvalue(), label=None)
        with pytest.raises(ConfigError, match=words):
            fastpipe.open(tmp_path / str(len(classes))).only(["x"])
