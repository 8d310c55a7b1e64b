"""A source of any kind -> the listing of its images, in packing order."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.errors import PackError, did_you_mean_path, readable
from fastpipe.sources.annotations.annotations_above import find_annotations_above
from fastpipe.sources.annotations.coco import CATEGORIES, list_category_names
from fastpipe.sources.annotations.coco_folders import find_coco_files
from fastpipe.sources.annotations.coco_splits import (
    find_coco_files_beside,
    read_all_categories,
)
from fastpipe.sources.class_names import (
    with_given_classes,
    with_names_of_all,
    with_names_of_field,
)
from fastpipe.sources.file_formats import MANIFESTS
from fastpipe.sources.files import SourcePath, names_in, path_below, unreadable
from fastpipe.sources.folders.class_folders import ClassFolders, find_class_folders
from fastpipe.sources.folders.class_lists import find_names_of_numbers
from fastpipe.sources.folders.classes_in_names import describe_classes_in_names
from fastpipe.sources.folders.doubtful_classes import similar_classes
from fastpipe.sources.folders.sibling_classes import describe_sibling_classes
from fastpipe.sources.folders.split_classes import (
    are_own_numbers,
    assume_other_order,
    classes_outside_training,
    join_classes,
)
from fastpipe.sources.folders.splits import (
    FEW,
    count_shared,
    find_training,
    meaning_of_split,
    split_folders,
)
from fastpipe.sources.folders.unread_names import describe_unread
from fastpipe.sources.format_listing import list_recognised
from fastpipe.sources.listing import (
    Assumption,
    Listing,
    add_assumptions,
    sort_for_packing,
    with_classes,
)
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.recognition import recognise, recognise_folder
from fastpipe.sources.split_lists import UnusedLists, find_unused_lists, pick_listed
from fastpipe.sources.tables.names_beside import find_names_beside
from fastpipe.sources.tables.table_paths import find_tables
from fastpipe.sources.tables.table_splits import (
    find_split_of_tables,
    list_classes_of_other_splits,
    list_classes_of_tables,
)

# WebDataset takes such texts: a command, standard input, or several names in one.
# Of shells, and of WebDataset: {000000..000009}.
_PATTERN = re.compile(r"\*|\{.*\}")
_COMMAND = re.compile(r"^(-$|pipe:)|[{|]")
# A split of these formats has the numbers of all splits already: the listing of class folders and
# of VOC joins the classes, and the files of COCO and YOLO, and masks themselves, say the numbers.
_WITH_FINAL_CLASSES = ("imagefolder", "coco", "voc", "yolo", "masks")
# A folder of these formats has the names of its classes in files, and a split beside it has others. Of
# the tables of manifests and of metadata, `training_tables` compares the names.
_WITH_NAMES_IN_FILES = ("annotations", "webdataset", "parquet", "arrow", "voc")
# Beside sources of these formats, lists of splits are looked for. Others name their own lists.
_WITH_LISTS_BESIDE = ("imagefolder", "metadata", "csv", "jsonl")

# Assumptions that name annotations of unlabelled images begin so.
_NO_LABELS_THOUGH = "labels: none, though"


def _describe_missing(root: SourcePath) -> str:
    """The message about a source that does not exist."""
    shown = readable(root)
    if isinstance(root, Path) and _PATTERN.search(root.name) and root.parent.is_dir():
        return (
            f"{shown} is a pattern of several files; expected a folder of tars or of images, or one file. "
            f"To pack all tars of the folder pass {readable(root.parent)}"
        )
    near = did_you_mean_path(root) if isinstance(root, Path) else ""
    if near:
        return f"{shown} does not exist{near}"
    if _COMMAND.search(shown):
        return (
            f"{shown} does not exist; expected a path or a URL. fastpipe runs no command, reads no "
            "streams and expands no braces"
        )
    in_folder = ""
    if isinstance(root, Path) and not root.is_absolute():
        in_folder = f" in {readable(os.getcwd())}"
    return (
        f"{shown} does not exist{in_folder}; expected a folder of images, one folder for each class; a "
        "tar file or a folder of them; a file that lists images (CSV, JSONL, COCO); or a URL"
    )


def list_sources(
    root: SourcePath,
    seed: int,
    *,
    shuffle: bool = True,
    options: SourceOptions | None = None,
    is_pattern: bool = False,
) -> Listing:
    """Lists the images that are to be packed, in packing order.

    Args:
        root: the source.
        seed, shuffle: of the packing order.
        options: the user's options of the source.
        is_pattern: only the names of its classes are used, for other sources. So the other splits
            of this source may have other numbers.

    Raises:
        PackError, DatasetError: there is nothing, it is damaged, or it may not be read.
    """
    options = options or SourceOptions()
    try:
        return _list_sources(
            root, seed, options, shuffle=shuffle, is_pattern=is_pattern
        )
    except PermissionError as problem:
        # Whoever looks whether a file is in a folder meets the folders that may not be read.
        raise unreadable(root, problem) from problem


def _list_sources(
    root: SourcePath,
    seed: int,
    options: SourceOptions,
    *,
    shuffle: bool,
    is_pattern: bool,
) -> Listing:
    """As list_sources. PermissionError: a folder may not be read."""
    taken_ns = time.time_ns()
    if not root.exists():
        raise PackError(_describe_missing(root))
    given_options = options
    options = options.without_listed_split()
    source = recognise(root, options)
    if source.split:
        # A split is listed as a source of its own, which has no splits.
        options = replace(options, split=None)
    other_folders = _recognise_other_folders(source, options)
    same_format = {
        split: other
        for split, other in other_folders.items()
        if other.format == source.format
    }
    coco_categories: dict[int, str] = {}
    if source.format == "coco" and options.classes is None and not is_pattern:
        # A model that is trained on one split would be scored wrong on another.
        coco_categories = read_all_categories(
            source.files, _coco_files_of_other_splits(source, same_format.values())
        )

    # First the images with the classes of this split alone, then the numbers that classes get by
    # other splits or by the user, then the doubts that only all classes together show.
    listing = list_recognised(source, options)
    if options.classes is None:
        other_formats = _splits_of_other_formats(source, other_folders)
        listing = add_assumptions(listing, other_formats)
    if coco_categories and listing.kinds.get(CATEGORIES) == "classes":
        names = list_category_names(coco_categories)
        listing = with_names_of_field(listing, CATEGORIES, names)
    if not _has_final_classes(source, options):
        others = _other_splits(source) | same_format
        listing = _with_classes_of_all_splits(listing, source, others, options)
    if options.classes is not None:
        listing = with_given_classes(listing, options.classes)
    elif source.format == "imagefolder" and not source.split and not is_pattern:
        listing = add_assumptions(
            listing, _other_numbers_in_training(root, listing.classes)
        )
    elif source.format in MANIFESTS and not is_pattern:
        numbers = _other_numbers_in_training(
            _folder_of_images(listing), listing.classes, are_in_table=True
        )
        listing = add_assumptions(listing, numbers)
    elif (
        source.format in _WITH_NAMES_IN_FILES and not source.is_file and not is_pattern
    ):
        listing = add_assumptions(
            listing, _other_numbers_beside(source, listing, options)
        )
    listing = add_assumptions(listing, similar_classes(listing.classes))
    for field in listing.fields:
        place = f"classes of {field.name}"
        listing = add_assumptions(listing, similar_classes(field.names, place))

    if source.format == "webdataset" and options.classes is None and not is_pattern:
        listing = add_assumptions(listing, _names_of_numbers(source, listing))
    if source.format in MANIFESTS and options.classes is None and not is_pattern:
        listing = add_assumptions(listing, _names_beside_table(source, listing))
    if source.format != "imagefolder":
        image_folders: set[str] = set()
        if source.format == "annotations" and listing.root == source.root:
            image_folders = {image.path.partition("/")[0] for image in listing.sources}
        elif source.format == "annotations":
            # --image-root names a folder in it.
            image_folders = {path_below(source.root, listing.root).partition("/")[0]}
        lists = UnusedLists([], [])
        if given_options.split_list is None and not is_pattern:
            lists = _lists_beside_masks(source, listing)
        read_lists: list[SourcePath] = list(lists.files)
        split_list = given_options.path_of_split_list()
        if split_list is not None:
            read_lists.append(split_list)
        unread = describe_unread(
            source,
            are_colours_read=any(field.colours for field in listing.fields),
            have_values_names=all(
                field.names for field in listing.fields if field.kind == "mask"
            ),
            have_class_names=options.classes is not None,
            image_folders=image_folders,
            read_lists=read_lists,
        )
        listing = add_assumptions(listing, [*unread, *lists.assumptions])
        if source.format == "masks" and options.label_pattern is None:
            listing = add_assumptions(listing, _labels_of_masks(source, listing))
    elif options.format == "auto" and not is_pattern:
        listing = add_assumptions(listing, _annotations_above(root, listing, options))
        # Where annotations lie beside the images, these have the classes.
        has_annotations = any(
            _NO_LABELS_THOUGH in assumption.text for assumption in listing.assumed
        )
        if not has_annotations:
            listing = add_assumptions(
                listing, describe_classes_in_names(listing.sources)
            )
            if isinstance(root, Path) and not listing.assumed:
                siblings = describe_sibling_classes(root, listing)
                listing = add_assumptions(listing, siblings)

    if given_options.split_list is not None:
        listing = pick_listed(listing, given_options)
    elif (
        source.format in _WITH_LISTS_BESIDE
        and given_options.split is None
        and not is_pattern
    ):
        folder = root.parent if source.is_file else root
        unused_lists = find_unused_lists(folder, listing)
        listing = add_assumptions(listing, unused_lists.assumptions)

    sort_for_packing(listing.sources, seed, shuffle=shuffle)
    if not isinstance(listing.root, Path):
        listing.root.forget()  # its list of files, which may be large
    # The times of files behind a URL are of the server's clock. They cannot be compared with a time
    # of this machine.
    if not isinstance(root, Path) or not isinstance(listing.root, Path):
        taken_ns = 0
    return replace(listing, taken_ns=taken_ns)


def class_folders(root: SourcePath, options: SourceOptions) -> ClassFolders | None:
    """The class folders of a source, without their files; None if it is anything else, or has
    fields.
    """
    source = recognise(root, options)
    # The values of fields are read with the files.
    if source.format != "imagefolder" or options.fields:
        return None
    folders = find_class_folders(source, options)
    if not folders.has_labels:
        return None
    assumed = (*folders.assumed, *similar_classes(folders.classes))
    return replace(folders, assumed=assumed)


def _recognise_other_folders(
    source: Recognised, options: SourceOptions
) -> dict[str, Recognised]:
    """The other splits of a source that have folders of their own.

    Raises:
        PackError: it is uncertain what a split is, and the numbers of classes depend on it.
    """
    has_final_classes = _has_final_classes(source, options)
    if has_final_classes and (
        source.format == "imagefolder" or options.classes is not None
    ):
        return {}
    others = {}
    for split, folder in source.splits.items():
        if split == source.split:
            continue
        try:
            others[split] = recognise_folder(folder, options)
        except PackError:
            # The categories of COCO's splits are compared, see `read_all_categories`.
            if source.format == "coco" or not has_final_classes:
                raise
            # The user has not asked for this split.
    return others


def _has_final_classes(source: Recognised, options: SourceOptions) -> bool:
    """Whether the listing of a split has the numbers of the classes of all splits."""
    # By their paths, the images of a split have the classes of this split alone.
    is_by_path = options.label_pattern is not None
    return source.format in _WITH_FINAL_CLASSES and not is_by_path


def _with_classes_of_all_splits(
    listing: Listing,
    source: Recognised,
    others: Mapping[str, Recognised],
    options: SourceOptions,
) -> Listing:
    """The listing of a split, in which a class has the same number as in the other splits."""
    has_tables = source.format in ("parquet", "arrow") and not source.split
    if has_tables:
        packed_split = find_split_of_tables(source.root, options)
    else:
        packed_split = source.split or source.list_name
    listings = {packed_split: listing}
    for split, other in others.items():
        if other.format == "metadata":
            # So that its classes are not compared with those of the training by themselves.
            other = replace(other, split=split)
        try:
            listings[split] = list_recognised(other, options)
        except PackError:
            pass  # the list of a contest, say, has neither images nor labels
    if has_tables:
        listings |= list_classes_of_other_splits(listing, source.root, options)

    classes = {split: other.classes for split, other in listings.items()}
    listing = with_names_of_all(listing, listings.values())
    listing = with_classes(listing, join_classes(list(classes.values())))
    if has_tables:
        listing = add_assumptions(listing, assume_other_order(classes))
    return add_assumptions(listing, classes_outside_training(classes))


def _other_splits(source: Recognised) -> dict[str, Recognised]:
    """The other splits of a source that are files or tars of the same folder."""
    others = {}
    for split, files in source.other_files.items():
        others[split] = replace(source, files=files)
    for split in source.tars:
        if split != source.split:
            others[split] = replace(source, split=split)
    return others


def _other_numbers_in_training(
    images: SourcePath, classes: Sequence[str], *, are_in_table: bool = False
) -> Iterator[Assumption]:
    """Warns if images are those of a split, and training beside it has other numbers.

    No file is listed for it.

    Args:
        images: the folder of the images.
        classes: their classes.
        are_in_table: the classes come from a table, and may be others than the folders of training.
    """
    if not isinstance(images, Path) or not classes:
        return
    training = find_training(images.absolute())
    if training is None:
        return
    try:
        folders = class_folders(training, SourceOptions())
    except PackError:
        return
    if folders is None or folders.classes == list(classes):
        return
    # Classes that training has behind these do not change their numbers.
    are_same_numbers = folders.classes[: len(classes)] == list(classes)
    are_others = not set(classes) <= set(folders.classes)
    if are_in_table and (are_same_numbers or are_others):
        return
    name = readable(images.name)
    place = "it"
    if are_in_table:
        name = "this table"
        place = "the images"
    yield Assumption(
        f"classes: those of {name} alone, with other numbers than those of "
        f"{readable(training.name)} beside {place}",
        f"--classes-from {quote_for_shell(str(training))}",
    )


def _folder_of_images(listing: Listing) -> SourcePath:
    """The innermost folder that has all images of a listing."""
    # There may be millions of images, and few folders.
    folders = {source.file_path.rpartition("/")[0] for source in listing.sources}
    if not folders or "" in folders:
        return listing.root
    paths = [folder.split("/") for folder in folders]
    shared_folder = listing.root
    for name in paths[0][: count_shared(paths)]:
        shared_folder = shared_folder / name
    return shared_folder


def _other_numbers_beside(
    source: Recognised, listing: Listing, options: SourceOptions
) -> Iterator[Assumption]:
    """Warns if the user passed the folder of one split, and annotations beside it have other classes.

    The names of the classes are those in the files, so another split has other numbers.
    """
    root = source.root
    if source.split or not isinstance(root, Path):
        return
    has_names = not are_own_numbers(listing.classes)
    if not has_names and not any(field.names for field in listing.fields):
        return  # numbers are the same in all splits, so the others need not be listed
    folder = root.absolute()
    split = meaning_of_split(folder.name)
    if not split:
        return
    names = names_in(folder.parent, FEW)
    splits = split_folders(folder.parent, names, split)
    if folder not in splits.values():
        return
    for other_folder in splits.values():
        if other_folder == folder:
            continue
        try:
            other_source = recognise_folder(other_folder, options)
            if other_source.format != source.format:
                continue  # its folders are no classes
            other = _list_classes(other_source, options)
        except PackError:
            continue  # nothing is annotated in it
        joined = with_names_of_all(listing, [other])
        classes = join_classes([listing.classes, other.classes])
        if classes != listing.classes or joined.fields != listing.fields:
            command = f"fastpipe pack {shlex.quote(str(folder.parent))} DST"
            others = ", with the same other options" if options.recorded() else ""
            yield Assumption(
                f"classes: those of {readable(folder.name)} alone, with other numbers than those of "
                f"{readable(other_folder.name)} beside it. To number the classes of both together: "
                f"{command} --split {split}{others}"
            )
            return


def _list_classes(source: Recognised, options: SourceOptions) -> Listing:
    """The classes and fields of a split; of tables without their samples."""
    if source.format in ("parquet", "arrow"):
        paths = find_tables(source.root, options.split)
        return list_classes_of_tables(paths, options)
    return list_recognised(source, options)


def _splits_of_other_formats(
    source: Recognised, others: Mapping[str, Recognised]
) -> Iterator[Assumption]:
    """Warns of splits whose annotations have another form, and so other numbers for classes."""
    for split, other in others.items():
        if other.format not in ("imagefolder", source.format):
            yield Assumption(
                f"classes: numbered as in {readable(source.split)}, of the format {source.format}; "
                f"{readable(split)} is of the format {other.format}, and may have other numbers",
                "--classes-from FILE",
            )


def _annotations_above(
    root: SourcePath, listing: Listing, options: SourceOptions
) -> list[Assumption]:
    # Behind a URL, each look at a folder would be a request.
    if not isinstance(root, Path) or not isinstance(listing.root, Path):
        return []
    return find_annotations_above(root, listing.root, listing, options)


def _lists_beside_masks(source: Recognised, listing: Listing) -> UnusedLists:
    """The lists of splits beside a folder of masks, as Oxford's pets have them."""
    pair = source.pair
    if source.format != "masks" or pair is None or source.split or pair.split:
        return UnusedLists([], [])
    return find_unused_lists(pair.labels.parent, listing, takes_tables=True)


def _labels_of_masks(source: Recognised, listing: Listing) -> Iterator[Assumption]:
    """The assumption that images with masks have no labels, though their names look like classes."""
    has_splits = source.split or (source.pair is not None and source.pair.split)
    are_named = any(entry.text.startswith("labels:") for entry in listing.assumed)
    # With splits, the classes in paths are refused.
    if not has_splits and not are_named:
        yield from describe_classes_in_names(listing.sources)


def _names_of_numbers(source: Recognised, listing: Listing) -> Iterator[Assumption]:
    """The assumption on classes that are numbers, if a list beside the tars may have their names."""
    classes = listing.classes
    if not classes or not all(name.isdigit() for name in classes):
        return
    folder = source.root.parent if source.is_file else source.root
    file = find_names_of_numbers(folder, len(classes))
    if file is not None:
        yield Assumption(
            f"classes: called by their numbers; {readable(file.name)} beside the tars may have "
            "their names",
            f"--classes-from {readable(file)}",
        )


def _names_beside_table(source: Recognised, listing: Listing) -> Iterator[Assumption]:
    """The assumption on classes of a table that are numbers, if a file beside it may name them."""
    if not are_own_numbers(listing.classes):
        return
    numbers = {image.label for image in listing.sources if image.label != NO_LABEL}
    file = find_names_beside(source.files[0], numbers)
    if file is None:
        return
    yield Assumption(
        f"classes: called by their numbers; {readable(file.name)} beside the table may have their "
        "names",
        f"--classes-from {quote_for_shell(str(file))}",
    )


def _coco_files_of_other_splits(
    source: Recognised, others: Iterable[Recognised]
) -> Iterator[SourcePath]:
    """The files of annotations of other splits; those of the packed split may be among them."""
    if source.is_file:
        yield from find_coco_files_beside(source.files[0])
    else:
        for files in find_coco_files(source.root, source.names).values():
            yield from files
    for other in others:
        yield from other.files
