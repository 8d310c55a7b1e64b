"""An epoch's order -> how well it is shuffled, beside a uniform permutation and the order of the shards.

Three figures, each with its expectation for a uniform permutation of n samples in batches of b:

- class mix: Pearson's chi-squared of a batch's class counts against the dataset's, by its degrees of freedom and the
  correction for drawing without replacement, (classes - 1) * (n - b) / (n - 1); the mean over batches. Expected: 1.
  Larger: batches hold too few classes; 0: all hold the same.
- neighbours: the share of samples whose next one in the shard is in the same batch. Expected: (b - 1) / n.
- displacement: the mean distance between a sample's place in the shards and in the epoch, by n. Expected: 1 / 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpipe.format.index import Index
from fastpipe.plan.content import Content
from fastpipe.plan.crops import Resize
from fastpipe.plan.draws import Int64s, key
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.order import permute
from fastpipe.plan.recipe import Recipe

# Enough for figures that do not move in the third place; a billion samples would take hours.
MOST_SAMPLES = 2_000_000


@dataclass(frozen=True)
class ShuffleScore:
    """How an order is shuffled; see the top of this file."""

    class_mix: float
    neighbours: float
    displacement: float


@dataclass(frozen=True)
class ShuffleReport:
    """The order of an epoch, and what it is compared with: a uniform permutation, and the order of the shards."""

    batch_size: int
    samples: int  # that were looked at: whole batches, the epoch's first
    epoch: ShuffleScore
    uniform: ShuffleScore
    shards: ShuffleScore


def score(samples: Int64s, labels: Int64s, batch_size: int, count: int) -> ShuffleScore:
    """Scores the start of an order of `count` samples: (m,) numbers and their labels; m is a multiple of batch_size."""
    batches = len(samples) // batch_size
    batch = np.repeat(np.arange(batches), batch_size)
    places = np.arange(len(samples))
    displacement = float(np.abs(samples - places).mean()) / count

    by_sample = np.argsort(samples, kind="stable")
    follows = np.diff(samples[by_sample]) == 1
    together = batch[by_sample[1:]] == batch[by_sample[:-1]]
    neighbours = float((follows & together).sum()) / len(samples)
    return ShuffleScore(_class_mix(labels, batch, batch_size, batches, count), neighbours, displacement)


def _class_mix(labels: Int64s, batch: Int64s, batch_size: int, batches: int, count: int) -> float:
    _, numbers = np.unique(labels, return_inverse=True)
    totals = np.bincount(numbers)
    if len(totals) < 2 or batch_size >= count:
        return 1.0  # nothing can be mixed badly
    expected = totals / len(labels) * batch_size
    pairs, found = np.unique(batch * len(totals) + numbers, return_counts=True)
    # The sum over all classes of (found - expected)^2 / expected, without those that a batch has none of.
    squares = (found**2 / expected[pairs % len(totals)]).sum() / batches - batch_size
    return float(squares / ((len(totals) - 1) * (count - batch_size) / (count - 1)))


def shuffle_report(index: Index, *, batch_size: int = 256, seed: int = 0, epoch: int = 0) -> ShuffleReport:
    """Scores the order in which a training loader goes through an epoch, in batches of all ranks together."""
    count = len(index)
    batch_size = min(batch_size, count)
    looked_at = min(count, max(MOST_SAMPLES, batch_size)) // batch_size * batch_size
    recipe = Recipe(batch_size, (1, 1), Resize(), 0.0, True, True, seed, Content.of(index))
    order = EpochPlan(recipe, epoch).orders[0]
    places = np.arange(looked_at, dtype=np.int64)
    if count > MOST_SAMPLES:
        uniform = permute(places, count, key(seed, epoch, 0))
    else:
        uniform = np.random.default_rng(0).permutation(count)[:looked_at].astype(np.int64)

    def scored(samples: Int64s) -> ShuffleScore:
        labels = index.records["label"][samples].astype(np.int64)
        return score(samples, labels, batch_size, count)

    return ShuffleReport(batch_size, looked_at, scored(order.take(0, looked_at).ids), scored(uniform), scored(places))
