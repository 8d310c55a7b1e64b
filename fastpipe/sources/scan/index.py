"""The columns of a scan -> an index, with which a loader reads photos and tars where they lie.

Note [unpacked sources]
A file of a folder is a shard with one JPEG at byte 0; a tar is a shard with many. So loading without packing needs
only another index. Its samples are those of `fastpipe pack --no-shuffle`, in the same order, so that the batches are
the same, too. But packing reads files to their end: those that are damaged behind their header are still samples here.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import logging
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import DatasetError, ImageError, PackError, SampleError, readable
from fastpipe.format.description import is_dataset
from fastpipe.format.folder import why_no_dataset
from fastpipe.format.index import Index, ReadableShard, check_pixel_limit
from fastpipe.format.layout import (
    INDEX_DTYPE,
    INDEX_FILE,
    JPEG_STORAGE,
    NO_LABEL,
    WITHOUT_HASHES,
    WORK_FOLDER,
)
from fastpipe.format.open_file import OpenFile
from fastpipe.format.pixel_form import count_forms
from fastpipe.format.sample_layout import key_hash
from fastpipe.format.shard_list import Shards, Texts
from fastpipe.native import _engine
from fastpipe.plan.order import permute
from fastpipe.sources.file_formats import format_of
from fastpipe.sources.files import LocalFile, names_in
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, packing_order
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.recognition import recognise
from fastpipe.sources.scan.columns import (
    ODD,
    Archive,
    Columns,
    columns_of,
    headers,
    identities,
    load,
    read_files,
    save,
)
from fastpipe.sources.splits import SplitsError, some, split_folders, split_tars, split_word
from fastpipe.sources.tars import list_archives

_LOG = logging.getLogger("fastpipe")
_told: set[str] = set()
_PERMUTATION = 0x0F0E0D0C0B0A0908  # any: epochs permute again
# Neighbours of one class, compared with how many there would be by chance, at which tars count as sorted.
_SORTED = 0.5
# The engine's words are of shards.
RGB, WITH_ALPHA = 3, 4  # channels of a record
_OF_A_FILE = {
    _engine.Code.open_failed: "the file cannot be opened",
    _engine.Code.shard_changed: "the file has changed since it was scanned",
    _engine.Code.read_failed: "the file cannot be read",
    _engine.Code.shard_too_short: "the sample is beyond the end of the file",
}


def scanned(
    path: Path,
    source: UnpackedSource,
    max_pixels: int | None,
    fingerprint: str | None,
    background: str | None = None,
) -> UnpackedIndex:
    """As `open_data`, of an unpacked source. Files that have not changed since the last scan are not read again."""
    before = load(source.name)
    if before is not None and fingerprint is not None and not len(before.unknown):
        index = UnpackedIndex(path, before, max_pixels=max_pixels, background=background)
        if index.fingerprint == fingerprint:
            return index
    archives = source.archives()
    same = (
        before is not None
        and archives is not None
        and before.archives == archives
        and not len(before.unknown)
    )
    if before is not None and same and source.split is None:
        columns = before  # tars are walked only if one of them has changed; those of other splits have classes, too
    else:
        columns = columns_of(source.name, source.listing(), archives)
        if before is None or not columns.take_over(before):
            read_files(columns, columns.unknown, headers)
            save(columns)
    index = UnpackedIndex(path, columns, max_pixels=max_pixels, background=background)
    if index.fingerprint not in _told:
        _told.add(index.fingerprint)
        if index.counts["rejected"]:
            _LOG.warning("%s%s", path, index.rejected())
        if with_alpha := int((index.records["channels"] == WITH_ALPHA).sum()):
            _LOG.warning(
                "%s: %d images have alpha, which a loader of RGB drops: hidden colours show. fastpipe.open(DATA, "
                'background="white") puts them on white; channels="rgba" keeps alpha',
                path,
                with_alpha,
            )
    return index


class UnpackedIndex(Index):
    """The description of an unpacked source; see Note [unpacked sources]. DatasetError: there is no picture."""

    packed = False
    version = 0
    storage = JPEG_STORAGE
    mtimes_ns: NDArray[np.int64]

    def __init__(
        self,
        path: Path,
        columns: Columns,
        *,
        max_pixels: int | None = None,
        background: str | None = None,
    ) -> None:
        self.path, self.folder, self.classes = path, columns.folder, columns.classes
        self._columns, self._max_pixels, self.fields = columns, max_pixels, {}
        self._limit = max(max_pixels or 0, MAX_PIXELS)
        self._background = background
        files = columns.files
        good = files["kind"] <= ODD
        large = good & (files["width"].astype(np.int64) * files["height"] > self._limit)
        self._reasons = columns.reasons | {
            number: f"{files['width'][number]} x {files['height'][number]} is over the limit of {self._limit:,} "
            "pixels; if you trust the image, pass a larger max_pixels"
            for number in np.flatnonzero(large).tolist()
        }
        self._numbers = np.flatnonzero(good & ~large)  # of the samples, among the files
        kept = files[self._numbers]
        if not len(kept):
            raise DatasetError(
                f"{path} is not a packed dataset, and has no image that can be loaded{self.rejected()}"
            )
        on_background = (kept["channels"] == WITH_ALPHA) & (background is not None)
        self.odd = (kept["kind"] == ODD) | on_background
        self.counts = {"rejected": len(files) - len(kept), "converted": int(self.odd.sum())}
        self.class_counts = np.bincount(
            kept["label"][kept["label"] >= 0], minlength=len(self.classes)
        ).tolist()
        self.jpeg_bytes = self.stored_bytes = int(kept["size"].sum(dtype=np.int64))
        self._records = np.zeros(len(kept), dtype=INDEX_DTYPE)
        for name in WITHOUT_HASHES:
            self.records[name] = kept[name]
        self.records["channels"][on_background] = RGB
        if (
            columns.archives is None
        ):  # a file that lies by itself is the shard of its sample's number
            self.records["shard"] = np.arange(len(kept))
            names = Texts.of(map(columns.paths.bytes_at, self._numbers.tolist()))
            self.shard_sizes, self.mtimes_ns = kept["size"].copy(), kept["mtime_ns"].copy()
        else:
            names = Texts.of(name for name, _, _ in columns.archives)
            self.shard_sizes = np.array([size for _, size, _ in columns.archives], dtype=np.uint64)
            self.mtimes_ns = np.array(
                [mtime_ns for _, _, mtime_ns in columns.archives], dtype=np.int64
            )
        self.form_counts = count_forms(self.records)
        self.records.flags.writeable = False
        bounds = np.concatenate(
            [[0], np.cumsum(np.bincount(self.records["shard"], minlength=len(names)))]
        )
        self.shards = Shards([(self.folder, names)], bounds, self.shard_sizes)
        self.shard_starts = self.shards.starts
        self.fingerprint = self.content = self._fingerprint()

    def _fingerprint(self) -> str:
        """Of classes, paths, sizes, labels and places in tars, which decide the order; copies have the same."""
        files, paths = self._columns.files, self._columns.paths
        digest = xxhash.xxh3_128(b"".join(os.fsencode(name) + b"\0" for name in self.classes))
        digest.update(paths.data)
        digest.update((self._background or "").encode())
        in_tars = () if self._columns.archives is None else (files["shard"], files["offset"])
        for values in (paths.bounds[1:], files["size"], files["label"], self._numbers, *in_tars):
            digest.update(values.tobytes())
        return f"unpacked-{digest.hexdigest()}"

    def rejected(self, most: int = 3) -> str:
        """How many files are no samples, and why."""
        reasons, paths = self._reasons, self._columns.paths
        shown = [
            f"\n  {readable(paths[number])}: {reasons[number]}" for number in sorted(reasons)[:most]
        ]
        more = f"\n  and {len(reasons) - most:,} more" if len(reasons) > most else ""
        return f": {len(reasons):,} files are left out{''.join(shown)}{more}"

    def check_same(self) -> None:
        """The records are in memory."""

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        found = self.records_of(samples)
        self.check_pixels(samples, found)
        return found

    def check_pixels(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> None:
        check_pixel_limit(self, self._max_pixels, samples, records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> NDArray[np.void]:
        return self._records

    def column(self, name: str) -> Any:
        raise KeyError(name)  # it has no fields

    def open_shard(self, number: int) -> ReadableShard:
        return OpenFile(self.shards[number].path)

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self.records[samples]

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._reading_order[places]

    @cached_property
    def _reading_order(self) -> NDArray[np.int64]:
        """A fixed permutation, so that any part of it is a fair mix of classes; or as the samples lie in tars."""
        if not self.scattered:
            return self._as_they_lie()
        return permute(np.arange(len(self), dtype=np.int64), len(self), _PERMUTATION)

    def _as_they_lie(self) -> NDArray[np.int64]:
        return np.lexsort((self.records["offset"], self.records["shard"]))

    @property
    def in_tars(self) -> bool:
        """Whether samples are members of tars; else each is a file."""
        return self._columns.archives is not None

    @property
    def has_deeper_folders(self) -> bool:
        """Whether there are files in folders of class folders."""
        paths, count = self._columns.paths, len(self._columns.files)
        return not self.in_tars and bool(self.classes) and paths.data.count(b"/") > count

    @cached_property
    def scattered(self) -> bool:
        """Whether samples are files, or lie sorted by class in tars."""
        if self._columns.archives is None or len(self) < 2 or len(self.classes) < 2:
            return self._columns.archives is None
        labels = self.records["label"][self._as_they_lie()]
        chance = float(((np.bincount(labels - NO_LABEL) / len(labels)) ** 2).sum())
        return float((labels[1:] == labels[:-1]).mean()) > chance + _SORTED * (1 - chance)

    def paths_of(self, samples: NDArray[np.int64]) -> list[str]:
        paths = self._columns.paths
        return [readable(paths[number]) for number in self._numbers[samples].tolist()]

    def hashes(self, samples: NDArray[np.int64], name: str) -> NDArray[np.uint64]:
        """See Index. The first call for identities reads parts of all files. DatasetError: one cannot be read."""
        if name == "key":
            return np.array([key_hash(path) for path in self.paths_of(samples)], dtype=np.uint64)
        known = self._columns.files["identity"]
        unknown = self._numbers[known[self._numbers] == 0]
        if len(unknown):
            read_files(self._columns, unknown, identities)
            save(self._columns)
        return known[self._numbers[samples]]

    def sample_at(self, shard: int, offset: int) -> int | None:
        found = np.flatnonzero(
            (self.records["shard"] == shard) & (self.records["offset"] == offset)
        )
        return int(found[0]) if len(found) else None

    def where(self, sample: int) -> tuple[str, str, int]:
        """See Index; the key is the path."""
        record = self.records[sample]
        return (
            str(self.shards[int(record["shard"])].path),
            self.paths_of(np.array([sample]))[0],
            int(record["offset"]),
        )

    def sample_error(
        self, sample: int, reason: str | Exception, more: str = "", *, replace: bool = False
    ) -> SampleError:
        shard, key, offset = self.where(sample)
        code, reason = getattr(reason, "code", None), str(reason)
        if code in _OF_A_FILE:
            reason = _OF_A_FILE[code] + reason.removeprefix(_engine.reason(code, ""))
        reason += more
        advice = "to train without it: fastpipe.loader(..., on_error='replace'), or remove the file"
        if replace:
            advice = (
                "on_error='replace' found no other sample for its place: remove the damaged files"
            )
        advice += (
            ". `fastpipe pack` reads every file once, and leaves out and lists the damaged ones"
        )
        if self._changed(int(self.records["shard"][sample])):
            advice = "make the loader again: it scans files that have changed. Change no file while a loader uses it"
        where = f"at byte {offset} of {readable(shard)}"
        message = f"sample {sample} ({key}) cannot be decoded: {reason}\n  {where}\n  {advice}"
        return SampleError(
            message, shard=shard, key=key, sample=sample, offset=offset, reason=reason
        )

    def _changed(self, number: int) -> bool:
        """Whether a file is there, but not as it was scanned."""
        with contextlib.suppress(OSError):
            found = os.stat(self.shards[number].path)
            return (found.st_size, found.st_mtime_ns) != (
                self.shard_sizes[number],
                self.mtimes_ns[number],
            )
        return False

    def convert(self, sample: int) -> bytes:
        """Makes what `fastpipe pack` would store of a sample. The file must be as it was scanned."""
        from fastpipe.sources.picture.convert import EncodeOptions, convert

        record = self.records[sample]
        number, size = int(record["shard"]), int(record["size"])
        with LocalFile(self.shards[number].path) as file:
            same = file.state[:2] == (self.shard_sizes[number], self.mtimes_ns[number])
            data = file.read_at(size, int(record["offset"])) if same else b""
        if len(data) != size:
            raise ImageError("the file has changed since it was scanned")
        packed = convert(data, EncodeOptions(max_pixels=self._limit, background=self._background))
        if (packed.width, packed.height) != (record["width"], record["height"]):
            said = f"its header said {record['width']} x {record['height']}"
            raise ImageError(f"{packed.width} x {packed.height} pixels; {said}")
        return packed.data


_MOST_PATTERNS = 1_000_000
_SHARD = re.compile(r"shard-\d{6,}\.tar")
_MAGIC = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class UnpackedSource:
    """A source that is not packed."""

    name: str  # what the user passed, absolute: a path or a pattern
    root: Path  # the folder or tar; of a pattern, the folder that all its tars are in; of a split, its own folder
    tars: (
        list[str] | None
    )  # paths of the tars below the root; [""]: the root itself; None: files lie there
    whole: Path | None = None  # what the user passed, of a path; None: it is a pattern
    split: str | None = None  # the split that the user asks for

    def archives(self) -> list[Archive] | None:
        """Path, size and time of each tar now. OSError: one cannot be looked at."""
        if self.tars is None:
            return None
        states = [(tar, os.stat(self.root / tar)) for tar in self.tars]
        return [(tar or self.root.name, state.st_size, state.st_mtime_ns) for tar, state in states]

    def listing(self) -> Listing:
        """All that is in it, in the order of `fastpipe pack --no-shuffle`. PackError, DatasetError: it has none."""
        if self.whole is None:
            listing = list_archives(self.root, self.tars or [])
            listing.sources.sort(key=packing_order(0, shuffle=False))
            return listing
        _refuse_others(self.whole, recognised(self.whole, self.split).format)
        try:
            listing = list_sources(
                self.whole, seed=0, shuffle=False, how=SourceOptions(split=self.split)
            )
        except SplitsError as problem:  # of folders in tars
            raise _which_split(self.whole, problem) from problem
        for each in listing.assumed:
            _LOG.warning("%s: assumed %s", self.root, each.text)
        return listing


def recognised(path: Path, split: str | None) -> Recognised:
    """What a source is. DatasetError: this is not certain, or it has several splits."""
    try:
        return recognise(path, SourceOptions(split=split))
    except SplitsError as problem:
        raise _which_split(path, problem) from problem
    except PackError as problem:
        if isinstance(problem.__cause__, OSError):
            raise
        raise DatasetError(
            f"{problem}. These are options of `fastpipe pack`. Without packing, a loader reads only folders of "
            "images and tars: pack the source, or move what is none of these to another folder"
        ) from problem


def _which_split(path: Path, problem: SplitsError) -> DatasetError:
    """Says which splits there are, and what to pass."""
    names = sorted(problem.splits)
    asked = "" if problem.asked is None else f"split={problem.asked!r}: "
    there = f"{asked}{readable(str(path))} has the splits {some(names)}"
    first = next((name for name in names if split_word(name) == "train"), names[0])
    one = f"fastpipe.open({readable(str(path))!r}, split={readable(first)!r})"
    folder = problem.splits[first]
    beside = (
        f"; or the folder {readable(str(folder))}, whose classes are then numbered by themselves"
        if folder
        else ""
    )
    return DatasetError(f"{there}; pass {one}{beside}")


def unpacked_source(path: Path, split: str | None = None) -> UnpackedSource | None:
    """What a path or pattern stands for; None: a dataset without dataset.json. PackError, OSError: not readable."""
    name = os.path.abspath(path)
    if path.is_dir():
        if (path / WORK_FOLDER).exists() or (path / INDEX_FILE).exists():
            return None
        return _folder(Path(name), split)
    if path.is_file() and (form := format_of(name)) is not None:
        _refuse_others(path, form)
        _refuse_shards([Path(name)])
        return UnpackedSource(_name(name, split), Path(name), [""], Path(name), split)
    folder = os.path.dirname(name)
    while not os.path.isdir(
        folder
    ):  # a folder is no part of the pattern, whatever characters are in its name
        folder = os.path.dirname(folder)
    rest = os.path.relpath(name, folder)
    if path.exists() or not _MAGIC.search(rest):
        raise DatasetError(why_no_dataset(path))
    return _pattern(name, folder, rest)


def _refuse_shards(tars: list[Path]) -> None:
    """Raises DatasetError for shards of a packed dataset: its index has their classes, fields and removed samples."""
    for folder in dict.fromkeys(tar.parent for tar in tars):
        ours = [tar for tar in tars if tar.parent == folder and _SHARD.fullmatch(tar.name)]
        if ours and is_dataset(folder):
            shown = readable(str(folder))
            raise DatasetError(
                f"{readable(str(ours[0]))} is a shard of the packed dataset {shown}; expected the folder of the "
                f"dataset: pass {shown}. For a part of its samples: fastpipe.open({shown!r}).select(...)"
            )


def _refuse_others(path: Path, form: str) -> None:
    """Raises DatasetError for what only packing reads."""
    if form not in ("imagefolder", "webdataset"):
        name = readable(str(path))
        raise DatasetError(
            f"{name} is a source of the format {form}, which has to be packed first: fastpipe pack {name} DST, then "
            "pass DST. Without packing, a loader reads folders of images and tars"
        )


def _name(name: str, split: str | None) -> str:
    """A split is scanned by itself."""
    return name if split is None else f"{name} (split {split})"


def _folder(path: Path, split: str | None) -> UnpackedSource:
    there = names_in(path)
    packed = [name for name in there.folders if is_dataset(path / name)]
    if packed:
        some = f"holds some: {', '.join(packed[:5])}. Pass one of them: {path / packed[0]}"
        raise DatasetError(f"{path} is not a packed dataset, but {some}")
    if not any(there):
        raise DatasetError(
            f"{path} is not a packed dataset, and it is empty; expected a folder that `fastpipe pack` wrote, or one "
            "folder of images for each class, images without classes, or tars"
        )
    root, name = path, _name(str(path), split)
    tars = [each for each in there.files if each.lower().endswith(".tar")]
    if split is not None or split_folders(path, there) or split_tars(tars):
        found = recognised(path, split)
        root, there = Path(str(found.root)), found.names or there
        tars = [each for each in there.files if each.lower().endswith(".tar")]
        tars = list(found.tars[found.split]) if found.tars else tars
    return UnpackedSource(name, root, tars if tars and not there.folders else None, path, split)


def _pattern(name: str, folder: str, rest: str) -> UnpackedSource:
    """The tars of a pattern: `rest`, in a folder; `name` is both."""
    found = set()
    patterns = [rest]
    if "{" in rest:  # train-{000..146}.tar, as WebDataset has them
        from braceexpand import braceexpand

        with contextlib.suppress(ValueError):  # braces that do not match
            patterns = list(itertools.islice(braceexpand(rest), _MOST_PATTERNS))
    for pattern in patterns:
        there = glob.glob(os.path.join(glob.escape(folder), pattern))
        if not there and not glob.has_magic(pattern):
            missing = readable(os.path.join(folder, pattern))
            raise DatasetError(f"{missing} does not exist, and {readable(name)} names it")
        found.update(there)
    tars = [tar for tar in sorted(found) if tar.lower().endswith(".tar") and os.path.isfile(tar)]
    if not tars:
        other = f"; it matches {min(found)}, which is no tar" if found else ""
        raise DatasetError(
            f"{name} matches no tar file{other}. Expected a pattern of tars, such as shards/*.tar"
        )
    _refuse_shards([Path(tar) for tar in tars])
    root = os.path.commonpath([os.path.dirname(tar) for tar in tars])
    return UnpackedSource(name, Path(root), [os.path.relpath(tar, root) for tar in tars])
