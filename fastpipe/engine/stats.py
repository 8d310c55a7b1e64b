"""What a loader has done so far, and what is waiting in it at the moment, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

# Of the moment; all other figures only grow.
LEVELS = (
    *("epoch", "threads", "threads_busy", "rows_waiting", "batches_making", "batches_ready", "batches_copying"),
    *("slots_lent", "slots_idle", "hints_waiting"),
)


@dataclass
class Stats:
    """Counts and times since the loader was made, and levels, which are those of the moment.

    Attributes:
        epoch: the epoch of the latest iteration; -1 before the first.
        batches: batches handed out.
        samples: samples handed out.
        replaced: samples that could not be decoded and were replaced (on_error="replace").
        step_s: seconds between a batch that was handed out and the next that was asked for: the training step, as
            far as the host sees it.
        load_s: seconds that the training loop spent in the loader. Of these:
        plan_s: planning batches;
        wait_s: waiting for the engine's threads;
        transfer_s: copying to the device, or queueing that;
        augment_s: augmenting, or queueing that on a GPU.
        device_s: seconds of a GPU's side stream, copies and augmentation, those that have ended.
        shards_opened: shards opened by the engine. If it keeps growing from epoch to epoch, more shards are in use at
            once than `ulimit -n` lets the engine keep open.
        images_read: rows whose bytes the engine has read, prefetched batches included.
        bytes_read: compressed bytes of those rows.
        images_decoded: of those rows, the ones that were finished. Decoding and resizing go on side by side, a few
            lines of the picture at a time, and resizing cannot fail: one count is that of both.
        images_failed: rows that could not be read or decoded.
        read_s, decode_s, resize_s: seconds that the engine's threads spent in each stage, summed over threads. Hashing
            (verify=True) is part of reading.
        threads: threads of the engine. (This and what follows are levels.)
        threads_busy: of these, at a row.
        rows_waiting: rows that no thread has taken yet. 0 with idle threads: they wait for the training loop.
        batches_making: batches in the works of which some rows are not finished.
        batches_ready: batches in host memory, finished and not asked for. Always 0 in a loop that waits for the
            engine; prefetch_factor in one that does not.
        batches_copying: batches whose copy to the device, or augmentation there, is queued and not done.
        slots_lent: batch buffers in use: in the works, ready, on the way to the device, or (on the CPU) batches that
            the program keeps (of which only the first few are counted).
        slots_idle: batch buffers that are free and kept for the batches to come.
        hints_waiting: ranges of shards that the kernel has not yet been asked to read ahead. Where it stays high, the
            disk's own queue is full.
    """

    epoch: int = -1
    batches: int = 0
    samples: int = 0
    replaced: int = 0
    step_s: float = 0.0
    load_s: float = 0.0
    plan_s: float = 0.0
    wait_s: float = 0.0
    transfer_s: float = 0.0
    augment_s: float = 0.0
    device_s: float = 0.0
    shards_opened: int = 0
    images_read: int = 0
    bytes_read: int = 0
    images_decoded: int = 0
    images_failed: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    resize_s: float = 0.0
    threads: int = 0
    threads_busy: int = 0
    rows_waiting: int = 0
    batches_making: int = 0
    batches_ready: int = 0
    batches_copying: int = 0
    slots_lent: int = 0
    slots_idle: int = 0
    hints_waiting: int = 0

    @property
    def load_ratio(self) -> float:
        """load_s to step_s: how much longer training takes for its input. 0 before the second batch."""
        return self.load_s / self.step_s if self.step_s else 0.0

    def since(self, before: Stats) -> Stats:
        """What came to the counts and times since `before`; levels are those of now."""
        mine, theirs = asdict(self), asdict(before)
        return Stats(**{name: mine[name] - (0 if name in LEVELS else theirs[name]) for name in mine})

    def as_dict(self) -> dict[str, float]:
        """For JSON and logging."""
        return {**asdict(self), "load_ratio": self.load_ratio}
