"""save_columns: what a user has added to a dataset is there again when it is opened, and belongs to that version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.growing import photos
from support.pictures.drawn import FLAT_IMAGES
from support.programs.cli_run import succeeded

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import ConfigError, DatasetError

Copy = Callable[[Path], Path]

NUMBERS = np.arange(FLAT_IMAGES)
TEACHER = np.random.default_rng(0).random((FLAT_IMAGES, 5), dtype=np.float32)
NOTES = [f"ü {number}" for number in NUMBERS]


def files(dataset: Path) -> list[str]:
    return sorted(file.name for file in (dataset / "columns").iterdir())


def test_columns_are_there_again(flat: Path, copied: Copy, tmp_path: Path) -> None:
    path = copied(flat)
    np.save(tmp_path / "scores.npy", NUMBERS / 4)
    data = fastpipe.open(path).with_column("teacher", TEACHER).with_column("note", NOTES)
    data.with_column("score", tmp_path / "scores.npy").save_columns(path)
    (tmp_path / "scores.npy").unlink()
    again = fastpipe.open(path)
    assert again.columns[-3:] == ("teacher", "note", "score")
    np.testing.assert_array_equal(again["teacher"], TEACHER)
    assert again["note"].tolist() == NOTES
    assert again["score"].tolist() == (NUMBERS / 4).tolist()
    assert again["label"].tolist() == fastpipe.open(flat)["label"].tolist()
    some = again.select(lambda columns: columns["score"] > 5).with_fields(["note", "teacher"])
    assert some[0]["note"] == NOTES[21]
    assert torch.equal(some[0]["teacher"], torch.from_numpy(TEACHER[21]))
    with fastpipe.loader(
        path, 8, size=16, num_workers=1, fields=["image", "score", "id"]
    ) as loader:
        assert all((batch["score"] == batch["id"] / 4).all() for batch in loader)


def test_labels_are_there_again(flat: Path, copied: Copy) -> None:
    path = copied(flat)
    labels = np.where(NUMBERS < 5, -1, NUMBERS % 2)
    given = (
        fastpipe.open(path)
        .with_labels(labels, classes=["even", "odd"])
        .with_column("score", NUMBERS)
    )
    given.save_columns(path)
    again = fastpipe.open(path)
    assert (again.classes, again.class_counts) == (["even", "odd"], given.class_counts)
    assert again["label"].tolist() == again.targets.tolist() == labels.tolist()
    assert again.only(["odd"])["score"].tolist() == [
        number for number in range(5, FLAT_IMAGES) if number % 2
    ]
    # A run that began before they were saved goes on.
    with (
        fastpipe.loader(given, 8, size=16, num_workers=1) as one,
        fastpipe.loader(path, 8, size=16) as other,
    ):
        batches = iter(one)
        next(batches)
        other.load_state_dict(one.state_dict())
        first, second = next(batches), next(iter(other))
        assert first.ids.tolist() == second.ids.tolist()
        assert first.labels.tolist() == second.labels.tolist()


def test_saving_again_adds_and_replaces(flat: Path, copied: Copy) -> None:
    path = copied(flat)
    fastpipe.open(path).with_column("one", NUMBERS).with_column("two", NUMBERS).save_columns(path)
    before = fastpipe.open(path)
    before.with_column("two", NUMBERS * 2).with_column("three", NUMBERS * 3).save_columns(path)
    again = fastpipe.open(path)
    assert [again[name][5] for name in ("one", "two", "three")] == [5, 10, 15]
    assert before["two"][5] == 5, "a dataset that is open stays as it is"


def test_they_belong_to_a_version(tmp_path: Path) -> None:
    """What was added later has no values of theirs."""
    fastpipe.pack(photos(tmp_path / "photos", 6), tmp_path / "data")
    old = fastpipe.open(tmp_path / "data")
    old.with_column("score", range(6)).with_labels([1] * 6).save_columns(tmp_path / "data")
    fastpipe.add(photos(tmp_path / "more", 3, first=6), tmp_path / "data")
    new = fastpipe.open(tmp_path / "data")
    assert (len(new), new.version) == (9, 2)
    assert "score" not in new.columns
    new.with_column("score", range(10, 19)).save_columns(tmp_path / "data")
    first, second = (fastpipe.open(tmp_path / "data", version=version) for version in (1, 2))
    assert first["score"].tolist() == list(range(6))
    assert first["label"].tolist() == [1] * 6
    assert second["score"].tolist() == list(range(10, 19))
    assert set(second["label"]) == {0, 1, 2}
    # An older version can get columns, too.
    first.with_column("other", range(6)).save_columns(tmp_path / "data")
    assert fastpipe.open(tmp_path / "data", version=1).columns[-2:] == ("score", "other")
    assert fastpipe.open(tmp_path / "data")["score"].tolist() == list(range(10, 19))


def test_a_copy_takes_them_and_commands_work_with_them(
    flat: Path, copied: Copy, tmp_path: Path
) -> None:
    path = copied(flat)
    fastpipe.open(flat).with_column("score", NUMBERS).save_columns(
        path
    )  # of the dataset that it is a copy of
    assert "score" not in fastpipe.open(flat).columns
    other = Path(shutil.copytree(path, tmp_path / "other"))
    shutil.rmtree(path)
    assert fastpipe.open(other)["score"].tolist() == NUMBERS.tolist()
    succeeded("verify", other)
    succeeded("inspect", other, "--no-sheet")
    fastpipe.pack(other, tmp_path / "packed")
    assert len(fastpipe.open(tmp_path / "packed")) == FLAT_IMAGES


def test_what_cannot_be_saved(flat: Path, many_shards: Path, copied: Copy, tmp_path: Path) -> None:
    path = copied(flat)
    data = fastpipe.open(path).with_column("score", NUMBERS)
    with pytest.raises(
        ConfigError, match="has no columns of with_column, and no labels of with_labels"
    ):
        fastpipe.open(path).save_columns(path)
    for some in (data.select([1, 2]), data.only(["cow"]), data + data):
        with pytest.raises(
            ConfigError,
            match=r"expected columns of all samples of one packed dataset, got <fastpipe",
        ):
            some.save_columns(path)
    with pytest.raises(
        ConfigError, match=f"{many_shards} holds another dataset: expected fingerprint"
    ):
        data.save_columns(many_shards)
    with pytest.raises(DatasetError, match="does not exist"):
        data.save_columns(tmp_path / "nothing")
    source = photos(tmp_path / "photos", 3)
    with pytest.raises(ConfigError, match="expected columns of all samples of one packed dataset"):
        fastpipe.open(source).with_column("score", [1, 2, 3]).save_columns(source)
    assert not (path / "columns").exists()


def the_list(path: Path) -> Path:
    (found,) = (path / "columns").glob("*.json")
    return found


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    entries = json.loads(the_list(path).read_text())
    change(entries)
    the_list(path).write_text(json.dumps(entries))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "gone": lambda path: next((path / "columns").glob("score-*.npy")).unlink(),
    "short": lambda path: np.save(next((path / "columns").glob("score-*.npy")), NUMBERS[:5]),
    "garbage": lambda path: next((path / "columns").glob("score-*.npy")).write_bytes(b"nothing"),
    "no JSON": lambda path: the_list(path).write_text("{"),
    "another JSON": lambda path: the_list(path).write_text("[1]"),
    "a number": lambda path: edit(path, lambda entries: entries["columns"].update(score=3)),
    "no classes": lambda path: edit(path, lambda entries: entries.pop("classes")),
    "classes that are none": lambda path: edit(path, lambda entries: entries.update(classes=3)),
    "few classes": lambda path: edit(path, lambda entries: entries.update(classes=["a"])),
    "another folder": lambda path: edit(
        path,
        lambda entries: entries["columns"]["score"].update(
            file="../../" + str(path.parent / "x.npy")
        ),
    ),
    "a bad name": lambda path: edit(
        path, lambda entries: entries["columns"].update(id=entries["columns"]["score"])
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(flat: Path, copied: Copy, damage: str) -> None:
    path = copied(flat)
    fastpipe.open(path).with_column("score", NUMBERS).with_labels(NUMBERS % 2).save_columns(path)
    np.save(path.parent / "x.npy", NUMBERS)
    DAMAGES[damage](path)
    with pytest.raises(
        DatasetError,
        match=r"lists columns that cannot be read .*save them again with save_columns, or",
    ):
        fastpipe.open(path)
    the_list(path).unlink()
    assert len(fastpipe.open(path)) == FLAT_IMAGES


def test_verify_finds_a_column_that_has_changed(flat: Path, copied: Copy) -> None:
    path = copied(flat)
    fastpipe.open(path).with_column("score", NUMBERS).save_columns(path)
    fastpipe.loader(path, 8, size=16, num_workers=1, verify=True).close()
    (file,) = (path / "columns").glob("score-*.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert len(fastpipe.open(path)) == FLAT_IMAGES
    with pytest.raises(
        DatasetError,
        match=r"the column 'score' has changed: expected XXH3-64 \w+, got \w+\. Save it",
    ):
        fastpipe.loader(path, 8, size=16, num_workers=1, verify=True)


def test_packing_anew_leaves_them_behind(tmp_path: Path) -> None:
    source = photos(tmp_path / "photos", 6)
    fastpipe.pack(source, tmp_path / "data")
    fastpipe.open(tmp_path / "data").with_column("score", range(6)).save_columns(tmp_path / "data")
    fastpipe.pack(source, tmp_path / "data", seed=8, overwrite=True)
    assert "score" not in fastpipe.open(tmp_path / "data").columns
    assert json.loads((tmp_path / "data" / DATASET_FILE).read_text())["samples"] == 6


def test_a_destination_that_is_no_folder(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(ConfigError, match=r"save_columns: expected the folder .* pass '.*flat"):
        data.save_columns(None)  # type: ignore[arg-type]


def test_packing_a_dataset_again_names_its_saved_columns(flat: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(flat, tmp_path / "copied")
    data = fastpipe.open(copied)
    labels = (np.array(data["label"]) + 1) % len(data.classes)
    data.with_labels(labels, classes=data.classes).save_columns(copied)
    again = tmp_path / "again"
    (assumption,) = fastpipe.pack(copied, again).assumed
    assert f"label: save_columns wrote it beside {copied}, which is not packed" in assumption.text
    old = fastpipe.open(copied)
    new = fastpipe.open(again)
    labels_by_key = dict(zip(old["key"], old["label"], strict=True))
    assert dict(zip(new["key"], new["label"], strict=True)) != labels_by_key
    new.with_labels(labels_by_key, classes=old.classes).save_columns(again)
    new = fastpipe.open(again)
    assert dict(zip(new["key"], new["label"], strict=True)) == labels_by_key
