"""A loader goes on exactly where its state says, anywhere, and refuses a state that is not its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from support.batches.same_batches import assert_same
from support.datasets.billion_samples import RECIPE
from support.pictures.drawn import FLAT_IMAGES
from support.programs.warm import run_script

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.epoch import EpochPlan

BATCH = 5
EPOCHS = 3
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def loader_of(dataset: Path | fastpipe.Dataset, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        dataset, BATCH, **{"size": 12, "num_workers": 2, "drop_last": False, **options}
    )


@pytest.fixture(scope="module")
def undisturbed(textured: Path) -> Batches:
    """All batches of three epochs, one after the other."""
    with loader_of(textured) as loader:
        return [batch for _ in range(EPOCHS) for batch in loader]


@pytest.fixture(scope="module")
def states(textured: Path, undisturbed: Batches) -> list[dict[str, Any]]:
    """A state before the first batch and after each of three epochs' batches."""
    with loader_of(textured) as loader:
        found = [loader.state_dict()]
        for _ in range(EPOCHS):
            for _ in loader:
                found.append(loader.state_dict())
    assert len(found) == len(undisturbed) + 1
    return found


@pytest.mark.parametrize(("workers", "ahead"), [(1, 1), (3, 4)])
def test_resumed_at_every_batch_the_rest_is_the_same(
    textured: Path, undisturbed: Batches, states: list[dict[str, Any]], workers: int, ahead: int
) -> None:
    per_epoch = len(undisturbed) // EPOCHS
    for done, state in enumerate(states):
        with loader_of(textured, num_workers=workers, prefetch_factor=ahead) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            rest: Batches = []
            while len(rest) < len(undisturbed) - done:
                rest.extend(loader)
        assert_same(rest, undisturbed[done:])
        assert state["epoch"] * per_epoch + state["batches"] == done


def test_a_new_process_goes_on(
    textured: Path, undisturbed: Batches, states: list[dict[str, Any]]
) -> None:
    code = """
        import hashlib, json, sys
        import fastpipe
        with fastpipe.loader(sys.argv[1], 5, size=12, drop_last=False, num_workers=1) as loader:
            loader.load_state_dict(json.loads(sys.argv[2]))
            for images, labels in loader:
                print(hashlib.sha256(images.contiguous().numpy().tobytes()).hexdigest(), labels.tolist())
    """
    run = run_script(code, textured, json.dumps(states[2]))
    assert run.returncode == 0, run.stderr
    expected = [
        f"{hashlib.sha256(images.contiguous().numpy().tobytes()).hexdigest()} {labels.tolist()}"
        for images, labels in undisturbed[2 : len(undisturbed) // EPOCHS]
    ]
    assert run.stdout.splitlines() == expected


def test_a_state_is_small_and_plain(flat: Path) -> None:
    with loader_of(flat) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert len(json.dumps(state)) < 500
    assert json.loads(json.dumps(state)) == state
    assert (state["version"], state["epoch"], state["batches"]) == (1, 0, 1)


def test_set_epoch_of_the_loaded_epoch_goes_on_within_it(flat: Path) -> None:
    with loader_of(flat) as loader:
        loader.set_epoch(4)
        whole = list(loader)
    with loader_of(flat) as loader:
        loader.set_epoch(4)
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(4)  # as a training loop does before each epoch
        assert loader.state_dict() == state
        assert_same(list(loader), whole[2:])
        loader.set_epoch(4)  # once more: anew
        assert_same(list(loader), whole)
        loader.load_state_dict(state)
        loader.set_epoch(7)
        assert loader.state_dict()["epoch"] == 7
        assert len(list(loader)) == len(whole)


def test_resuming_decodes_nothing_of_what_is_skipped(large: Path) -> None:
    with fastpipe.loader(large, 1, size=32, num_workers=1, prefetch_factor=1) as loader:
        list(loader)
        state = {**loader.state_dict(), "epoch": 0, "batches": 5}
    with fastpipe.loader(large, 1, size=32, num_workers=1, prefetch_factor=1) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 1
        assert loader.stats().images_decoded == 1


def test_resuming_at_the_end_plans_nothing_of_what_is_skipped() -> None:
    """Of a billion samples, which would take longer than a test may."""
    plan = EpochPlan(RECIPE, 0)
    number = len(plan) * 9 // 10
    assert len(plan.batch(number).samples) == RECIPE.batch_size
    assert not set(plan.batch(number).samples.tolist()) & set(
        plan.batch(number - 1).samples.tolist()
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 3}, "seed was 0 and is now 3"),
        ({"shuffle": False}, "shuffle was True and is now False"),
        ({"drop_last": True}, "drop_last was False and is now True"),
        (
            {"world_size": 2, "rank": 0},
            "batch_size, times the number of ranks, was 5 and is now 10",
        ),
        ({"partition": 5}, r"sequences was 1 and is now 5 \(partition=\)"),
        (
            {"sampler": fastpipe.Weighted({"ant": 2})},
            r"weights was None and is now '\w+' \(a hash of them: pass those of",
        ),
        ({"sampler": fastpipe.Repeated(2)}, "repeats was None and is now 2"),
        ({"sampler": fastpipe.Sequential()}, "shuffle was True and is now False"),
        (
            {"sampler": range(37)},
            r"numbers was None and is now .* \(a hash of the numbers that the sampler gave",
        ),
        ({"sampler": fastpipe.PerClass(samples=5)}, r"per_class was None and is now \[0, 5\]"),
    ],
)
def test_another_order_is_refused_with_both_values(
    flat: Path, options: dict[str, Any], says: str
) -> None:
    with loader_of(flat) as loader:
        state = loader.state_dict()
    with loader_of(flat, **options) as loader, pytest.raises(ConfigError, match=says):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (
            lambda data: data.take(0.5),
            r"it was saved with all samples of the dataset, and this loader reads a selection of \d+",
        ),
        (
            lambda data: data.fold(0, of=3)[0],
            r"it was saved with all samples .* this loader reads a selection of \d+ samples\. ",
        ),
        (
            lambda data: data.select([1, 2, 3, 5, 7]),
            r"it was saved with all samples .* this loader reads a selection of 5 samples\. ",
        ),
        (lambda data: data.only(["bee", "ant"]), r"classes was None and is now \['bee', 'ant'\]"),
        (
            lambda data: data.with_labels([0] * 37),
            r"with_labels was None and is now '\w+' \(a hash of the labels",
        ),
    ],
)
def test_other_samples_or_labels_are_refused_with_both_values(
    flat: Path, choose: Callable[[fastpipe.Dataset], fastpipe.Dataset], says: str
) -> None:
    with loader_of(flat) as loader:
        state = loader.state_dict()
    with loader_of(choose(fastpipe.open(flat))) as loader, pytest.raises(ConfigError, match=says):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 20},
        {"crop": fastpipe.Resize()},
        {"exact": True},
        {"num_workers": 1},
        {"channels": "gray", "dtype": torch.uint16},
    ],
)
def test_what_leaves_the_order_alone_may_change(flat: Path, options: dict[str, Any]) -> None:
    with loader_of(flat) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(flat, **options) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == len(loader) - 1


def test_another_dataset_is_refused_and_both_are_named(flat: Path, textured: Path) -> None:
    with loader_of(flat) as loader:
        state = loader.state_dict()
    words = f"saved with another dataset .*; this loader reads {textured} "
    with loader_of(textured) as loader, pytest.raises(ConfigError, match=words) as caught:
        loader.load_state_dict(state)
    assert state["dataset"] not in str(caught.value)


def test_another_selection_of_as_many_samples(flat: Path) -> None:
    data = fastpipe.open(flat)
    with loader_of(data.select(range(9))) as loader:
        state = loader.state_dict()
    words = "saved with a selection of 9 samples, and this loader reads other ones"
    with loader_of(data.select(range(9, 18))) as loader, pytest.raises(ConfigError, match=words):
        loader.load_state_dict(state)


def refused(state: dict[str, Any], data: Path | fastpipe.Dataset, **options: Any) -> str:
    with loader_of(data, **options) as loader, pytest.raises(ConfigError) as problem:
        loader.load_state_dict(json.loads(json.dumps(state)))
    return str(problem.value)


def test_another_dataset_is_told_from_another_version(
    flat: Path, textured: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "src" / "ant"
    folder.mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(folder / "1.jpg")
    fastpipe.pack(tmp_path / "src", tmp_path / "dst")
    with loader_of(tmp_path / "dst") as loader:
        state = loader.state_dict()
    Image.new("RGB", (16, 16), (255, 0, 0)).save(folder / "2.jpg")
    fastpipe.add(tmp_path / "src", tmp_path / "dst")
    grown = refused(state, tmp_path / "dst")
    assert (
        f"the state was saved with version 1 of {tmp_path / 'dst'}, and this loader reads version 2"
        in grown
    )
    assert "loader.set_epoch(0) begins epoch 0 from its start" in grown
    with loader_of(tmp_path / "dst") as loader:
        state = loader.state_dict()  # of version 2
    for other in (flat, textured):
        text = refused(state, other)
        assert (
            "the state was saved with another dataset (2 samples of 1 class: 'ant'); this loader "
            f"reads {other} (" in text
        )
        assert "version 2" not in text
    with loader_of(tmp_path / "src") as loader:
        state = loader.state_dict()
    Image.new("RGB", (16, 16), (0, 255, 0)).save(folder / "3.jpg")
    text = refused(state, tmp_path / "src")
    assert "2 samples of 1 class: 'ant' before, 3 samples of 1 class: 'ant' now" in text
    assert "the state was saved with 1 stored dataset, and this loader reads 2" in refused(
        state, fastpipe.open(flat) + fastpipe.open(flat)
    )


def test_classes_with_other_numbers_are_named(tmp_path: Path) -> None:
    def folder_of(name: str, classes: list[str]) -> Path:
        for number, class_name in enumerate(classes):
            (tmp_path / name / class_name).mkdir(parents=True)
            color = (number, 0, 0)
            Image.new("RGB", (16, 16), color).save(tmp_path / name / class_name / "1.jpg")
        return tmp_path / name

    old = ["bee", "cow", "dog"]
    with loader_of(folder_of("old", old)) as loader:
        loader.set_epoch(2)
        state = loader.state_dict()
    new = folder_of("new", ["ant", *old])
    text = refused(state, new)
    assert "3 samples of 3 classes: 'bee', 'cow', ... before" in text
    moved = "'bee' was 0 and is 1, 'cow' was 1 and is 2, 'dog' was 2 and is 3. So a model"
    assert f"Classes have other numbers now: {moved}" in text
    assert text.index("with classes_from=") < text.index("loader.set_epoch(2)")
    assert fastpipe.open(new, classes_from=[*old, "ant"]).classes == [*old, "ant"]
    # A new class behind the old ones, and the classes of something else.
    for name, classes in {"more": [*old, "elk"], "other": ["car", "dog", "van"]}.items():
        assert "other numbers" not in refused(state, folder_of(name, classes))


@pytest.mark.parametrize("is_joined", [False, True])
def test_classes_that_have_their_old_numbers_again_are_not_named(
    tmp_path: Path, is_joined: bool
) -> None:
    """Their numbers are those of the open dataset, and not those of its files."""

    def open_classes(number: int, classes: list[str]) -> fastpipe.Dataset:
        folder = tmp_path / str(number)
        for class_name in classes:
            (folder / class_name).mkdir(parents=True)
            Image.new("RGB", (16, 16), (number, 0, 0)).save(folder / class_name / "1.jpg")
        data = fastpipe.open(folder)
        if not is_joined:
            return data
        (tmp_path / f"{number}-more" / "dog").mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(tmp_path / f"{number}-more" / "dog" / "1.jpg")
        return data + fastpipe.open(tmp_path / f"{number}-more")

    def state_of(data: fastpipe.Dataset) -> dict[str, Any]:
        with loader_of(data) as loader:
            return loader.state_dict()

    old = ["bee", "cow", "dog"]
    first = open_classes(1, old)
    second = open_classes(2, ["ant", *old])
    assert "Classes have other numbers now" in refused(state_of(first), second)
    second_renumbered = second.with_classes([*old, "ant"])
    assert "other numbers" not in refused(state_of(first), second_renumbered)
    # The next state is saved with the numbers that were given.
    third = open_classes(3, ["aim", "ant", *old])
    text = refused(state_of(second_renumbered), third)
    assert "Classes have other numbers now: 'bee' was 0 and is 2" in text
    third_renumbered = third.with_classes([*old, "ant", "aim"])
    assert "other numbers" not in refused(state_of(second_renumbered), third_renumbered)


def test_of_joined_datasets_the_one_that_has_changed_is_named(flat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "ant"
    folder.mkdir(parents=True)

    def joined() -> fastpipe.Dataset:
        return fastpipe.open(flat) + fastpipe.open(tmp_path / "src")

    def state_then(width: int, file: str) -> str:
        with loader_of(joined()) as loader:
            state = loader.state_dict()
        Image.new("RGB", (width, 16)).save(folder / file)
        return refused(state, joined())

    Image.new("RGB", (16, 16)).save(folder / "1.jpg")
    text = state_then(16, "2.jpg")
    assert f"the files of {tmp_path / 'src'} have changed" in text
    assert "1 sample of 1 class: 'ant' before, 2 samples of 1 class: 'ant' now" in text
    # As many samples as before.
    assert f"the files of {tmp_path / 'src'} have changed" in state_then(24, "2.jpg")


def test_the_way_on_with_other_options_is_named(flat: Path) -> None:
    with loader_of(flat) as loader:
        loader.set_epoch(3)
        next(iter(loader))
        state = loader.state_dict()
    text = refused(state, fastpipe.open(flat), seed=1)
    assert (
        "loader.set_epoch(3) begins epoch 3 from its start, and loader.set_epoch(4) the next one"
        in text
    )
    with fastpipe.loader(flat, BATCH + 1, size=12, num_workers=1) as loader:
        with pytest.raises(
            ConfigError,
            match=r"batch_size, times the number of ranks, was 5 and is now 6.*loader.set_epoch\(3\)",
        ):
            loader.load_state_dict(state)
        loader.set_epoch(3)
        assert next(iter(loader)).epoch == 3


def test_a_state_of_an_earlier_fastpipe_is_loaded(flat: Path, textured: Path) -> None:
    with loader_of(flat) as loader:
        next(iter(loader))
        state = loader.state_dict()
        order = json.loads(state["order"])
        del order["stored"]
        state["order"] = json.dumps(order)
        loader.load_state_dict(state)
        assert len(list(loader)) == len(loader) - 1
    assert "Open the dataset of the state" in refused(state, textured)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 0}, "version 0, this fastpipe reads 1. Samples came in another order"),
        (
            {"version": 2},
            "version 2, this fastpipe reads 1. A newer .* pip install --upgrade fastpipe-loader",
        ),
        ({"batches": 9}, "batches: expected 0 to 8, got 9"),
        ({"batches": -1}, "batches: expected 0 to 8, got -1"),
        ({"epoch": "one"}, "epoch: expected a whole number"),
        ({"order": None}, r"expected a dictionary from state_dict\(\), got"),
        ({"order": "{"}, r"expected a dictionary from state_dict\(\), got"),
        ({"order": "{}"}, "seed was None and is now 0"),
        ({"size": [0, 8]}, r"images of size \[0, 8\], from set_size"),
    ],
)
def test_a_garbled_state_is_refused(flat: Path, change: dict[str, Any], says: str) -> None:
    with loader_of(flat) as loader:
        assert len(loader) == -(-FLAT_IMAGES // BATCH)
        with pytest.raises(ConfigError, match=says):
            loader.load_state_dict({**loader.state_dict(), **change})


def test_what_is_no_state_and_no_epoch_is_refused(flat: Path) -> None:
    with loader_of(flat) as loader:
        for state in (None, {}, {"epoch": 1}, {"version": 1}, "text", [1, 2]):
            with pytest.raises(
                ConfigError, match=r"expected a dictionary from state_dict\(\), got"
            ):
                loader.load_state_dict(state)  # type: ignore[arg-type]
        for epoch in (-1, 1.5, "x", None, True):
            with pytest.raises(ConfigError, match="epoch: expected"):
                loader.set_epoch(epoch)  # type: ignore[arg-type]
        assert len(list(loader)) == len(loader)  # untouched


def test_an_iterator_that_is_never_used_takes_no_epoch(flat: Path) -> None:
    with loader_of(flat) as loader:
        assert len(iter(loader)) == len(loader)
        iter(loader)
        batches = iter(loader)
        loader.set_epoch(3)  # as frameworks do, after they have made the iterator
        next(batches)
        assert (loader.state_dict()["epoch"], loader.stats().epoch) == (3, 3)
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batches": 6})
        assert [len(iter(loader)), len(iter(loader)), len(list(loader))] == [2, 2, 2]


def test_another_epoch_than_the_loaded_one_is_told(
    flat: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        batches = iter(loader)
        states = [loader.state_dict() for _ in batches]
    with loader_of(flat) as loader:
        for state, epoch in ((states[2], 0), (states[-1], 1), (states[0], 7)):
            loader.load_state_dict(state)
            loader.set_epoch(epoch)
    (record,) = caplog.records
    assert (
        "set_epoch(7) drops the position of load_state_dict, batch 1 of epoch 0"
        in record.getMessage()
    )
    assert "begin the loop over epochs at 0" in record.getMessage()
