"""Weights, classes or lists of numbers -> the samples that the places of a pass stand for.

Note [spread draws]
Draw i of n takes a random point in the i-th of n equal parts of the sum of all weights, and the
sample whose weight covers that point. Each sample comes as often as its weight says, on average
exactly; a sample that is due 2.4 times in an epoch comes 1 to 4 times, where independent draws
scatter far more. And the samples ascend with i: so neighbouring draws are neighbours in the shards,
the chunked shuffle works on draws as it does on samples, and any batch is found without the draws
before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float64s, Int64s
from fastpipe.plan.draws import Stream, bits, key, uniform
from fastpipe.plan.order import Ids, permute

MAX_KEPT = 1 << 24  # weights of more samples are not kept in memory
MAX_TRIES = 64  # of a draw, on average, without weights in memory
_TRY = 1 << 40  # the random numbers of try t of a draw have the names draw + t * _TRY
_LISTS_KEPT = 2  # epochs


class Pick:
    """How the places of a pass become samples."""

    # Neighbouring places are neighbouring samples, so that chunks of places are worth shuffling.
    together = True

    def rows(self, epoch: int) -> int | None:
        """Places of an epoch; None: the loader decides."""
        return None

    def distinct(self, epoch: int) -> bool:
        """Whether no sample comes twice in a pass."""
        return False

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        """(n,) places of pass `epoch` -> (n,) places in the reading order of the share."""
        raise NotImplementedError


class SpreadDraws(Pick):
    """With replacement, by (n,) weights of at least 0, not all 0; see Note [spread draws]."""

    def __init__(self, weights: Float64s) -> None:
        self._ends = np.cumsum(weights)
        drawable = np.flatnonzero(weights)
        self._last = int(drawable[-1])

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        stream = key(seed, epoch, Stream.DRAW)
        total_weight = self._ends[-1]
        weight_per_draw = total_weight / count

        def draw(places: Int64s) -> Int64s:
            # A random point in the part of each draw, and the sample whose weight covers it.
            draws = uniform(stream, places)
            places_and_draws = places + draws
            points = places_and_draws * weight_per_draw
            samples = np.searchsorted(self._ends, points, side="right")
            # Rounding may move a point to the end of all weights.
            return np.asarray(np.minimum(samples, self._last))

        return draw


class WeightedDrawsWithoutReplacement(Pick):
    """Without replacement, by (n,) weights: as drawing one by one from the remaining samples.

    It is the set of the smallest of exponentially distributed numbers with the weights as rates
    (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
    """

    def __init__(self, weights: Float64s) -> None:
        self._drawable = np.flatnonzero(weights)
        self._weights = weights[self._drawable]

    def distinct(self, epoch: int) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._drawable)

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        draw_key = key(seed, epoch, Stream.DRAW)
        draws = uniform(draw_key, self._drawable)
        # -log(1 - u) of a uniform u is exponentially distributed with rate 1.
        times = -np.log1p(-draws)
        times /= self._weights
        by_time = np.argpartition(times, count - 1)
        smallest = by_time[:count]
        drawn = np.sort(self._drawable[smallest])
        return drawn.__getitem__


@dataclass(frozen=True, eq=False)
class RejectionDraws(Pick):
    """With replacement, without weights in memory: tries samples, and accepts them by weight.

    A sample is accepted with a probability that is proportional to its weight."""

    samples: int  # that could be drawn
    weights_of: Callable[[Int64s], Float64s]  # (n,) samples -> (n,) weights, not all 0
    most: float  # the greatest weight
    tries: float  # of a draw, on average

    together = False

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        sample_key = key(seed, epoch, Stream.DRAW)
        luck_key = key(seed, epoch, Stream.LUCK)
        tries_at_once = max(1, round(self.tries))
        sample_count = np.uint64(self.samples)

        def draw(places: Int64s) -> Int64s:
            result = np.empty(len(places), dtype=np.int64)
            todo = np.arange(len(places))
            first_try = 0
            while len(todo):
                # All arrays are (draws without a sample, tries).
                end_try = first_try + tries_at_once
                try_numbers = np.arange(first_try, end_try)
                places_todo = places[todo, None]
                names = places_todo + _TRY * try_numbers
                hashes = bits(sample_key, names)
                unsigned_samples = hashes % sample_count
                samples = unsigned_samples.astype(np.int64)
                weights = self.weights_of(samples.ravel())
                weights = weights.reshape(names.shape)
                luck_draws = uniform(luck_key, names)
                least_weights = luck_draws * self.most
                is_accepted = least_weights < weights

                # The first try that is accepted counts.
                is_done = is_accepted.any(axis=1)
                first_accepted = is_accepted[is_done].argmax(axis=1)
                done = todo[is_done]
                result[done] = samples[is_done, first_accepted]
                todo = todo[~is_done]
                first_try += tries_at_once
            return result

        return draw


class Listed(Pick):
    """The samples that a function lists: epoch -> (n,) ids, checked.

    The lists of two epochs are kept.
    """

    def __init__(self, numbers_of: Callable[[int], Int64s]) -> None:
        kept_numbers_of = lru_cache(_LISTS_KEPT)(numbers_of)

        def all_differ(epoch: int) -> bool:
            numbers = kept_numbers_of(epoch)
            distinct_numbers = np.unique(numbers)
            return len(distinct_numbers) == len(numbers)

        self._numbers_of = numbers_of
        self._kept_numbers_of = kept_numbers_of
        self._all_differ = lru_cache(_LISTS_KEPT)(all_differ)

    def changed(self, epoch: int) -> bool:
        """Calls the function again: whether it lists other samples than before."""
        numbers = self._numbers_of(epoch)
        kept_numbers = self._kept_numbers_of(epoch)
        return not np.array_equal(numbers, kept_numbers)

    def digest(self, epoch: int) -> str:
        """The hash of an epoch's list, in hex."""
        import xxhash  # slow to import, and most programs list nothing

        numbers = self._kept_numbers_of(epoch).astype("<i8")
        return xxhash.xxh3_64_hexdigest(numbers.tobytes())

    def rows(self, epoch: int) -> int | None:
        return len(self._kept_numbers_of(epoch))

    def distinct(self, epoch: int) -> bool:
        return self._all_differ(epoch)

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        return self._kept_numbers_of(epoch).__getitem__


class PartsOfImages(Pick):
    """The parts of all images, one behind the other: patches of a Grid, or objects.

    Args:
        counts: (n,) parts of each image, in the reading order.
    """

    def __init__(self, counts: NDArray[np.int32]) -> None:
        # (n + 1,) the places at which the parts of each image begin, and the end of the last one.
        num_edges = len(counts) + 1
        self._edges = np.zeros(num_edges, dtype=np.int64)
        ends = self._edges[1:]
        np.cumsum(counts, out=ends)

    def rows(self, epoch: int) -> int:
        return int(self._edges[-1])

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        return self._images_of

    def _images_of(self, places: Int64s) -> Int64s:
        edges_up_to = np.searchsorted(self._edges, places, side="right")
        return edges_up_to - 1

    def numbers(self, places: Int64s) -> Int64s:
        """(n, 2) the number of the part at each place, counted in its image, and how many the image
        has.
        """
        images = self._images_of(places)
        begins = self._edges[images]
        ends = self._edges[images + 1]
        counts = ends - begins
        numbers_in_image = places - begins
        return np.stack([numbers_in_image, counts], axis=1)


class ByClass(Pick):
    """P classes in each global batch, and K samples of each, one class behind the other.

    Note [P x K]
    Batches follow one another without end, epoch after epoch. A round of them goes through all
    classes in one order, repeated until a batch is full; the next round has a new order. So the
    classes of a batch differ, and each class comes equally often. A class goes through its samples
    in the same way, K at a time: so these differ, unless the class has fewer, and each comes
    equally often. Samples with a label below 0 are in no batch.
    """

    def __init__(self, labels: Int64s, classes: int, samples: int) -> None:
        is_labelled = labels >= 0
        labelled = np.flatnonzero(is_labelled)
        by_class = np.argsort(labels[labelled], kind="stable")
        # Places in the share, class by class.
        self._members = labelled[by_class]
        sorted_labels = labels[self._members]
        # (all classes,): where each class begins in the members, and its number of samples.
        _, self._firsts, self._counts = np.unique(
            sorted_labels, return_index=True, return_counts=True
        )
        self._classes_per_batch = classes
        self._samples_per_class = samples

    def ids(self, count: int, *, seed: int, epoch: int) -> Ids:
        samples_per_class = self._samples_per_class
        class_count = len(self._counts)
        class_key = key(seed, 0, Stream.CLASS)
        member_key = key(seed, 0, Stream.MEMBER)
        # A "turn" is a class with its K samples. A round is the least number of turns that uses
        # every class equally often and ends with a full batch, so that no batch has samples of two
        # orders of the classes. The rounds run on over the epochs.
        turns_per_round = math.lcm(class_count, self._classes_per_batch)
        uses_per_round = turns_per_round // class_count

        def pick(places: Int64s) -> Int64s:
            # All arrays are (n,). Places are counted through all epochs.
            all_places = places + epoch * count
            turns, place_in_turn = np.divmod(all_places, samples_per_class)
            rounds, turn_in_round = np.divmod(turns, turns_per_round)
            use_in_round, place_in_order = np.divmod(turn_in_round, class_count)
            # Each round has an order of the classes.
            order_keys = bits(class_key, rounds)
            classes = permute(place_in_order, class_count, order_keys)
            # How often the class was used before this turn.
            uses_before_round = rounds * uses_per_round
            uses = uses_before_round + use_in_round

            # The members of a class are permuted anew after the least number of uses that ends with
            # its last member.
            sizes = self._counts[classes]
            cycle_lengths = np.lcm(sizes, samples_per_class)
            draws_before_turn = uses * samples_per_class
            member_draws = draws_before_turn + place_in_turn
            cycles, place_in_cycle = np.divmod(member_draws, cycle_lengths)
            cycle_numbers = classes + cycles * class_count
            member_keys = bits(member_key, cycle_numbers)
            place_in_class = place_in_cycle % sizes
            members = permute(place_in_class, sizes, member_keys)
            positions = self._firsts[classes] + members
            return np.asarray(self._members[positions])

        return pick
