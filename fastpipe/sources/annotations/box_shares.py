"""The numbers of all boxes of a source -> whether they are shares of the sizes of the images."""

from __future__ import annotations

from collections.abc import Iterable

from fastpipe.sources.listing import Assumption

# Shares that tools have rounded may be a little above 1.
_MAX_SHARE = 1.01


def cut_shares(box: Iterable[float]) -> list[float]:
    """The corners of a box as shares; those that were rounded up are 1, the edge of the image."""
    return [1.0 if 1 < number <= _MAX_SHARE else number for number in box]


class ShareCheck:
    """Looks at all boxes of a source: only their numbers together tell pixels from shares."""

    def __init__(self) -> None:
        self._has_fraction = False
        self._largest = 0.0  # of the absolute values

    def add(self, box: Iterable[float]) -> None:
        """Looks at the numbers of a box, as the source has them."""
        for number in box:
            self._largest = max(self._largest, abs(number))
            if not float(number).is_integer():
                self._has_fraction = True

    @property
    def are_shares(self) -> bool:
        """Whether no number is above 1, but for rounding, and not all are whole."""
        return self._has_fraction and self._largest <= _MAX_SHARE

    def describe(self, columns: str) -> Assumption:
        """Says that boxes are shares. `columns`: those that hold them."""
        text = (
            f"boxes ({columns}): normalised coordinates (0 to 1), because no number is "
        )
        if self._largest <= 1:
            return Assumption(f"{text}above 1")
        return Assumption(
            f"{text}above {_MAX_SHARE}; those a little above 1 end at the edge of the image"
        )
