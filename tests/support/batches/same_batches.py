"""Batches of one loop and of another -> whether they are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def assert_same(got: Sequence[Any], expected: Sequence[Any]) -> None:
    """Of tensors, or of pairs of them."""
    torch.testing.assert_close([*got], [*expected], rtol=0, atol=0)
