"""What a worker is told of the shard that it makes."""

from __future__ import annotations

from typing import Any, NamedTuple


class Range(NamedTuple):
    """A run of samples in a spool file.

    Attributes:
        file: of the spool.
        line_at, line_bytes: of their records.
        blob_at: where their blobs begin.
    """

    file: str
    line_at: int
    line_bytes: int
    blob_at: int


class ShardPlan(NamedTuple):
    """A shard that is to be made.

    Attributes:
        number: of it.
        start, stop: positions of its sources in packing order, those that are rejected included.
        first_sample, samples: of the dataset.
        ranges: where they are.
        agreed: `Agreement.state` before it; None: nothing must agree.
        kinds: name -> kind of the fields.
        root: of the sources, for messages.
        sources: names the state of its sources; see `Sources.state`.
    """

    number: int
    start: int
    stop: int
    first_sample: int
    samples: int
    ranges: tuple[Range, ...]
    agreed: dict[str, Any] | None
    kinds: dict[str, str]
    root: str
    sources: str
