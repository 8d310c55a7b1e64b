"""The samples that two ranks of late_ranks.py wrote down -> whether they shared their epochs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.pictures.drawn import FLAT_IMAGES


def written(folder: Path) -> list[Any]:
    """What two ranks of support/ranks/late_ranks.py wrote."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def assert_shared(epochs: list[list[list[int]]]) -> None:
    """Each sample once in each epoch of two ranks."""
    for first, second in zip(*epochs, strict=True):
        assert sorted(first + second) == list(range(FLAT_IMAGES))
        assert abs(len(first) - len(second)) <= 3
