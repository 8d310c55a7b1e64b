"""The time that a training loop waits for batches -> advice: which stage delays it, and what to change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from fastpipe.engine.stats import Stats

_LOG = logging.getLogger("fastpipe")
_BATCHES = 50
_MOST_RATIO = 0.1
# Below this there is no training step to speak of: a loop that only reads batches waits for them all the time.
_LEAST_STEP_S = 1e-3
_STAGES = ("plan_s", "wait_s", "transfer_s", "augment_s")
_THREADS = ("read_s", "decode_s", "resize_s", "convert_s")


@dataclass(frozen=True)
class Settings:
    """What a user could change.

    Attributes:
        workers: threads of the loader.
        cpus: granted to the process, or its share of them where several ranks run on the machine.
        device: of the batches, "cpu" or "cuda".
        exact: always decode at full size.
        compiled: the augmentation is compiled.
        packed: the dataset is.
        remote: the shards come over the network, by way of a cache.
    """

    workers: int
    cpus: int
    device: str
    exact: bool
    compiled: bool
    packed: bool = True
    remote: bool = False


class LoadWatch:
    """Watches 50 batches at a time; says once, in the log "fastpipe", if the loop waited over a tenth of its steps.

    Args:
        snapshot: gives the loader's figures.
        settings: of the loader.
    """

    def __init__(self, snapshot: Callable[[], Stats], settings: Settings) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._before: Stats | None = None
        self._batches = 0
        self._load_s = self._step_s = 0.0
        self._told = False

    def add(self, load_s: float, step_s: float) -> None:
        """Counts a batch: seconds in the loader, and of the training step before it."""
        if self._told:
            return
        if self._before is None:
            self._before = self._snapshot()
        self._batches += 1
        self._load_s += load_s
        self._step_s += step_s
        if self._batches < _BATCHES:
            return
        if self._load_s > _MOST_RATIO * self._step_s and self._step_s > _BATCHES * _LEAST_STEP_S:
            self._told = True
            ratio = self._load_s / self._step_s
            _LOG.warning("%s", advice(self._before, self._snapshot(), self._settings, ratio))
        self._before = None
        self._batches = 0
        self._load_s = self._step_s = 0.0


def advice(before: Stats, after: Stats, settings: Settings, ratio: float) -> str:
    """What holds a training loop up and what to change.

    Args:
        before, after: the loader's figures at two times.
        settings: of the loader.
        ratio: seconds in the loader to seconds of training between them.
    """
    between = after.since(before)
    spent = asdict(between)
    slowest = max(_STAGES, key=spent.__getitem__)
    how_long = f"for {ratio:.0%} of its steps' time" if ratio < 1 else f"{ratio:,.1f} times as long as its steps took"
    text = f"the training loop waited for data {how_long} over {_BATCHES} batches"
    share = spent[slowest] / max(sum(spent[name] for name in _STAGES), 1e-9)
    part = between.most_of_the_wait if slowest == "wait_s" else None
    if part == "fetch_wait_s":
        fetched, cached = spent["fetched_bytes"], spent["cache_hit_bytes"]
        share = spent["fetch_wait_s"] / spent["wait_s"]
        whose = f"{share:.0%} of the wait; {cached / max(fetched + cached, 1):.0%} of the bytes were in the cache"
        return f"{text}; the bottleneck is the network ({whose}): {_for('fetch_wait_s', settings)}"
    if part == "prepare_wait_s":
        each_ms = 1e3 * spent["prepare_s"] / max(spent["batches"], 1)
        share = spent["prepare_wait_s"] / spent["wait_s"]
        return (
            f"{text}; the bottleneck is prepare= ({share:.0%} of the wait): it takes {each_ms:,.1f} ms a batch in one "
            "thread. Make it faster, or do it once: fastpipe.Writer stores its values"
        )
    if slowest == "wait_s":
        busiest = max(_THREADS, key=spent.__getitem__)
        threads_share = spent[busiest] / max(sum(spent[name] for name in _THREADS), 1e-9)
        names = {"read_s": "reading", "decode_s": "decoding", "resize_s": "resizing", "convert_s": "converting"}
        stage = names[busiest]
        whose = f"{threads_share:.0%} of the threads' time"
        return f"{text}; the bottleneck is {stage} ({whose}): {_for(busiest, settings)}"
    stage = {"plan_s": "planning batches", "transfer_s": "copying to the device", "augment_s": "augmentation"}[slowest]
    return f"{text}; the bottleneck is {stage} ({share:.0%} of the wait): {_for(slowest, settings)}"


def _for(stage: str, settings: Settings) -> str:
    if stage == "plan_s":
        return "pass a larger batch_size, or find out what else blocks the training loop's thread"
    if stage == "transfer_s":
        return "check the log for a warning about pinned memory, or pass a smaller size"
    if stage == "augment_s":
        if settings.device == "cpu":
            return 'pass device="cuda" if there is a GPU, or choose a lighter augment'
        if settings.compiled:
            return "choose a lighter augment"
        return "pass Augment(..., compile=True), or choose a lighter augment"
    if stage == "convert_s":
        return "these images are no baseline JPEGs, and are converted again in each epoch; `fastpipe pack` does it once"
    if stage in ("read_s", "decode_s") and not settings.packed:
        return "pack the images (fastpipe pack): then less of each is read and decoded"
    if stage == "fetch_wait_s":
        return (
            "raise cache_limit= if the dataset is larger: what is in the cache is fetched once. If it is the first "
            "epoch, the link is the limit: train nearer to the bucket, or pack the photos again with --max-size"
        )
    if stage == "read_s" and settings.remote:
        return "pass cache_dir=, a folder on a faster disk of this machine: that of the cache is the limit"
    if stage == "read_s":
        return (
            f"put the shards on a faster disk, or pass num_workers larger than {settings.workers}: threads that wait "
            "for the disk use no CPU"
        )
    if settings.workers < settings.cpus:
        return f"pass num_workers={settings.cpus} (now {settings.workers}; {settings.cpus} CPUs are granted)"
    smaller = "pass exact=False, or pack" if settings.exact and stage == "decode_s" else "pack"
    return (
        f"all {settings.cpus} CPUs granted are in use; use more CPUs, or {smaller} the photos again with --max-size "
        "(--max-size 500 is enough for outputs of 224)"
    )
