"""A listing without its sources: all that the destination, the steps on a cluster and publishing know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastpipe.packing.source.listing import Listing, SourceField, class_hash, in_hex


@dataclass(frozen=True)
class Facts:
    """What is packed.

    Attributes:
        root: of the sources, resolved; of a program that adds samples, the program's kind.
        classes: names, in the order of the labels; None: the labels in digits, without gaps.
        content, state: `Listing.digest` and `Listing.digest_with_times`.
        changed_ns: `Listing.last_change_ns`.
        made_by: the program that added the samples; "": they were listed.
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
    made_by: str = ""

    @classmethod
    def of(cls, listing: Listing) -> Facts:
        """Of a listing."""
        return Facts(
            root=listing.resolved_root(),
            classes=listing.classes,
            files=len(listing.sources),
            size_bytes=listing.size_bytes,
            content=listing.digest(),
            state=listing.digest_with_times(),
            taken_ns=listing.taken_ns,
            changed_ns=listing.last_change_ns(),
            fields=listing.fields,
            stray=listing.stray,
            dropped=dict(listing.dropped),
        )

    def with_more(self, other: Facts) -> Facts:
        """Of these sources and further ones, of the same listing."""
        return replace(
            self,
            files=self.files + other.files,
            size_bytes=self.size_bytes + other.size_bytes,
            content=in_hex(int(self.content, 16) + int(other.content, 16) - class_hash(self.classes or ())),
            state=in_hex(int(self.state, 16) + int(other.state, 16)),
            taken_ns=min(self.taken_ns, other.taken_ns),
            changed_ns=max(self.changed_ns, other.changed_ns),
        )

    @property
    def kinds(self) -> dict[str, str]:
        """Name -> kind of the fields."""
        return {each.name: each.kind for each in self.fields}

    @property
    def time_ns(self) -> int:
        """The time that dataset.json gets: a source that changes later, also while the pack goes on, is newer.

        Another machine's clock may be ahead.
        """
        return max(self.taken_ns, self.changed_ns)

    def recorded(self) -> dict[str, Any]:
        """For dataset.json."""
        made_by = {"made_by": self.made_by} if self.made_by else {}
        return {"files": self.files, "xxh3_128": self.content, **made_by}
