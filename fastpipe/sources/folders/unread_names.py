"""The names in a source that is a folder -> the assumption that some of them were not read.

Note [unread names]
Whatever lies beside images may have their labels. So a user sees what was not read: texts, tables,
files of programs, and folders. Notes for people, such as a README, are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path

from fastpipe.errors import readable
from fastpipe.sources.annotations.annotated_files import files_of_folder, read_by
from fastpipe.sources.annotations.annotation_files import (
    SIDECAR_ENDINGS,
    find_colour_list,
    recognise_unread_tool,
)
from fastpipe.sources.annotations.annotation_folders import FolderPair, pair_folders
from fastpipe.sources.annotations.darknet import NAME_LISTS
from fastpipe.sources.annotations.labelmap import LABELMAP
from fastpipe.sources.annotations.tools import cub
from fastpipe.sources.annotations.tools.xview import CLASS_LABELS
from fastpipe.sources.annotations.voc import MASK_LISTS
from fastpipe.sources.annotations.yolo_yaml import YAML_FILES, find_yaml
from fastpipe.sources.file_formats import MANIFESTS, UNREAD_ENDINGS, format_of
from fastpipe.sources.files import Names, SourcePath, names_in, open_binary, path_below
from fastpipe.sources.folders.class_lists import is_called_class_list
from fastpipe.sources.folders.doubtful_folders import lists_among
from fastpipe.sources.folders.labelled import find_pairs
from fastpipe.sources.folders.splits import (
    FEW,
    first_paths,
    meaning_of_split,
    split_of_name,
)
from fastpipe.sources.listing import Assumption
from fastpipe.sources.numbered_classes import (
    VALUE_NAMES,
    has_names_of_numbers,
    parse_numbered_names,
    read_value_names,
)
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.tables.listed_images import ListingTable, find_listing_tables
from fastpipe.sources.tables.table_files import is_result_form
from fastpipe.sources.tables.table_remedies import some_tables

_ENDINGS = (
    *SIDECAR_ENDINGS,
    *UNREAD_ENDINGS,
    ".lst",
    ".tab",
    ".jsonl",
    ".ndjson",
    ".geojson",
    ".parquet",
)
# Label Studio writes notes.json beside the label files.
_YOLO_FILES = (*YAML_FILES, *NAME_LISTS, "notes.json")
_YOLO_ENDINGS = (".names", ".data")
# The first bytes of this many files are read to find their tool. Behind a URL each is a request.
_MAX_READ = 3
_MAX_LIST_BYTES = 1 << 20
# Formats with annotations beside images.
_LABELLED = ("masks", "voc", "yolo", "coco", "annotations")
_CLASSES_OF_SUPERVISELY = "meta.json"
# VOC has its splits in this folder.
_VOC_SPLITS = "ImageSets"


def describe_unread(
    source: Recognised,
    *,
    are_tables_named: bool = False,
    are_colours_read: bool = False,
    have_values_names: bool = True,
    have_class_names: bool = False,
    image_folders: Collection[str] = (),
    read_lists: Collection[SourcePath] = (),
) -> list[Assumption]:
    """The assumption that names in a source were not read; none if all were.

    Args:
        source: the source.
        are_tables_named: the tables beside splits are named by another assumption.
        are_colours_read: the classes of masks come from a list of their colours.
        have_values_names: the numbers in masks have names, or there are no masks.
        have_class_names: the user gives the names of the classes.
        image_folders: folders in it with images that are packed, where the source does not say it.
        read_lists: the lists of images that the user passes, or that another assumption names.
    """
    unread: dict[str, SourcePath] = {}
    known = frozenset(_read_names(source))
    if are_colours_read:
        known |= _lists_of_colours(source)
    if source.format in _LABELLED or source.splits:
        for name in _unread_in(source, source.root, source.names, known):
            if name.rstrip("/") not in image_folders:
                unread[name] = source.root / name
    for name, path in _unread_beside_labels(source):
        unread[name] = path
    if source.top is not None:
        for name in _unread_in(source, source.top, names_in(source.top), known):
            if not are_tables_named or format_of(name) not in (*MANIFESTS, "parquet"):
                unread[name] = source.top / name
    unread = {
        name: path
        for name, path in unread.items()
        if not any(_are_same(path, read_list) for read_list in read_lists)
        and not (have_class_names and _may_name_classes(path))
    }
    if not unread:
        return []

    remedy = (
        "if one of them has labels, list images and labels in a CSV file, or use "
        "fastpipe.Writer"
    )
    listing_table = None
    if source.format == "imagefolder":
        # Of images without labels, tables beside them are named with a whole command.
        candidates = {
            name: path
            for name, path in unread.items()
            if name.endswith("/") or not are_tables_named
        }
        listing_table = _find_listing_table(source, candidates)
    if listing_table is not None:
        remedy = f"if it has labels, pass {some_tables([listing_table])}"
        name = path_below(source.top or source.root, listing_table.path)
        return [
            Assumption(
                f"not read, beside the images: {first_paths(unread)}; {readable(name)} lists these "
                f"images: {remedy}"
            )
        ]
    for name, path in islice(unread.items(), _MAX_READ):
        if name.endswith("/"):
            continue
        tool = recognise_unread_tool(path)
        if tool is not None:
            remedy = f"{name} is {tool.name}: {tool.remedy}"
            break
        if source.format == "imagefolder" and has_names_of_numbers(path):
            remedy = (
                f"{name} has the names of numbers: if these are the classes, --classes-from "
                f"{readable(str(path))} gives them these names"
            )
            break
        if not have_values_names and _has_numbered_names(path):
            remedy = (
                f"{name} has a number and a name in each line: --classes-from "
                f"{readable(str(path))} gives the numbers in the masks these names"
            )
            break
        if not have_values_names and is_called_class_list(path.name):
            remedy = (
                f"if the lines of {name} name the values 0, 1, 2 ... in the masks: --classes-from "
                f"{readable(str(path))}"
            )
            break
    return [Assumption(f"not read, beside the images: {first_paths(unread)}; {remedy}")]


def _may_name_classes(path: SourcePath) -> bool:
    """Whether a file has the names of classes, which the user has given already."""
    return has_names_of_numbers(path) or is_called_class_list(path.name)


def _are_same(path: SourcePath, other: SourcePath) -> bool:
    """Whether two paths lead to one file."""
    if isinstance(path, Path) and isinstance(other, Path):
        return path.absolute() == other.absolute()
    return str(path) == str(other)


def _find_listing_table(
    source: Recognised, unread: Mapping[str, SourcePath]
) -> ListingTable | None:
    """The unread list of the images of a source, or in an unread folder; None if there is none.

    `unread`: name -> path of what was not read; the names of folders end in "/".
    """
    tables_of_folder: dict[SourcePath, list[str]] = {}
    num_folders = 0
    for name, path in unread.items():
        if not name.endswith("/"):
            tables_of_folder.setdefault(path.parent, []).append(path.name)
        elif num_folders < _MAX_READ:
            # Behind a URL, each look at a folder is a request.
            tables_of_folder[path] = names_in(path, FEW).files
            num_folders += 1
    split = meaning_of_split(source.split)
    listing_tables: list[ListingTable] = []
    for folder, tables in islice(tables_of_folder.items(), _MAX_READ):
        listing_tables += find_listing_tables(folder, tables, image_folder=source.root)
    # Train and val may have images of the same names.
    for table in listing_tables:
        if split and meaning_of_split(table.path.name) == split:
            return table
    return listing_tables[0] if listing_tables else None


def _has_numbered_names(path: SourcePath) -> bool:
    if not path.name.lower().endswith(".txt"):
        return False
    try:
        with open_binary(path) as file:
            text = file.read(_MAX_LIST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(parse_numbered_names(text.split("\n")))


def _lists_of_colours(source: Recognised) -> frozenset[str]:
    """The names of the lists of colours in the source, or above its split."""
    names = set[str]()
    for folder in (source.root, source.top):
        if folder is not None and folder.is_dir():
            name = find_colour_list(folder, names_in(folder, FEW).files)
            names.update([name] if name else [])
    return frozenset(names)


def _unread_beside_labels(source: Recognised) -> Iterator[tuple[str, SourcePath]]:
    """The names beside a folder of labels, such as annotations/list.txt of Oxford's pets."""
    pair = source.pair
    if source.format not in ("masks", "voc") or pair is None:
        return
    around = pair.labels.parent
    if around in (source.root, source.root.parent) or around == pair.images.parent:
        return
    names = names_in(around, FEW)
    for name in lists_among(names.files, _ENDINGS, max_lists=FEW):
        yield f"{around.name}/{name}", around / name
    if source.format == "masks":
        for name in names.folders:
            if name != pair.labels.name and split_of_name(name) is None:
                yield f"{around.name}/{name}/", around / name


def _is_yolo_file(name: str) -> bool:
    """Whether fastpipe reads a file of YOLO, or knows that it has no labels."""
    return name in _YOLO_FILES or name.endswith(_YOLO_ENDINGS)


def _unread_in(
    source: Recognised, folder: SourcePath, names: Names, known: Collection[str]
) -> Iterator[str]:
    """The names in a folder that were not read; those of folders end in "/".

    `known`: the names that were read, wherever they lie; see `_read_names`.
    """
    read_names = set(known)
    if source.format == "yolo" and isinstance(folder, Path):
        described_by = find_yaml(folder, names.files)
        if described_by is not None:
            read_names.add(described_by.name)
    lists = lists_among(names.files, _ENDINGS, max_lists=FEW)
    if lists and isinstance(folder, Path) and folder in source.files:
        # The user passes the folder of label files itself, as labelTxt of DOTA.
        files = files_of_folder(folder, read_by(folder))
        read_names.update(file.name for file in files)
    for name in lists:
        if name in read_names or is_result_form(name):
            continue
        if source.format == "yolo" and _is_yolo_file(name):
            continue
        yield name
    # The folders of an image folder are classes, and COCO may have its images in any folder.
    if folder == source.root and source.format in ("imagefolder", "coco"):
        return
    # The images lie in the folders, beside their masks.
    if source.pair is not None and source.pair.images == folder:
        return
    # WIDER FACE has its images in WIDER_train and WIDER_val, which only end like splits.
    split_in_name = split_of_name
    if source.format == "annotations":
        split_in_name = meaning_of_split
    for name in names.folders:
        if name not in read_names and not split_in_name(name):
            yield f"{name}/"


def _read_names(source: Recognised) -> Iterator[str]:
    """The names of files that were read, and of folders on the way to them.

    Those of other splits count as well: the user has chosen one of them.
    """
    paths = [*source.files, *source.splits.values()]
    for files in source.other_files.values():
        paths += files
    for path in paths:
        yield path.name
        yield path.parent.name  # COCO's annotations, and train of train/train
        if isinstance(path, Path) and path.is_relative_to(str(source.root)):
            # labels of labels/det_20/det_train.json
            yield from path.relative_to(str(source.root)).parts[:1]

    pairs: list[FolderPair] = []
    if source.pair is not None:
        pairs = [source.pair, *find_pairs(source.format, source.root, source.names)]
    if source.format == "annotations":
        yield _CLASSES_OF_SUPERVISELY
        yield CLASS_LABELS
        if cub.BOXES in [file.name for file in source.files]:
            yield from cub.FILES
    if source.format == "masks":
        yield LABELMAP
        if read_value_names(source.root / VALUE_NAMES):
            yield VALUE_NAMES
        if isinstance(source.root, Path) and (source.root / MASK_LISTS).is_dir():
            yield _VOC_SPLITS
    if source.format == "voc":
        yield _VOC_SPLITS
        yield LABELMAP  # VOC has the names of classes in its annotations
        # Its masks are named by another assumption.
        pairs += pair_folders(source.root, source.names)
    for pair in pairs:
        for folder in (pair.images, pair.labels):
            # The folder may lie in another one, which is what the user sees in the root.
            yield path_below(source.root, folder).partition("/")[0]
        if pair.image_list is not None:
            yield pair.image_list.name
