"""A folder with a folder of images for each class, or with images alone -> its listing."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import NO_LABEL
from fastpipe.sources.annotation_files import colour_list, refuse_tool, unread_tool
from fastpipe.sources.annotation_folders import is_called_images
from fastpipe.sources.doubtful_classes import AS_CLASSES, parts_as_classes, refused_parts
from fastpipe.sources.files import (
    Names,
    SourcePath,
    files_below,
    names_in,
    state_or_problem,
)
from fastpipe.sources.likely import out_of_place
from fastpipe.sources.listing import Assumption, Listing, Source
from fastpipe.sources.options import is_picture
from fastpipe.sources.sidecar_files import sidecar_files
from fastpipe.sources.splits import (
    FEW,
    are_called_like_parts,
    only_outside_training,
    some,
    split_folders,
    split_word,
)
from fastpipe.sources.table_files import with_labels_first

_CLASSES_FROM = "--classes-from FILE"
# Behind the name of the image: a_mask.png, and a_mask_1.png where it has several.
_CALLED_MASK = re.compile(
    r"[-_ ](?:mask|segmentation|seg|gt|label)s?(?:[-_ ]\d+)?\.\w+$", re.IGNORECASE
)
_FEW_SOURCES = 4096  # that tell whether there are masks
_LEAST_MASKS = 0.2  # of all files


def _in_both_cases(*endings: str) -> tuple[str, ...]:
    """Endings in small and in capital letters; to look at each name in small letters would take longer."""
    return (*endings, *(ending.upper() for ending in endings))


# Files that may say the labels of images; and texts that say none.
_LISTS = _in_both_cases(".csv", ".tsv", ".tab", ".txt", ".lst", ".jsonl", ".ndjson", ".parquet")
_DOCUMENTS = _in_both_cases(".json", ".xml")
_NO_LIST = re.compile(
    r"read.?me|licen[cs]e|copying|notice|changelog|citation|checksum|md5|sha\d|requirements",
    re.IGNORECASE,
)
_MOST_OF_STEM = 8  # files whose names begin alike, which are looked at
_MOST_LISTS = 16  # more belong to an image each


class ClassFolders(NamedTuple):
    """The class folders of a source."""

    root: SourcePath
    classes: list[str]  # those of all splits
    folders: list[tuple[int, str]]  # label and name of those that are there
    unlabelled_folders: list[str]  # of images without labels
    unlabelled_files: list[str]
    stray: list[str]  # what lies beside class folders
    assumed: tuple[Assumption, ...] = ()


def class_folders_of(
    root: SourcePath,
    names: Names,
    splits: Mapping[str, SourcePath],
    split: str,
    *,
    certain: bool = False,
) -> ClassFolders:
    """The class folders of a folder, or of a split of it; there are none where it has images alone. `certain`: a user
    says that folders are classes.
    """
    beside = [*names.files, *names.hidden]
    if not splits:
        assumed = [*_of_structure(root, names, certain=certain), *numbers_as_texts(names.folders)]
        if not names.folders:
            return ClassFolders(root, [], [], [], names.files, names.hidden, tuple(assumed))
        return ClassFolders(
            root, names.folders, list(enumerate(names.folders)), [], [], beside, tuple(assumed)
        )
    folders = {name: names_in(folder).folders for name, folder in splits.items()}
    without = {name for name in folders if _has_no_classes(name, folders)}
    classes = sorted(
        {each for name, here in folders.items() if name not in without for each in here}
    )
    assumed = [*_of_splits(folders, without, split), *numbers_as_texts(classes)]
    if split in without:
        return ClassFolders(
            root, classes, [], names.folders, names.files, names.hidden, tuple(assumed)
        )
    here = {*names.folders}
    labels = [(label, name) for label, name in enumerate(classes) if name in here]
    return ClassFolders(root, classes, labels, [], [], beside, tuple(assumed))


def _has_no_classes(split: str, folders: Mapping[str, Sequence[str]]) -> bool:
    """Whether a split has images without labels: its only folder is a class of no other split, as test/images."""
    if len(folders[split]) != 1:
        return not folders[split]
    name = folders[split][0]
    others = {each for other, names in folders.items() if other != split for each in names}
    return is_called_images(name) or (bool(others) and name not in others)


def _of_splits(
    folders: Mapping[str, Sequence[str]], without: set[str], split: str
) -> Iterator[Assumption]:
    """What is assumed of the classes of splits."""
    if split in without and folders[split]:
        yield Assumption(
            f"labels: none, for the only folder of the split {readable(split)}, {readable(folders[split][0])}, is no "
            "class of the others",
            _CLASSES_FROM,
        )
    elif split in without and len(folders) == 1:
        yield Assumption(f"labels: none, for {readable(split)} is a split and no class", AS_CLASSES)
    yield from only_outside_training(
        {name: here for name, here in folders.items() if name not in without}
    )


def _of_structure(root: SourcePath, names: Names, *, certain: bool) -> Iterator[Assumption]:
    """What is assumed of folders that are taken for classes. PackError: they are none, unless that is `certain`."""
    folders = names.folders
    called = [name for name in folders if split_word(name) is not None]
    for name in called if not certain else ():
        inside = names_in(root / name, FEW).folders
        others = [each for each in folders if each != name]
        if {*inside} & {*others}:
            raise PackError(
                f"{readable(str(root))} has the classes {some(others)}, and a folder {readable(name)} with the same "
                f"classes, which is a split: --split {readable(name)} packs it. To pack the others, move "
                f"{readable(name)} elsewhere. {AS_CLASSES} takes all folders as classes"
            )
    if called:
        yield like_a_split(called)
    lists = _lists_beside(names.files, _LISTS)
    documents = _lists_beside(names.files, _DOCUMENTS)
    if not certain:
        _refuse_colours(root, folders, [*lists, *documents])
    if len(folders) == 1 and not certain:
        _refuse_lists(root, folders[0], [*lists, *documents])
    elif lists and folders:
        yield Assumption(
            f"labels: the names of the folders; {some(lists)} beside them is not read. If it has the labels, pass it",
            f"--image-root {readable(root.name)}",
        )
    elif lists or documents:
        yield _unread_list(root, [*lists, *documents])
    if are_called_like_parts(folders) and not certain:
        inside = names_in(root / folders[0], FEW).folders
        if any(not is_called_images(name) for name in inside):
            raise refused_parts(root, folders, inside)
        if not lists:
            yield parts_as_classes(folders)
    elif len(folders) == 1:
        yield from _of_one_folder(root / folders[0], folders[0])
    elif folders and (splits := split_folders(root / folders[0], names_in(root / folders[0], FEW))):
        yield Assumption(
            f"the folders {some(splits)} in the class folders are no splits: all are packed together"
        )


def _unread_list(root: SourcePath, lists: Sequence[str]) -> Assumption:
    """Told of lists beside images without class folders."""
    first = root / lists[0]
    tool = unread_tool(first)
    remedy = (
        f"it is {tool.name}: {tool.remedy}"
        if tool
        else f"if it has them, pass {readable(str(first))}"
    )
    return Assumption(
        f"labels: none, though {some(lists)} beside the images may have them; {remedy}"
    )


def _lists_beside(files: Sequence[str], endings: tuple[str, ...]) -> list[str]:
    """The files with such an ending; none where there are many, as one for each image."""
    lists = [name for name in files if name.endswith(endings) and not _NO_LIST.match(name)]
    if len(lists) > _MOST_LISTS:
        return []
    return [name for name in lists if not _is_of_picture(name, files)]


def _is_of_picture(name: str, files: Sequence[str]) -> bool:
    """Whether a file is called like a picture among the sorted files, as a.txt or a.jpg.txt of a.jpg."""
    stem = name.rpartition(".")[0]
    start = bisect_left(files, stem)
    near = files[start : start + _MOST_OF_STEM]
    return any(
        is_picture(other) and other.rpartition(".")[0] in (stem, stem.rpartition(".")[0])
        for other in near
    )


def _refuse_colours(root: SourcePath, folders: Sequence[str], lists: Sequence[str]) -> None:
    """PackError: a list beside folders says the classes of colours, so that a folder has masks."""
    colours = colour_list(root, lists) if folders else None
    if colours is not None:
        raise PackError(
            f"{readable(str(root))} has {readable(colours)}, which says the classes of the colours of masks, beside "
            f"the folders {some(folders)}. fastpipe reads masks of one channel: write each mask as a PNG with the "
            "number of the class in place of the colour, into a folder masks beside the folder images. "
            f"{AS_CLASSES} takes the folders as classes"
        )


def _refuse_lists(root: SourcePath, folder: str, lists: Sequence[str]) -> None:
    """Raises PackError where a list lies beside the only folder: it has the labels, and the folder has the images."""
    for name in lists:
        refuse_tool(root / name)
    if lists:
        lists = with_labels_first(lists)
        raise PackError(
            f"{readable(str(root))} has one folder, {readable(folder)}, and beside it {some(lists)}, which may have "
            f"the labels. Pass it: {readable(str(root / lists[0]))}, with --image-root {readable(str(root / folder))} "
            f"if its paths are relative to that folder. {AS_CLASSES} takes {readable(folder)} as the only class"
        )


def like_a_split(called: Sequence[str]) -> Assumption:
    """Told of folders that are taken for classes."""
    return Assumption(
        f"{some(called)}: a class, though it is called like a split", f"--split {called[0]}"
    )


def _of_one_folder(folder: SourcePath, name: str) -> Iterator[Assumption]:
    inside = names_in(folder, FEW)
    while len(inside.folders) == 1 and not any(map(is_picture, inside.files)):
        folder = folder / inside.folders[0]
        inside = names_in(folder, FEW)
    if is_called_images(name) or is_called_images(folder.name):
        yield Assumption(
            f"all images are of the class {readable(name)}, the only folder; for images without labels, pass "
            f"{readable(str(folder))}"
        )
    elif len(inside.folders) > 1 and not inside.files:
        yield Assumption(
            f"all images are of the class {readable(name)}, the only folder; if the folders in it "
            f"({some(inside.folders)}) are the classes, pass {readable(str(folder))}"
        )


def numbers_as_texts(classes: Sequence[str]) -> Iterator[Assumption]:
    """Told where classes are whole numbers, and their labels are others."""
    if not classes or not all(name.isascii() and name.isdigit() for name in classes):
        return
    moved = out_of_place(classes)
    others = moved or [name for label, name in enumerate(classes) if int(name) != label]
    if not others:
        return
    name = "10" if "10" in moved else others[0]
    how = "are sorted as texts" if moved else "are numbered from 0"
    text = f"labels: class folders that are whole numbers {how}: {name!r} is label {classes.index(name)}"
    yield Assumption(text, _CLASSES_FROM)


def list_class_folders(found: ClassFolders, *, certain: bool = False) -> Listing:
    """All images: with a label where there are class folders, else without. PackError: they are images and masks of
    these, unless a user says that they are not (`certain`).
    """
    if found.folders:
        paths: Iterable[tuple[str, int]] = in_class_folders(found.root, found.folders)
    else:
        paths = ((path, NO_LABEL) for path in _all_files(found))
    sources = list(sources_at(found.root, paths))
    if not certain and any(
        map(_is_called_mask, (source.path for source in sources[:_FEW_SOURCES]))
    ):
        _refuse_masks(found.root, [source.path for source in sources])
    unread = sidecar_files(found.root, sources, found.classes, certain=certain)
    assumed = (*found.assumed, *unread)
    return Listing(found.root, found.classes, sources, found.stray, assumed=assumed)


def _is_called_mask(path: str) -> bool:
    return _CALLED_MASK.search(path) is not None


def _refuse_masks(root: SourcePath, paths: Sequence[str]) -> None:
    """Raises PackError where many files are masks of others beside them, as a_mask.png of a.png."""
    stems = {path.rpartition(".")[0] for path in paths}
    masks = [path for path in paths if _CALLED_MASK.sub("", path) in stems]
    if len(masks) >= _LEAST_MASKS * len(paths):
        raise PackError(
            f"{readable(str(root))}: {len(masks):,} of {len(paths):,} files are called like masks of others beside "
            f"them, such as {readable(masks[0])}. To pack them as masks, move them to a folder masks beside a folder "
            f"images, or list both in a CSV file (--field mask=COLUMN:mask). {AS_CLASSES} packs them as images"
        )


def _all_files(found: ClassFolders) -> Iterator[str]:
    for name in found.unlabelled_folders:
        yield from files_below(found.root, name)
    yield from found.unlabelled_files


def in_class_folders(
    root: SourcePath, folders: Iterable[tuple[int, str]]
) -> Iterator[tuple[str, int]]:
    return ((path, label) for label, name in folders for path in files_below(root, name))


def sources_at(root: SourcePath, paths: Iterable[tuple[str, int]]) -> Iterator[Source]:
    for path, label in paths:
        found = state_or_problem(root, path)
        yield Source(path, label, *((0, 0, 0, found) if isinstance(found, str) else found[:3]))
