"""A listing, and a few of its sources converted -> which sources each shard has.

Note [plan]
Which sources a shard has is decided when they are listed. Shuffled, a source's hash decides: shard h // step has the
hashes from h to h + step. In order, its place decides: the bytes listed before it, divided by `step`. So a shard is a
function of its own sources, and one that comes, goes or changes touches its own shard; in order, at most the edges of
others.

`step` is chosen so that shards are written with about shard_size bytes. A fixed few of the sources, those of the
smallest hashes of their paths, are converted for it: they show how many bytes are written for one that is listed.
`step` is rounded to five bits, which is 3 % at most, so that a source more or less hardly ever changes it. The same few
say what values of fields have in common, such as the width of "floats".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, groupby, islice
from typing import Any, NamedTuple

from fastpipe.errors import ImageError
from fastpipe.format.sample_layout import sample_key
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.shard.tar import laid_out
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.picture.convert import Packed

HASHES = 1 << 64
FEW = 128  # sources that are converted
_FEW_BYTES = 64 << 20  # and at most so many bytes of them, but at least
_LEAST = 8
_MOST_PROBED = 4096  # where a field has no value in the first ones
_BITS = 5
_MOST_GROWTH = 4  # of sources that are so few that nobody looks

Outcome = Packed | str  # of a source: its picture, or why it cannot be packed
Outcomes = Generator[tuple[Source, Outcome], None, None]
Told = Callable[[Source, Outcome], None]
Convert = Callable[[Sequence[Source]], Iterable[tuple[Source, Outcome]]]


class Plan(NamedTuple):
    """What all shards of a pack have in common. Note [plan]

    `step` is hashes a shard; or, in order, listed bytes a shard. `agreed` is `Agreement.state` after the few sources.
    `stride`, more than there are shards, is added to a shard's number for the file that continues it. Where a dataset
    grows, `base` is the number of the first shard, and `kinds` has name -> kind of its fields, in its order.
    """

    step: int
    agreed: dict[str, Any]
    base: int = 0
    kinds: dict[str, str] | None = None
    stride: int = 1


class Run(NamedTuple):
    """The sources of a shard: positions among those of a listing, which is in packing order. Numbers may have gaps."""

    number: int
    start: int
    stop: int


def plan_shards(
    listing: Listing, shard_size: int, convert: Convert, *, shuffle: bool, weight: int | None = None
) -> Plan:
    """Decides how the sources are cut; `weight` is that of all, where only those of the smallest hashes are listed."""
    agreement = Agreement(listing.kinds)
    step = HASHES  # one shard, whatever they become
    if weight is not None or listing.size_bytes * _MOST_GROWTH > shard_size:
        listed = stored = 0
        for source, outcome in _few(listing, convert, agreement):
            if not isinstance(outcome, str):
                listed += listing.weight(source)
                pieces, _ = laid_out(sample_key(0, 0), outcome, source.label, source.path, listing.kinds)
                stored += sum(map(len, pieces))
                with suppress(ImageError):
                    agreement.admit(outcome.values)
        per_shard = shard_size * listed / stored if stored else shard_size
        if shuffle:
            per_shard *= HASHES / (weight or sum(map(listing.weight, listing.sources)))
        step = _rounded(max(1, int(per_shard)))
    return Plan(step, agreement.state(), stride=stride_of(listing, step, shuffle=shuffle))


def runs_of(listing: Listing, step: int, seed: int, *, shuffle: bool) -> list[Run]:
    """Cuts the sources, which are in packing order, into shards; see Note [plan]."""
    place, before = packing_order(seed, shuffle=True), accumulate(map(listing.weight, listing.sources), initial=0)
    places = (place(source)[0] for source in listing.sources) if shuffle else islice(before, len(listing.sources))
    found, start = [], 0
    for number, ours in groupby(at // step for at in places):
        stop = start + sum(1 for _ in ours)
        found.append(Run(number, start, stop))
        start = stop
    return found


def stride_of(listing: Listing, step: int, *, shuffle: bool) -> int:
    """A number that is greater than that of any shard."""
    total = HASHES if shuffle else sum(map(listing.weight, listing.sources))
    return total // step + 1


def _few(listing: Listing, convert: Convert, agreement: Agreement) -> Iterator[tuple[Source, Outcome]]:
    """The sources that are converted for the plan, and what became of them."""
    few = listing.samples(_MOST_PROBED)
    before = list(accumulate((source.size_bytes for source in few), initial=0))
    first = min(max(bisect_right(before, _FEW_BYTES), _LEAST), FEW)
    yield from convert(few[:first])
    rest = iter(few[first:])
    while not agreement.complete and (more := list(islice(rest, _LEAST))):
        yield from convert(more)


def _rounded(number: int) -> int:
    shift = max(number.bit_length() - _BITS, 0)
    return (number + (1 << shift >> 1)) >> shift << shift
