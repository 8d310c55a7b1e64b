"""The time that a training loop waits for batches -> which stage delays it, and what to change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import NamedTuple

from fastpipe.engine.stats import Stats

_LOG = logging.getLogger("fastpipe")
_WATCHED_BATCHES = 50
_MAX_RATIO = 0.1
# A loop with shorter steps does not train: it only reads batches, and waits for them all the time.
_MIN_STEP_S = 1e-3

# Times of Stats -> what the loader does in them. The second ones are parts of wait_s.
_LOADER_STAGES = {
    "plan_s": "planning batches",
    "wait_s": "decoding threads",
    "transfer_s": "copying to the device",
    "augment_s": "augmentation",
}
_WAIT_PARTS = {"fetch_wait_s": "the network", "prepare_wait_s": "prepare="}
STAGES = _LOADER_STAGES | _WAIT_PARTS
_THREAD_STAGES = {
    "read_s": "reading",
    "decode_s": "decoding",
    "resize_s": "resizing",
    "convert_s": "converting",
}

# Advice that does not depend on the settings.
_CHANGES = {
    "plan_s": "pass a larger batch_size, or find out what else blocks the training loop's thread",
    "transfer_s": "check the log for a warning about pinned memory, or pass a smaller size",
    "fetch_wait_s": "raise cache_limit= of fastpipe.open if the dataset is larger: what is in the "
    "cache is fetched once. If it is the first epoch, the link is the limit: train nearer to the "
    "bucket, or pack the images again with --max-size",
    "convert_s": "these images are no baseline JPEGs or PNGs, and converted in each epoch; "
    "`fastpipe pack` does it once",
}


class Settings(NamedTuple):
    """The options of a loader that advice depends on."""

    workers: int  # threads of the loader
    # Granted to the process, or its share of them where several ranks run here.
    cpus: int
    device: str  # of the batches: "cpu", "cuda", ...
    exact: bool
    compiled: bool  # the augmentation
    packed: bool = True
    remote: bool = False  # the shards are fetched over the network, into a cache


class LoadWatch:
    """Watches 50 batches at a time; logs once if the loop waits over a tenth of its time."""

    def __init__(self, read_stats: Callable[[], Stats], settings: Settings) -> None:
        self._read_stats = read_stats
        self._settings = settings
        self._before = Stats()
        self._count = 0
        self._load_s = 0.0
        self._step_s = 0.0
        self._has_warned = False

    def add(self, load_s: float, step_s: float) -> None:
        """Counts a batch: seconds in the loader, and seconds of the training step before it."""
        if self._has_warned:
            return
        if self._count == 0:
            self._before = self._read_stats()
        self._count += 1
        self._load_s += load_s
        self._step_s += step_s
        if self._count < _WATCHED_BATCHES:
            return
        # The next batches are another window.
        load_s = self._load_s
        step_s = self._step_s
        self._count = 0
        self._load_s = 0.0
        self._step_s = 0.0
        loads_longer = load_s > _MAX_RATIO * step_s
        if loads_longer and step_s > _WATCHED_BATCHES * _MIN_STEP_S:
            self._has_warned = True
            after = self._read_stats()
            _LOG.warning(
                "%s",
                describe_bottleneck(
                    self._before, after, self._settings, load_s / step_s
                ),
            )


def describe_bottleneck(
    before: Stats, after: Stats, settings: Settings, ratio: float
) -> str:
    """Says what delayed a training loop between two readings, and what to change.

    `ratio` is the loop's time in the loader divided by the time of its steps.
    """
    spent = after.since(before)
    seconds = asdict(spent)
    # A part of wait_s is compared with wait_s, any other stage with all stages of the loader.
    stage = spent.slowest
    whole = ["wait_s"] if stage in _WAIT_PARTS else _LOADER_STAGES
    share = f"{_share(seconds, stage, whole)} of the wait"
    if stage == "wait_s":
        stage = max(_THREAD_STAGES, key=lambda name: seconds[name])
        share = f"{_share(seconds, stage, _THREAD_STAGES)} of the threads' time"
    if stage == "fetch_wait_s":
        cached = _share(
            seconds, "cache_hit_bytes", ["fetched_bytes", "cache_hit_bytes"]
        )
        share += f"; {cached} of the bytes were in the cache"
    name = (STAGES | _THREAD_STAGES)[stage]
    return (
        f"the training loop waited for data {_describe_ratio(ratio)} over {_WATCHED_BATCHES} "
        f"batches; the bottleneck is {name} ({share}): {_suggest(stage, spent, settings)}"
    )


def _share(amounts: dict[str, float], part: str, whole: Collection[str]) -> str:
    """An amount as a percentage of the sum of several."""
    total = sum(amounts[name] for name in whole)
    return f"{amounts[part] / max(total, 1e-9):.0%}"


def _describe_ratio(ratio: float) -> str:
    if ratio < 1:
        return f"for {ratio:.0%} of its steps' time"
    return f"{ratio:,.1f} times as long as its steps took"


def _suggest(stage: str, spent: Stats, settings: Settings) -> str:
    """What to change so that a stage takes less time.

    `spent` is the difference of two readings: the time and the batches between them.
    """
    if stage in _CHANGES:
        return _CHANGES[stage]
    if stage == "augment_s":
        return _suggest_for_augment(settings)
    if stage == "prepare_wait_s":
        ms_per_batch = 1e3 * spent.prepare_s / max(spent.batches, 1)
        return (
            f"it takes {ms_per_batch:,.1f} ms a batch in one thread. Make it faster, or do it "
            "once: fastpipe.Writer stores its values"
        )
    if stage in ("read_s", "decode_s") and not settings.packed:
        return "pack the images (fastpipe pack): then less of each is read and decoded"
    if stage == "read_s" and settings.remote:
        return (
            "open the data with cache_dir=, a folder on a faster disk of this machine: the disk of "
            "the cache is the limit"
        )
    if stage == "read_s":
        return (
            "put the shards on a faster disk, or pass num_workers larger than "
            f"{settings.workers}: threads that wait for the disk use no CPU"
        )
    # The stages that are left, decoding and resizing, need CPUs.
    if settings.workers < settings.cpus:
        return (
            f"pass num_workers={settings.cpus} (now {settings.workers}; {settings.cpus} CPUs are "
            "granted)"
        )
    less_work = "pack"
    if settings.exact and stage == "decode_s":
        less_work = "pass exact=False, or pack"
    return (
        f"all {settings.cpus} CPUs granted are in use; use more CPUs, or {less_work} the images "
        "again with --max-size (--max-size 500 is enough for outputs of 224)"
    )


def _suggest_for_augment(settings: Settings) -> str:
    if settings.device == "cpu":
        return 'pass device="cuda" if there is a GPU, or choose a lighter augment'
    if settings.compiled:
        return "choose a lighter augment"
    return "pass Augment(..., compile=True), or choose a lighter augment"
