"""samples=, classes=, limit=, kfold=, weights=, repeats=, epoch_size=: what an epoch holds, on any number of ranks."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FLAT_CLASSES, FLAT_IMAGES, smooth_noise
from distributions import assert_distribution
from numpy.typing import NDArray

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

Row = tuple[int, bytes]  # id, pixels


def loader_of(dataset: Path | str, batch_size: int = 4, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(dataset, batch_size, **{"size": 12, "num_workers": 1, "drop_last": False, **options})


def rows_of(batch: Any) -> list[Row]:
    """Those that count, in all views."""
    views = batch.images if isinstance(batch.images, list) else [batch.images]
    pixels = [b"".join(image.contiguous().numpy().tobytes() for image in row) for row in zip(*views, strict=True)]
    return [
        row
        for row, good in zip(zip(batch.ids.tolist(), pixels, strict=True), batch.valid.tolist(), strict=True)
        if good
    ]


def ids_of(loader: fastpipe.Loader, epochs: int = 1) -> list[int]:
    with loader:
        return [row[0] for _ in range(epochs) for batch in loader for row in rows_of(batch)]


def in_a_world(
    dataset: Path, world_size: int, state: Any, steps: int, **options: Any
) -> tuple[list[list[Row]], dict[str, Any]]:
    """The next global batches of 8, each sorted, and the state behind them."""
    found: list[list[Row]] = [[] for _ in range(steps)]
    after: dict[str, Any] = {}
    for rank in range(world_size):
        with loader_of(dataset, 8 // world_size, rank=rank, world_size=world_size, **options) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            taken = 0
            while taken < steps:
                for batch in loader:
                    found[taken] += rows_of(batch)
                    taken += 1
                    after = loader.state_dict()
                    if taken == steps:
                        break
    return [sorted(batch) for batch in found], after


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in which crops differ; it has as many samples and the classes of `flat`."""
    source = tmp_path_factory.mktemp("noisy") / "source"
    for number in range(FLAT_IMAGES):
        folder = source / FLAT_CLASSES[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        smooth_noise(40 + number, 80 - number, seed=number).save(folder / f"{number}.jpg")
    pack(source, source.parent / "packed", PackOptions(workers=1))
    return source.parent / "packed"


VIEWS = [fastpipe.View(count=2), fastpipe.View(8, crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.14)))]
OPTIONS: dict[str, dict[str, Any]] = {
    "samples": {"samples": list(range(1, FLAT_IMAGES, 2))},
    "classes": {"classes": ["cow", "ant"]},
    "limit": {"limit": 0.7},
    "kfold": {"kfold": (3, 1)},
    "class weights": {"weights": {"ant": 3, "bee": 0.5}},
    "sample weights": {"weights": np.arange(FLAT_IMAGES)},
    "no replacement": {"weights": np.arange(FLAT_IMAGES), "replacement": False, "epoch_size": 19},
    "repeats": {"repeats": 3},
    "long epochs": {"epoch_size": 83},
    "short epochs": {"epoch_size": 17},
    "views": {"views": VIEWS},
    "all": {
        "views": VIEWS,
        "samples": np.arange(FLAT_IMAGES) != 5,
        "classes": ["cow", "bee"],
        "limit": 0.9,
        "kfold": (5, 2),
        "weights": {"bee": 2.5},
        "repeats": 2,
        "epoch_size": 30,
    },
}


@pytest.mark.parametrize(("partition", "drop_last"), [("sample", False), ("node", True)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_batch_can_be_resumed_on_any_number_of_ranks(
    noisy: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], partition: str, drop_last: bool
) -> None:
    """World 8 -> 4 -> 2 -> 1, over two epochs, resumed at each global batch, gives what one rank gives."""
    options = {**options, "partition": partition, "drop_last": drop_last}
    if partition == "node":
        options["canonical_nodes"] = 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with loader_of(noisy, 8, rank=0, world_size=1, **options) as loader:
        steps = 2 * len(loader)
        assert steps >= 2
        expected = [sorted(rows_of(batch)) for _ in range(2) for batch in loader]
    state = None
    for step in range(steps):
        world_size = (8, 4, 2, 1)[step % 4]
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(max(1, world_size // 4)) if partition == "node" else "8")
        got, state = in_a_world(noisy, world_size, state, 1, **options)
        assert got == expected[step : step + 1], f"global batch {step} on {world_size} ranks"


def test_a_subset_gives_the_rows_of_the_whole(noisy: Path) -> None:
    """The same crops and flips in the same epoch: nothing of a sample depends on which others are chosen."""
    with loader_of(noisy) as loader:
        whole = [dict(row for batch in loader for row in rows_of(batch)) for _ in range(2)]
    chosen = [3, 17, 4, 30, 8]
    with loader_of(noisy, samples=chosen) as loader:
        for epoch in range(2):
            part = dict(row for batch in loader for row in rows_of(batch))
            assert part == {number: whole[epoch][number] for number in chosen}


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, torch.tensor, lambda numbers: np.array(numbers, dtype=np.uint16)]
)
def test_numbers_in_any_form(flat: Path, form: Any) -> None:
    chosen = [30, 2, 11, 5, 7]
    assert ids_of(loader_of(flat, samples=form(chosen), train=False)) == chosen
    assert sorted(ids_of(loader_of(flat, samples=form(chosen)))) == sorted(chosen)


def test_a_mask(flat: Path) -> None:
    mask = np.zeros(FLAT_IMAGES, dtype=bool)
    mask[[30, 2, 11]] = True
    for form in (mask, torch.from_numpy(mask), mask.tolist()):
        assert ids_of(loader_of(flat, samples=form, train=False)) == [2, 11, 30]


def test_torchs_subset_has_the_same_samples(flat: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    part, rest = torch.utils.data.random_split(fastpipe.Dataset(flat), [20, 17], generator=generator)
    one = ids_of(loader_of(flat, samples=part.indices))
    other = ids_of(loader_of(flat, samples=rest.indices))
    assert sorted(one) == sorted(part.indices)
    assert sorted(one + other) == list(range(FLAT_IMAGES))


def test_classes_are_renumbered_or_kept(flat: Path) -> None:
    index = Index(flat)
    labels = index.records["label"]
    for names in (["cow", "ant"], ["bee"]):
        old = [FLAT_CLASSES.index(name) for name in names]
        with loader_of(flat, classes=names) as new, loader_of(flat, classes=names, labels="keep") as kept:
            assert new.classes == names
            assert kept.classes == list(FLAT_CLASSES)
            seen = []
            for batch, other in zip(new, kept, strict=True):
                assert [old[label] for label in batch.labels.tolist()] == other.labels.tolist()
                assert labels[batch.ids.numpy()].tolist() == other.labels.tolist()
                seen += batch.ids.tolist()
            assert sorted(seen) == np.flatnonzero(np.isin(labels, old)).tolist()


def test_soft_labels_have_as_many_classes_as_are_chosen(flat: Path) -> None:
    augment = fastpipe.Augment.imagenet(mixup=0.2)
    with loader_of(flat, classes=["cow", "ant"], augment=augment) as loader:
        assert next(iter(loader)).labels.shape == (4, 2)


def test_a_preview_names_the_new_classes(flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    from fastpipe.show import sheet

    made = sheet.contact_sheet
    monkeypatch.setattr(
        sheet,
        "contact_sheet",
        lambda cells, captions, **more: (shown.extend(captions), made(cells, captions, **more))[1],
    )
    with loader_of(flat, classes=["cow"]) as loader:
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=4).photos == 4
    assert shown.count("cow") == 4
    assert not {"ant", "bee"} & set(shown)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 small pictures, of which 100 are there twice, under other names and in another class."""
    from PIL import Image

    root = tmp_path_factory.mktemp("thousand")
    rng = np.random.default_rng(0)
    for number in range(900):
        folder = root / "source" / ("rare" if number % 10 == 0 else "common")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}.jpg"
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        if number < 100:
            other = root / "source" / "again"
            other.mkdir(exist_ok=True)
            shutil.copy(path, other / f"copy-{number}.jpg")
    pack(root / "source", root / "packed", PackOptions(workers=1))
    return root / "packed"


def chosen(dataset: Path, **options: Any) -> NDArray[np.int64]:
    """The samples that a loader has, without reading them."""
    with loader_of(dataset, **options) as loader:
        samples = loader.look.recipe.content.samples
        assert samples is not None
        return np.sort(samples)


def test_a_limit_is_fixed_and_nested(thousand: Path) -> None:
    tenth, third, most = (chosen(thousand, limit=limit) for limit in (0.1, 0.3, 0.9))
    assert 70 < len(tenth) < 130
    assert 240 < len(third) < 360
    assert set(tenth) < set(third) < set(most)
    assert np.array_equal(chosen(thousand, limit=0.1, seed=7, train=False), tenth)
    assert sorted(ids_of(loader_of(thousand, 100, limit=0.1))) == tenth.tolist()
    assert loader_of(thousand, limit=1.0).look.recipe.content.samples is None


def test_folds_are_parts_that_never_leak(thousand: Path) -> None:
    hashes = Index(thousand).records["xxh3_64"]
    assert len(np.unique(hashes)) == 900
    parts = []
    for fold in range(5):
        train = chosen(thousand, kfold=(5, fold))
        val = chosen(thousand, kfold=(5, fold), train=False)
        assert sorted([*train, *val]) == list(range(1000))
        assert not set(hashes[train]) & set(hashes[val]), "the same picture is in training and in evaluation"
        assert 140 < len(val) < 260
        parts.append(val)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    few = chosen(thousand, kfold=(5, 0), limit=0.3)
    assert set(few) < set(chosen(thousand, kfold=(5, 0)))
    assert 180 < len(few) < 300, "limit and kfold are independent"


def test_folds_do_not_depend_on_the_order_of_packing(thousand: Path, tmp_path: Path) -> None:
    pack(thousand.parent / "source", tmp_path / "other", PackOptions(workers=1, shuffle=False))
    one, other = Index(thousand).records["xxh3_64"], Index(tmp_path / "other").records["xxh3_64"]
    assert not np.array_equal(one, other)
    for options in ({"kfold": (3, 0)}, {"limit": 0.2}):
        mine, theirs = chosen(thousand, **options), chosen(tmp_path / "other", **options)
        assert set(one[mine]) == set(other[theirs])


def test_class_weights_decide_the_shares(thousand: Path) -> None:
    index = Index(thousand)
    with loader_of(thousand, 100, size=8, weights={"rare": 0, "again": 4}) as loader:
        labels = torch.cat([batch.labels for _ in range(3) for batch in loader]).numpy()
    assert index.classes == ["again", "common", "rare"]
    assert_distribution(np.bincount(labels, minlength=3), np.array([400.0, 810.0, 0.0]))


@pytest.mark.parametrize("options", [{}, {"samples": range(500)}], ids=["all", "some"])
def test_balanced_classes_come_equally_often(thousand: Path, options: dict[str, Any]) -> None:
    weights = fastpipe.balanced(fastpipe.open(thousand))
    assert weights == {"again": 1 / 100, "common": 1 / 810, "rare": 1 / 90}
    with loader_of(thousand, 100, size=8, weights=weights, **options) as loader:
        labels = torch.cat([batch.labels for batch in loader]).numpy()
        ids = torch.cat([batch.ids for batch in loader])
    if not options:
        assert_distribution(np.bincount(labels), np.ones(3))
    else:
        assert int(ids.max()) < 500


def test_each_time_a_sample_is_drawn_it_is_cropped_anew(noisy: Path) -> None:
    weights = np.zeros(FLAT_IMAGES)
    weights[3] = 1
    with loader_of(noisy, weights=weights) as loader:
        rows = [row for batch in loader for row in rows_of(batch)]
    assert [number for number, _ in rows] == [3] * FLAT_IMAGES
    assert len({pixels for _, pixels in rows}) > FLAT_IMAGES * 0.9


def test_without_replacement_nothing_comes_twice(flat: Path) -> None:
    options = {"weights": np.arange(FLAT_IMAGES), "replacement": False, "epoch_size": 20}
    epochs = [ids_of(loader_of(flat, seed=seed, **options)) for seed in range(20)]
    assert all(len(set(ids)) == 20 for ids in epochs)
    assert not any(0 in ids for ids in epochs)
    assert len({frozenset(ids) for ids in epochs}) == 20


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_repeats_have_crops_of_their_own_and_go_to_different_ranks(noisy: Path, world_size: int) -> None:
    repeats, ranks = 3, []
    for rank in range(world_size):
        with loader_of(noisy, 12 // world_size, rank=rank, world_size=world_size, repeats=repeats) as loader:
            ranks.append([rows_of(batch) for batch in loader])
    for number in range(FLAT_IMAGES // 12):
        batch = [row for rank in ranks for row in rank[number]]
        ids = [number for number, _ in batch]
        assert all(ids.count(number) == repeats for number in ids), "12 rows are 4 samples"
        assert len({pixels for _, pixels in batch}) > 10
        if world_size >= repeats:
            assert all(len({row[0] for row in rank[number]}) == len(rank[number]) for rank in ranks)


def test_repeats_go_through_the_dataset_in_as_many_epochs(flat: Path) -> None:
    seen = [ids_of(loader_of(flat, repeats=3), epochs) for epochs in (1, 3)]
    assert len(seen[0]) == FLAT_IMAGES
    assert len(set(seen[0])) == 13
    assert sorted(seen[1]) == sorted([*range(FLAT_IMAGES)] * 3)


@pytest.mark.parametrize("size", [1, 10, 37, 100])
def test_epochs_of_a_size_go_on_where_the_last_one_ended(flat: Path, size: int) -> None:
    with loader_of(flat, 5, epoch_size=size) as loader:
        assert len(loader) == -(-size // 5)
        epochs = [[row[0] for batch in loader for row in rows_of(batch)] for _ in range(4)]
    assert [len(ids) for ids in epochs] == [size] * 4
    together = [number for ids in epochs for number in ids]
    for start in range(0, len(together) - FLAT_IMAGES + 1, FLAT_IMAGES):
        assert sorted(together[start : start + FLAT_IMAGES]) == list(range(FLAT_IMAGES))


def test_a_bad_sample_is_replaced_by_one_that_is_chosen(flat: Path, tmp_path: Path) -> None:
    index = Index(flat)
    bad = tmp_path / "bad"
    shutil.copytree(flat, bad)
    record = index.records[5]
    with open(bad / index.shards[int(record["shard"])].name, "r+b") as file:
        file.seek(int(record["offset"]))
        file.write(bytes(int(record["size"])))
    for options in ({"samples": [4, 5, 6]}, {"weights": np.isin(np.arange(FLAT_IMAGES), [4, 5, 6])}):
        with loader_of(bad, 3, train=False, on_error="replace", **options) as loader:
            ids = torch.cat([batch.ids for batch in loader]).tolist()
            assert set(ids) == {4, 6}
            assert loader.stats().replaced > 0


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_unpacked_source_gives_the_batches_of_the_packed_one(
    flat: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """In the order of samples; limit and kfold go by path there."""
    if {"limit", "kfold"} & options.keys():
        options = {name: value for name, value in options.items() if name not in ("limit", "kfold")}
    pack(flat.parent / "source", tmp_path / "packed", PackOptions(workers=1, shuffle=False))
    for shuffle in (False, True):
        with (
            loader_of(flat.parent / "source", shuffle=shuffle, **options) as one,
            loader_of(tmp_path / "packed", shuffle=shuffle, **options) as other,
        ):
            mine = [row for batch in one for row in rows_of(batch)]
            theirs = [row for batch in other for row in rows_of(batch)]
        assert len(mine) == len(theirs)
        if not shuffle:
            assert mine == theirs


def test_folds_of_an_unpacked_source(flat: Path) -> None:
    source = flat.parent / "source"
    one = set(ids_of(loader_of(source, kfold=(2, 0))))
    other = set(ids_of(loader_of(source, kfold=(2, 0), train=False)))
    assert one
    assert other
    assert not one & other
    assert one | other == set(range(FLAT_IMAGES))


def test_a_state_of_other_samples_is_refused(flat: Path) -> None:
    with loader_of(flat, samples=range(20)) as loader:
        state = loader.state_dict()
        assert len(json.dumps(state)) < 500
    for options in (
        {},
        {"samples": range(1, 21)},
        {"samples": range(20), "repeats": 2},
        {"samples": range(20), "epoch_size": 10},
        {"samples": range(20), "weights": {"ant": 2}},
        {"samples": range(20), "classes": ["ant", "bee", "cow"]},
    ):
        with loader_of(flat, **options) as loader, pytest.raises(ConfigError, match="another order of the samples"):
            loader.load_state_dict(state)
    with loader_of(flat, samples=list(range(20))) as loader:
        loader.load_state_dict(state)


def test_a_loader_of_everything_has_the_state_it_always_had(flat: Path) -> None:
    with loader_of(flat) as loader:
        order = json.loads(loader.state_dict()["order"])
    assert list(order) == ["seed", "shuffle", "drop_last", "global_batch_size", "sequences"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": [0, 37]}, "samples: expected sample numbers from 0 to 36, .*; got 37"),
        ({"samples": [-1]}, "got -1"),
        ({"samples": [3, 1, 3]}, "expected each number once, got 3 again; .* pass weights= or repeats="),
        ({"samples": []}, "got shape"),
        ({"samples": 5}, "got 5"),
        ({"samples": "photos"}, "got 'photos'"),
        ({"samples": [1.5]}, "got float64"),
        ({"samples": ["no.jpg"]}, "no samples with the key 'no.jpg'; expected one"),
        ({"samples": [[1], [2, 3]]}, "got list"),
        ({"samples": np.ones(36, dtype=bool)}, "got a mask of 36"),
        ({"samples": np.zeros(37, dtype=bool)}, "a mask without any True"),
        ({"classes": "cow"}, r"classes: expected names, for example \['ant', 'bee'\], got 'cow'"),
        ({"classes": []}, "classes: expected names"),
        ({"classes": ["cows"]}, "no class 'cows'; did you mean 'cow'"),
        ({"classes": ["cow", "cow"]}, "expected each name once, got 'cow' again"),
        ({"labels": "keep"}, "works only with classes="),
        ({"classes": ["cow"], "labels": "new"}, "labels: expected 'renumber' or 'keep', got 'new'"),
        ({"classes": [["cow"]]}, r"no class \['cow'\]"),
        ({"limit": 0}, "limit: expected a fraction above 0 and at most 1, got 0"),
        ({"limit": 10}, "got 10"),
        ({"limit": 1e-9}, "leave none of the 37 samples"),
        ({"kfold": 5}, r"kfold: expected \(folds, fold\), for example \(5, 0\), got 5"),
        ({"kfold": (5, 5)}, "kfold: fold: expected 0 to 4, got 5"),
        ({"kfold": (1, 0)}, "kfold: folds: expected 2 to"),
        ({"weights": [1, 2]}, r"weights: expected a number at least 0 for each of 37 samples.*got shape \(2,\)"),
        ({"weights": [-1] * 37}, "got -1.0 for sample 0"),
        ({"weights": [float("nan")] * 37}, "got nan for sample 0"),
        ({"weights": torch.ones(37, requires_grad=True)}, r"got Tensor: .*tensor\.detach\(\)"),
        ({"weights": [0] * 37}, "got only 0"),
        ({"weights": [1e308] * 37}, "weights with a finite sum, got inf; divide them all by the largest one"),
        ({"weights": {"cow": 1e308, "bee": 1e308}}, "weights with a finite sum"),
        ({"weights": "balanced"}, "got str"),
        ({"weights": {"elephant": 1}}, "the key 'elephant'; .* Nor is 'elephant' a class; it has 'ant', 'bee', 'cow'$"),
        ({"weights": {"cow": 1, "elephant": 1}}, "no class 'elephant'; it has 'ant', .*; names of classes and keys of"),
        ({"weights": {"cow": -1}}, "number at least 0 for class 'cow', got -1"),
        ({"weights": {"cow": 0}, "classes": ["cow"]}, "got only 0 for the samples that are chosen"),
        ({"replacement": False}, "replacement works only with weights="),
        ({"weights": {}, "replacement": False}, "expected epoch_size= of 1 to 37, got no epoch_size=; pass"),
        ({"weights": {}, "replacement": False, "epoch_size": 38}, "expected epoch_size= of 1 to 37, got 38"),
        ({"weights": {}, "replacement": 3}, "replacement: expected True or False"),
        ({"repeats": 0}, "repeats: expected 1 to"),
        ({"epoch_size": 0}, "epoch_size: expected 1 to"),
        ({"epoch_size": 3, "drop_last": True}, "an epoch of what was chosen of .* has 3 samples"),
    ],
)
def test_wrong_choices(flat: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, **options)


def test_a_class_that_is_not_there_is_told_those_that_are(flat: Path, tmp_path: Path) -> None:
    data = io.BytesIO()
    smooth_noise(20, 16, seed=0).save(data, "JPEG")
    for classes, words in (([], "no class 'x': it has no classes$"), ([*map(str, range(1234))], "'4' and 1,229 more$")):
        with fastpipe.Writer(tmp_path / str(len(classes)), classes=classes) as writer:
            writer.add(data.getvalue(), label=None)
        with pytest.raises(ConfigError, match=words):
            loader_of(tmp_path / str(len(classes)), classes=["x"])


def test_without_replacement_canonical_nodes_draw_equally_many(flat: Path) -> None:
    options = {"weights": {}, "replacement": False, "partition": "node", "canonical_nodes": 2}
    with pytest.raises(ConfigError, match=r"epoch_size= of 1 to 36, with 2 canonical nodes, each .* got 37"):
        loader_of(flat, epoch_size=37, **options)
    ids = ids_of(loader_of(flat, epoch_size=36, **options))
    assert len(ids) == len(set(ids)) == 36
    with pytest.raises(ConfigError, match=r"epoch_size= of 1 to 108, with 2 canonical nodes, each .* got 109"):
        loader_of(flat, epoch_size=109, repeats=3, **options)
    assert len(set(ids_of(loader_of(flat, epoch_size=108, repeats=3, **options)))) == 36


def test_balanced_takes_a_dataset(flat: Path) -> None:
    with pytest.raises(ConfigError, match=r"balanced: expected a dataset from fastpipe\.open\(FOLDER\), got"):
        fastpipe.balanced(flat)  # type: ignore[arg-type]


def test_soft_labels_need_labels_of_the_chosen_samples_only(tmp_path: Path) -> None:
    data = io.BytesIO()
    smooth_noise(20, 16, seed=0).save(data, "JPEG")
    with fastpipe.Writer(tmp_path / "data", classes=["ant", "bee"]) as writer:
        for number in range(30):
            writer.add(data.getvalue(), label=(0, 1, None)[number % 3])
    augment = fastpipe.Augment.imagenet(mixup=0.2)
    index = Index(tmp_path / "data")
    labelled = np.flatnonzero(index.records["label"] >= 0)
    choices: list[dict[str, Any]] = [
        {"classes": ["bee"]},
        {"samples": labelled},
        {"weights": {"ant": 2.0}},
        {"weights": fastpipe.balanced(index)},
    ]
    for chosen in choices:
        with loader_of(tmp_path / "data", augment=augment, **chosen) as loader:
            for _, labels in loader:
                assert torch.allclose(labels.sum(1), torch.ones(len(labels)))
    with pytest.raises(ConfigError, match=r"10 of 30 samples .* have no label; leave them out with"):
        loader_of(tmp_path / "data", augment=augment)
    with pytest.raises(ConfigError, match=r"1 of 21 samples .* have no label"):
        loader_of(tmp_path / "data", augment=augment, samples=[*labelled, 2])


def test_without_replacement_the_size_of_an_epoch_is_asked_for(flat: Path) -> None:
    given: dict[str, Any] = {"size": 8, "num_workers": 1, "weights": {"ant": 2.0}, "replacement": False}
    with pytest.raises(ConfigError, match="expected epoch_size= of 1 to 37, got no epoch_size=; pass one of these"):
        fastpipe.loader(flat, 4, **given)
    with pytest.raises(ConfigError, match="expected epoch_size= of 1 to 37, got 38; pass one of these"):
        fastpipe.loader(flat, 4, epoch_size=38, **given)
