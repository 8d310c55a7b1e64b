"""What a user asks of a pack -> checked options."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fastpipe.checks import choice, whole
from fastpipe.packing.picture.convert import DAMAGED, EncodeOptions

MIN_SHARD_BYTES = 100_000
DEFAULT_SHARD_BYTES = 256_000_000


@dataclass(frozen=True)
class PackOptions:
    """What is packed and how.

    Attributes:
        encode: how sources become JPEGs.
        shard_size: bytes a shard is filled up to.
        seed: picks the order of the samples.
        shuffle: False: the samples are packed class by class, in the order of their paths.
        fail_fast: stop at the first file that cannot be packed; else go on and list them in rejected.jsonl.
        overwrite: replace another dataset, or a damaged one, that is in the destination.
        workers: threads; None: the CPUs granted to this process.
    """

    encode: EncodeOptions = field(default_factory=EncodeOptions)
    shard_size: int = DEFAULT_SHARD_BYTES
    seed: int = 0
    shuffle: bool = True
    fail_fast: bool = False
    overwrite: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        whole("--shard-size", self.shard_size, least=MIN_SHARD_BYTES, most=2**40)
        whole("--seed", self.seed, least=0, most=2**64 - 1)
        if self.workers is not None:
            whole("--workers", self.workers, least=1, most=1024)
        if self.encode.max_size is not None:
            whole("--max-size", self.encode.max_size, least=1, most=65500)
        whole("--quality", self.encode.quality, least=1, most=100)
        whole("--tile", self.encode.tile, least=0, most=65500)
        whole("--max-pixels", self.encode.max_pixels, least=1, most=65500 * 65500)
        whole("--max-scans", self.encode.max_scans, least=1, most=2**31 - 1)
        choice("--damaged", self.encode.damaged, DAMAGED)

    def shaping(self) -> dict[str, Any]:
        """The options that decide the dataset's bytes."""
        return {**asdict(self.encode), "shard_size": self.shard_size, "seed": self.seed, "shuffle": self.shuffle}
