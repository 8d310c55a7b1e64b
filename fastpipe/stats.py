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
        wait_s: seconds that the training loop waited for batches.
        plan_s: seconds spent planning batches, in the training loop's thread.
        images_decoded: rows finished by the engine, prefetched batches included, failed ones not.
        bytes_read: compressed bytes of those rows.
        read_s, decode_s, resize_s: seconds that the engine's threads spent in each stage, summed over threads.
    """

    epoch: int = -1
    batches: int = 0
    samples: int = 0
    replaced: int = 0
    wait_s: float = 0.0
    plan_s: float = 0.0
    bytes_read: int = 0
    images_decoded: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    resize_s: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """For JSON and logging."""
        return asdict(self)
