"""A loader's counts and times so far, and the lengths of its queues now."""

from __future__ import annotations

from dataclasses import asdict, dataclass

# Values of this moment; all others only grow.
LEVELS = (
    "epoch",
    "threads",
    "threads_busy",
    "rows_waiting",
    "batches_making",
    "batches_ready",
    "batches_copying",
    "slots_lent",
    "slots_idle",
    "pinned_bytes",
    "hints_waiting",
    "requests_under_way",
    "ranges_waiting",
    "ring_bytes",
)


@dataclass
class Stats:
    """Counts and times since the creation of the loader, and levels: values of this moment.

    Attributes:
        epoch: epoch of the latest iteration; -1 before the first iteration.
        batches: batches given to the training loop.
        samples: samples given to the training loop.
        replaced: samples that could not be decoded and were replaced (on_error="replace").
        step_s: seconds of the training steps, as the host sees them: from each batch to the next,
            without load_s.
        held_s: seconds that the loader held the loop back, because the device had not finished the
            step of four batches ago. A loop that its GPU limits spends most of its time here; it
            does not wait for data.
        load_s: seconds that the training loop spent in the loader. Batches at which the loop was
            held back do not count, because the device had work anyway.
        plan_s: seconds that the loader spent planning batches.
        wait_s: seconds that it waited for the engine's threads.
        transfer_s: seconds that it spent copying to the device, or queueing the copy.
        augment_s: seconds that it spent augmenting, or queueing the augmentation on a GPU.
        device_s: seconds that finished copies and augmentations took on a GPU's side stream. Where
            the GPU had to wait for the host to queue an augmentation, the time of the last one
            without waiting counts instead. 0 on a device without streams.
        shards_opened: shards opened by the engine; of an unpacked folder, files. If it grows with
            every epoch for a packed dataset, the engine uses more shards at a time than `ulimit -n`
            lets it keep open.
        images_read: rows whose bytes the engine has read, prefetched batches included.
        bytes_read: compressed bytes of those rows.
        images_decoded: rows that are finished. Decoding and resizing run in turn, a few lines of
            the image at a time, and resizing cannot fail, so one count is enough for both.
        images_failed: rows that could not be read or decoded. In these three counts, each mask and
            each second image is a row of its own.
        images_converted: of the finished rows, those whose file the engine's threads could not
            decode as it lies, such as WebP or progressive JPEG: only of an unpacked source. Other
            threads make a PNG or JPEG of it first, in each epoch again. `fastpipe pack` does it
            once.
        convert_s: seconds that these other threads spent, summed over threads.
        read_s: seconds that the engine's threads spent reading, summed over threads. Hashing
            (verify=True) is part of it.
        decode_s: seconds that they spent decoding, summed over threads.
        resize_s: seconds that they spent resizing, summed over threads.
        threads: threads of the engine, and those that convert. (This and the following values are
            levels.)
        threads_busy: threads that are working on a row.
        rows_waiting: rows that no thread has taken yet. If 0, and threads are idle, they wait for
            the training loop.
        batches_making: batches that are being made: some of their rows are not finished.
        batches_ready: finished batches in host memory that the loop has not requested. Always 0 if
            the loop waits for the engine; prefetch_factor if it does not.
        batches_copying: batches whose copy to the device, or augmentation there, was queued and not
            finished when the loop last asked for a batch, and those queued since.
        slots_lent: batch buffers in use: batches that are being made, are ready, or are being
            copied to the device, or (on the CPU) batches that the program keeps. It counts only the
            first few batches that the program keeps.
        slots_idle: batch buffers that are free and kept for later batches.
        pinned_bytes: page-locked host memory of the batch buffers. 0 on the CPU, or if the system
            refuses to lock. Memory that torch itself has pinned is not counted.
        hints_waiting: ranges of shards for which the engine has not asked the kernel to read ahead
            yet. If it stays high, the disk's own queue is full.
        fetched_bytes: bytes of a remote dataset's shards that came over the network.
        cache_hit_bytes: bytes of samples that were in the cache already, or that another process
            fetched into it.
        requests: requests made for shards.
        retries: requests of these that were made again.
        prepare_s: seconds that prepare= took, in its thread.
        prepare_wait_s: the part of wait_s in which the images of a batch were there, and prepare=
            had not returned.
        fetch_wait_s: the part of wait_s in which the samples of a batch were not there yet.
        requests_under_way: requests that have not been answered. (This and the following values are
            levels.)
        ranges_waiting: ranges of shards that are to be requested. 0 while all that the plan needs
            is here.
        ring_bytes: memory that holds samples which no cache keeps.

    Example:
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
        >>> before = loader.stats()
        >>> for images, labels in loader:
        ...     pass
        >>> epoch = loader.stats().since(before)
        >>> epoch.samples, epoch.replaced
        (24, 0)
    """

    epoch: int = -1
    batches: int = 0
    samples: int = 0
    replaced: int = 0
    step_s: float = 0.0
    held_s: float = 0.0
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
    images_converted: int = 0
    convert_s: float = 0.0
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
    pinned_bytes: int = 0
    hints_waiting: int = 0
    fetched_bytes: int = 0
    cache_hit_bytes: int = 0
    requests: int = 0
    retries: int = 0
    fetch_wait_s: float = 0.0
    prepare_s: float = 0.0
    prepare_wait_s: float = 0.0
    requests_under_way: int = 0
    ranges_waiting: int = 0
    ring_bytes: int = 0

    @property
    def load_ratio(self) -> float:
        """load_s divided by step_s: how much longer training takes because of its input.

        0 before the second batch.

        Example:
            >>> fastpipe.Stats(load_s=1.0, step_s=4.0).load_ratio
            0.25
        """
        if not self.step_s:
            return 0.0
        return self.load_s / self.step_s

    @property
    def slowest(self) -> str:
        """The name of the largest of plan_s, wait_s, transfer_s and augment_s.

        If it is wait_s, and fetch_wait_s or prepare_wait_s is over half of it, the name of that.

        Example:
            >>> fastpipe.Stats(plan_s=0.1, wait_s=2.0, augment_s=0.5).slowest
            'wait_s'
        """
        stages = ("plan_s", "wait_s", "transfer_s", "augment_s")
        stage = max(stages, key=self.__getattribute__)
        if stage == "wait_s":
            for part in ("fetch_wait_s", "prepare_wait_s"):
                if getattr(self, part) > self.wait_s / 2:
                    return part
        return stage

    def since(self, before: Stats) -> Stats:
        """The increase of counts and times since `before`; levels have their present values.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> before = loader.stats()
            >>> batch = next(iter(loader))
            >>> loader.stats().since(before).samples
            8
        """
        increase = asdict(self)
        for name, value in asdict(before).items():
            if name not in LEVELS:
                increase[name] -= value
        return Stats(**increase)

    def as_dict(self) -> dict[str, float]:
        """For JSON and logging.

        Example:
            >>> import json
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> line = json.dumps(loader.stats().as_dict())
        """
        return {**asdict(self), "load_ratio": self.load_ratio}
