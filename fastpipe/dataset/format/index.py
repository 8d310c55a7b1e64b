"""The description of a dataset, for all that plans, reads and decodes: labels, shards, records.

Note [kinds of indexes]
Three classes implement Index. They share no state and no constructor:

- PackedIndex (packed_index.py): a dataset that `fastpipe pack` wrote; behind a URL, RemoteIndex.
- UnpackedIndex (sources/scan/index.py): photos and tars where they lie.
- JoinedIndex (joined_index.py): several of these as one, or one with other labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Records, Uint64s
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.dataset.format.shard_list import Shards
from fastpipe.errors import DatasetError, SampleError, format_count, readable


class ReadableShard(Protocol):
    """The bytes of a shard; `path` is for messages."""

    @property
    def path(self) -> Place: ...
    def read(self, offset_bytes: int, size_bytes: int) -> bytes: ...


class Index(ABC):
    """The description of a dataset, without its pixels. See Note [kinds of indexes].

    Samples are numbered from 0 in the order of the shards. A record is a row of INDEX_DTYPE, or of
    WIDE_INDEX_DTYPE.
    """

    path: Place  # for messages
    folder: Path  # that has the shards; of several datasets, that of the first
    version: int  # of a packed dataset, from 1 on; 0: not packed, or several datasets
    packed: bool  # whether `fastpipe pack` wrote it
    fingerprint: str  # names content and order, byte by byte
    content: str  # names identities, sizes and labels, whatever the storage
    is_shuffled: bool = False  # packing has put the samples into a random order
    # A packed dataset's: the same for all of its versions, and for no other.
    lineage: str = ""

    classes: list[str]  # a label is a position in it
    class_counts: list[int]  # samples of each class
    fields: Mapping[str, Field]
    # The fields that only some of several datasets have or that differ, and the reason in words.
    unjoined_fields: Mapping[str, str] = MappingProxyType({})

    is_wide: bool = False  # records are of WIDE_INDEX_DTYPE
    shards: Shards
    shard_sizes: Uint64s  # (shards,) in bytes
    shard_starts: Int64s  # (shards,) the first sample of each
    storage: str  # how JPEGs are stored; of several datasets, their storages in words
    # Size of all images as JPEGs, whatever the storage, and of all arrays and lists of pictures.
    jpeg_bytes: int
    stored_bytes: int  # size of all images as they are stored
    form_counts: Counter[PixelForm]  # samples of each form of pixels
    # The longest side of an image, if the pack has shrunk longer ones.
    max_size: int | None = None
    counts: dict[str, Any]  # of packing or of the scan: docs/explanation/format.md
    can_be_large: bool = True  # whether pictures of more than max_pixels are possible

    # (shards,) when each was last written, which is checked when it is opened; None: not checked.
    mtimes_ns: Int64s | None = None
    # (samples,) pictures that `convert` makes a PNG or JPEG of, before the engine reads them.
    needs_conversion: Bools | None = None
    # Gets a sample. ImageError, OSError, DatasetError: it cannot. None: nothing is ever converted.
    convert: Callable[[int], bytes] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def records(self) -> Records:
        """(samples,) all records, unchecked. Prefer `records_of`, which reads only some."""

    @abstractmethod
    def records_of(self, samples: Int64s) -> Records:
        """A copy of the records of samples, in the same shape, unchecked."""

    def records_of_shard(self, shard: int) -> Records:
        """The records of a shard's samples, unchecked."""
        first = int(self.shard_starts[shard])
        end = first + self.shards[shard].samples
        return self.records_of(np.arange(first, end))

    @abstractmethod
    def read(self, samples: Int64s) -> Records:
        """(n,) records, checked.

        Raises:
            DatasetError: a record cannot be read or cannot be true, or its picture has more pixels
                than max_pixels.
        """

    @abstractmethod
    def check_pixels(self, samples: Int64s, records: Records) -> None:
        """Raises DatasetError if a picture has more than max_pixels.

        Args:
            samples: (n,) their numbers.
            records: (n,) with at least the widths and heights.
        """

    @abstractmethod
    def check_same(self) -> None:
        """Raises DatasetError if the folder now holds a different dataset, or none."""

    @abstractmethod
    def hashes(self, samples: Int64s, name: str) -> Uint64s:
        """(n,) the "identity" of each picture, or the hash of each "key": see sample_layout.py."""

    @abstractmethod
    def paths_of(self, samples: Int64s) -> Sequence[str | None]:
        """The source paths of samples; None where only the shards have them: see SourcePaths."""

    @abstractmethod
    def column(self, name: str) -> Any:
        """Opens the column of a field: format/columns.py.

        Raises:
            DatasetError: a file is missing, damaged, or of another dataset.
        """

    @abstractmethod
    def open_shard(self, number: int) -> ReadableShard:
        """Opens a shard, to read notes in it. DatasetError: it cannot be opened."""

    @abstractmethod
    def where(self, sample: int) -> tuple[str, str, int]:
        """Shard path, name in the tar and byte offset of a sample, for messages.

        The name is "" for a sample that is not packed: its source path says it all.
        """

    @abstractmethod
    def sample_at(self, shard: int, offset: int) -> int | None:
        """The sample whose image begins at a byte of a shard, if any."""

    @abstractmethod
    def sample_error(
        self,
        sample: int,
        reason: str | Exception,
        more: str = "",
        *,
        replace: bool = False,
    ) -> SampleError:
        """The error for a sample that cannot be read or decoded.

        Args:
            sample: its number.
            reason: why, in words, or the exception whose text says it.
            more: is put behind the reason.
            replace: the sample was to be replaced by another one, which failed, too.
        """

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: label for label, name in enumerate(self.classes)}

    def class_name(self, label: int) -> str:
        """The name of a label; "" of NO_LABEL."""
        return "" if label == NO_LABEL else self.classes[label]

    def __repr__(self) -> str:
        classes = format_count(len(self.classes), "class")
        shards = format_count(len(self.shards), "shard")
        return f"<fastpipe dataset {str(self.path)!r}: {len(self)} samples, {classes}, {shards}>"

    def name_of(self, sample: int) -> str:
        """A sample in words, for messages."""
        shard, member, _ = self.where(sample)
        path = self.source_path_of(sample)
        if not path:
            return f"sample {sample} (member {member} of {shard})"
        # A sample that is not packed is named by its path alone.
        place = f", in {shard}" if member else ""
        return f"sample {sample} ({readable(path)}{place})"

    def source_path_of(self, sample: int) -> str:
        """The source path of a sample, for messages; "" if it cannot be read."""
        (path,) = self.paths_of(np.array([sample]))
        return path or ""

    # The defaults that follow hold for a dataset in files of this machine.

    def refuse_replaced(self) -> None:
        """Raises DatasetError if another dataset has been packed into the folder.

        For errors of files: they would be blamed on the disk else.
        """
        return

    @property
    def is_scattered(self) -> bool:
        """Whether nothing is gained by reading neighbours in the order of `samples_at` together."""
        return False

    @property
    def is_in_tars(self) -> bool:
        """Whether samples are members of tars; else each is a file."""
        return True

    @property
    def has_deeper_folders(self) -> bool:
        """Whether files that are not packed lie in folders of class folders."""
        return False

    def samples_at(self, places: Int64s) -> Int64s:
        """The samples at places of the order that shuffled epochs are cut from.

        Of a packed dataset it is the order of the shards.
        """
        return places

    def part_of(self, samples: Int64s) -> Int64s:
        """(n,) which of several datasets each sample is of."""
        return np.zeros(len(samples), dtype=np.int64)

    def in_coefficients(self, shards: NDArray[np.uint32]) -> Bools | bool:
        """Whether shards have their JPEGs as coefficients: (n,), or the same for all."""
        return False

    def list_hashed_files(
        self, fields: Iterable[str]
    ) -> Iterator[tuple[Path, str, str]]:
        """The files of the dataset that have hashes, for Intact; of columns those of `fields`."""
        return iter(())

    def fetch_columns(self, names: Iterable[str]) -> None:
        """Brings the files of some fields to this machine, where they are behind a URL."""
        return

    def reader(self, mixture: Index | None = None) -> object | None:
        """The store.remote.reader.Reader of shards behind a URL; None: they are files.

        Args:
            mixture: the index that this is a part of, whose shards the reader is for.
        """
        return None


def check_pixel_limit(
    index: Index,
    max_pixels: int | None,
    samples: Int64s,
    records: Records,
) -> None:
    """Raises DatasetError if a picture has more than max_pixels: Index.check_pixels."""
    if max_pixels is None:
        return
    pixels = records["width"].astype(np.int64) * records["height"]
    large_count = int((pixels > max_pixels).sum())
    if not large_count:
        return
    row = int(np.argmax(pixels))
    raise DatasetError(
        f"{large_count:,} of {len(samples):,} samples have too many pixels: "
        f"{index.name_of(int(samples[row]))} has {records['width'][row]} x "
        f"{records['height'][row]} pixels; expected at most {max_pixels:,}. If you trust the "
        "dataset, pass a larger max_pixels to fastpipe.open; or leave these out, with "
        f"data.select(lambda c: c['width'] * c['height'] <= {max_pixels})"
    )


def refuse_other(path: Place, expected: str, actual: object) -> None:
    """Raises DatasetError if the fingerprints of two datasets differ.

    Facts that were read of the one must not be used for the other.
    """
    if actual != expected:
        raise DatasetError(
            f"{path} now holds a different dataset: expected fingerprint {expected}, got {actual}. It "
            "was packed again, or replaced, while it is in use. Open it again, and make the loader "
            "again. While a dataset is in use, pack into another folder"
        )
