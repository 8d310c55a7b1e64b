"""What a loader has done so far, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Stats:
    """Counts and times since the loader was made.

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
        images_decoded: rows finished by the engine, prefetched batches included, failed ones not.
        bytes_read: compressed bytes of those rows.
        read_s, decode_s, resize_s: seconds that the engine's threads spent in each stage, summed over threads. Hashing
            (verify=True) is part of reading.
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
    bytes_read: int = 0
    images_decoded: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    resize_s: float = 0.0

    @property
    def load_ratio(self) -> float:
        """load_s to step_s: how much longer training takes for its input. 0 before the second batch."""
        return self.load_s / self.step_s if self.step_s else 0.0

    def since(self, before: Stats) -> Stats:
        """What came to the counts and times since `before`; `epoch` is that of now."""
        mine, theirs = asdict(self), asdict(before)
        return Stats(**{name: mine[name] - (0 if name == "epoch" else theirs[name]) for name in mine})

    def as_dict(self) -> dict[str, float]:
        """For JSON and logging."""
        return {**asdict(self), "load_ratio": self.load_ratio}
