"""A range of a shard that is fetched at once: blocks that the cache keeps, or samples for the ring."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastpipe.remote.blocks import Blocks

# Small neighbours lie in the ring together.
_PIECE_BYTES = 64 << 10


@dataclass(eq=False)
class Piece:
    """Neighbouring samples, or one large one, that lie in the ring together.

    Attributes:
        start, stop: which bytes of the shard.
        samples: those that may still be found in it.
        place: in the ring; None: not there yet, or not any more.
    """

    start: int
    stop: int
    samples: set[int]
    place: int | None = None


@dataclass(eq=False)
class Part:
    """A range of a shard that is fetched at once.

    Attributes:
        shard, start, stop: which bytes.
        blocks: that it consists of, where the cache keeps them; None: it goes into the ring.
        samples: of the ring: those in it that are still to be used, by the plan.
        there: of the ring: its bytes are.
        dead: of the ring: nobody wants it any more.
        members: of the ring: all samples that were to be found in it, and where. Bytes between them are not kept.
        first: it is of a first batch.
    """

    shard: int
    start: int
    stop: int
    blocks: range | None = None
    samples: set[int] = field(default_factory=set)
    there: bool = False
    dead: bool = False
    members: dict[int, Piece] = field(default_factory=dict)
    first: bool = False

    @property
    def keys(self) -> set[Key]:
        """What may be waited for of it."""
        return {self} if self.blocks is None else set(self.blocks)

    def add(self, sample: int, start: int, stop: int) -> None:
        """Of the ring: its next sample, by its number and bytes. They do not lie before those of others."""
        self.stop = stop
        last = next(reversed(self.members.values()), None)
        if last is not None and last.stop == start and stop - last.start <= _PIECE_BYTES:
            last.stop = stop
            last.samples.add(sample)
            self.members[sample] = last
        else:
            self.members[sample] = Piece(start, stop, {sample})

    def pieces(self) -> list[Piece]:
        """Of the ring: what it consists of."""
        return list(dict.fromkeys(self.members.values()))


Key = int | Part  # a block, or a part in the ring


def kept_part(blocks: Blocks, run: range) -> Part:
    """Neighbouring blocks of a shard."""
    return Part(*blocks.place(run), blocks=run)
