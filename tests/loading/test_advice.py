"""A loop that waits for its data is told once which stage holds it up, and what to change."""

from __future__ import annotations

import importlib
import logging
from dataclasses import replace
from pathlib import Path

import pytest

import fastpipe
from fastpipe.engine.stats import Stats
from fastpipe.loading.advice import LoadWatch, Settings, describe_bottleneck

ALL_IN_USE = Settings(workers=2, cpus=2, device="cpu", exact=True, compiled=False)
UNPACKED = ALL_IN_USE._replace(packed=False)
DECODING = Stats(wait_s=9.0, plan_s=0.5, read_s=1.0, decode_s=12.0, resize_s=3.0)


@pytest.mark.parametrize(
    ("spent", "settings", "says"),
    [
        (
            DECODING,
            ALL_IN_USE,
            ["decoding (75% of the threads' time)", "all 2 CPUs", "exact=False", "--max-size"],
        ),
        (
            DECODING,
            ALL_IN_USE._replace(cpus=8),
            ["decoding", "pass num_workers=8 (now 2; 8 CPUs are granted)"],
        ),
        (DECODING, ALL_IN_USE._replace(exact=False), ["decoding", "pack the images again"]),
        (replace(DECODING, resize_s=50.0), ALL_IN_USE, ["resizing", "pack the images again"]),
        (
            replace(DECODING, read_s=50.0),
            ALL_IN_USE,
            ["reading", "faster disk", "num_workers larger than 2"],
        ),
        (
            replace(DECODING, convert_s=50.0),
            UNPACKED,
            ["converting", "in each epoch; `fastpipe pack` does it once"],
        ),
        (
            DECODING,
            UNPACKED,
            ["decoding (75% of the threads' time)", "pack the images (fastpipe pack)"],
        ),
        (replace(DECODING, read_s=50.0), UNPACKED, ["reading", "pack the images (fastpipe pack)"]),
        (
            replace(DECODING, fetch_wait_s=6.0),
            ALL_IN_USE,
            ["the network (67% of the wait; 0%", "cache_limit="],
        ),
        (replace(DECODING, fetch_wait_s=2.0), ALL_IN_USE, ["decoding"]),
        (
            replace(DECODING, read_s=50.0),
            ALL_IN_USE._replace(remote=True),
            ["reading", "cache_dir=, a folder on"],
        ),
        (
            Stats(augment_s=3.0, wait_s=1.0),
            ALL_IN_USE,
            ["augmentation (75% of the wait)", 'device="cuda"'],
        ),
        (
            Stats(augment_s=3.0),
            ALL_IN_USE._replace(device="cuda"),
            ["augmentation", "compile=True"],
        ),
        (
            Stats(augment_s=3.0),
            ALL_IN_USE._replace(device="cuda", compiled=True),
            ["choose a lighter augment"],
        ),
        (
            Stats(wait_s=4.0, prepare_wait_s=3.0, prepare_s=0.5, batches=50),
            ALL_IN_USE,
            ["prepare= (75% of the wait): it takes 10.0 ms a batch in one thread."],
        ),
        (
            Stats(transfer_s=3.0, wait_s=1.0),
            ALL_IN_USE._replace(device="cuda"),
            ["copying to the device", "pinned"],
        ),
        (Stats(plan_s=3.0, wait_s=1.0), ALL_IN_USE, ["planning batches", "larger batch_size"]),
    ],
)
def test_advice_names_the_stage_and_the_change(
    spent: Stats, settings: Settings, says: list[str]
) -> None:
    text = describe_bottleneck(Stats(), spent, settings, ratio=0.4)
    assert text.startswith(
        "the training loop waited for data for 40% of its steps' time over 50 batches; the bottle"
    )
    for part in says:
        assert part in text


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.996, "for 100% of its steps' time"), (51.71, "51.7 times as long as")]
)
def test_a_loop_that_mostly_waits_is_told_in_times(ratio: float, words: str) -> None:
    assert f"waited for data {words}" in describe_bottleneck(Stats(), DECODING, ALL_IN_USE, ratio)


def test_only_what_was_spent_since_counts() -> None:
    before = Stats(wait_s=100.0, decode_s=100.0, augment_s=1.0)
    after = replace(before, augment_s=9.0)
    assert "augmentation" in describe_bottleneck(before, after, ALL_IN_USE, 0.2)


def watch_of(stats: Stats = DECODING) -> LoadWatch:
    return LoadWatch(lambda: stats, ALL_IN_USE)


def test_fifty_slow_batches_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = watch_of()
    for _ in range(49):
        watch.add(0.05, 0.1)
    assert not caplog.records
    for _ in range(200):
        watch.add(0.05, 0.1)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastpipe", logging.WARNING)
    assert "50% of its steps' time" in record.message


@pytest.mark.parametrize(
    ("load_s", "step_s"),
    [(0.0099, 0.1), (0.0, 0.1), (0.01, 0.0005)],  # a tenth at most; none; no step to speak of
)
def test_others_are_not(caplog: pytest.LogCaptureFixture, load_s: float, step_s: float) -> None:
    watch = watch_of()
    for _ in range(500):
        watch.add(load_s, step_s)
    assert not caplog.records


def test_one_long_wait_does_not_make_a_slow_loader(caplog: pytest.LogCaptureFixture) -> None:
    watch = watch_of()
    for batch in range(200):
        watch.add(0.3 if batch == 20 else 0.001, 0.1)
    assert not caplog.records


def test_a_ranks_share_of_the_cpus_is_what_it_is_told_to_use(
    monkeypatch: pytest.MonkeyPatch, flat: Path
) -> None:
    """Of 64 CPUs, one of 8 ranks on the machine may have 8: told to take 64, they would get in each other's way."""
    monkeypatch.setattr(
        importlib.import_module("fastpipe.loading.factory"), "count_granted_cpus", lambda: 64
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with fastpipe.loader(flat, 1, size=8, num_workers=1, rank=0, world_size=8) as loader:
        text = describe_bottleneck(Stats(), DECODING, loader._watch._settings, ratio=0.4)
    assert "pass num_workers=8 (now 1; 8 CPUs are granted)" in text
