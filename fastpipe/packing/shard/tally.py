"""What became of sources, added up."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fastpipe.packing.picture.convert import Packed


@dataclass(slots=True)
class Tally:
    """What became of a run of sources.

    Attributes:
        source_bytes: of all files read.
        packed_bytes: of the images written.
        changes: pictures that were encoded anew, by reason.
        oriented: pictures whose source carries an EXIF orientation other than upright.
        stray_bytes: pictures whose source had bytes that belong to no segment.
        multi_frame: pictures whose source has more frames, of which the first was packed.
        rejected: (path, reason) of files that were not packed.
    """

    source_bytes: int = 0
    packed_bytes: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    oriented: int = 0
    stray_bytes: int = 0
    multi_frame: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)

    def count(self, packed: Packed) -> None:
        """Adds one picture."""
        self.packed_bytes += len(packed.jpeg)
        if packed.change is not None:
            self.changes[packed.change] = self.changes.get(packed.change, 0) + 1
        self.oriented += packed.oriented
        self.stray_bytes += packed.stray_bytes
        self.multi_frame += packed.multi_frame

    def add(self, other: Tally) -> None:
        """Adds another run's."""
        for each in fields(self):
            if each.name not in ("changes", "rejected"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        for change, count in other.changes.items():
            self.changes[change] = self.changes.get(change, 0) + count
        self.rejected += [(path, reason) for path, reason in other.rejected]
