"""What samples cost -> how a window of them is dealt out to batches; see Note [batches of a budget]."""

from __future__ import annotations

from typing import NamedTuple

from fastpipe.arrays import Int64s
from fastpipe.native import _engine
from fastpipe.plan.crops import Size

_WINDOW_BATCHES = 64  # fewer would leave much of the last batch of each window empty
_WINDOW_BATCHES_OF_SIZE = 16  # fewer would often have images of two sizes in a batch
_MAX_WINDOW_SAMPLES = 1 << 18  # dealt out at once


class Dealt(NamedTuple):
    """The batches of some samples."""

    batches: Int64s  # (n,) the batch of each sample, from 0 on
    sizes: list[Size]  # (height, width) of each batch


def samples_of_window(
    mean_cost: float, budget: int, most: int, num_sizes: int = 1
) -> int:
    """How many samples a window has.

    Args:
        mean_cost: of a sample, in tokens or pixels.
        budget: of a batch.
        most: samples of a batch.
        num_sizes: how many sizes batches can have, if they are listed; else 1.
    """
    samples_of_batch = min(budget / max(mean_cost, 1.0), most)
    batches = max(_WINDOW_BATCHES, _WINDOW_BATCHES_OF_SIZE * num_sizes)
    return max(1, min(round(batches * samples_of_batch), _MAX_WINDOW_SAMPLES))


def deal_by_cost(costs: Int64s, budget: int, most: int) -> Dealt:
    """Samples that cost so much, (n,), packed into batches; *Note [best fit]* in csrc/plan/budget.h."""
    batches, count = _engine.fill_batches(costs, budget, most)
    return Dealt(batches, [(1, 1)] * count)
