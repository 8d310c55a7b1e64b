"""A listing -> the facts about it that outlive it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastpipe.sources.listing import (
    SHOWN,
    Assumption,
    Listing,
    SourceField,
    hash_classes,
    to_hex,
)


@dataclass(frozen=True)
class Facts:
    """A listing without its sources, as the destination, a cluster and publishing need it.

    Attributes:
        root: of the sources, resolved; of a program that adds samples, the program's kind.
        classes: their names, in the order of the labels; None: the labels in digits, without gaps.
        files: number of sources.
        size_bytes: of all of them.
        content: see `Listing.digest`.
        state: see `Listing.state_digest`.
        changed_ns: when the last file was changed, replaced or renamed: by ctime, which nobody can
            set.
        made_by: the program that added the samples; "": they were listed.
        taken_ns, fields, stray, dropped, assumed, coordinates, table, why_empty: see `Listing`.
    """

    root: str
    classes: list[str] | None
    files: int = 0
    size_bytes: int = 0
    content: str = ""
    state: str = ""
    taken_ns: int = 0
    changed_ns: int = 0
    fields: tuple[SourceField, ...] = ()
    stray: list[str] = field(default_factory=list)
    dropped: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[Assumption, ...] = ()
    coordinates: str = SHOWN
    made_by: str = ""
    table: str = ""
    why_empty: str = ""

    @classmethod
    def of(cls, listing: Listing) -> Facts:
        return Facts(
            # The same from any working folder, and by any link to the source.
            root=str(listing.root.resolve()),
            classes=listing.classes,
            files=len(listing.sources),
            size_bytes=listing.size_bytes,
            content=listing.digest(),
            state=listing.state_digest(),
            taken_ns=listing.taken_ns,
            changed_ns=max((source.ctime_ns for source in listing.sources), default=0),
            fields=listing.fields,
            stray=listing.stray,
            dropped=dict(listing.dropped),
            assumed=listing.assumed,
            coordinates=listing.coordinates,
            table=listing.table,
            why_empty=listing.why_empty,
        )

    def with_more(self, other: Facts) -> Facts:
        """The facts of two parts of a source, which have the same classes."""
        # Both digests have the hash of the classes in them, and the sum has it once.
        content = int(self.content, 16) + int(other.content, 16)
        content -= hash_classes(self.classes or ())
        state = int(self.state, 16) + int(other.state, 16)
        return replace(
            self,
            files=self.files + other.files,
            size_bytes=self.size_bytes + other.size_bytes,
            content=to_hex(content),
            state=to_hex(state),
            taken_ns=min(self.taken_ns, other.taken_ns),
            changed_ns=max(self.changed_ns, other.changed_ns),
        )

    @property
    def kinds(self) -> dict[str, str]:
        return {field.name: field.kind for field in self.fields}

    @property
    def time_ns(self) -> int:
        """The time that dataset.json gets.

        A source that changes later is newer, also if it changes while the pack goes on.
        """
        # Another machine's clock may be ahead.
        return max(self.taken_ns, self.changed_ns)

    def recorded(self) -> dict[str, Any]:
        """The facts for dataset.json."""
        entry: dict[str, Any] = {"files": self.files, "xxh3_128": self.content}
        if self.made_by:
            entry["made_by"] = self.made_by
        return entry
