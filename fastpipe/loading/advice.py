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
_STAGES = {
    "plan_s": "planning batches",
    "wait_s": "decoding threads",
    "transfer_s": "copying to the device",
    "augment_s": "augmentation",
}
_PARTS = {"fetch_wait_s": "the network", "prepare_wait_s": "prepare="}  # of wait_s
STAGES = _STAGES | _PARTS
_CHANGES = {  # whatever the settings
    "plan_s": "pass a larger batch_size, or find out what else blocks the training loop's thread",
    "transfer_s": "check the log for a warning about pinned memory, or pass a smaller size",
    "fetch_wait_s": "raise cache_limit= of fastpipe.open if the dataset is larger: what is in the cache is fetched "
    "once. If it is the first epoch, the link is the limit: train nearer to the bucket, or pack the photos again with "
    "--max-size",
    "convert_s": "these images are no baseline JPEGs or PNGs, and converted in each epoch; `fastpipe pack` does it "
    "once",
}
_THREADS = {"read_s": "reading", "decode_s": "decoding", "resize_s": "resizing", "convert_s": "converting"}


@dataclass(frozen=True)
class Settings:
    workers: int  # threads of the loader
    cpus: int  # granted to the process, or its share of them where several ranks run on the machine
    device: str  # of the batches, its kind: "cpu", "cuda", ...
    exact: bool
    compiled: bool  # the augmentation
    packed: bool = True
    remote: bool = False  # the shards come over the network, by way of a cache


class LoadWatch:
    """Watches 50 batches at a time; says once, in the log "fastpipe", if the loop waited over a tenth of its steps."""

    def __init__(self, snapshot: Callable[[], Stats], settings: Settings) -> None:
        self._snapshot, self._settings = snapshot, settings
        self._before = Stats()
        self._counted: list[tuple[float, float]] = []
        self._told = False

    def add(self, load_s: float, step_s: float) -> None:
        """Counts a batch: seconds in the loader, and of the training step before it."""
        if self._told:
            return
        if not self._counted:
            self._before = self._snapshot()
        self._counted.append((load_s, step_s))
        if len(self._counted) < _BATCHES:
            return
        loads_s, steps_s = map(sum, zip(*self._counted, strict=True))
        self._counted.clear()
        if loads_s > _MOST_RATIO * steps_s and steps_s > _BATCHES * _LEAST_STEP_S:
            self._told = True
            _LOG.warning("%s", advice(self._before, self._snapshot(), self._settings, loads_s / steps_s))


def advice(before: Stats, after: Stats, settings: Settings, ratio: float) -> str:
    """What held a training loop up between two readings, if it was in the loader `ratio` times as long as in steps."""
    between = after.since(before)
    spent = asdict(between)

    def share(stage: str, *of: str) -> str:
        return f"{spent[stage] / max(sum(spent[each] for each in of), 1e-9):.0%}"

    stage = between.slowest
    whose = f"{share(stage, *(['wait_s'] if stage in _PARTS else _STAGES))} of the wait"
    if stage == "wait_s":
        stage = max(_THREADS, key=spent.__getitem__)
        whose = f"{share(stage, *_THREADS)} of the threads' time"
    if stage == "fetch_wait_s":
        whose += f"; {share('cache_hit_bytes', 'fetched_bytes', 'cache_hit_bytes')} of the bytes were in the cache"
    how_long = f"for {ratio:.0%} of its steps' time" if ratio < 1 else f"{ratio:,.1f} times as long as its steps took"
    waited = f"the training loop waited for data {how_long} over {_BATCHES} batches"
    name = {**STAGES, **_THREADS}[stage]
    return f"{waited}; the bottleneck is {name} ({whose}): {_change(stage, spent, settings)}"


def _change(stage: str, spent: dict[str, float], settings: Settings) -> str:
    if stage in _CHANGES:
        return _CHANGES[stage]
    if stage == "augment_s":
        if settings.device == "cpu":
            return 'pass device="cuda" if there is a GPU, or choose a lighter augment'
        return f"{'' if settings.compiled else 'pass Augment(..., compile=True), or '}choose a lighter augment"
    if stage == "prepare_wait_s":
        return (
            f"it takes {1e3 * spent['prepare_s'] / max(spent['batches'], 1):,.1f} ms a batch in one thread. Make it "
            "faster, or do it once: fastpipe.Writer stores its values"
        )
    if stage in ("read_s", "decode_s") and not settings.packed:
        return "pack the images (fastpipe pack): then less of each is read and decoded"
    if stage == "read_s" and settings.remote:
        return (
            "open the data with cache_dir=, a folder on a faster disk of this machine: that of the cache is the limit"
        )
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
