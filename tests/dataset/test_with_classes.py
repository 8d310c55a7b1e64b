"""with_classes: labels by name, in the numbers of another dataset."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe.errors import ConfigError

NAMES = ["zebra", "cow", "bee", "ant"]


def test_labels_are_positions_of_the_names(flat: Path) -> None:
    data = fastpipe.open(flat)
    assert data.classes == ["ant", "bee", "cow"]
    other = data.with_classes(NAMES)
    assert other.classes == NAMES
    assert [NAMES[label] for label in other["label"]] == [
        data.classes[label] for label in data["label"]
    ]
    assert other.class_counts == [0, *reversed(data.class_counts)]
    assert other.targets.tolist() == other["label"][:].tolist()
    assert torch.equal(other[3][0], data[3][0])
    assert other[3][1] == NAMES.index(data.classes[data[3][1]])
    assert copy.deepcopy(other)["label"][:].tolist() == other["label"][:].tolist()
    assert other.with_classes(data.classes)["label"][:].tolist() == data["label"][:].tolist()
    assert data.with_classes(data.classes) is data
    batches = [batch[1] for batch in fastpipe.loader(other, 5, train=False, size=12, num_workers=1)]
    assert torch.cat(batches)[: len(data)].tolist() == other["label"][:].tolist()


def test_after_other_changes(flat: Path) -> None:
    data = fastpipe.open(flat)
    names = np.array(data.classes)[data["label"]]
    for other in (
        data.only(["cow", "ant"]).with_classes(NAMES),
        data.select(names != "bee").with_classes(["ant", "cow", "dog"]),  # bee has no samples there
        (data + data).with_classes(NAMES),
        data.with_labels(names.tolist()).with_classes(NAMES),
    ):
        numbers = dict(zip(data["key"], names, strict=True))
        assert [other.classes[label] for label in other["label"]] == [
            numbers[key] for key in other["key"]
        ]


def test_states_belong_to_the_classes(flat: Path) -> None:
    data = fastpipe.open(flat).with_classes(NAMES)

    def loader(of: fastpipe.Dataset) -> fastpipe.Loader:
        return fastpipe.loader(of, 5, size=12, num_workers=1)

    with loader(data) as first:
        next(iter(first))
        state = json.loads(json.dumps(first.state_dict()))
    with loader(fastpipe.open(flat, classes_from=NAMES)) as again:
        again.load_state_dict(state)
        assert len(list(again)) == len(again) - 1
    with loader(fastpipe.open(flat)) as other, pytest.raises(ConfigError, match="classes was"):
        other.load_state_dict(state)


def test_they_are_saved_beside_the_dataset(flat: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    fastpipe.pack(flat, ours)
    fastpipe.open(ours).with_classes(NAMES).save_columns(ours)
    data = fastpipe.open(ours)
    assert data.classes == NAMES
    assert [NAMES[label] for label in data["label"]] == [key.split("/")[0] for key in data["key"]]
    fastpipe.pack(flat, tmp_path / "val", classes_from=ours)  # as fastpipe.open has them
    assert fastpipe.open(tmp_path / "val").classes == NAMES


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ["ant", "cow"],
            r"12 samples of .* are of the class 'bee'.*not among the 2 names.*data.only",
        ),
        (
            ["ant", "bee", "cwo"],
            r"class 'cow', which is not among the 3 names\. The list has 'cwo', which .* does not "
            r"have; did you mean 'cow'\?$",
        ),
        ("ant", "expected a list of the names"),
        (["ant", "ant"], "each name once"),
        ([1, 2, 3], "expected names of classes, got 1"),
        ([], "expected 1 to"),
    ],
)
def test_names_that_do_not_do_are_refused(flat: Path, names: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        fastpipe.open(flat).with_classes(names)
