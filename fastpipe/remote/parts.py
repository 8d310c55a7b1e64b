"""A range of a shard that is fetched at once: blocks that the cache keeps, or bytes for the ring."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastpipe.remote.blocks import Blocks
from fastpipe.remote.ring import LANES


@dataclass(eq=False)
class Part:
    """A range of a shard that is fetched at once.

    Attributes:
        shard, start, stop: which bytes.
        blocks: that it consists of, where the cache keeps them; None: it goes into the ring.
        samples: of the ring: those in it that are still to be used, by the plan.
        there: of the ring: its bytes are.
        dead: of the ring: nobody wants it any more.
        members: of the ring: all samples that were to be found in it.
        first: it is of a first batch.
        generation: of the plan that it was first fetched for; its lane in the ring follows from it.
    """

    shard: int
    start: int
    stop: int
    blocks: range | None = None
    samples: set[int] = field(default_factory=set)
    there: bool = False
    dead: bool = False
    members: list[int] = field(default_factory=list)
    first: bool = False
    generation: int = 0

    @property
    def lane(self) -> int:
        """Of the ring."""
        return self.generation % LANES

    @property
    def keys(self) -> set[Key]:
        """What may be waited for of it."""
        return {self} if self.blocks is None else set(self.blocks)


Key = int | Part  # a block, or a part in the ring


def kept_part(blocks: Blocks, run: range) -> Part:
    """Neighbouring blocks of a shard."""
    return Part(*blocks.place(run), blocks=run)
