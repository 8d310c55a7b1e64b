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
        is_missing: (n,) which samples of the dataset were packed from this source, and are not in
            it now; see find_missing.
    """

    index: PackedIndex
    listing: Listing
    keys: Uint64s
    rows: Int64s
    labels: Int64s
    is_missing: Bools

    def has_other_class(self) -> Bools:
        """(copies,) whether the source and the sample have different labels."""
        old_labels = np.array(self.index.records["label"])[self.rows]
        is_labelled = (old_labels >= 0) & (self.labels >= 0)
        has_other: Bools = is_labelled & (old_labels != self.labels)
        return has_other

    def is_gone(self) -> Bools:
        """(copies,) whether the sample's own file is no longer in the source."""
        is_gone: Bools = self.is_missing[self.rows]
        return is_gone

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
    is_missing: Bools,
) -> Copies:
    """The copies among new shards.

    Args:
        index: of the version that grows.
        is_kept: (n,) which of its samples stay.
        entries: of the new shards.
        store: that has the entries.
        listing: of all sources.
        is_missing: see Copies.
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
        is_missing,
    )


def assumed_of_copies(copies: Copies) -> list[Assumption]:
    """Says that images were added which the dataset has under other paths."""
    num_copies = len(copies.rows)
    if not num_copies:
        return []
    other_class = copies.has_other_class()
    gone = copies.is_gone()
    # The most telling copy is the example.
    first = int(np.argmax(2 * other_class + gone))
    example = copies.example(first)
    if num_copies == 1:
        text = (
            f"copies: 1 image that is added now is in the dataset already: {example}. "
        )
    else:
        text = (
            f"copies: {num_copies:,} images that are added now are in the dataset already under "
            f"another path, such as {example}. "
        )
    if other_class.any():
        text += _describe_other_class(int(other_class.sum()), num_copies)
    if gone.any():
        num_gone = int(gone.sum())
        samples = "its old sample" if num_gone == 1 else "their old samples"
        text += _describe_gone(num_gone, copies)
        text += f"To remove {samples}: {copies.how_to_remove(gone)}. "
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
            f"image, but {has} another class there, such as {copies.example(first)}: {new_class} in "
            f"the source, {classes[old_label]} in the dataset. The dataset keeps its class. If that of "
            "the source is right, remove the old samples and add again: "
            f"{copies.how_to_remove(other_class)}"
        )
    ]


def _describe_other_class(num_other: int, num_copies: int) -> str:
    if num_copies == 1:
        subject = "It has"
    elif num_other == 1:
        subject = "1 of them has"
    else:
        subject = f"{_part(num_other, num_copies)} have"
    return f"{subject} another class there, so training would see the image with both. "


def _describe_gone(num_gone: int, copies: Copies) -> str:
    num_copies = len(copies.rows)
    root = readable(str(copies.listing.root))
    if num_copies == 1:
        return f"Its old file is no longer in {root}. "
    if num_gone == 1:
        return f"The old file of 1 of them is no longer in {root}. "
    part = _part(num_gone, num_copies).lower()
    return f"The old files of {part} are no longer in {root}. "


def _part(number: int, total: int) -> str:
    """For example: All 3 of them; 2 of them"""
    all_of = "All " if number == total else ""
    return f"{all_of}{number:,} of them"


def _path_of_key(key: int, sources: Sequence[Source]) -> str:
    """The source path that has the hash `key`."""
    for source in sources:
        path = readable(source.path)
        if int(key_hashes([path])[0]) == key:
            return path
    return "another path"
