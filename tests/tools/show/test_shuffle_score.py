"""How an epoch is shuffled is measured: by default as a uniform permutation, within a bound where pack did not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.programs.cli_run import failed, succeeded

import fastpipe
from fastpipe.arrays import Int64s
from fastpipe.packing.job.threads import pack
from fastpipe.plan.order import CHUNKS_PER_WINDOW, EpochOrder
from fastpipe.tools.show import inspection
from fastpipe.tools.show.inspection import score, shuffle_report

CLASSES, PER_CLASS = 20, 60


@pytest.fixture(scope="module")
def sorted_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 tiny pictures in 20 folders."""
    root = tmp_path_factory.mktemp("sorted") / "source"
    for label in range(CLASSES):
        (root / f"class-{label:02d}").mkdir(parents=True)
        for number in range(PER_CLASS):
            Image.new("L", (8, 8), number).save(root / f"class-{label:02d}" / f"{number:02d}.jpg")
    return root


@pytest.fixture(scope="module")
def mixed(sorted_source: Path) -> Path:
    pack(sorted_source, sorted_source.with_name("mixed"))
    return sorted_source.with_name("mixed")


def noise(batches: int, classes: int) -> float:
    """Four standard errors of the mean class mix: a chi-squared by its k degrees of freedom varies by 2 / k."""
    return 4 * float(np.sqrt(2 / (classes - 1) / batches))


def counts_of(labels: Int64s) -> Int64s:
    """Samples of each class; none is without a label."""
    return np.append(np.bincount(labels), 0)


def test_uniform_permutations_score_as_they_should() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(50), 400)
    scores = []
    for _ in range(20):
        samples = rng.permutation(20_000).astype(np.int64)
        scores.append(score(samples, labels[samples], 100, counts_of(labels)))
    assert abs(np.mean([one.class_mix for one in scores]) - 1) < noise(20 * 200, 50)
    assert np.mean([one.neighbours for one in scores]) == pytest.approx(99 / 20_000, rel=0.05)
    assert np.mean([one.displacement for one in scores]) == pytest.approx(1 / 3, abs=0.005)


@settings(max_examples=25)
@given(st.integers(2, 30), st.integers(1, 50), st.integers(1, 40))
def test_class_mix_is_pearsons_chi_squared(classes: int, batch_size: int, batches: int) -> None:
    count = batch_size * batches
    labels = np.random.default_rng([classes, count]).integers(0, classes, count)
    found = score(np.arange(count), labels, batch_size, counts_of(labels)).class_mix
    present, totals = np.unique(labels, return_counts=True)
    if len(present) < 2 or batches == 1:
        assert found == 1
        return
    expected = totals / batches
    each = [
        (
            ((labels[batch * batch_size :][:batch_size, None] == present).sum(0) - expected) ** 2
            / expected
        ).sum()
        for batch in range(batches)
    ]
    assert found == pytest.approx(
        np.mean(each) / (len(present) - 1) * (count - 1) / (count - batch_size)
    )


def test_the_default_is_as_good_as_uniform_on_a_sorted_source(mixed: Path) -> None:
    index = fastpipe.open(mixed).index
    for epoch in range(3):
        report = shuffle_report(index, batch_size=40, epoch=epoch)
        assert report.samples == CLASSES * PER_CLASS
        assert abs(report.epoch.class_mix - 1) < noise(30, CLASSES)
        assert abs(report.shards.class_mix - 1) < noise(30, CLASSES)  # pack has shuffled
        assert report.epoch.neighbours < 2.5 * 40 / 1200
        assert report.epoch.displacement == pytest.approx(1 / 3, abs=0.03)


def test_without_shuffling_at_packing_shards_are_sorted(
    sorted_source: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed"
    succeeded("pack", sorted_source, packed, "--no-shuffle")
    index = fastpipe.open(packed).index
    assert (np.diff(index.records["label"]) >= 0).all()
    assert index.info["packs"][0]["options"]["shuffle"] is False
    report = shuffle_report(index, batch_size=40)
    assert report.shards.class_mix > 10
    # It fits one window of the chunked shuffle, which is then a uniform one.
    assert abs(report.epoch.class_mix - 1) < noise(30, CLASSES)
    assert "nothing to do" in succeeded("pack", sorted_source, packed, "--no-shuffle")
    assert "--overwrite" in failed(1, "pack", sorted_source, packed)


def test_of_a_large_dataset_the_start_is_scored_against_all_of_it(
    sorted_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first samples of a sorted dataset have one class, of which each batch then has too many."""
    packed = tmp_path / "packed"
    succeeded("pack", sorted_source, packed, "--no-shuffle")
    monkeypatch.setattr(inspection, "MOST_SAMPLES", PER_CLASS)
    report = shuffle_report(fastpipe.open(packed).index, batch_size=10)
    assert report.samples == PER_CLASS
    # A batch has one class: chi-squared is 10 * (20 - 1), of 19 degrees of freedom.
    assert report.shards.class_mix == pytest.approx(10 * (1200 - 1) / (1200 - 10))
    assert abs(report.uniform.class_mix - 1) < noise(6, CLASSES)
    assert abs(report.epoch.class_mix - 1) < noise(6, CLASSES)


def test_many_windows_of_a_sorted_dataset_stay_within_the_stated_bound() -> None:
    """Each window holds 32 chunks, so a batch of b is at worst as uneven as b draws from 32 classes: 1 + b / 32."""
    count, chunk, batch_size, classes = 192_000, 75, 256, 1000
    labels = np.repeat(np.arange(classes), count // classes)
    order = EpochOrder(count, chunk, seed=1, epoch=0, shuffle=True).take(0, count)
    found = score(order, labels[order], batch_size, counts_of(labels))
    assert 2 < found.class_mix < 1 + batch_size / CHUNKS_PER_WINDOW
    assert found.displacement == pytest.approx(1 / 3, abs=0.02)
    # And as even as can be where pack has shuffled.
    mixed = np.random.default_rng(1).permutation(labels)
    in_epoch = score(order, mixed[order], batch_size, counts_of(mixed))
    assert abs(in_epoch.class_mix - 1) < noise(count // batch_size, classes)


def test_inspect_shows_it(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = succeeded("inspect", mixed, "--no-sheet", "--shuffle", "--batch-size", 40)
    assert "shuffle: 1,200 samples in batches of 40" in text
    for words in (
        "class mix",
        "neighbours kept",
        "displacement",
        "uniform permutation",
        "as in the shards",
        "above 1: batches hold too few classes",
        "0.333 in a random order",
    ):
        assert words in text
    found = json.loads(
        succeeded("inspect", mixed, "--no-sheet", "--shuffle", "--batch-size", 40, "--json")
    )["shuffle"]
    assert (
        found["epoch"]["class_mix"]
        == shuffle_report(fastpipe.open(mixed).index, batch_size=40).epoch.class_mix
    )
    assert "shuffle" not in json.loads(succeeded("inspect", mixed, "--no-sheet", "--json"))
    assert "--batch-size: expected 1" in failed(
        2, "inspect", mixed, "--no-sheet", "--shuffle", "--batch-size", 0
    )
    assert "--batch-size needs --shuffle" in failed(
        2, "inspect", mixed, "--no-sheet", "--batch-size", 40
    )


def test_one_class_or_one_batch_cannot_be_mixed_badly(flat: Path, many_shards: Path) -> None:
    assert shuffle_report(fastpipe.open(many_shards).index, batch_size=4).epoch.class_mix == 1
    assert shuffle_report(fastpipe.open(flat).index, batch_size=10_000).epoch.class_mix == 1
