"""Sources that are added -> what to know if the dataset has some of their images already.

Sources are known by their paths, so all images of a folder that has another name are new ones. If
the folder is a class, they get a second label; or, if copies are left out, they keep the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastpipe.arrays import Bools, Int64s, Uint64s
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import format_count, readable
from fastpipe.packing.job.removal import MAX_KEYS, removal_command
from fastpipe.packing.shard.entry import Entry
from fastpipe.sources.listing import Assumption, Listing, Source
from fastpipe.store.store import Store


class KnownPictures:
    """The pictures of the samples of a dataset that stay.

    Args:
        index: of the dataset.
        is_kept: (n,) which of its samples stay.
    """

    def __init__(self, index: PackedIndex, is_kept: Bools) -> None:
        has_image = np.array(index.records["width"]) > 0
        rows: Int64s = np.flatnonzero(is_kept & has_image)
        hashes: Uint64s = np.array(index.records["xxh3_64"])[rows]
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = rows[order]

    def find(self, hashes: Uint64s) -> Int64s:
        """(hashes,) a row of the index with the picture that has this hash; -1: none has."""
        if not len(self._hashes):
            return np.full(len(hashes), -1, np.int64)
        positions = np.searchsorted(self._hashes, hashes)
        positions = np.minimum(positions, len(self._hashes) - 1)
        is_known = self._hashes[positions] == hashes
        return np.where(is_known, self._rows[positions], -1)


@dataclass(frozen=True)
class Copies:
    """Sources whose picture the dataset has under another path.

    Attributes:
        index: of the dataset.
        listing: of all sources, new or not.
        keys: (copies,) hashes of the paths of the sources.
        rows: (copies,) a sample of the dataset with the picture of each.
        labels: (copies,) the label of each source.
        is_same_source: the dataset has other sources of the listing by their path.
    """

    index: PackedIndex
    listing: Listing
    keys: Uint64s
    rows: Int64s
    labels: Int64s
    is_same_source: bool

    def has_other_class(self) -> Bools:
        """(copies,) whether the source and the sample have different labels."""
        old_labels = np.array(self.index.records["label"])[self.rows]
        is_labelled = (old_labels >= 0) & (self.labels >= 0)
        has_other: Bools = is_labelled & (old_labels != self.labels)
        return has_other

    def is_gone(self) -> Bools:
        """(copies,) whether the sample's own file is not in the source any more.

        Another source never had it, so that says nothing.
        """
        if not self.is_same_source:
            return np.zeros(len(self.rows), np.bool_)
        listed = key_hashes(readable(source.path) for source in self.listing.sources)
        known = np.array(self.index.records["key"])[self.rows]
        return ~np.isin(known, listed)

    def example(self, number: int) -> str:
        """For example: dog/103.jpg, which is cow/003.jpg"""
        old_path = self.index.source_path_of(int(self.rows[number]))
        new_path = _path_of_key(int(self.keys[number]), self.listing.sources)
        return f"{new_path}, which is {old_path}"

    def how_to_remove(self, is_old: Bools) -> str:
        """The command that removes some of the old samples."""
        rows = np.unique(self.rows[is_old]).tolist()
        root = self.listing.root
        is_folder = isinstance(root, Path) and root.is_dir()
        if len(rows) <= MAX_KEYS or not is_old.all() or not is_folder:
            return removal_command(self.index, rows)
        data = repr(str(self.index.path))
        return (
            f"fastpipe.remove({data}, keys=[key for group in "
            f"fastpipe.duplicates({data}).group_keys() for key in group if not "
            f"pathlib.Path({str(root)!r}, key).exists()])"
        )


def copies_in_shards(
    index: PackedIndex,
    is_kept: Bools,
    entries: Iterable[Entry],
    store: Store,
    listing: Listing,
    *,
    is_same_source: bool,
) -> Copies:
    """The copies among new shards.

    Args:
        index: of the version that grows.
        is_kept: (n,) which of its samples stay.
        entries: of the new shards.
        store: that has the entries.
        listing: of all sources.
        is_same_source: see Copies.
    """
    known = KnownPictures(index, is_kept)
    keys = [np.zeros(0, np.uint64)]
    rows = [np.zeros(0, np.int64)]
    labels = [np.zeros(0, np.int64)]
    for entry in entries:
        records = entry.records(store)
        records = records[records["width"] > 0]
        found_rows = known.find(records["xxh3_64"])
        is_copy = found_rows >= 0
        keys.append(records["key"][is_copy])
        rows.append(found_rows[is_copy])
        labels.append(records["label"][is_copy].astype(np.int64))
    return Copies(
        index,
        listing,
        np.concatenate(keys),
        np.concatenate(rows),
        np.concatenate(labels),
        is_same_source,
    )


def assumed_of_copies(copies: Copies) -> list[Assumption]:
    """Says that images were added which the dataset has under other paths."""
    num_copies = len(copies.rows)
    if not num_copies:
        return []
    verb = "is" if num_copies == 1 else "are"
    other_class = copies.has_other_class()
    gone = copies.is_gone()
    # The most telling copy is the example.
    first = int(np.argmax(2 * other_class + gone))
    text = (
        f"copies: {format_count(num_copies, 'image')} that {verb} added now {verb} in the dataset "
        f"already under another path, such as {copies.example(first)}. "
    )
    if other_class.any():
        num_other = int(other_class.sum())
        verb = "has" if num_other == 1 else "have"
        text += (
            f"{_part(num_other, num_copies)} {verb} another class there, so training would see the "
            "picture with both. "
        )
    if gone.any():
        text += (
            f"The old files of {_part(int(gone.sum()), num_copies).lower()} are not in the source any "
            f"more. To remove their samples: {copies.how_to_remove(gone)}. "
        )
    else:
        text += (
            "If files or folders were renamed, remove the samples of the old paths or of the new "
            f"ones: {copies.how_to_remove(np.ones(num_copies, np.bool_))}. "
        )
    text += "fastpipe add leaves copies out with this option"
    return [Assumption(text, "--by content")]


def assumed_of_skipped_copies(copies: Copies) -> list[Assumption]:
    """Says that sources were left out as copies, though they have another class."""
    other_class = copies.has_other_class()
    num_other = int(other_class.sum())
    if not num_other:
        return []
    verb = "was" if num_other == 1 else "were"
    has = "has" if num_other == 1 else "have"
    classes = copies.listing.classes
    first = int(np.argmax(other_class))
    old_label = int(copies.index.records["label"][copies.rows[first]])
    new_class = classes[int(copies.labels[first])]
    return [
        Assumption(
            f"copies: {format_count(num_other, 'file')} {verb} left out, as the dataset has the "
            f"picture, but {has} another class there, such as {copies.example(first)}: {new_class} in "
            f"the source, {classes[old_label]} in the dataset. The dataset keeps its class. If that of "
            "the source is right, remove the old samples and add again: "
            f"{copies.how_to_remove(other_class)}"
        )
    ]


def _part(number: int, total: int) -> str:
    """For example: All 3 of them; 2 of them"""
    all_of = "All " if number == total and total > 1 else ""
    return f"{all_of}{number:,} of them"


def _path_of_key(key: int, sources: Sequence[Source]) -> str:
    """The source path that has the hash `key`."""
    for source in sources:
        path = readable(source.path)
        if int(key_hashes([path])[0]) == key:
            return path
    return "another path"
