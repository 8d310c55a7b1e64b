"""SRC of a pack -> what it is, where that is certain, and the list of its images, in packing order."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.description import is_dataset, is_foreign
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER
from fastpipe.sources.annotation_files import refuse_tool
from fastpipe.sources.annotation_folders import Beside, beside_images, coco_splits, other_folders
from fastpipe.sources.class_folders import ClassFolders, class_folders_of, list_class_folders
from fastpipe.sources.class_names import with_given_classes, with_names_of_all
from fastpipe.sources.coco import list_coco
from fastpipe.sources.coco_splits import check_same_categories, files_beside
from fastpipe.sources.doubtful_classes import similar_classes
from fastpipe.sources.files import Names, SourcePath, names_in, open_binary
from fastpipe.sources.labelled import USUAL_FOLDERS, chosen_pair, label_kinds, pairs_of
from fastpipe.sources.listing import Assumption, Listing, packing_order, with_classes
from fastpipe.sources.manifest import METADATA, json_layout, list_manifest
from fastpipe.sources.masks import Folders, list_masks
from fastpipe.sources.options import IMAGE_COLUMNS, SourceOptions, is_picture, pick_split
from fastpipe.sources.splits import (
    FEW,
    chosen_split,
    classes_of_all,
    fitting,
    only_outside_training,
    some,
    split_folders,
    split_in_path,
    split_tars,
    split_word,
)
from fastpipe.sources.table_files import left_out, with_labels_first
from fastpipe.sources.table_splits import listings_of_others, split_of_tables
from fastpipe.sources.table_text import LISTS, header_of
from fastpipe.sources.tables import list_tables
from fastpipe.sources.tar_reader import compressed
from fastpipe.sources.tars import TarColumns, list_archives, list_dataset, list_tar_classes
from fastpipe.sources.voc_yolo import list_voc, list_yolo

_MANIFESTS = ("csv", "jsonl")
_WORDS = re.compile(r"[^A-Za-z0-9]+")  # between the words of a file's name
_HEADER_BYTES = 1 << 16
_OF_FOLDERS = {
    ".xml": "an annotation of Pascal VOC, or another file of annotations",
    **dict.fromkeys((".yaml", ".yml"), "a file that describes a folder, as YOLO has it"),
    **dict.fromkeys((".names", ".data"), "a file that describes a folder, as Darknet has it"),
}
_UNREAD = {
    **dict.fromkeys((".npy", ".npz"), "a file of NumPy"),
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth"), "a pickle"),
    **dict.fromkeys((".h5", ".hdf5"), "a file of HDF5"),
    **dict.fromkeys((".tfrecord", ".tfrecords"), "a file of TensorFlow"),
    **dict.fromkeys((".rec", ".idx"), "a file of MXNet"),
    **dict.fromkeys((".mdb", ".lmdb"), "a database of LMDB"),
    **dict.fromkeys((".sqlite", ".db"), "a database"),
    **dict.fromkeys((".xlsx", ".xls"), "a table of Excel"),
    **dict.fromkeys((".mp4", ".avi", ".mov", ".mkv"), "a video"),
    ".mat": "a file of MATLAB",
}
_FEW_FOLDERS = 3  # in which another kind of source is looked for
_MOST_DEPTH = 3
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)


class Recognised(NamedTuple):
    """What a source is."""

    format: str  # a key of _FORMATS
    root: SourcePath
    paths: Sequence[SourcePath]  # of the file, of files about the same images, or of the folder
    names: Names | None  # in the folder; None: it is a file
    split: str = ""  # that it is, of the splits of the source; "": it is all of the source
    splits: Mapping[str, SourcePath] = {}  # all splits of the source that have a folder each
    top: SourcePath | None = None  # the folder that holds these; None: there are none
    tars: Mapping[
        str, Sequence[str]
    ] = {}  # the tars of all splits of the source, where these lie in one folder
    beside: Beside | None = None  # the folders of images and of their labels or masks
    chosen: str = ""  # of files that list images, the name of the split, or of the file
    others: Mapping[str, Sequence[SourcePath]] = {}  # as `paths`, of the other splits

    def without_split(self, how: SourceOptions) -> SourceOptions:
        """The options for what it is, which has no splits any more if it is one."""
        return replace(how, split=None) if self.split else how


def list_sources(
    root: SourcePath,
    seed: int,
    *,
    shuffle: bool = True,
    how: SourceOptions | None = None,
    is_pattern: bool = False,
) -> Listing:
    """Lists what is to be packed, in packing order.

    Args:
        root: the source.
        seed, shuffle: of the packing order.
        how: what the user says of the source.
        is_pattern: only the names of its classes are of interest, for other splits; so these may have other numbers.

    Raises:
        PackError, DatasetError: nothing is there, or it is damaged.
    """
    how, taken_ns = how or SourceOptions(), time.time_ns()
    if not root.exists():
        raise PackError(
            f"{readable(str(root))} does not exist; expected a folder with one folder of images for each class, a tar "
            "file, a folder of tar files, a folder of images without classes, a file that lists images (CSV, JSONL, "
            "COCO), or the URL of one of them as text. fastpipe runs no command, reads no streams and expands no braces"
        )
    found = recognise(root, how)
    if found.format == "coco" and how.classes is None and not is_pattern:
        check_same_categories(found.paths, _coco_files_of_others(found, found.without_split(how)))
    listing = _listed(found, found.without_split(how))
    if how.classes is not None:
        listing = with_given_classes(listing, how.classes)
    elif found.format == "imagefolder" and not found.split and not is_pattern:
        listing = replace(
            listing, assumed=(*listing.assumed, *_other_classes_of_training(root, listing.classes))
        )
    listing = replace(listing, assumed=(*listing.assumed, *_similar_classes(listing)))
    listing.sources.sort(key=packing_order(seed, shuffle=shuffle))
    if not isinstance(listing.root, Path):
        listing.root.forget()
    # Behind a URL times are those of the server's clock, so only the files themselves tell when they were listed.
    here = isinstance(root, Path) and isinstance(listing.root, Path)
    return replace(listing, taken_ns=taken_ns if here else 0)


def _similar_classes(listing: Listing) -> list[Assumption]:
    """What is assumed of names that may mean one class, of labels and of fields."""
    assumed = similar_classes(listing.classes)
    for field in listing.fields:
        assumed += similar_classes(field.names, f"classes of {field.name}")
    return assumed


def _listed(found: Recognised, how: SourceOptions) -> Listing:
    """What it holds; of a split, with the classes of all splits."""
    listing = _FORMATS[found.format].listed(found, how)
    if found.format in _OWN_CLASSES:
        return listing
    others = {name: found._replace(paths=paths) for name, paths in found.others.items()}
    for name, folder in found.splits.items():
        if name != found.split:
            others[name] = _folder(folder, how)
    packed = found.split or found.chosen
    of_tables: dict[str, Listing] = {}
    if found.format in ("parquet", "arrow") and not found.split:
        packed = split_of_tables(found.root, how)
        of_tables = listings_of_others(listing, found.root, how)
    listings = {packed: listing}
    for name, other in others.items():
        if other.format == found.format:
            with suppress(PackError):  # a list for a contest, say, has neither images nor labels
                listings[name] = _FORMATS[other.format].listed(other, how)
    listings |= of_tables
    classes = {name: each.classes for name, each in listings.items()}
    new = tuple(only_outside_training(classes))
    listing = with_names_of_all(listing, listings.values())
    listing = with_classes(listing, classes_of_all(list(classes.values())))
    return replace(listing, assumed=(*listing.assumed, *new)) if new else listing


def _other_classes_of_training(root: SourcePath, classes: Sequence[str]) -> Iterator[Assumption]:
    """Of the folder of a split that a user has passed by itself: whether training beside it numbers classes otherwise.
    No file is listed for it.
    """
    if not isinstance(root, Path) or split_word(root.absolute().name) in (None, "train"):
        return
    beside = root.absolute().parent
    for name in names_in(beside, FEW).folders:
        if split_word(name) != "train":
            continue
        folders = None
        with suppress(PackError):
            folders = class_folders(beside / name, SourceOptions())
        if folders is not None and classes and folders.classes != list(classes):
            yield Assumption(
                f"classes: those of {readable(root.name)} alone, with other numbers than those of {readable(name)} "
                "beside it",
                f"--classes-from {readable(str(beside / name))}",
            )


def _coco_files_of_others(found: Recognised, how: SourceOptions) -> Iterator[SourcePath]:
    """The files of COCO of all other splits."""
    if found.names is None:
        yield from files_beside(found.paths[0])
    else:
        for paths in coco_splits(found.root, found.names).values():
            yield from paths
    for name, folder in found.splits.items():
        if name != found.split and (other := _folder(folder, how)).format == "coco":
            yield from other.paths


def format_of(name: str) -> str | None:
    """The format of a file by the ending of its name; None: that says none."""
    ending = os.path.splitext(name)[1].lower()
    return next((kind for kind, each in _FORMATS.items() if ending in each.endings), None)


def could_be_source(path: Path) -> bool:
    """Whether it looks like a folder to pack, or a tar, and not like a dataset."""
    with suppress(OSError):
        if not path.is_dir():
            return path.is_file() and format_of(path.name) is not None
        packed = is_dataset(path) or (path / WORK_FOLDER).exists()
        return not packed and any(
            entry.is_dir() or entry.suffix.lower() == ".tar" for entry in path.iterdir()
        )
    return False


def _of_rows(found: Recognised, how: SourceOptions) -> Listing:
    path, *others = found.paths
    metadata = found.format == "metadata"
    if others:
        raise PackError(
            f"{readable(str(path.parent))} holds {' and '.join(each.name for each in found.paths)}; expected one of "
            f"them. Pass {path.name} with --format {format_of(path.name)} to pack what it lists"
        )
    kind = format_of(path.name) or "" if metadata else found.format
    # The name of the file may say the split that a user asks for; else its rows have to.
    stem = os.path.splitext(path.name)[0]
    is_of_split = how.split is not None and how.split in (found.chosen, stem, *_WORDS.split(stem))
    alone = found.names is None or not (found.others or is_of_split)
    listing = list_manifest(path, kind, how, metadata=metadata, alone=alone)
    if found.names is None:
        return listing
    return replace(listing, assumed=(*listing.assumed, *left_out(_manifests_in(found.names))))


def _manifests_in(names: Names) -> list[str]:
    return [name for name in names.files if format_of(name) in _MANIFESTS]


def _of_boxes(found: Recognised, how: SourceOptions) -> Listing:
    if not isinstance(found.root, Path) or found.beside is None:
        remedy = "which fastpipe does not read by URL: copy it to a folder of this machine"
        raise PackError(f"{found.root} is a folder of the format {found.format}, {remedy}")
    tops = [each for each in (found.root, found.top) if isinstance(each, Path)]
    if found.top is None and split_word(found.root.name) is not None:
        tops.append(found.root.absolute().parent)  # a user has passed the folder of a split
    if found.format == "yolo":
        return list_yolo(found.beside, how.split, tops, how.first_label or 0)
    others = []
    for name, folder in found.splits.items():
        if name != found.split:
            with suppress(PackError):
                others.append(_folder(folder, replace(how, format="voc")).beside)
    listing = list_voc(
        found.root, found.beside, how.split, [each for each in others if each is not None]
    )
    masks = [
        each for each in beside_images(found.root, names_in(found.root)) if each.kind == "masks"
    ]
    left_out = [
        Assumption(f"{each.labels.name}: left out, for only boxes are packed", "--format masks")
        for each in masks
    ]
    return replace(listing, assumed=(*listing.assumed, *left_out))


def _of_masks(found: Recognised, how: SourceOptions) -> Listing:
    """Images with their masks, of all or of one of the splits in the folder of the images."""
    if found.beside is None:
        raise PackError(f"{readable(str(found.root))} has no folder of masks beside one of images")
    images, masks = found.beside.images, found.beside.labels
    splits = split_folders(images, names_in(images, FEW))
    if splits or how.split is not None:
        chosen = chosen_split(images, how.split, splits)
        images = splits[chosen]
        there = fitting(chosen, names_in(masks, FEW).folders)
        if there is None:
            raise PackError(
                f"{readable(str(masks))}: expected a folder {readable(chosen)}, as in {images.parent.name}"
            )
        masks = masks / there
    return list_masks(
        Folders(found.root, _below(found.root, images), _below(found.root, masks)), how
    )


def _below(root: SourcePath, folder: SourcePath) -> str:
    return str(folder)[len(str(root)) :].strip("/")


def _of_images(found: Recognised, how: SourceOptions) -> Listing:
    """Class folders, images without classes, or tars."""
    root = found.root
    if found.names is None:
        return list_archives(
            root, [""], asked=how.fields, split=how.split, columns=_tar_columns(how)
        )
    (folders, files, hidden), in_tars = found.names, found.format == "webdataset"
    if folders and not in_tars:
        return list_class_folders(_class_folders(found, how), certain=how.format == "imagefolder")
    for name in filter(_COMPRESSED.search, files):
        raise compressed(root / name)
    wanted = [name for name in files if not in_tars or name.lower().endswith(".tar")]
    if not wanted:
        raise PackError(
            f"{readable(str(root))} holds no {'tars' if in_tars else 'folders and no files'}; expected one folder of "
            f"images for each class ({root.name}/cat/1.jpg, {root.name}/dog/2.jpg), images without classes, or tars"
        )
    tars = [name for name in files if name.lower().endswith(".tar")]
    if not in_tars and tars:  # --format imagefolder says that each is a class
        return list_tar_classes(
            root, tars, [name for name in [*files, *hidden] if name not in tars]
        )
    if not in_tars:
        return list_class_folders(_class_folders(found, how), certain=how.format == "imagefolder")
    if found.tars:
        columns = _tar_columns(how)
        listing = list_archives(
            root, list(found.tars[found.split]), asked=how.fields, columns=columns
        )
        others = [
            list_archives(root, list(tars), columns=columns).classes
            for name, tars in found.tars.items()
            if name != found.split
        ]
        return with_classes(listing, classes_of_all([listing.classes, *others]))
    stray = [name for name in files if name not in wanted] + [*folders, *hidden]
    return list_archives(root, wanted, stray, how.fields, how.split, _tar_columns(how))


def _tar_columns(how: SourceOptions) -> TarColumns:
    return TarColumns(how.image_column, how.label_column)


def class_folders(root: SourcePath, how: SourceOptions) -> ClassFolders | None:
    """The class folders of a source; None if it is anything else."""
    found = recognise(root, how)
    if found.format != "imagefolder" or found.names is None:
        return None
    folders = _class_folders(found, how)
    assumed = (*folders.assumed, *similar_classes(folders.classes))
    return folders._replace(assumed=assumed) if folders.folders else None


def _class_folders(found: Recognised, how: SourceOptions) -> ClassFolders:
    names = found.names or names_in(found.root)
    folders = class_folders_of(
        found.root, names, found.splits, found.split, certain=how.format == "imagefolder"
    )
    if found.top is None or folders.folders:
        return folders
    tables = [
        name for name in names_in(found.top).files if format_of(name) in (*_MANIFESTS, "parquet")
    ]
    if not tables:
        return folders
    fitting_split = [name for name in tables if split_in_path(name) == split_word(found.split)]
    table = with_labels_first(fitting_split or tables)[0]
    beside = Assumption(
        f"labels: none, though {readable(table)} lies beside the splits; if it has the labels, pass "
        f"{readable(str(found.top / table))}",
        f"--image-root {readable(str(found.root))}",
    )
    return folders._replace(assumed=(*folders.assumed, beside, *left_out(tables)))


class _SourceKind(NamedTuple):
    """A kind of source: who lists it, the options that mean something, and the endings that tell it."""

    listed: Callable[[Recognised, SourceOptions], Listing]
    options: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()  # of a file's name


_OF_TABLES = (
    *(
        "image_column",
        "label_column",
        "fields",
        "image_root",
        "split",
        "coordinates",
        "separator",
        "unlisted",
    ),
    "box_format",
)
_OPTIONS = (*_OF_TABLES, "encoding")
_ALL_OPTIONS = (*_OPTIONS, "first_label")
_OF_COCO = ("fields", "image_root", "split", "coordinates")
_FORMATS = {
    "dataset": _SourceKind(lambda found, how: list_dataset(found.root, how.remote)),
    "imagefolder": _SourceKind(_of_images),
    "webdataset": _SourceKind(
        _of_images, ("image_column", "label_column", "fields", "split", "coordinates"), (".tar",)
    ),
    "metadata": _SourceKind(_of_rows, _OPTIONS),  # of ImageFolder
    "csv": _SourceKind(_of_rows, _OPTIONS, (".csv", ".tsv", ".tab")),
    "jsonl": _SourceKind(_of_rows, _OPTIONS, (".jsonl", ".ndjson")),
    "parquet": _SourceKind(
        lambda found, how: list_tables(found.root, how), _OF_TABLES, (".parquet",)
    ),
    "arrow": _SourceKind(lambda found, how: list_tables(found.root, how), _OF_TABLES, (".arrow",)),
    "coco": _SourceKind(lambda found, how: list_coco(found.paths, how), _OF_COCO, (".json",)),
    "voc": _SourceKind(_of_boxes, ("split", "coordinates")),
    "yolo": _SourceKind(_of_boxes, ("split", "coordinates", "first_label")),
    "masks": _SourceKind(_of_masks, ("fields", "split", "coordinates")),
}
_FILES_WITH_SPLITS = ("parquet", "arrow", "webdataset", "metadata", *_MANIFESTS)
# They number their classes for all splits; boxes have labels of their own.
_OWN_CLASSES = ("imagefolder", "coco", "voc", "yolo", "masks")


def recognise(root: SourcePath, how: SourceOptions) -> Recognised:
    """Tells what a source is, and which of its files count. PackError: not certain, or not with these options."""
    found = _folder(root, how) if root.is_dir() else _file(root, how)
    allowed = _FORMATS[found.format].options
    for name in _ALL_OPTIONS:
        if name == "split" and found.split:
            continue
        no_parts = (
            name == "split" and found.names is None and found.format not in _FILES_WITH_SPLITS
        )
        if getattr(how, name) is not None and (name not in allowed or no_parts):
            what = "a single file" if name in allowed else f"{found.format} sources"
            option = "--field" if name == "fields" else "--" + name.replace("_", "-")
            raise PackError(
                f"{option} has no meaning for {what}, and {readable(str(root))} is one; leave it out"
            )
    return found


def options_of(root: SourcePath, how: SourceOptions) -> tuple[str, ...]:
    """The options that mean something for a source."""
    return _FORMATS[recognise(root, how).format].options


def _file(path: SourcePath, how: SourceOptions) -> Recognised:
    if how.format == "auto" and path.name in METADATA:
        return Recognised("metadata", path, _metadata(path.parent, Names([], [], []))[""], None)
    if how.format in ("imagefolder", "voc", "yolo", "masks"):
        raise PackError(
            f"--format {how.format}: expected a folder, and {readable(str(path))} is a file"
        )
    if how.format == "auto":
        _refuse_unread(path)
    kind = (format_of(path.name) or "webdataset") if how.format == "auto" else how.format
    if how.format == "auto" and path.suffix.lower() in LISTS:
        kind = "csv"
    elif how.format == "auto" and kind == "coco" and json_layout(path, how.encoding) != "object":
        kind = "jsonl"  # an array of objects, or lines of them
    return Recognised(kind, path, [path], None)


def _refuse_unread(path: SourcePath) -> None:
    """Raises PackError where a file is of a form that fastpipe does not read, or belongs to a folder."""
    ending = path.suffix.lower()
    if ending in (".json", ".xml"):
        refuse_tool(path)
    if ending in _OF_FOLDERS:
        raise PackError(
            f"{readable(str(path))} is {_OF_FOLDERS[ending]}; expected the folder: pass "
            f"{readable(str(path.parent))}, or the folder that holds the images and this"
        )
    if ending in _UNREAD:
        raise PackError(
            f"{readable(str(path))} is {_UNREAD[ending]}, which fastpipe does not read: read it in Python and give its "
            "samples to fastpipe.Writer, or write the images into folders and the labels into a CSV file"
        )


def _folder(root: SourcePath, how: SourceOptions) -> Recognised:
    names = names_in(root)
    if how.format in ("auto", "webdataset") and _is_ours(root, names):
        return Recognised("dataset", root, [root], names)
    splits = split_folders(root, names, how.split)
    kinds = [how.format] if how.format != "auto" else _kinds(root, names, how)
    if splits and (not _lies_at_top(kinds[0], root, names, how) if len(kinds) == 1 else False):
        return _split_of(root, splits, how)
    if kinds == ["imagefolder"] and how.format == "auto" and how.split not in names.folders:
        _refuse_around(root, names, how)
    if len(kinds) > 1:
        tables = with_labels_first(_manifests_in(names))
        file = f", such as {readable(str(root / tables[0]))}" if tables else ""
        remedy = f"--format picks one; or pass the file that lists the images{file}"
        raise PackError(
            f"{readable(str(root))} may be several kinds of source: {', '.join(kinds)}. {remedy}"
        )
    kind, paths = kinds[0], [root]
    if kind in ("metadata", "coco", *_MANIFESTS):
        chosen, lists = _lists(kind, root, names, how.split)
        others = {
            name: files for name, files in lists.items() if name != chosen and split_in_path(name)
        }
        return Recognised(kind, root, lists[chosen], names, others=others, chosen=chosen)
    if kind in USUAL_FOLDERS:
        pair = chosen_pair(kind, root, names, how.split)
        return Recognised(kind, root, paths, names, pair.part, beside=pair)
    if kind == "webdataset" and (
        tars := split_tars(name for name in names.files if name.lower().endswith(".tar"))
    ):
        chosen = chosen_split(root, how.split, dict.fromkeys(tars))
        return Recognised(kind, root, paths, names, chosen, tars=tars)
    return Recognised(kind, root, paths, names)


def _refuse_around(root: SourcePath, names: Names, how: SourceOptions) -> None:
    """Raises PackError where class folders are none: below them is another kind of source, or one with splits."""
    if any(map(is_picture, names.files[:FEW])):
        return
    is_alone = len(names.folders) == 1
    for name in names.folders[:_FEW_FOLDERS]:
        inner = _other_source(root / name, replace(how, split=None), _MOST_DEPTH, is_alone=is_alone)
        if inner is None:
            continue
        number = "one folder" if is_alone else "folders"
        folders = f"{readable(name)} as the only class" if is_alone else "the folders as classes"
        raise PackError(
            f"{readable(str(root))} holds {number}, and in {'it' if is_alone else readable(name)} "
            f"{inner.description}. Pass {readable(str(inner.folder))}. --format imagefolder takes {folders}"
        )


class _Inner(NamedTuple):
    """A source that lies in the folders of another one."""

    folder: SourcePath
    description: str


def _other_source(
    folder: SourcePath, how: SourceOptions, depth: int, *, is_alone: bool
) -> _Inner | None:
    """The source in a folder, or below it, if it is no images, and no class folders. Splits count only where each
    folder around them holds nothing else (`is_alone`): else they are folders in class folders.
    """
    inside = names_in(folder, FEW)
    kinds = _kinds(folder, inside, how)
    splits = split_folders(folder, inside)
    if splits:
        return _Inner(folder, f"the splits {some(splits)}") if is_alone else None
    has_pictures = any(map(is_picture, inside.files))
    if kinds != ["imagefolder"] and (is_alone or not has_pictures):
        return _Inner(folder, f"a source of the format {' or '.join(kinds)}")
    if has_pictures or depth == 0:
        return None
    most = _FEW_FOLDERS if isinstance(folder, Path) else 1  # behind a URL, each is a request
    alone_below = is_alone and len(inside.folders) == 1
    for name in inside.folders[:most]:
        inner = _other_source(folder / name, how, depth - 1, is_alone=alone_below)
        if inner is not None:
            return inner
    return None


def _lies_at_top(kind: str, root: SourcePath, names: Names, how: SourceOptions) -> bool:
    """Whether a folder of splits is a source of a kind itself, as its files and folders say."""
    if kind == "imagefolder":
        return how.format == kind and how.split is None  # a user says that the folders are classes
    if kind in USUAL_FOLDERS:
        return bool(pairs_of(kind, root, names))
    if kind == "coco":
        return bool(coco_splits(root, names))
    endings = _FORMATS[kind].endings
    return kind in ("metadata", "parquet", "arrow") or any(
        name.lower().endswith(endings) for name in names.files
    )


def _split_of(root: SourcePath, splits: Mapping[str, SourcePath], how: SourceOptions) -> Recognised:
    """What a split of a folder is. PackError: the user has to say which one."""
    inside = replace(how, split=None)
    more = ""
    if how.split is None and len(splits) > 1:
        first = next(iter(splits.values()))
        if how.format == "auto" and _kinds(first, names_in(first), inside) == ["imagefolder"]:
            more = ". --format imagefolder takes these folders as classes"
    chosen = chosen_split(root, how.split, splits, more)
    found = _folder(splits[chosen], inside)
    if found.format == "imagefolder" and found.names is not None and len(found.names.folders) == 1:
        others = {
            _folder(folder, inside).format for name, folder in splits.items() if name != chosen
        }
        if labelled := sorted(others & USUAL_FOLDERS.keys()):
            raise PackError(
                f"the split {chosen} of {readable(str(root))} has no labels, and others are of the format "
                f"{labelled[0]}; pass {readable(str(found.root / found.names.folders[0]))} to pack its images alone"
            )
    return found._replace(split=chosen, splits=splits, top=root)


def _lists(
    kind: str, root: SourcePath, names: Names, split: str | None
) -> tuple[str, dict[str, list[SourcePath]]]:
    """The split that a user asks for; and by split, or by name, the files of a folder that list images."""
    if split == "":  # the key of what says none
        raise PackError(
            "--split: expected the name of a split, got ''; leave it out if there are none"
        )
    found = (
        _metadata(root, names)
        if kind == "metadata"
        else coco_splits(root, names)
        if kind == "coco"
        else {}
    )
    if "" in found and (split is None or (kind == "metadata" and fitting(split, found) is None)):
        return "", found  # beside the images themselves
    if not found:  # files of the format, which may have a split in their names
        files = [name for name in names.files if format_of(name) == kind]
        found = {name: [root / name] for name in with_labels_first(files)}
        if not found:
            raise PackError(f"{readable(str(root))} holds no file of the format {kind}")
        stems = {name: Path(name).stem for name in found}
        named = [name for name, stem in stems.items() if split in (stem, *_WORDS.split(stem))]
        named = named or list(found)  # the splits may be in the rows of the only file
        split = named[0] if len(named) == 1 else split
    chosen = pick_split(split, found, root)
    if kind == "metadata" and split is None and len(names.folders) > 1:
        raise PackError(
            f"{readable(str(root))} has metadata in {chosen} and none in its other folders: --split {chosen} packs "
            "what it lists, --format imagefolder takes the folders as classes"
        )
    return chosen, found


def _is_ours(root: SourcePath, names: Names) -> bool:
    """Whether it is a packed dataset, be it damaged or unfinished."""
    try:
        ours = is_dataset(root)
    except OSError as problem:
        raise PackError(f"cannot read {root / DATASET_FILE}: {problem.strerror}") from problem
    damaged = (
        set(names.folders) <= {FIELDS_FOLDER}
        and DATASET_FILE in names.files
        and not is_foreign(root)
    )
    return ours or damaged or (root / WORK_FOLDER).is_dir()


def _kinds(root: SourcePath, names: Names, how: SourceOptions) -> list[str]:
    """What a folder may be. More than one: the user has to say."""
    folders, files, _ = names
    if not folders and any(name.lower().endswith(".tar") for name in files):
        return ["webdataset"]  # what lies beside tars describes them
    if "dataset_dict.json" in files or "state.json" in files:
        return ["arrow"]
    found: list[str] = []
    if _metadata(root, names):
        found.append("metadata")
    in_data = names_in(root / "data").files if "data" in folders else []
    if any(
        name.lower().endswith(".parquet") and name not in METADATA for name in [*files, *in_data]
    ):
        found.append("parquet")
    if coco_splits(root, names):
        found.append("coco")
        if not split_folders(root, names) and len(other_folders(names)) > 1:
            found.append("imagefolder")  # an export, and folders that are called like classes
    found += label_kinds(root, names, others=found)
    if found:
        return found
    tables = with_labels_first(_manifests_in(names))
    manifests = [
        kind
        for name in tables
        if _lists_images(root / name, how.encoding) and (kind := format_of(name))
    ]
    found = sorted(set(manifests))
    if found and (folders or len(manifests) < len(files)) and how.split is None:
        found.append("imagefolder")
    return found or ["imagefolder"]


def _lists_images(path: SourcePath, encoding: str | None) -> bool:
    """Whether a manifest has a column that is called like a path."""
    with suppress(OSError, ValueError, RecursionError, PackError):
        if format_of(path.name) != "jsonl":
            return any(name.strip().lower() in IMAGE_COLUMNS for name in header_of(path, encoding))
        with open_binary(path) as file:
            names = json.loads(file.readline(_HEADER_BYTES).decode("utf-8-sig"))
        return isinstance(names, dict) and any(
            name.strip().lower() in IMAGE_COLUMNS for name in names
        )
    return False


def _metadata(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    """The folders with metadata, "" is the source itself -> these files."""
    folders = {"": root, **{name: root / name for name in names.folders}}
    found = {
        name: [folder / each for each in METADATA if (folder / each).is_file()]
        for name, folder in folders.items()
    }
    return {name: files for name, files in found.items() if files}
