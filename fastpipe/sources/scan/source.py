"""A path or pattern as a user passes it -> the unpacked source that it names, and its listing."""

from __future__ import annotations

import glob
import itertools
import logging
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from fastpipe.dataset.format.description import is_dataset
from fastpipe.dataset.format.folder import why_no_dataset
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE, WORK_FOLDER
from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.sources.file_formats import format_of
from fastpipe.sources.files import Names, names_in, stray_images
from fastpipe.sources.folders.splits import (
    SplitsError,
    first_paths,
    split_folders,
    split_of_name,
    split_tars,
)
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, sort_for_packing
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.recognition import recognise
from fastpipe.sources.scan.scanned_files import Archive
from fastpipe.sources.tars.tars import list_archives

_LOG = logging.getLogger("fastpipe")
# A pattern with braces in braces could name more tars than the memory holds.
_MAX_BRACE_PATTERNS = 1_000_000
_MAX_SHOWN_DATASETS = 5
_SHARD_NAME = re.compile(r"shard-\d{6,}\.tar")
_WILDCARD = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class UnpackedSource:
    """A source that is not packed."""

    # As the user passed it, absolute, and its split: the scan is kept under this name.
    name: str
    root: Path  # the folder or tar; of a pattern, the folder that all its tars are in
    # Paths below the root; [""]: the root itself; None: there are none.
    tars: list[str] | None
    path: Path | None = None  # what the user passed; None: a pattern
    split: str | None = None  # that the user asks for

    def stat_archives(self) -> list[Archive] | None:
        """The tars as they are now; None if files lie by themselves. OSError: one is unreadable."""
        if self.tars is None:
            return None
        archives = []
        for tar in self.tars:
            state = os.stat(self.root / tar)
            archives.append(
                Archive(tar or self.root.name, state.st_size, state.st_mtime_ns)
            )
        return archives

    def list_files(self) -> Listing:
        """Lists all files, in the order of `fastpipe pack --no-shuffle`.

        Raises:
            PackError, DatasetError: there are none, or it is not certain what they are.
        """
        if self.path is None:
            # The tars of a pattern are one source, whatever their names say of splits.
            listing = list_archives(self.root, self.tars or [])
            self._log_assumptions(listing)
            sort_for_packing(listing.sources, 0, shuffle=False)
            return listing
        recognised = recognise_source(self.path, self.split)
        _check_format(self.path, recognised.format)
        try:
            listing = list_sources(
                self.path,
                seed=0,
                shuffle=False,
                options=SourceOptions(split=self.split),
            )
        except SplitsError as problem:  # tars may hold folders of splits
            raise _splits_error(self.path, problem) from None
        self._log_assumptions(listing)
        images = stray_images(listing.stray)
        if images:
            _LOG.warning(
                "%s: %d images beside the class folders are left out, such as %s; move them into "
                "a class folder",
                self.root,
                len(images),
                images[0],
            )
        return listing

    def _log_assumptions(self, listing: Listing) -> None:
        for assumption in listing.assumed:
            _LOG.warning(
                "%s: assumed %s%s",
                self.root,
                assumption.text,
                _argument_of_open(assumption.option),
            )


# Options of `fastpipe pack` that fastpipe.open has, too.
_ARGUMENTS_OF_OPEN = {"--classes-from": "classes_from", "--split": "split"}


def _argument_of_open(option: str) -> str:
    """The end of a message: how fastpipe.open is called to settle an assumption; "" if it cannot."""
    words = shlex.split(option)
    argument = _ARGUMENTS_OF_OPEN.get(words[0] if words else "")
    if argument is None or len(words) != 2:
        return ""
    return f". To settle it: fastpipe.open(..., {argument}={words[1]!r})"


def find_source(path: Path, split: str | None = None) -> UnpackedSource | None:
    """Finds the source that a path or pattern names.

    Returns:
        None for the folder of a packed dataset that has no dataset.json.

    Raises:
        DatasetError: there is none, or it can only be packed.
        PackError, OSError: it cannot be read.
    """
    absolute = os.path.abspath(path)
    if path.is_dir():
        if (path / WORK_FOLDER).exists() or (path / INDEX_FILE).exists():
            return None
        return _find_in_folder(Path(absolute), split)
    if path.is_file():
        source_format = format_of(absolute)
        if source_format is not None:
            _check_format(path, source_format)
            _check_no_shards([Path(absolute)])
            tar = Path(absolute)
            name = _name_with_split(absolute, split)
            return UnpackedSource(name, tar, [""], tar, split)

    # The names of existing folders are no part of the pattern, whatever characters they have.
    folder = os.path.dirname(absolute)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    pattern = os.path.relpath(absolute, folder)
    if path.exists() or not _WILDCARD.search(pattern):
        raise DatasetError(why_no_dataset(path))
    return _find_by_pattern(folder, pattern)


def _find_in_folder(path: Path, split: str | None) -> UnpackedSource:
    names = names_in(path)
    datasets = [name for name in names.folders if is_dataset(path / name)]
    if datasets:
        shown = ", ".join(datasets[:_MAX_SHOWN_DATASETS])
        raise DatasetError(
            f"{path} is not a packed dataset, but holds some: {shown}. Pass one of them: "
            f"{path / datasets[0]}"
        )
    if not any(names):
        raise DatasetError(
            f"{path} is empty. Pass a packed dataset, or a folder with images or tars"
        )
    # Only a source that may have splits needs the rules of packing already here.
    root = path
    tars = _tars_in(names)
    if split is not None or split_folders(path, names) or split_tars(tars):
        recognised = recognise_source(path, split)
        root = Path(str(recognised.root))
        names = recognised.names or names
        if recognised.tars:
            tars = list(recognised.tars[recognised.split])
        else:
            tars = _tars_in(names)
    # Where folders lie beside tars, the rules of packing say which of them count: see `list_files`.
    source_tars = None
    if tars and not names.folders:
        source_tars = tars
    name = _name_with_split(str(path), split)
    return UnpackedSource(name, root, source_tars, path, split)


def _tars_in(names: Names) -> list[str]:
    return [name for name in names.files if name.lower().endswith(".tar")]


def _name_with_split(name: str, split: str | None) -> str:
    """The name under which the scan is kept: each split has a scan of its own."""
    if split is None:
        return name
    return f"{name} (split {split})"


def _find_by_pattern(folder: str, pattern: str) -> UnpackedSource:
    """Finds the tars of a pattern in a folder."""
    name = os.path.join(folder, pattern)
    matches = set()
    for expanded in _expand_braces(pattern):
        full_pattern = os.path.join(glob.escape(folder), expanded)
        files = glob.glob(full_pattern)
        # A name without wildcards has to exist: a wrong number in braces must not lose samples.
        if not files and not glob.has_magic(expanded):
            missing = readable(os.path.join(folder, expanded))
            raise DatasetError(
                f"{missing} does not exist, and {readable(name)} names it"
            )
        matches.update(files)
    tars: list[str] = []
    for path in sorted(matches):
        if path.lower().endswith(".tar") and os.path.isfile(path):
            tars.append(path)
    if not tars:
        other = ""
        if matches:
            other = f"; it matches {min(matches)}, which is no tar"
        raise DatasetError(
            f"{name} matches no tar file{other}. Expected a pattern of tars, such as shards/*.tar"
        )
    _check_no_shards([Path(tar) for tar in tars])
    folders = [os.path.dirname(tar) for tar in tars]
    root = os.path.commonpath(folders)
    paths = [os.path.relpath(tar, root) for tar in tars]
    return UnpackedSource(name, Path(root), paths)


def _expand_braces(pattern: str) -> list[str]:
    """Expands braces as WebDataset does: train-{000..146}.tar."""
    if "{" not in pattern:
        return [pattern]
    from braceexpand import braceexpand

    try:
        return list(itertools.islice(braceexpand(pattern), _MAX_BRACE_PATTERNS))
    except ValueError:
        return [pattern]  # the braces do not match, so they are part of a name


def recognise_source(path: Path, split: str | None) -> Recognised:
    """Finds out what a source is. DatasetError: this is not certain, or it has several splits."""
    try:
        return recognise(path, SourceOptions(split=split))
    except SplitsError as problem:
        raise _splits_error(path, problem) from None
    except PackError as problem:
        # A file that cannot be read is not a question of its format.
        if isinstance(problem.__cause__, OSError):
            raise
        raise DatasetError(
            f"{problem}. These are options of `fastpipe pack`. Without packing, a loader reads "
            "only folders of images and tars: pack the source, or move what is none of these to "
            "another folder"
        ) from problem


def _splits_error(path: Path, problem: SplitsError) -> DatasetError:
    """The error that lists the splits, and says how to choose one."""
    names = sorted(problem.splits)
    suggested = names[0]
    for name in names:
        if split_of_name(name) == "train":
            suggested = name
            break
    choice = ""
    if problem.requested is not None:
        choice = f"split={problem.requested!r}: "
    shown = readable(path)
    folder = problem.splits[suggested]
    if folder:
        # Commands such as `fastpipe preview` have no option for a split.
        other_way = (
            f"or pass the folder {readable(folder)}, where the other splits do not count for the "
            "numbers of the classes"
        )
    else:
        other_way = "or pass the tars of one"
    message = (
        f"{choice}{shown} has the splits {first_paths(names)}. In Python, open one of them: "
        f"fastpipe.open({shown!r}, split={readable(suggested)!r}); {other_way}"
    )
    return DatasetError(message)


def _check_format(path: Path, source_format: str) -> None:
    """Raises DatasetError for formats that only packing reads."""
    if path.name == DATASET_FILE and is_dataset(path.parent):
        raise DatasetError(why_no_dataset(path))
    if source_format not in ("imagefolder", "webdataset"):
        name = readable(path)
        raise DatasetError(
            f"{name} is a source of the format {source_format}, which has to be packed first: "
            f"fastpipe pack {name} DST, then pass DST. Without packing, a loader reads folders of "
            "images and tars"
        )


def _check_no_shards(tars: list[Path]) -> None:
    """Raises DatasetError for shards of a packed dataset.

    Only its index has their classes, their fields, and which samples have been removed.
    """
    # Folder -> a tar in it that is called like a shard.
    first_shards: dict[Path, Path] = {}
    for tar in tars:
        if _SHARD_NAME.fullmatch(tar.name):
            first_shards.setdefault(tar.parent, tar)
    for folder, shard in first_shards.items():
        if is_dataset(folder):
            shown = readable(folder)
            raise DatasetError(
                f"{readable(shard)} is a shard of the packed dataset {shown}; expected the "
                f"folder of the dataset: pass {shown}. For a part of its samples: "
                f"fastpipe.open({shown!r}).select(...)"
            )
