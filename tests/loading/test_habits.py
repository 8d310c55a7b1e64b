"""Calls that run and do something else than their writer means: each is refused, or named in the log."""

from __future__ import annotations

import io
import json
import pickle
import shutil
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
from support.programs.habits import Call, evaluate, loader_of, write_grays

import fastpipe
from fastpipe import warnings_once
from fastpipe.dataset import other_order
from fastpipe.errors import ConfigError, PackError

pytestmark = pytest.mark.usefixtures("warned_anew")


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


def test_other_data_are_read_without_a_word(flat: Path, log: pytest.LogCaptureFixture) -> None:
    loader_of(flat, augment=fastpipe.Augment.randaugment()).close()
    loader_of(flat, train=False, augment=fastpipe.Augment.imagenet()).close()
    resize = kornia.augmentation.Resize((4, 4))
    loader_of(flat, train=False, augment=resize, crop=fastpipe.Resize()).close()
    assert log.text == ""


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
        pytest.raises(
            PackError, match=r"got normalised coordinates \(0 to 1\), 0.1, 0.2, 0.5, 1.0\. "
        ) as caught,
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
        ([np.zeros((9, 9, 3), np.uint8)], 'a list of images give the field the kind "images"'),
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


def test_labels_that_count_from_1(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    for name, first in (("right", 0), ("wrong", 1)):
        with fastpipe.Writer(tmp_path / name, classes=["a", "b", "c"]) as writer:
            for number in range(9):
                label = number % 3 + first
                writer.add(np.zeros((9, 9, 3), np.uint8), label=label, key=f"{number}")
        assert ("no sample has label 0, and some had 3" in log.text) == (first == 1)


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


@pytest.mark.parametrize("normalises", [False, True])
def test_a_module_that_divides_by_255_again(
    textured: Path, log: pytest.LogCaptureFixture, normalises: bool
) -> None:
    """Its pixels are nearly black, and a network trains on noise without an error."""
    options: dict[str, Any] = {} if normalises else {"mean": None, "std": None}

    def first_batch(*functions: Any) -> None:
        warnings_once.forget_all()
        modules = [Call(function) for function in functions]
        with loader_of(textured, augment=fastpipe.Augment(modules, **options)) as loader:
            next(iter(loader))

    def with_noise(images: torch.Tensor) -> torch.Tensor:
        return images / 255 + 0.01 * torch.randn_like(images)

    first_batch(torch.zeros_like)
    first_batch(lambda images: images * 0.05)
    first_batch(lambda images: images - images.mean())
    assert log.text == ""
    for functions in ([lambda images: images / 255], [with_noise], [with_noise, torch.clone]):
        log.clear()
        first_batch(*functions)
        assert log.text.count("if it divides by 255, leave that out") == 1


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
    words = (
        "load_state_dict: the state does not fit this loader: batch_size, times the number of ranks, "
        "was 4 and is now 2. On 1 rank open the loader with batch_size=4, or start without the state"
    )
    assert log.text.count(words) == (batch_size != 4)
    assert log.text.count("the next loop raises this error") == (batch_size != 4)


def test_a_function_of_a_sample_that_chooses(flat: Path) -> None:
    words = "the function gets the columns of many samples, and not a sample"
    with pytest.raises(ConfigError, match=words):
        fastpipe.open(flat).select(lambda sample: sample[1] == 2)


def test_the_order_of_other_loaders(flat: Path) -> None:
    with pytest.raises(ConfigError, match="has no argument order: pass shuffle=True, or False"):
        loader_of(flat, order="random")


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
