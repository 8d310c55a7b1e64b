"""A packed dataset and a listing of its source today -> what has changed, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Int64s
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import format_count, readable
from fastpipe.packing.pipeline.source_identity import identity_of_source
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.tables.tables import TableListing

# A refusal should not read a large source: moved files are looked for among so many new ones.
_MAX_READ = 200


class SourceChanges(NamedTuple):
    """What has changed in a source since it was packed.

    Attributes:
        gone_rows: rows of the index of samples whose file is not in the source any more.
        num_new: files that the dataset does not have.
        num_other: files of another size or class.
        moved: new files with the picture of a sample whose file is gone: old and new path.
        has_read_all: all new files were compared with the samples whose file is gone.
    """

    gone_rows: list[int]
    num_new: int
    num_other: int
    moved: list[tuple[str, str]]
    has_read_all: bool

    @property
    def num_gone(self) -> int:
        """The number of samples whose file is not in the source any more."""
        return len(self.gone_rows)

    @property
    def is_deletion(self) -> bool:
        """Whether files are gone, and nothing else has changed that we see."""
        return bool(self.gone_rows) and not self.num_new and not self.num_other

    @property
    def is_move(self) -> bool:
        """Whether files were moved or renamed, and nothing else that we see."""
        has_moved_all = len(self.moved) == self.num_new == self.num_gone
        return bool(self.moved) and (has_moved_all or not self.has_read_all)

    def find_other_root(self) -> str:
        """The folder that all paths begin with now, or began with then: "train/".

        Then nothing was moved: the paths are below another folder, by SRC or --image-root. "" if it
        is not so.
        """
        if not self.is_move:
            return ""
        roots = [_find_added_root(*paths) for paths in self.moved]
        first_root = roots[0]
        if first_root is None or any(root != first_root for root in roots):
            return ""
        return first_root.folder

    def describe(self) -> str:
        """For example: 2 files are gone, 2 are new, and 1 has another size or class"""
        parts = []
        noun = "file"
        for number, words in (
            (self.num_gone, "gone"),
            (self.num_new, "new"),
            (self.num_other, "of another size or class"),
        ):
            if not number:
                continue
            verb = "is" if number == 1 else "are"
            count = f"{number:,}"
            if noun:
                count = format_count(number, noun)
            parts.append(f"{count} {verb} {words}")
            noun = ""
        if self.moved:
            old_path, new_path = self.moved[0]
            number = len(self.moved)
            pictures = "has the image" if number == 1 else "have the images"
            at_least = "" if self.has_read_all else "at least "
            parts.append(
                f"{at_least}{number:,} of the new ones {pictures} of files that are gone, such as "
                f"{new_path}, which was {old_path}"
            )
        return ", ".join(parts)


class _AddedRoot(NamedTuple):
    """A folder that one of two paths of a file has in front of the other."""

    folder: str  # with a slash at its end
    is_of_old_path: bool


def _find_added_root(old_path: str, new_path: str) -> _AddedRoot | None:
    """The folder in front of one of two paths of a file; None: they differ otherwise."""
    is_of_old_path = len(old_path) > len(new_path)
    if is_of_old_path:
        longer, shorter = old_path, new_path
    else:
        longer, shorter = new_path, old_path
    if not longer.endswith(f"/{shorter}"):
        return None
    return _AddedRoot(longer.removesuffix(shorter), is_of_old_path)


def compare_with_packed(index: PackedIndex, listing: Listing) -> SourceChanges:
    """Compares a source with the dataset that was packed of it."""
    sources = listing.sources
    keys = key_hashes(readable(source.path) for source in sources)
    records = index.records
    known_keys = np.array(records["key"])
    gone_rows: Int64s = np.flatnonzero(~np.isin(known_keys, keys))
    # A source that could not be packed is no new one.
    rejected = {entry["path"] for entry in read_rejected(index.folder, index.version)}
    is_known = np.isin(keys, known_keys)
    new = []
    for source in compress(sources, ~is_known):
        if readable(source.path) not in rejected:
            new.append(source)
    moved, has_read_all = _find_moved(index, gone_rows, listing, new)
    return SourceChanges(
        gone_rows.tolist(),
        len(new),
        _count_other(index, listing, keys, is_known),
        moved,
        has_read_all,
    )


def _count_other(
    index: PackedIndex, listing: Listing, keys: np.ndarray, is_known: Bools
) -> int:
    """The number of sources with the path of a sample, and another size or class."""
    known_keys = np.array(index.records["key"])
    order = np.argsort(known_keys, kind="stable")
    rows = order[np.searchsorted(known_keys[order], keys[is_known])]
    packed_labels = np.array(index.records["label"])[rows].tolist()
    packed_sizes = index.sources()["bytes"][rows].tolist()
    # Rows of tables have the size of their image only when they have been read.
    has_sizes = not isinstance(listing, TableListing)
    num_other = 0
    known = compress(listing.sources, is_known)
    for source, label, size_bytes in zip(
        known, packed_labels, packed_sizes, strict=True
    ):
        has_other_class = _class_name(listing.classes, source.label) != _class_name(
            index.classes, label
        )
        has_other_size = has_sizes and source.size_bytes != size_bytes
        if has_other_class or has_other_size:
            num_other += 1
    return num_other


def _class_name(classes: Sequence[str], label: int) -> str | None:
    return classes[label] if 0 <= label < len(classes) else None


def _find_moved(
    index: PackedIndex, gone_rows: Int64s, listing: Listing, new: Sequence[Source]
) -> tuple[list[tuple[str, str]], bool]:
    """The new sources that have the picture of a sample whose file is gone, and whether all new
    ones that could were read.
    """
    if isinstance(listing, TableListing) or not len(gone_rows):
        return [], True
    # Samples of a size, by the size of their file.
    rows_of_size = defaultdict(list)
    sizes = index.sources()["bytes"][gone_rows].tolist()
    for row, size_bytes in zip(gone_rows.tolist(), sizes, strict=True):
        rows_of_size[size_bytes].append(row)
    identities = np.array(index.records["identity"])
    moved: list[tuple[str, str]] = []
    num_read = 0
    for source in new:
        rows = rows_of_size[source.size_bytes]
        if not rows:
            continue
        if num_read == _MAX_READ:
            return moved, False
        num_read += 1
        identity = identity_of_source(listing.root, source)
        for row in rows:
            if int(identities[row]) == identity:
                moved.append((index.source_path_of(row), readable(source.path)))
                rows.remove(row)
                break
    return moved, True
