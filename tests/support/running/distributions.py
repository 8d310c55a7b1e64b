"""Counts of draws -> whether they can be those of a distribution, or of the same distribution as others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def chi_squared_limit(degrees: int) -> float:
    """The value that chi-squared exceeds once in 10,000 times (Wilson and Hilferty, 1931)."""
    ninth = 2 / (9 * degrees)
    return degrees * (1 - ninth + 3.719 * ninth**0.5) ** 3


def assert_distribution(found: NDArray[np.int64], expected: NDArray[np.float64]) -> None:
    """Counts follow shares; a share of 0 is never drawn."""
    assert (found[expected == 0] == 0).all()
    due = expected[expected > 0] * found.sum() / expected.sum()
    assert due.min() >= 5, "too few draws for the test"
    assert ((found[expected > 0] - due) ** 2 / due).sum() < chi_squared_limit(len(due) - 1)


def assert_same_distribution(found: NDArray[np.int64], reference: NDArray[np.int64]) -> None:
    """Two sets of counts, of as many draws each, can be of one distribution."""
    both = found + reference
    some = both > 0
    statistic = ((found[some] - reference[some]) ** 2 / both[some]).sum()
    assert statistic < chi_squared_limit(int(some.sum()) - 1)
