"""A listing, and a few of its sources converted -> which sources each shard has.

Note [plan]
The listing decides which sources a shard has. If the samples are shuffled, a hash of each source's
path decides: shard h // step has the sources with hashes from h to h + step. If they are in order,
the place of a source decides: the bytes that are listed before it, divided by `step`. So a shard is
a function of its own sources. A source that is added, removed or changed touches its own shard; in
order, it touches at most the edges of the other shards.

`step` is chosen so that a shard gets about shard_size bytes. For it, the few sources with the
smallest hashes of their paths are converted: they show how many bytes are written for one that is
listed. `step` is rounded to five bits, which is 3 % at most, so that one source more or less hardly
ever changes it. The same few sources tell what all values of a field have in common, such as the
width of "floats".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, groupby, islice
from typing import Any, NamedTuple

from fastpipe.dataset.format.sample_layout import sample_key
from fastpipe.errors import ImageError
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.shard.tar import encode_sample
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.picture.convert import Packed

HASHES = 1 << 64
# So many sources are converted for the plan. If they are large, fewer: those that come within
# _FEW_BYTES, but at least _MIN_FEW.
FEW = 128
_FEW_BYTES = 64 << 20
_MIN_FEW = 8
# So many sources are tried at most if the first ones have no value of a field.
_MAX_PROBED = 4096
_BITS = 5
# A source grows to at most so many times its bytes. If all sources together fill no shard even
# then, none is converted.
_MAX_GROWTH = 4

# What became of a source: its picture, or the reason why it cannot be packed.
Outcome = Packed | str
Outcomes = Generator[tuple[Source, Outcome], None, None]
OnSource = Callable[[Source, Outcome], None]
Convert = Callable[[Sequence[Source]], Iterable[tuple[Source, Outcome]]]


class Plan(NamedTuple):
    """What all shards of a pack have in common. Note [plan]

    Attributes:
        step: hashes a shard has; in order, listed bytes a shard has.
        agreed: `Agreement.state` after the few sources that were converted.
        base: number of the first shard; not 0 if a dataset grows.
        kinds: name -> kind of the fields in the order of the dataset, if a dataset grows.
        stride: more than the highest number of a shard. If a shard needs a second tar, the tar's
            number is the shard's plus `stride`.
    """

    step: int
    agreed: dict[str, Any]
    base: int = 0
    kinds: dict[str, str] | None = None
    stride: int = 1


class ShardSlice(NamedTuple):
    """The sources of a shard: positions from `start` to `stop` in a listing, which is in packing
    order.

    The numbers of shards may have gaps.
    """

    number: int
    start: int
    stop: int


def plan_shards(
    listing: Listing,
    shard_size: int,
    convert: Convert,
    *,
    shuffle: bool,
    weight: int | None = None,
) -> Plan:
    """Decides how the sources are cut into shards. Note [plan]

    Args:
        listing: the sources; only those with the smallest hashes if `weight` is given.
        shard_size: bytes that a shard should have.
        convert: converts some sources.
        shuffle: whether the samples are shuffled.
        weight: the sum of `Listing.weight` over all sources.
    """
    agreement = Agreement(listing.kinds)
    # One shard, unless the sources may fill more than one.
    step = HASHES
    if weight is not None or listing.size_bytes * _MAX_GROWTH > shard_size:
        listed_bytes = 0
        written_bytes = 0
        for source, outcome in _convert_few(listing, convert, agreement):
            if isinstance(outcome, str):
                continue
            listed_bytes += listing.weight(source)
            sample = encode_sample(
                sample_key(0, 0), outcome, source.label, source.path, listing.kinds
            )
            written_bytes += sum(len(piece) for piece in sample.pieces)
            with suppress(ImageError):
                # Such a sample is rejected when its shard is made.
                agreed = agreement.compare(outcome.values)
                agreement.admit(outcome.values, agreed)
        per_shard: float = shard_size
        if written_bytes:
            per_shard = shard_size * listed_bytes / written_bytes
        if shuffle:
            # The hashes are spread evenly: a share of the bytes is the same share of the hashes.
            total = weight or sum(map(listing.weight, listing.sources))
            per_shard *= HASHES / total
        step = _round_to_bits(max(1, int(per_shard)))
    stride = stride_of(listing, step, shuffle=shuffle)
    return Plan(step, agreement.state(), stride=stride)


def cut_into_slices(
    listing: Listing, step: int, seed: int, *, shuffle: bool
) -> list[ShardSlice]:
    """Cuts the sources, which are in packing order, into shards. Note [plan]"""
    positions: Iterable[int]
    if shuffle:
        order_key = packing_order(seed, shuffle=True)
        positions = (order_key(source)[0] for source in listing.sources)
    else:
        bytes_before = accumulate(map(listing.weight, listing.sources), initial=0)
        positions = islice(bytes_before, len(listing.sources))

    slices = []
    start = 0
    for number, group in groupby(position // step for position in positions):
        stop = start + sum(1 for _ in group)
        slices.append(ShardSlice(number, start, stop))
        start = stop
    return slices


def stride_of(listing: Listing, step: int, *, shuffle: bool) -> int:
    """A number that is greater than that of any shard."""
    total = HASHES
    if not shuffle:
        total = sum(map(listing.weight, listing.sources))
    return total // step + 1


def _convert_few(
    listing: Listing, convert: Convert, agreement: Agreement
) -> Iterator[tuple[Source, Outcome]]:
    """Converts the few sources for the plan; more of them until each field has had a value."""
    few = listing.samples(_MAX_PROBED)
    # As many as are read quickly, within limits.
    sizes = [source.size_bytes for source in few]
    bytes_before = list(accumulate(sizes, initial=0))
    num_quick = bisect_right(bytes_before, _FEW_BYTES)
    count = min(max(num_quick, _MIN_FEW), FEW)
    yield from convert(few[:count])
    # The caller adds the values to the agreement as it gets them.
    while not agreement.complete and count < len(few):
        yield from convert(few[count : count + _MIN_FEW])
        count += _MIN_FEW


def _round_to_bits(number: int) -> int:
    """The nearest number that has only zeros behind its first _BITS binary digits."""
    shift = max(number.bit_length() - _BITS, 0)
    half = 1 << shift >> 1
    return (number + half) >> shift << shift
