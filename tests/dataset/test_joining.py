"""concat, + and mix: the samples of several datasets, with the labels and the fields that they have in common."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets.field_columns import add_fields
from support.datasets.field_scenes import SHAPES, write_scenes
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES
from torch.utils.data import ConcatDataset, TensorDataset

import fastpipe
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import ConfigError

SCENES = 8
OTHERS = ("triangle", "star", "square")  # what the other dataset calls its labels 0, 1 and 2


def named(dataset: Path, **names: list[str]) -> Path:
    """Gives fields names of their classes, as COCO has them."""
    info = json.loads((dataset / DATASET_FILE).read_text())
    for field, given in names.items():
        info["fields"][field]["names"] = given
    (dataset / DATASET_FILE).write_text(json.dumps(info))
    return dataset


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Scenes whose boxes have labels with names: not the same names, and in another order."""
    folder = tmp_path_factory.mktemp("two")
    first, second = (
        write_scenes(folder / name, SCENES, seed=seed)
        for name, seed in (("first", 1), ("second", 2))
    )
    return named(first, boxes=list(SHAPES)), named(second, boxes=list(OTHERS))


@pytest.fixture
def tagged(flat: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A field of classes, with other names in each."""
    tags = [[number % 3] for number in range(FLAT_IMAGES)]
    made = []
    for name, names in (("one", ("a", "b", "c")), ("other", ("c", "d", "a"))):
        path = Path(shutil.copytree(flat, tmp_path / name))
        made.append(add_fields(path, [(Field("tags", "classes", classes=3, names=names), tags)]))
    return made[0], made[1]


def box_labels(data: fastpipe.Dataset) -> list[list[int]]:
    return [sample["boxes_labels"].tolist() for sample in data.with_fields(["boxes"])]


@pytest.mark.parametrize(
    "join",
    [lambda one, two: fastpipe.concat(one, two), lambda one, two: fastpipe.mix({one: 1, two: 3})],
)
def test_labels_of_boxes_are_joined_by_name(
    two: tuple[Path, Path], join: Callable[..., fastpipe.Dataset]
) -> None:
    first, second = map(fastpipe.open, two)
    data = join(first, second)
    assert data.fields["boxes"].names == (*SHAPES, "star")
    mine = [[SHAPES[label] for label in labels] for labels in box_labels(first)]
    theirs = [[OTHERS[label] for label in labels] for labels in box_labels(second)]
    names = data.fields["boxes"].names
    assert [[names[label] for label in labels] for labels in box_labels(data)] == mine + theirs
    with fastpipe.loader(
        data, 4, size=32, num_workers=1, train=False, fields=["image", "boxes", "id"]
    ) as loader:
        for batch in loader:
            for number, labels in zip(batch["id"].tolist(), batch["boxes_labels"], strict=True):
                assert [names[label] for label in labels.tolist()] == (mine + theirs)[number][
                    : len(labels)
                ]
    chosen = [SCENES, 0, SCENES + 3]
    shares = (
        sorted(chosen) if data.content.mixed else chosen
    )  # a mixture has its samples share by share
    assert box_labels(data.select(chosen)) == [box_labels(data)[number] for number in shares]


def test_classes_of_a_field_are_joined_by_name(tagged: tuple[Path, Path]) -> None:
    data = fastpipe.concat(*tagged)
    names = data.fields["tags"].names
    assert names == ("a", "b", "c", "d")
    told = [[names[tag] for tag in tags] for tags in data["tags"]]
    assert told[:FLAT_IMAGES] == [["abc"[number % 3]] for number in range(FLAT_IMAGES)]
    assert told[FLAT_IMAGES:] == [["cda"[number % 3]] for number in range(FLAT_IMAGES)]
    hot = data.with_fields(["tags"])[FLAT_IMAGES + 1]["tags"]
    assert hot.tolist() == [0, 0, 0, 1]
    with fastpipe.loader(
        data, 8, size=16, num_workers=1, fields=["image", "tags", "id"], seed=1
    ) as loader:
        for batch in loader:
            assert batch["tags"].shape == (8, 4)
            for number, row in zip(batch["id"].tolist(), batch["tags"], strict=True):
                assert [names[tag] for tag in row.nonzero().ravel().tolist()] == told[number]


def test_fields_of_samples_are_those_of_their_own_dataset(two: tuple[Path, Path]) -> None:
    """Masks and texts, too, in whatever order the samples come."""
    parts = [
        fastpipe.open(path).with_fields(["image", "mask", "boxes", "caption", "label"])
        for path in two
    ]
    data = parts[0] + parts[1]
    order = np.random.default_rng(0).permutation(2 * SCENES).tolist()
    for sample, number in zip(data.__getitems__(order), order, strict=True):
        expected = parts[number // SCENES][number % SCENES]
        for name in ("image", "mask", "boxes"):
            assert torch.equal(torch.as_tensor(sample[name]), torch.as_tensor(expected[name]))
        assert sample["caption"] == expected["caption"]
        assert sample["label"] == expected["label"]
    assert data["caption"][order].tolist() == [
        [*parts[0]["caption"], *parts[1]["caption"]][at] for at in order
    ]


def test_masks_go_together_where_their_names_are_the_same(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = (Path(shutil.copytree(path, tmp_path / path.name)) for path in two)
    assert "mask" in fastpipe.concat(first, second).fields
    names = ["background", *SHAPES]
    named(first, mask=names)
    named(second, mask=names)
    assert fastpipe.concat(first, second).fields["mask"].names == tuple(names)
    named(second, mask=[*names[:2], "star", names[3]])
    data = fastpipe.concat(first, second)
    assert "mask" not in data.fields
    for take in (
        lambda: data.with_fields(["mask"]),
        lambda: fastpipe.loader(data, 4, fields=["image", "mask"]),
    ):
        with pytest.raises(
            ConfigError, match="got 'mask', but the classes of 'mask' have other names, or none, in"
        ):
            take()
    assert len(data.with_fields(["boxes", "caption"])[3]) == 3


def test_a_field_that_not_all_have_is_left_out_and_told(flat: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(flat, tmp_path / "first"))
    add_fields(first, [(Field("score", "floats", width=2), np.zeros((FLAT_IMAGES, 2)))])
    narrower = (Field("score", "floats", width=1), np.zeros((FLAT_IMAGES, 1)))
    texts = (Field("score", "text"), ["x"] * FLAT_IMAGES)
    for name, fields in (("none", []), ("another width", [narrower]), ("another kind", [texts])):
        second = add_fields(Path(shutil.copytree(flat, tmp_path / name)), fields)
        data = fastpipe.concat(first, second)
        assert "score" not in data.columns
        words = (
            "is not of one kind and shape in all" if fields else f"{second} has no field 'score'"
        )
        for take in (
            lambda data=data: data["score"],
            lambda data=data: data.with_fields(["score"]),
        ):
            with pytest.raises(ConfigError, match=f"got 'score', but .*{words}"):
                take()
        # The user may give it values.
        given = data.with_column("score", np.arange(2 * FLAT_IMAGES))
        assert given["score"][FLAT_IMAGES] == FLAT_IMAGES


def counted(flat: Path, classes: list[str], labels: NDArray[np.int64]) -> fastpipe.Dataset:
    return fastpipe.open(flat).with_labels(labels, classes=classes)


@pytest.mark.parametrize(
    ("mode", "classes", "second"),
    [
        ("union", [*FLAT_CLASSES, "dog"], [1, 3, -1]),
        ("offset", ["0/ant", "0/bee", "0/cow", "1/bee", "1/dog"], [3, 4, -1]),
        ("own", ["0", "1", "2"], [0, 1, -1]),
    ],
)
def test_labels_of_the_whole(flat: Path, mode: str, classes: list[str], second: list[int]) -> None:
    """Of stored labels, of those of with_labels, and of those that `only` made."""
    plain = fastpipe.open(flat)
    labels = np.arange(FLAT_IMAGES) % 3
    other = counted(flat, ["bee", "dog"], np.where(labels == 2, -1, labels))
    for part in (
        other,
        counted(flat, ["dog", "bee"], np.where(labels == 2, -1, 1 - labels)).only(["bee", "dog"]),
    ):
        data = fastpipe.concat(plain, part, labels=mode)
        assert data.classes == classes
        expected = [*plain["label"], *(second[label] for label in part["label"].tolist())]
        assert data["label"].tolist() == data.targets.tolist() == expected
        assert (
            data.class_counts == np.bincount(np.array(expected)[np.array(expected) >= 0]).tolist()
        )
        border = slice(FLAT_IMAGES - 2, FLAT_IMAGES + 2)
        assert [label for _, label in data[border]] == expected[border]
        with fastpipe.loader(data, 8, size=16, num_workers=1, train=False) as loader:
            assert torch.cat([batch.labels for batch in loader]).tolist() == expected
        assert data["source"].tolist() == [0] * FLAT_IMAGES + [1] * len(part)


def test_what_is_joined_can_be_joined(flat: Path, many_shards: Path, textured: Path) -> None:
    one, two, three = map(fastpipe.open, (flat, many_shards, textured))
    two = two.with_labels(np.zeros(len(two), int), classes=["dog"])
    flat_way = fastpipe.concat(one, two, three)
    for data in (
        one + two + three,
        fastpipe.concat(one, fastpipe.concat(two, three)),
        fastpipe.concat(flat, two, textured),
    ):
        for name in ("key", "label", "width", "source", "id"):
            assert data[name].tolist() == flat_way[name].tolist()
        assert data.classes == flat_way.classes
        assert torch.equal(data[50][0], flat_way[50][0])
    assert len(flat_way) == len(one) + len(two) + len(three)
    mixture = fastpipe.mix({fastpipe.mix({one: 1, two: 3}): 0.5, three: 0.5})
    assert "mixed 0.125 : 0.375 : 0.5" in repr(mixture)
    assert mixture["key"].tolist() == flat_way["key"].tolist()
    assert fastpipe.concat(mixture).content.mixed is False
    assert str(one.path) in repr(flat_way)


def test_columns_of_the_user(flat: Path, many_shards: Path) -> None:
    one, two = fastpipe.open(flat), fastpipe.open(many_shards)
    both = one.with_column("score", np.arange(len(one))) + two.with_column(
        "score", np.arange(len(two)) / 2
    )
    assert both["score"].tolist() == [*range(len(one)), *(np.arange(len(two)) / 2)]
    assert {both["score"][:3].dtype, both["score"][50:].dtype} == {np.dtype(np.float64)}, (
        "one dtype in all batches"
    )
    with pytest.raises(
        ConfigError,
        match=f"{many_shards} has no column 'score'; pass with_column\\('score', ...\\) to it",
    ):
        one.with_column("score", np.arange(len(one))) + two
    for wrong in (np.zeros((len(two), 2)), ["x"] * len(two)):
        with pytest.raises(
            ConfigError,
            match="column 'score' needs values of one kind and shape in all datasets, got",
        ):
            one.with_column("score", np.zeros(len(one))) + two.with_column("score", wrong)


def test_forms_of_single_samples(flat: Path, many_shards: Path) -> None:
    """Those of all datasets, if they are the same; never those of the first one without a word."""
    one, two = fastpipe.open(flat), fastpipe.open(many_shards)

    def shape(image: torch.Tensor) -> tuple[int, ...]:
        return tuple(image.shape)

    for first, second in (
        (one.with_transform(shape), two),
        (one, two.with_fields(["id"])),
        (one.with_pixels("gray"), two),
        (one.cropped(fastpipe.Resize()), two.cropped(fastpipe.CenterCrop())),
    ):
        with pytest.raises(
            ConfigError, match=r"other transforms, crops, pixels or fields .*call with_transform, "
        ):
            first + second
    both = one.with_transform(shape) + two.with_transform(shape)
    assert both[FLAT_IMAGES][0] == tuple(two[0][0].shape)
    assert (one + two).with_transform(shape)[0][0] == tuple(one[0][0].shape)


def test_beside_a_dataset_of_another_kind_it_is_torchs(flat: Path) -> None:
    joined = fastpipe.open(flat) + TensorDataset(torch.arange(5))
    assert isinstance(joined, ConcatDataset)
    assert len(joined) == FLAT_IMAGES + 5
    assert joined[FLAT_IMAGES + 4] == (torch.tensor(4),)


WRONG: list[tuple[Callable[[Path], Any], str]] = [
    (lambda flat: fastpipe.concat(), "concat: expected datasets, got none"),
    (lambda flat: fastpipe.concat(flat, labels="names"), "labels: expected"),
    (
        lambda flat: fastpipe.concat([flat, flat]),
        r"got a list of 2\. For all samples .*concat\(\*data\)",
    ),
    (lambda flat: fastpipe.mix({}), "mix: expected {dataset: weight}"),
    (lambda flat: fastpipe.mix([flat]), "mix: expected {dataset: weight}"),
    (
        lambda flat: fastpipe.mix({flat: 0}),
        "mix: the weight of .*: expected a number above 0, got 0",
    ),
    (
        lambda flat: fastpipe.mix({flat: "much"}),
        "mix: the weight of .*: expected a number above 0, got 'much'",
    ),
    (
        lambda flat: fastpipe.mix({flat: 1e300, fastpipe.open(flat): 1e300}),
        "weights with a sum below",
    ),
]


def test_wrong_arguments(flat: Path) -> None:
    for make, words in WRONG:
        with pytest.raises(ConfigError, match=words):
            make(flat)
