"""Calls that run and do something else than their writer means: each is refused, or named in the log."""

from __future__ import annotations

import io
import itertools
import json
import logging
import pickle
import re
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import kornia.augmentation
import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe import warnings_once
from fastpipe.dataset import other_order
from fastpipe.device import image_batch
from fastpipe.errors import ConfigError, PackError
from fastpipe.loading import classes as of_loading
from fastpipe.loading import (
    evaluated_on_training,
    optimizer_steps,
    programs,
    trained_again,
)


@pytest.fixture(autouse=True)
def warned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: each warning comes once."""
    warnings_once.forget_all()
    # It looks at all objects of the process.
    warnings_once.remember("begun")
    monkeypatch.setattr(programs, "_looked_at", [])
    monkeypatch.setattr(programs, "names_read", set())
    monkeypatch.setattr(image_batch, "names_read", programs.names_read)
    optimizer_steps.forget_looks()
    monkeypatch.setattr(trained_again, "_trained", {})
    monkeypatch.setattr(programs, "_first_epochs", Counter())
    monkeypatch.setattr(evaluated_on_training, "_rounds", evaluated_on_training._Rounds())
    monkeypatch.setattr(other_order, "_read", set())
    monkeypatch.setattr(other_order, "_evaluated", {})
    monkeypatch.setattr(of_loading, "_loaders", [])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "fastpipe")
    caplog.set_level(logging.WARNING, "fastpipe.pack")
    return caplog


def loader_of(data: Any, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 4, size=8, num_workers=1, **options)


def test_one_is_no_fraction(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(
        ConfigError, match=r"such as 0.1, got 1. For a number of samples write select"
    ):
        data.take(1)
    assert len(data.take(1.0)) == len(data)


def test_a_weight_for_each_class_is_no_weight_for_each_sample(flat: Path) -> None:
    sampler = torch.utils.data.WeightedRandomSampler([0.2, 0.8], FLAT_IMAGES)
    words = rf"a WeightedRandomSampler of {FLAT_IMAGES} weights, one for each sample; got 2"
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, sampler=sampler)


def test_a_list_of_weights_is_answered_by_the_form_of_mix(flat: Path) -> None:
    with pytest.raises(TypeError, match=r"fastpipe.mix\(\{'data/a': 0.7, 'data/b': 0.3\}\)"):
        fastpipe.mix([flat, flat], [0.7, 0.3])  # type: ignore[call-arg, arg-type]


def test_a_limit_of_the_cache_is_not_in_gigabytes() -> None:
    with pytest.raises(ConfigError, match=r"at least 1,000,000, or 0.*cache_limit='200GB'"):
        fastpipe.open("http://127.0.0.1:9/data", cache_limit=200)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["val", "test", "validation"])
def test_data_for_evaluation_that_are_read_as_for_training(
    flat: Path, tmp_path: Path, log: pytest.LogCaptureFixture, name: str
) -> None:
    data = shutil.copytree(flat, tmp_path / name)
    loader_of(data, train=False).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(data).close()
    assert log.text.count("is read as for training: random crops") == 1
    assert "fastpipe.loader(..., train=False)" in log.text


def test_data_for_evaluation_that_are_joined_with_others(
    flat: Path, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    val, test = (shutil.copytree(flat, tmp_path / name) for name in ("val", "test"))
    loader_of(fastpipe.concat(flat, val)).close()
    loader_of(fastpipe.mix({val: 0.5, flat: 0.5})).close()
    assert log.text == ""
    loader_of(fastpipe.concat(val, test)).close()
    assert "is read as for training: random crops" in log.text


def test_other_data_are_read_without_a_word(flat: Path, log: pytest.LogCaptureFixture) -> None:
    loader_of(flat, augment=fastpipe.Augment.randaugment()).close()
    loader_of(flat, train=False, augment=fastpipe.Augment.imagenet()).close()
    resize = kornia.augmentation.Resize((4, 4))
    loader_of(flat, train=False, augment=resize).close()
    assert log.text == ""


@pytest.mark.parametrize(
    "augment",
    [
        fastpipe.Augment.randaugment(),
        fastpipe.Augment.imagenet(mixup=0.2),
        fastpipe.Augment(erasing=0.25),
        kornia.augmentation.RandomHorizontalFlip(),
        [kornia.augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1)],
    ],
)
def test_an_evaluation_with_random_augmentation(
    flat: Path, log: pytest.LogCaptureFixture, augment: Any
) -> None:
    loader_of(flat, train=False, augment=augment).close()
    assert log.text.count("train=False, and augment= changes images at random") == 1


def test_an_evaluation_with_random_crops(flat: Path, log: pytest.LogCaptureFixture) -> None:
    views = [fastpipe.View(), fastpipe.View(hflip=1.0)]
    loader_of(flat, train=False, views=views, crop=fastpipe.RandomResizedCrop()).close()
    loader_of(flat, train=False, shuffle=True, crop=fastpipe.RandomResizedCrop()).close()
    loader_of(flat, train=False, hflip=1.0, augment=Call(torch.clone)).close()
    assert log.text == ""
    for _ in range(2):
        crop = fastpipe.RandomResizedCrop()
        loader_of(flat, train=False, hflip=True, crop=crop).close()
    words = "train=False, and crop= and hflip= change images at random"
    assert log.text.count(words) == 1
    assert "Leave crop= and hflip= out" in log.text


def test_an_evaluation_of_a_mixture(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """Its epoch ends with the first of the datasets."""
    data = fastpipe.open(flat)
    first, second = data.select(range(30)), data.select(range(30, FLAT_IMAGES))
    mixed = fastpipe.mix({first: 1, second: 1})
    loader_of(mixed, epoch_size="smallest").close()
    loader_of(mixed, train=False, epoch_size=20).close()
    loader_of(fastpipe.concat(first, second), train=False).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(mixed, train=False).close()
    words = f"an epoch has 12 rows by the weights, and .* has {FLAT_IMAGES} samples"
    assert len(re.findall(words, log.text)) == 1
    assert "fastpipe.concat(...) of the same datasets" in log.text


def test_an_evaluation_that_drops_the_last_samples(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    fastpipe.loader(flat, FLAT_IMAGES, size=8, train=False, drop_last=True, num_workers=1).close()
    loader_of(flat, train=False, shuffle=True, drop_last=True).close()
    assert log.text == ""
    loader_of(flat, train=False, drop_last=True).close()
    assert f"drop_last=True leaves out 1 of {FLAT_IMAGES} samples" in log.text


def test_an_area_that_looks_like_a_side(flat: Path, log: pytest.LogCaptureFixture) -> None:
    size = fastpipe.Buckets(area=224, size_divisible=1)
    fastpipe.loader(flat, 4, size=size, num_workers=1).close()
    assert "images get about 224 pixels, such as 14 x 14" in log.text
    assert "pass area=224 * 224" in log.text


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (fastpipe.Buckets(area=1024), "pass area=1024 * 1024"),
        (fastpipe.Buckets(area=1024, fit="cover", size_divisible=16), "pass area=1024 * 1024"),
        (fastpipe.Native(max_pixels=1024), "pass max_pixels=1024 * 1024"),
        (fastpipe.Native(max_pixels=1280), "such as 35 x 35. For images of about 1280 x 1280"),
    ],
)
def test_a_larger_area_that_looks_like_a_side(
    large: Path, flat: Path, log: pytest.LogCaptureFixture, size: Any, words: str
) -> None:
    """Small images may well get so few pixels."""
    fastpipe.loader(flat, 4, size=size, num_workers=1).close()
    assert log.text == ""
    for _ in range(2):
        fastpipe.loader(large, 2, size=size, num_workers=1).close()
    assert log.text.count(words) == 1


def test_classes_of_two_datasets_that_differ_in_letter_case(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    for name, classes in (("a", ["cat", "dog"]), ("b", ["Cat", "dog"])):
        with fastpipe.Writer(tmp_path / name, classes=classes) as writer:
            for number in range(4):
                pixels = np.full((9, 9, 3), number, np.uint8)
                writer.add(pixels, label=number % 2, key=f"{number}")
    first, second = tmp_path / "a", tmp_path / "b"
    fastpipe.concat(first, second, labels="offset")
    assert log.text == ""
    fastpipe.concat(first, second)
    fastpipe.mix({first: 1, second: 1})
    assert log.text.count("'cat', 'Cat' differ in letter case, spaces or separators alone") == 2


def test_a_dataset_json_that_was_edited(
    flat: Path, copied: Any, log: pytest.LogCaptureFixture
) -> None:
    data = copied(flat)
    file = data / "dataset.json"
    info = json.loads(file.read_bytes())
    fastpipe.open(data)
    assert log.text == ""
    info["classes"] = info["classes"][::-1]
    file.write_text(json.dumps(info, indent=1) + "\n")
    for _ in range(2):
        fastpipe.open(data)
    assert log.text.count("dataset.json has been changed since it was written") == 1


def test_a_shard_of_another_dataset(flat: Path, copied: Any, log: pytest.LogCaptureFixture) -> None:
    data = copied(flat)
    shutil.copy(data / "shard-000000.tar", data / "shard-000001.tar")
    fastpipe.open(data)
    assert "shard-000001.tar is no shard of this dataset, and is not read" in log.text
    assert "fastpipe add SRC" in log.text


def test_shards_of_earlier_versions_are_no_shards_of_another_dataset(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "source" / "cat"
    added = tmp_path / "added" / "cat"
    source.mkdir(parents=True)
    added.mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(source / "one.png")
    Image.new("RGB", (30, 30)).save(added / "two.png")
    data = tmp_path / "data"
    fastpipe.pack(source.parent, data)
    fastpipe.add(added.parent, data)
    fastpipe.remove(data, where="width == 30")
    fastpipe.add(added.parent, data)
    assert len(fastpipe.open(data).index.shards) == 2
    assert (data / "shard-000001.tar").exists()
    assert "is no shard of this dataset" not in log.text
    shutil.copy(data / "shard-000000.tar", data / "shard-000003.tar")
    fastpipe.open(data)
    assert "shard-000003.tar is no shard of this dataset" in log.text


def test_boxes_as_shares_of_the_sides(tmp_path: Path) -> None:
    writer = fastpipe.Writer(tmp_path / "data", {"boxes": "boxes"})
    pixels = np.zeros((20, 40, 3), np.uint8)
    with (
        pytest.raises(PackError, match=r"got shares of its sides, 0.1, 0.2, 0.5, 1.0\. ") as caught,
        writer,
    ):
        writer.add(pixels, key="one", boxes=[[0.1, 0.2, 0.5, 1.0]])
    message = str(caught.value)
    assert "For x0, y0, x1, y1 multiply x by the width" in message
    assert "write (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width" in message
    with fastpipe.Writer(tmp_path / "first", {"boxes": "boxes"}) as writer:
        writer.add(pixels, key="one", boxes=[[0, 0, 1, 1], [0, 0, 0, 0]])  # the first pixel
        writer.add(pixels, key="two", boxes=[[0.5, 0.5, 9.5, 9.5]])
    assert writer.summary.tally.rejected == []


def test_boxes_of_width_and_height(tmp_path: Path) -> None:
    writer = fastpipe.Writer(tmp_path / "data", {"boxes": "boxes"})
    words = "If these are x, y, width, height, write x, y, x . width, y . height"
    with pytest.raises(PackError, match=words), writer:
        writer.add(np.zeros((20, 40, 3), np.uint8), key="one", boxes=[[20, 10, 9, 9]])


@pytest.mark.parametrize("coordinates", [None, "shown", "stored"])
def test_boxes_of_images_that_exif_turns(
    tmp_path: Path, log: pytest.LogCaptureFixture, coordinates: str | None
) -> None:
    file = io.BytesIO()
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.new("RGB", (40, 20)).save(file, "JPEG", exif=tags)
    with fastpipe.Writer(tmp_path / "data", {"boxes": "boxes"}, coordinates=coordinates) as writer:
        writer.add(file.getvalue(), key="one", boxes=[[1, 2, 10, 10]])
    words = "boxes: EXIF turns 1 image, and their values are taken as those of the image as stored"
    assert (words in log.text) == (coordinates is None)
    assert ('coordinates="shown"' in log.text) == (coordinates is None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([np.zeros((9, 9, 3), np.uint8)], 'a list of pictures give the field the kind "images"'),
        (torch.rand(3, 9, 9), r"tensor.mul\(255\).byte\(\).permute\(1, 2, 0\).numpy\(\)"),
    ],
)
def test_values_that_are_no_image(tmp_path: Path, value: Any, words: str) -> None:
    writer = fastpipe.Writer(tmp_path / "data", {"second": "image"})
    with pytest.raises(PackError, match=words), writer:
        writer.add(np.zeros((9, 9, 3), np.uint8), key="one", second=value)


def test_a_dataset_of_another_user(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(fastpipe.DatasetError, match="cannot be read: permission denied"):
        fastpipe.open(flat)


def test_an_iterator_for_each_batch(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        for _ in range(3):
            next(iter(loader))
        list(loader)
        assert log.text == ""
        for _ in range(20):
            next(iter(loader))
    assert log.text.count("epochs in a row ended with their first batch") == 1
    assert "batches = iter(loader), and next(batches) in the loop" in log.text


def test_an_iterator_that_is_used_for_several_epochs(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """The second loop is over at once, and a program believes that it has trained an epoch."""
    loader = loader_of(flat)
    for _ in range(2):
        for _batch in loader:
            pass
    batches = iter(loader)
    assert len(list(batches)) == len(loader)
    assert log.text == ""
    for _ in range(2):
        assert not list(batches)
    assert log.text.count("a loop over iter(loader) gets no batch") == 1
    assert "For epoch 3 iterate over the loader itself" in log.text


def test_a_loader_that_is_cycled(flat: Path, log: pytest.LogCaptureFixture) -> None:
    """itertools.cycle gives the batches of the first epoch again."""
    for _ in loader_of(flat, train=False):
        pass
    loader = loader_of(flat)
    cycled = itertools.cycle(loader)
    first = [next(cycled).ids.tolist() for _ in range(len(loader))]
    assert log.text == ""
    assert next(cycled).ids.tolist() == first[0]
    assert "itertools.cycle(loader) keeps all batches" in log.text
    assert "while True: yield from loader" in log.text


def test_labels_that_count_from_1(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    for name, first in (("right", 0), ("wrong", 1)):
        with fastpipe.Writer(tmp_path / name, classes=["a", "b", "c"]) as writer:
            for number in range(9):
                label = number % 3 + first
                writer.add(np.zeros((9, 9, 3), np.uint8), label=label, key=f"{number}")
        assert ("no sample has label 0, and some had 3" in log.text) == (first == 1)


def test_some_samples_without_a_label(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """Their label is -1. On a GPU a loss of it ends the program, with an error of another line."""
    with fastpipe.Writer(tmp_path / "data", classes=["a", "b"]) as writer:
        for number in range(9):
            label = None if number == 4 else number % 2
            writer.add(np.zeros((9, 9, 3), np.uint8), label=label, key=f"{number}")
    data = fastpipe.open(tmp_path / "data")
    loader_of(data.select(lambda columns: columns["label"] >= 0)).close()
    loader_of(data, fields=["image"]).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(data).close()
    assert log.text.count("1 of 9 samples has no label, which is -1 in a batch") == 1
    assert "ignore_index=-1" in log.text


def test_an_evaluation_that_is_only_not_shuffled(flat: Path, log: pytest.LogCaptureFixture) -> None:
    loader_of(flat, train=False, shuffle=False).close()
    loader_of(flat, shuffle=False, crop=fastpipe.Resize()).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, shuffle=False).close()
    assert log.text.count("shuffle=False alone reads data as for training") == 1


def test_the_two_parts_of_a_fold(flat: Path) -> None:
    parts = fastpipe.open(flat).fold(0, of=5)
    with pytest.raises(ConfigError, match=r"train, val = data.fold\("):
        loader_of(parts)


@pytest.mark.parametrize("corrected", ["pixels", "fields", "classes"])
def test_a_writer_that_packed_nothing_begins_anew(tmp_path: Path, corrected: str) -> None:
    """Results of a run in which every sample was wrong are not taken over by the corrected program."""
    pixels = np.zeros((9, 9, 3), np.uint8)
    wrong: dict[str, Any] = {"image": pixels, "label": 0, "second": pixels}
    right = dict(wrong)
    options: dict[str, Any] = {"fields": {"second": "image"}}
    corrected_options = dict(options)
    if corrected == "pixels":
        wrong["image"] = pixels.astype(np.float32)
    elif corrected == "fields":
        options = {"fields": {"second": "boxes"}}
    else:
        wrong["label"] = right["label"] = "cat"
        corrected_options["classes"] = ["cat"]

    def write(sample: dict[str, Any], **options: Any) -> None:
        with fastpipe.Writer(tmp_path / "data", **options) as writer:
            for number in range(3):
                writer.add(key=f"{number}", **sample)

    with pytest.raises(PackError):
        write(wrong, **options)
    write(right, **corrected_options)
    assert len(fastpipe.open(tmp_path / "data")) == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("labels", r"a dataset does not change: data.with_labels\(labels\)"),
        ("targets", r"data.with_labels\(labels\)"),
        ("classes", r"data.with_classes\(classes\)"),
        ("score", r"data.with_column\('score', values\)"),
    ],
)
def test_attributes_of_a_dataset_are_not_set(flat: Path, name: str, words: str) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(AttributeError, match=words):
        setattr(data, name, [0] * FLAT_IMAGES)
    data._anything = 1  # type: ignore[attr-defined]  # as wrappers of other libraries do


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "shuffle",
            r"loader.shuffle = ... has no effect on a loader: pass shuffle= to fastpipe.loa",
        ),
        ("size", r"call loader.set_size\(size\)"),
        ("epoch", r"call loader.set_epoch\(epoch\)"),
        ("batch_size", r"pass batch_size= to fastpipe.loader"),
        ("num_workers", r"pass num_workers= to fastpipe.loader"),
        ("dataset", r"pass the dataset to fastpipe.loader"),
        ("sampler", r"loader.set_weights\(weights\) changes the weights"),
        ("collate_fn", r"has no collate_fn=; the loader collates images in C\+\+"),
        ("shufle", r"the arguments of fastpipe.loader\(...\); did you mean 'shuffle'"),
        ("augments", r"arguments of fastpipe.loader"),
    ],
)
def test_attributes_of_a_loader_are_not_set(flat: Path, name: str, words: str) -> None:
    with loader_of(flat) as loader:
        with pytest.raises(AttributeError, match=words):
            setattr(loader, name, 1)
        loader._is_wrapped = True  # type: ignore[attr-defined]  # as trainers do


def test_stratify_and_groups_as_scikit_learn_takes_them(flat: Path) -> None:
    data = fastpipe.open(flat)
    words = 'fold: stratify: expected "label" or None, got a column; write stratify="label"'
    with pytest.raises(ConfigError, match=words):
        data.fold(0, of=4, stratify=data["label"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='got Targets; write stratify="label"'):
        data.fold(0, of=4, stratify=data.targets)  # type: ignore[arg-type]
    by_name = data.fold(0, of=4, groups="width")[1]
    by_column = data.fold(0, of=4, groups=data["width"])[1]  # type: ignore[arg-type]
    assert list(by_name["key"]) == list(by_column["key"])


def test_values_that_are_indexed_by_keys_in_another_order(flat: Path) -> None:
    data = fastpipe.open(flat)
    keys = list(data["key"])
    scores = np.arange(FLAT_IMAGES) / FLAT_IMAGES
    words = "whose index has the keys in another order. Pass values.reindex"
    in_order = pandas.Series(scores, keys)
    in_another_order = pandas.Series(scores, sorted(keys, reverse=True))
    calls = {
        "with_column": lambda values: data.with_column("score", values),
        "with_labels": lambda values: data.with_labels(
            pandas.Series(values.values > 0.5, values.index), classes=["a", "b"]
        ),
        "fold: groups": lambda values: data.fold(
            0, of=4, groups=pandas.Series(values.values * 4 // 1, values.index)
        ),
        "select": lambda values: data.select(pandas.Series(values.values > 0.5, values.index)),
        "Weighted": lambda values: loader_of(data, sampler=fastpipe.Weighted(values)).close(),
    }
    for method, call in calls.items():
        with pytest.raises(ConfigError, match=f"{method}: expected values in the order .*{words}"):
            call(in_another_order)
    calls["with_column"](in_order)
    scores_of = data.with_column("score", in_another_order.reindex(list(data["key"])))["score"]
    assert dict(zip(keys, scores_of[:], strict=True)) == in_another_order.to_dict()
    calls["select"](in_order)
    calls["Weighted"](in_order)
    # The numbers of a table that was sorted, and names of something else.
    data.with_column("score", pandas.Series(scores, range(FLAT_IMAGES)[::-1]))
    data.with_column(
        "score", pandas.Series(scores, [f"row {number}" for number in range(FLAT_IMAGES)])
    )


def test_a_sampler_of_another_dataset(flat: Path) -> None:
    source = list(range(20))
    for sampler in (
        torch.utils.data.RandomSampler(source),
        torch.utils.data.SequentialSampler(source),
        torch.utils.data.DistributedSampler(source, 2, 0),  # type: ignore[arg-type, var-annotated]
    ):
        words = (
            f"expected a {type(sampler).__name__} of the loader's own dataset, which has "
            f"{FLAT_IMAGES} samples, got one of a list with 20"
        )
        with pytest.raises(ConfigError, match=words):
            loader_of(flat, sampler=sampler)
    data = fastpipe.open(flat)
    loader_of(flat, sampler=torch.utils.data.RandomSampler(data, num_samples=5)).close()
    loader_of(flat, sampler=torch.utils.data.RandomSampler(range(20))).close()
    loader_of(flat, sampler=torch.utils.data.SubsetRandomSampler(source)).close()


def test_the_remedy_for_weights_of_classes_works(flat: Path) -> None:
    sampler = torch.utils.data.WeightedRandomSampler([0.2, 0.8], FLAT_IMAGES)
    with pytest.raises(
        ConfigError, match=r"sampler=fastpipe.Weighted\(fastpipe.balanced\(data\)\)"
    ):
        loader_of(flat, sampler=sampler)
    data = fastpipe.open(flat)
    loader_of(data, sampler=fastpipe.Weighted(fastpipe.balanced(data))).close()


@pytest.mark.parametrize("kind", ["generator", "list_iterator", "map"])
def test_a_sampler_that_is_used_up(flat: Path, kind: str) -> None:
    samplers = {
        "generator": (number for number in range(8)),
        "list_iterator": iter([1, 2, 3]),
        "map": map(int, range(8)),
    }
    words = rf"got a {kind}, which is used up after one epoch; pass list\(...\) of it"
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, sampler=samplers[kind])


def test_mixed_images_without_their_shares(flat: Path, log: pytest.LogCaptureFixture) -> None:
    augment = fastpipe.Augment(mixup=0.2)
    for fields in (
        ("image", "label"),
        {"x": "image", "partner": "mix_index", "share": "mix_lam"},
    ):
        loader_of(flat, augment=augment, fields=fields).close()
    loader_of(flat, augment=augment).close()
    loader_of(flat, augment=fastpipe.Augment.imagenet(), fields=("image", "id")).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, augment=augment, fields=("image", "id")).close()
    assert log.text.count("augment= mixes the images of fields=, and no field says") == 1
    assert '"mix_index" and "mix_lam"' in log.text


class Call(torch.nn.Module):
    """A user's module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> Any:
        return self.function(images)


def test_modules_whose_results_are_far_from_0_to_1(
    textured: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings_once.forget_all()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def normalise(images: torch.Tensor) -> torch.Tensor:
        return kornia.enhance.normalize(images, mean, std)

    def first_batch(augment: Any) -> None:
        with loader_of(textured, augment=augment) as loader:
            next(iter(loader))

    k: Any = kornia.augmentation
    first_batch(fastpipe.Augment([Call(normalise)], mean=None, std=None))
    first_batch(Call(torch.clone))
    first_batch(k.ColorJiggle(0.4, 0.4, 0.4, 0.1, p=1.0))
    first_batch(k.RandomGaussianNoise(std=0.1, p=1.0))
    first_batch(Call(lambda images: images * 1.3))
    assert log.text == ""
    for _ in range(2):
        first_batch(Call(normalise))
    assert log.text.count("augment: Call returned images with mean") == 1
    assert "expected pixels in [0, 1]" in log.text
    first_batch(k.RandomGaussianNoise(std=25.0, p=1.0))
    assert "augment: RandomGaussianNoise returned images with mean" in log.text
    assert "divide them by 255" in log.text


def test_a_module_that_divides_by_255_again(
    textured: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pixels are nearly black, and a network trains on noise without an error."""
    warnings_once.forget_all()

    def first_batch(function: Any) -> None:
        with loader_of(textured, augment=Call(function)) as loader:
            next(iter(loader))

    first_batch(torch.zeros_like)
    first_batch(lambda images: images * 0.05)
    assert log.text == ""
    first_batch(lambda images: images / 255)
    assert "The module gets pixels in [0, 1]: if it divides by 255, leave that out" in log.text


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_mixing_of_torchvision(flat: Path, torchvision: ModuleType, name: str) -> None:
    from torchvision.transforms import v2

    mixer = getattr(v2, name)(alpha=0.3, num_classes=6)
    words = rf"torchvision's {name} mixes .*fastpipe.Augment\(modules, {name.lower()}=0.3\)"
    for module in (mixer, v2.RandomChoice([v2.Identity(), mixer])):
        with pytest.raises(ConfigError, match=words):
            loader_of(flat, augment=[module])


def test_the_path_of_a_checkpoint_in_place_of_a_state(flat: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"pass what the file has: torch.load\(path\)\['loader'\]"
    ):
        loader_of(flat).load_state_dict("checkpoint.pt")  # type: ignore[arg-type]


def test_a_checkpoint_in_place_of_the_state_in_it(flat: Path) -> None:
    with loader_of(flat) as loader:
        checkpoint = {"model": {}, "loader": loader.state_dict()}
        with pytest.raises(ConfigError, match=r"pass checkpoint\['loader'\]"):
            loader.load_state_dict(checkpoint)
        with pytest.raises(ConfigError, match=r"expected a dictionary from state_dict\(\), got"):
            loader.load_state_dict({"model": {}})


@pytest.mark.parametrize("batch_size", [4, 2])
def test_a_state_of_another_batch_size_is_named_when_it_is_loaded(
    flat: Path, log: pytest.LogCaptureFixture, batch_size: int
) -> None:
    with fastpipe.loader(flat, 4, size=16, num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with fastpipe.loader(flat, batch_size, size=16, num_workers=1) as loader:
        loader.load_state_dict(state)
        loader.load_state_dict(state)
    words = "the loop will refuse the state if it stays so (load_state_dict: the state belongs to"
    assert log.text.count(words) == (batch_size != 4)


def test_a_function_of_a_sample_that_chooses(flat: Path) -> None:
    words = "the function gets the columns of many samples, and not a sample"
    with pytest.raises(ConfigError, match=words):
        fastpipe.open(flat).select(lambda sample: sample[1] == 2)


def test_the_order_of_other_loaders(flat: Path) -> None:
    with pytest.raises(ConfigError, match="has no argument order: pass shuffle=True, or False"):
        loader_of(flat, order="random")


def test_iterators_that_give_batches_in_turn_are_named(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        list(zip(loader, loader, strict=False))
    assert (
        log.text.count("two iterators of one loader give batches in turn, of epochs 0 and 1") == 1
    )


def test_iterators_one_after_the_other_are_not_named(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    """Also where an epoch was left early and its iterator is kept, or a first batch is looked at."""
    with loader_of(flat) as loader:
        kept = iter(loader)
        next(kept)
        list(loader)
        for number, _ in enumerate(loader):
            if number == 1:
                next(iter(loader))
    assert "give batches in turn" not in log.text


def test_a_loop_in_a_loop_over_one_loader(flat: Path, log: pytest.LogCaptureFixture) -> None:
    words = (
        "the loop over epoch 0 goes on after a newer loop over the same loader has begun epoch 1"
    )
    with loader_of(flat) as loader:
        for step, _ in enumerate(loader):
            if step == 1:
                list(loader)
            if step == 2:
                assert loader.state_dict()["epoch"] == 2
    assert log.text.count(words) == 1
    assert "make another loader: fastpipe.loader(...)" in log.text


def test_a_loop_that_ends_after_a_newer_one(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        older = iter(loader)
        for _ in range(len(loader)):
            next(older)
        list(loader)
        assert "goes on after a newer loop" not in log.text
        assert next(older, None) is None
    assert log.text.count("goes on after a newer loop") == 1


def test_loops_that_are_not_one_in_another(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        next(iter(loader))
        loader.set_epoch(0)
        for _ in range(2):
            for step, _ in enumerate(loader):
                if step == 1:
                    break
        list(loader)
    with loader_of(flat, train=False) as loader:
        for _ in loader:
            list(loader)
    assert "goes on after a newer loop" not in log.text


def test_loaders_that_are_made_anew_for_each_epoch(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
            next(iter(loader))
    (message,) = [r.message for r in caplog.records if "Make the loader once" in r.message]
    assert "has made 8 loaders" in message
    caplog.clear()
    # Loaders that come to a second epoch, other seeds, and evaluation are as they should be.
    for seed in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1, seed=seed) as loader:
            next(iter(loader))
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1) as loader:
            for _ in range(2):
                list(loader)
    for _ in range(10):
        with fastpipe.loader(flat, 8, size=16, num_workers=1, train=False) as loader:
            list(loader)
    assert not [r.message for r in caplog.records if "Make the loader once" in r.message]


def test_parts_for_training_and_evaluation_that_share_samples(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = fastpipe.open(flat)
    options: dict[str, Any] = {"size": 16, "num_workers": 1}

    def notices(training: fastpipe.Dataset, evaluation: fastpipe.Dataset) -> list[str]:
        warnings_once.forget_all()
        caplog.clear()
        with (
            fastpipe.loader(training, 4, **options),
            fastpipe.loader(evaluation, 4, train=False, **options),
        ):
            return [r.message for r in caplog.records if "are also among those" in r.message]

    (message,) = notices(data.take(0.8), data.take(0.3))
    assert "To divide a dataset: train, val = data.fold(0, of=5)" in message
    train, _ = data.fold(0, of=5)
    _, val = data.fold(1, of=5)
    (message,) = notices(train, val)
    assert "Take both from one call of fold: train, val = data.fold(0, of=5)" in message
    assert "take" not in message
    assert notices(*data.fold(0, of=5)) == []
    assert notices(data, data.take(0.3)) == []
    assert notices(data.take(0.3), data.take(0.3)) == []


def test_images_for_evaluation_that_are_normalised_otherwise(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def notices(training: Any, evaluation: Any) -> list[str]:
        warnings_once.forget_all()
        caplog.clear()
        options: dict[str, Any] = {"size": 16, "num_workers": 1}
        with (
            fastpipe.loader(flat, 4, augment=training, **options),
            fastpipe.loader(flat, 4, train=False, augment=evaluation, **options),
        ):
            return [r.message for r in caplog.records if "other numbers than it" in r.message]

    imagenet = fastpipe.Augment.imagenet()
    (message,) = notices(fastpipe.Augment.simclr(), None)
    assert "are normalised with mean=(0.485, 0.456, 0.406)" in message
    assert "are not normalised" in message
    assert len(notices(imagenet, fastpipe.Augment(mean=0.5, std=0.5))) == 1
    assert notices(fastpipe.Augment.simclr(), imagenet) == []
    assert notices(None, None) == []


def test_data_that_are_read_for_training_without_gradients(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, val = fastpipe.open(flat).fold(0, of=5)
    options: dict[str, Any] = {"size": 16, "num_workers": 1}

    def notices_of_evaluation(**of_evaluation: Any) -> int:
        caplog.clear()
        with fastpipe.loader(val, 4, **options, **of_evaluation) as loader, torch.no_grad():
            list(loader)
        return sum("while gradients are off" in record.message for record in caplog.records)

    # A program that trains nothing computes features; what is said of a whole epoch is below.
    assert notices_of_evaluation() == 0
    with fastpipe.loader(train, 4, **options) as loader:
        list(loader)
    assert notices_of_evaluation(train=False) == 0
    assert notices_of_evaluation() == 1
    assert notices_of_evaluation() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "random crops, mirrored at random, by default"),
        ({"drop_last": False}, "random crops, mirrored at random, by default"),
        ({"crop": fastpipe.CenterCrop()}, "training: mirrored at random, by default"),
        ({"hflip": False}, "training: random crops, by default"),
        ({"train": False}, ""),
        ({"crop": fastpipe.RandomResizedCrop(), "hflip": 0.5}, ""),
        ({"views": 2}, ""),
    ],
)
def test_an_evaluation_in_a_program_that_trains_nothing(
    flat: Path, log: pytest.LogCaptureFixture, options: dict[str, Any], words: str
) -> None:
    with loader_of(flat, **options) as loader, torch.inference_mode():
        next(iter(loader))
        assert "gradients were off" not in log.text
        list(loader)
        list(loader)
    assert log.text.count("gradients were off in a whole epoch") == bool(words)
    assert words in log.text


def test_training_and_batch_norm_are_no_evaluation(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        for number, _ in enumerate(loader):
            with torch.no_grad():
                assert number >= 0
        with torch.no_grad():
            list(loader)
    model = torch.nn.BatchNorm2d(3)
    options = {"augment": fastpipe.Augment.imagenet()}
    with loader_of(flat, **options) as loader:
        torch.optim.swa_utils.update_bn(loader, model)
    assert "gradients were off" not in log.text


@pytest.mark.parametrize("first", [0, 1])
def test_labels_of_a_writer_that_count_from_1(
    first: int, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    image = Image.new("RGB", (8, 8))
    with fastpipe.Writer(tmp_path / "data") as writer:
        for number in range(6):
            writer.add(image, label=number % 3 + first, key=str(number))
    messages = [record.message for record in log.records if "count from 1" in record.message]
    assert len(messages) == first
    if first:
        assert "labels are 1 to 3 and none is 0, so the class '0' of 4" in messages[0]


@pytest.mark.parametrize(
    ("is_read_first", "column"), [(True, ""), (False, "label"), (False, "key")]
)
def test_results_of_buckets_are_in_another_order(
    textured: Path, log: pytest.LogCaptureFixture, is_read_first: bool, column: str
) -> None:
    def evaluate(**options: Any) -> list[Any]:
        with fastpipe.loader(textured, 4, num_workers=1, size="bucket", **options) as loader:
            return list(loader)

    def evaluate_with_names() -> None:
        evaluate()
        evaluate(train=False, fields=("image", "id"))
        evaluate(train=False, fields={"x": "image", "name": "key"})
        with fastpipe.loader(textured, 4, num_workers=1, size=16, train=False) as loader:
            list(loader)

    # A mean over all rows does not depend on their order.
    evaluate(train=False)
    assert log.text == ""
    if is_read_first:
        other_order._evaluated.clear()
        assert len(fastpipe.open(textured).targets)
        evaluate_with_names()
        assert log.text == ""
        evaluate(train=False)
    else:
        evaluate_with_names()
        assert len(fastpipe.open(textured)[column])
    evaluate(train=False)
    assert log.text.count("so its samples come in another order than in the dataset") == 1
    assert 'batch.ids; with fields= "id" or "key"' in log.text


def test_who_reads_the_ids_of_buckets_knows_their_order(
    textured: Path, log: pytest.LogCaptureFixture
) -> None:
    with fastpipe.loader(textured, 4, num_workers=1, size="bucket", train=False) as loader:
        ids = [number for batch in loader for number in batch.ids.tolist()]
    assert sorted(ids) == list(range(len(loader.dataset)))
    assert log.text == ""


def write_grays(folder: Path, names: list[str]) -> Path:
    """A dataset of one image of each name, in an order of its own."""
    with fastpipe.Writer(folder) as writer:
        for number, name in enumerate(names):
            writer.add(np.full((9, 9, 3), number, np.uint8), key=name)
    return folder


def test_two_datasets_whose_rows_are_read_as_pairs(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    names = [f"{number:03d}" for number in range(40)]
    photos = write_grays(tmp_path / "photos", [f"{name}.jpg" for name in names])
    backwards = [f"{name}.png" for name in reversed(names)]
    targets = write_grays(tmp_path / "targets", backwards[1:])
    with loader_of(photos) as first, loader_of(targets) as second:
        for _ in range(2):
            list(zip(first, second, strict=False))
    assert log.text.count("are read in turn, as zip does, and their rows do not belong") == 1
    assert 'fastpipe.Writer(DST, fields={"target": "image"})' in log.text


def test_two_datasets_that_a_program_draws_from(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """Labelled and unlabelled photos, two domains, pairs that do belong together, two streams."""
    names = [f"{number:03d}" for number in range(40)]
    photos = write_grays(tmp_path / "photos", names)
    same = write_grays(tmp_path / "same", [f"{name}.png" for name in names])
    fewer = write_grays(tmp_path / "fewer", names[::-2])
    others = write_grays(tmp_path / "others", [f"x{name}" for name in names])
    with (
        loader_of(photos, train=False) as first,
        loader_of(same, train=False) as second,
        loader_of(photos, train=False, shuffle=True) as third,
        loader_of(fewer, train=False) as fourth,
        loader_of(others, train=False) as fifth,
    ):
        for other in (second, third, fourth, fifth):
            list(zip(first, other, strict=False))
    assert log.text == ""


def test_a_state_that_is_loaded_in_a_running_loop(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        for number, _ in enumerate(loader):
            if number == 2:
                state = loader.state_dict()
                loader.load_state_dict(state)
        kept = iter(loader)
        next(kept)
        loader.load_state_dict(state)
        list(loader)
        assert log.text == ""
        for number, _ in enumerate(loader):
            if number in (4, 6):
                loader.load_state_dict(state)
    words = "this loop goes on at batch 5 of epoch 1, and the loaded position, batch 3 of epoch 0"
    assert log.text.count(words) == 1


def test_labels_are_changed_in_a_new_dataset(flat: Path) -> None:
    data = fastpipe.open(flat)
    words = r"labels = data.targets.copy\(\), .*data = data.with_labels\(labels\)"
    with pytest.raises(ValueError, match=words):
        data.targets[data.targets == 1] = 0
    labels = data.targets.copy()
    labels[labels == 1] = 0
    assert 1 not in data.with_labels(labels).targets
    assert repr(data.targets) == repr(np.asarray(data["label"]))
    assert type(data.targets == 1) is np.ndarray
    again = pickle.loads(pickle.dumps(data.targets))  # noqa: S301
    assert type(again) is np.ndarray
    assert again.tolist() == data.targets.tolist()
    assert torch.from_numpy(labels).tolist() == labels.tolist()


@pytest.mark.parametrize("part", [False, True])
def test_a_copy_that_lacks_shards(
    many_shards: Path, tmp_path: Path, log: pytest.LogCaptureFixture, part: bool
) -> None:
    data = shutil.copytree(many_shards, tmp_path / "data")
    *_, last = sorted(data.glob("*.tar"))
    last.unlink()
    dataset = fastpipe.open(data)
    if part:
        num_first = dataset.index.shards[0].samples
        loader_of(dataset.select(range(num_first)), drop_last=False).close()
        dataset = dataset.select(range(1, len(dataset)))
    assert log.text == ""
    words = f"1 of .* shards is missing: .*{last.name}. It may have been copied only in part"
    with pytest.raises(fastpipe.DatasetError, match=words):
        loader_of(dataset)
    loader_of(dataset, on_error="replace").close()
    assert "Their samples are replaced by others" in log.text


@pytest.mark.parametrize("use", ["loader", "replace", "sample", "key"])
def test_a_dataset_that_is_packed_again_while_it_is_read(tmp_path: Path, use: str) -> None:
    """The open shards have the old data; the others are gone, or are other ones."""
    rng = np.random.default_rng(3)
    source = tmp_path / "source"

    def pack(count: int) -> fastpipe.Dataset:
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for number in range(count):
            pixels = rng.integers(0, 256, (200, 200, 3), np.uint8)
            Image.fromarray(pixels).save(source / f"{number}.jpg", quality=95)
        fastpipe.pack(source, tmp_path / "data", shard_size=100_000, overwrite=True)
        return fastpipe.open(tmp_path / "data")

    data = pack(40)
    words = "now holds a different dataset: .* make the loader again. .*pack into another"
    if use == "sample":
        data[0]
        pack(20)
        with pytest.raises(fastpipe.DatasetError, match=words):
            list(data)
        return
    options: dict[str, Any] = {"prefetch_factor": 1}
    if use == "key":
        options["fields"] = ["image", "key"]
    elif use == "replace":
        options["on_error"] = "replace"
    with loader_of(data, **options) as loader:
        batches = iter(loader)
        next(batches)
        pack(20)
        with pytest.raises(fastpipe.DatasetError, match=words):
            list(batches)


def test_the_size_of_shards_is_in_bytes(flat: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got 256; a number is one of bytes; .* write 256MB"):
        fastpipe.pack(flat, tmp_path / "data", shard_size=256)


def test_classes_of_a_split_alone(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    for split, names in (("train", "abc"), ("val", "ac")):
        for name in names:
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (9, 9)).save(folder / "1.png")
    fastpipe.open(tmp_path / "val")
    train = str(tmp_path / "train")
    assert f"To settle it: fastpipe.open(..., classes_from={train!r})" in log.text
    assert fastpipe.open(tmp_path / "val", classes_from=train).classes == ["a", "b", "c"]


@pytest.mark.parametrize("packed", [False, True])
def test_images_of_12_bits_in_16(
    tmp_path: Path, log: pytest.LogCaptureFixture, packed: bool
) -> None:
    rng = np.random.default_rng(3)
    for name, most in (("dark", 4095), ("full", 65535)):
        source = tmp_path / name
        source.mkdir()
        for number in range(8):
            pixels = rng.integers(0, most + 1, (20, 20)).astype(np.uint16)
            Image.fromarray(pixels).save(source / f"{number}.png")
        if packed:
            fastpipe.pack(source, tmp_path / f"{name} packed")
    suffix = " packed" if packed else ""
    log.clear()
    loader_of(tmp_path / f"full{suffix}").close()
    loader_of(tmp_path / f"dark{suffix}", dtype=torch.uint16).close()
    loader_of(tmp_path / f"dark{suffix}", fields=["id"]).close()
    assert "bits a channel" not in log.text
    for _ in range(2):
        loader_of(tmp_path / f"dark{suffix}").close()
    assert log.text.count("images of 16 bits a channel, with values of up to 12 bits") == 1
    assert "pass dtype=torch.uint16" in log.text


def test_classes_that_are_numbers_are_joined_by_number(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    for name, count in (("two", 2), ("three", 3), ("other", 3)):
        with fastpipe.Writer(tmp_path / name) as writer:
            for number in range(6):
                pixels = np.full((9, 9, 3), number, np.uint8)
                writer.add(pixels, label=number % count, key=f"{name}{number}")
    two, three, other = (tmp_path / name for name in ("two", "three", "other"))
    fastpipe.concat(three, other)
    fastpipe.concat(two, three, labels="offset")
    named = fastpipe.open(two, classes_from=["cat", "dog"])
    fastpipe.concat(named, three)
    assert "joined by number" not in log.text
    fastpipe.concat(two, three)
    fastpipe.mix({two: 1, three: 1})
    assert log.text.count("are numbers, 2 and 3 of them, and are joined by number") == 2
    assert 'labels="offset"' in log.text


def class_folders(folder: Path, size: tuple[int, int] = (20, 20)) -> Path:
    """Three classes of 8 images, which lie class by class."""
    for number, name in enumerate(["ant", "bee", "cat"]):
        (folder / name).mkdir(parents=True)
        for image in range(8):
            Image.new("RGB", size, (number, image, 0)).save(folder / name / f"{image}.png")
    return folder


def test_parts_by_position_of_class_folders(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(class_folders(tmp_path / "data"))
    train, val = data.fold(0, of=4, stratify="label")
    with loader_of(train), loader_of(val, train=False):
        pass
    with loader_of(data), loader_of(data.only(["ant"]).with_classes(data.classes), train=False):
        pass
    assert "for training has no sample" not in log.text
    with loader_of(data.select(range(16))), loader_of(data.select(range(16, 24)), train=False):
        pass
    assert "for training has no sample of 1 class that the part for evaluation has: cat" in log.text
    assert "train, val = data.fold(0, of=5)" in log.text


def test_a_sorted_list_is_an_order(flat: Path, log: pytest.LogCaptureFixture) -> None:
    numbers = list(range(0, 30, 2))
    loader_of(flat, sampler=numbers[::-1]).close()
    loader_of(flat, sampler=torch.utils.data.SubsetRandomSampler(numbers)).close()
    loader_of(flat, sampler=numbers, train=False).close()
    loader_of(flat, sampler=numbers, shuffle=False, crop=fastpipe.CenterCrop()).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, sampler=numbers).close()
    assert log.text.count("sampler= is a sorted list of samples, and a list is also their") == 1
    assert "fastpipe.loader(data.select(numbers), ...)" in log.text


def test_a_size_of_width_and_height(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    wide = class_folders(tmp_path / "wide", (40, 20))
    for size in (16, (8, 16), (12, 10)):
        fastpipe.loader(wide, 4, size=size, num_workers=1).close()
    assert "is (height, width)" not in log.text
    for _ in range(2):
        fastpipe.loader(wide, 4, size=(16, 8), num_workers=1).close()
    assert log.text.count("size=(16, 8) is (height, width), and images of") == 1
    assert "pass size=(8, 16)" in log.text


def test_one_epoch_again_and_again(flat: Path, log: pytest.LogCaptureFixture) -> None:
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    with (
        loader_of(training_data) as loader,
        loader_of(validation_data, train=False) as evaluation,
    ):
        for epoch in range(6):
            loader.set_epoch(epoch // 2)
            evaluation.set_epoch(0)
            list(loader)
            list(evaluation)
        assert log.text == ""
        for _ in range(6):
            loader.set_epoch(1)
            list(loader)
    assert log.text.count("epoch 1 was gone through 3 times in a row") == 1


def test_many_rows_that_were_replaced(
    many_shards: Path, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(many_shards, tmp_path / "data")
    with loader_of(data, on_error="replace") as loader:
        loader.dataset.index.shards[1].path.unlink()
        for _ in range(2):
            list(loader)
    assert log.text.count('on_error="replace" has put other samples in the place of') == 1
    assert f"fastpipe verify {data} lists the damage" in log.text


def test_training_in_the_order_of_an_evaluation(flat: Path, log: pytest.LogCaptureFixture) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    training_data, validation_data = fastpipe.open(flat).fold(0, of=2)
    with (
        loader_of(training_data) as train,
        loader_of(validation_data, train=False) as val,
        loader_of(training_data, train=False, shuffle=True, seed=1) as shuffled,
    ):
        for _ in range(2):
            for loader in (train, shuffled):
                for _batch in loader:
                    step()
            for _batch in val:
                pass
        for _batch, _other in zip(val, shuffled, strict=False):
            step()
        with torch.no_grad():
            list(val)
        assert log.text == ""
        for _ in range(2):
            for _batch in val:
                step()
    assert log.text.count("is read in its order and without random crops, as with") == 1
    assert "SGD makes steps meanwhile" in log.text


@torch.no_grad()
def evaluate(loader: fastpipe.Loader) -> None:
    list(loader)


def test_evaluation_on_the_training_data(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as training, loader_of(flat, train=False) as evaluation:
        list(training)
        evaluate(evaluation)
        evaluate(evaluation)  # features of the training data, say
        assert log.text == ""
        for _ in range(3):
            list(training)
            evaluate(evaluation)
    words = f"the evaluation reads {len(evaluation.dataset)} samples of {flat} on which"
    assert log.text.count(words) == 1
    assert "fold(0, of=5)" in log.text


def test_evaluation_on_all_samples_of_which_some_are_trained_on(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    training_data, _ = fastpipe.open(flat).fold(0, of=4)
    with loader_of(training_data) as training, loader_of(flat, train=False) as evaluation:
        for _ in range(2):
            list(training)
            evaluate(evaluation)
    assert log.text.count("on which the program trains, too") == 1


def test_accuracy_of_the_training_data_beside_a_validation(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    training_data, validation_data = fastpipe.open(flat).fold(0, of=4)
    with (
        loader_of(training_data) as training,
        loader_of(training_data, train=False) as in_order,
        loader_of(validation_data, train=False) as validation,
    ):
        for _ in range(3):
            list(training)
            evaluate(in_order)
            evaluate(validation)
    assert log.text == ""


def train(loader: fastpipe.Loader, epochs: int = 1) -> None:
    for _ in range(epochs):
        for _ in loader:
            pass


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (1, "begins epoch 1, which the training before has read"),
        (2, ""),
        (3, "begins epoch 3, so epochs are left out"),
    ],
)
def test_a_loop_over_epochs_that_begins_elsewhere_than_a_state(
    flat: Path, log: pytest.LogCaptureFixture, first: int, words: str
) -> None:
    with loader_of(flat) as loader:
        train(loader, epochs=2)
        at_the_end = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(at_the_end)
        for epoch in range(first, first + 2):
            loader.set_epoch(epoch)
            train(loader)
    assert ("the loaded state is at the beginning of epoch 2" in log.text) == bool(words)
    assert words in log.text


def test_a_state_of_the_last_batch(flat: Path, log: pytest.LogCaptureFixture) -> None:
    with loader_of(flat) as loader:
        for _ in loader:
            at_the_last_batch = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(at_the_last_batch)
        assert len([*loader]) == 0
        assert len([*loader]) == len(loader)
    count = len(loader)
    words = f"at the end of epoch 0: its {count} batches were handed out, so this loop gets none"
    assert log.text.count(words) == 1
    assert "loader.set_epoch(1) after load_state_dict" in log.text


def test_the_parts_of_a_fold_are_swapped(flat: Path, log: pytest.LogCaptureFixture) -> None:
    rest, part = fastpipe.open(flat).fold(0, of=4)
    loaders = [loader_of(rest), loader_of(part, train=False)]
    assert log.text == ""
    loaders = [loader_of(part, drop_last=False), loader_of(rest, train=False)]
    words = f"training reads {len(part)} samples of {flat}, and evaluation the other {len(rest)}"
    assert log.text.count(words) == 1
    assert "train, val = data.fold(0, of=5)" in log.text
    del loaders


def test_small_images_at_the_default_size(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    photos = tmp_path / "photos"
    for number in range(12):
        file = photos / "abc"[number % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 30), (number * 9, 0, 0)).save(file)
    data = tmp_path / "data"
    fastpipe.pack(photos, data)
    fastpipe.loader(data, 4, size=224).close()
    assert log.text == ""
    with fastpipe.loader(data, 4) as loader:
        assert next(iter(loader))[0].shape == (4, 3, 224, 224)
    assert log.text.count("have at most 32 pixels a side, and rows are 224 x 224") == 1
    assert "Pass size=32 for their own size" in log.text


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["left", "right"], "a mirrored 'left' looks like 'right'"),
        (["TurnLeft", "straight", "TurnRight"], "a mirrored 'TurnLeft' looks like 'turnright'"),
        (["left", "up"], ""),
        (["bright", "dark"], ""),
    ],
)
def test_classes_that_are_mirror_images(
    tmp_path: Path, log: pytest.LogCaptureFixture, classes: list[str], words: str
) -> None:
    photos = tmp_path / "photos"
    for number, name in enumerate(classes * 4):
        (photos / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 40), (number * 9, 0, 0)).save(photos / name / f"{number}.png")
    data = tmp_path / "data"
    fastpipe.pack(photos, data)
    log.clear()
    loader_of(data, hflip=True).close()
    loader_of(data, hflip=False).close()
    loader_of(data, train=False).close()
    assert log.text == ""
    loader_of(data).close()
    assert words in log.text
    assert ("Pass hflip=False" in log.text) == bool(words)


class Training:
    """A parameter, and steps of an optimizer that has a state after the first one, with momentum."""

    def __init__(self, momentum: float = 0.9) -> None:
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=momentum)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.weight.square().sum().backward()
        self.optimizer.step()


@pytest.mark.parametrize(
    ("num_skipped", "is_named"), [(0, False), (1, False), (2, True), (3, False)]
)
def test_batches_that_a_state_has_left_out_are_skipped_again(
    flat: Path, log: pytest.LogCaptureFixture, num_skipped: int, is_named: bool
) -> None:
    training = Training()
    with loader_of(flat) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        for step, _batch in enumerate(loader):
            if step >= num_skipped:
                training.step()
    assert ("2 batches went by without a step of the optimizer" in log.text) == is_named


def test_gradients_that_are_accumulated_after_a_state(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    training = Training()
    with loader_of(flat) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        for step, _batch in enumerate(loader, 1):
            training.weight.square().sum().backward()
            if step % 2 == 0:
                training.optimizer.step()
                training.optimizer.zero_grad()
    assert log.text == ""


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("options", "has_new_optimizer", "is_named"),
    [({}, False, True), ({"seed": 1}, False, False), ({}, True, False)],
)
def test_a_second_loader_begins_with_the_first_epoch(
    flat: Path,
    log: pytest.LogCaptureFixture,
    options: dict[str, int],
    has_new_optimizer: bool,
    is_named: bool,
    momentum: float,
) -> None:
    training = Training(momentum)
    with loader_of(flat) as loader:
        for _ in range(2):
            for _batch in loader:
                training.step()
    if has_new_optimizer:
        training = Training(momentum)
    with loader_of(flat, **options) as second:
        for _batch in second:
            training.step()
    words = f"SGD has trained on {flat} before, with an earlier loader of seed=0"
    assert (words in log.text) == is_named


def pack_pictures(
    folder: Path, classes: list[str], shape: tuple[int, ...], seed: int = 0, **options: Any
) -> Path:
    """Packs noise of a shape: two pictures of each class. Returns the dataset's folder."""
    random = np.random.default_rng(seed)
    for number, name in enumerate(classes * 2):
        file = folder / "photos" / name / f"{seed}-{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, shape, dtype=np.uint8)).save(file)
    fastpipe.pack(folder / "photos", folder / "data", **options)
    return folder / "data"


@pytest.mark.parametrize(
    ("classes", "shape", "is_named"),
    [
        ([*"0123456789"], (20, 20), True),
        ([*"0123456789"], (20, 20, 3), False),
        ([*"ABCDEFGHIJKL"], (20, 20, 3), True),
        ([*"abc"], (20, 20), False),
    ],
)
def test_characters_are_mirrored(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    classes: list[str],
    shape: tuple[int, ...],
    is_named: bool,
) -> None:
    data = pack_pictures(tmp_path, classes, shape)
    log.clear()
    loader_of(data, hflip=False).close()
    assert log.text == ""
    loader_of(data).close()
    assert ("look like characters" in log.text) == is_named


def test_images_that_were_shrunk_below_the_size(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    data = pack_pictures(tmp_path, [*"abc"], (60, 50, 3), max_size=40)
    log.clear()
    fastpipe.loader(data, 4, size=40).close()
    assert log.text == ""
    fastpipe.loader(data, 4, size=(48, 30)).close()
    assert "was packed with max_size=40, so no side of an image is longer" in log.text


def test_photos_of_the_validation_are_also_in_the_training(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    classes = [*"abcdefgh"]
    training_data = pack_pictures(tmp_path / "train", classes, (20, 20, 3))
    other_data = pack_pictures(tmp_path / "other", classes, (20, 20, 3), seed=1)
    copied = tmp_path / "copied" / "photos"
    shutil.copytree(tmp_path / "other" / "photos", copied)
    for number in range(3):
        shutil.copy(
            tmp_path / f"train/photos/a/0-{number * 8 % 16}.png", copied / f"a/{number}.png"
        )
    fastpipe.pack(copied, tmp_path / "copied" / "data")
    log.clear()
    training = loader_of(training_data)
    other = loader_of(other_data, train=False)
    assert log.text == ""
    validation = loader_of(tmp_path / "copied" / "data", train=False)
    assert "3 of 19 images of" in log.text
    assert "are in the data for training" in log.text
    del training, other, validation


def test_a_size_that_only_one_of_two_loaders_has(flat: Path, log: pytest.LogCaptureFixture) -> None:
    training = loader_of(flat)
    validation = loader_of(flat, train=False)
    assert log.text == ""
    other = fastpipe.loader(flat, 4, size=224, train=False)
    words = "images for training are 8 x 8, and those for evaluation 224 x 224"
    assert log.text.count(words) == 1
    del training, validation, other


def test_an_evaluation_that_draws_by_weights(flat: Path, log: pytest.LogCaptureFixture) -> None:
    weights = np.arange(1.0, FLAT_IMAGES + 1)
    loader_of(flat, sampler=fastpipe.Weighted(weights)).close()
    loader_of(flat, train=False, shuffle=True, sampler=fastpipe.Weighted(weights)).close()
    loader_of(flat, train=False, sampler=[3, 2, 1]).close()
    assert log.text == ""
    loader_of(flat, train=False, sampler=fastpipe.Weighted(weights)).close()
    words = f"train=False with sampler=fastpipe.Weighted(...) draws {FLAT_IMAGES} times from"
    assert log.text.count(words) == 1
