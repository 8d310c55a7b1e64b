"""The facts of the sources and their parts -> the state of any run of them, which no machine has in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.packing.steps.job import Listed, Part


@dataclass(frozen=True)
class Sources:
    """What is packed, as the plan of a destination asks for it.

    Attributes:
        listed: the facts.
        parts: of it.
    """

    listed: Listed
    parts: list[Part]

    @property
    def kinds(self) -> dict[str, str]:
        """Name -> kind of the fields."""
        return self.listed.kinds

    def resolved_root(self) -> str:
        """See Listing."""
        return self.listed.root

    def digest(self) -> str:
        """See Listing."""
        return self.listed.content

    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str:
        """Of all sources, see Listing; of a run in packing order, the names of its parts, which name their states."""
        if (start, stop) == (0, None) or self.listed.kind:  # parts of tables are no runs in packing order
            return self.listed.state
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = len(self.parts) if stop is None else int(np.searchsorted(self.ends, stop))
        names = "\n".join(part.name for part in self.parts[first : last + 1])
        return xxhash.xxh3_128_hexdigest(names.encode())

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """(P,) position after the last source of each part, where parts are runs in packing order."""
        return np.cumsum([part.files for part in self.parts], dtype=np.int64)
