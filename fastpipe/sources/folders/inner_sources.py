"""Folders that would be classes -> an error if a source lies in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import find_colour_list
from fastpipe.sources.annotations.sample_folders import are_samples
from fastpipe.sources.annotations.voc import describe_splits_of_voc
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.doubtful_folders import lists_beside_images
from fastpipe.sources.folders.folder_formats import manifest_names, possible_formats
from fastpipe.sources.folders.folder_roles import has_pictures
from fastpipe.sources.folders.splits import (
    FEW,
    find_split_parts,
    first_paths,
    meaning_of_split,
    split_folders,
)
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.listed_images import (
    ListingTable,
    find_listing_tables,
    find_table_of_siblings,
)
from fastpipe.sources.tables.table_files import is_result_form, sort_labelled_first
from fastpipe.sources.tables.table_remedies import some_tables

# A source is looked for in this many folders of a folder. Behind a URL, each folder is a request.
_MAX_FOLDERS = 3
_MAX_FOLDERS_OF_URL = 1
_MAX_LEVELS = 3
_OF_MASKS = "of the format masks"
_OF_VOC = "of the format voc"


class _InnerSource(NamedTuple):
    """A source that lies in a folder of another one."""

    folder: SourcePath
    description: str


def refuse_inner_sources(
    root: SourcePath, names: Names, options: SourceOptions
) -> None:
    """Raises PackError if the folders of a source are no class folders.

    A source of another format lies in them. In an only folder it may also be one with splits: in
    several, a folder train is a part of a class.
    """
    if has_pictures(names):
        return
    # The user names a split of the source, and not of what lies in it.
    options_inside = replace(options, split=None)
    is_only_folder = len(names.folders) == 1
    for name in names.folders[:_MAX_FOLDERS]:
        inner = _find_source(
            root / name, options_inside, _MAX_LEVELS, is_only_folder=is_only_folder
        )
        if inner is None:
            continue
        _refuse_table_of_sibling(root, names, inner.folder)
        if is_only_folder:
            contents = "one folder, and in it"
            classes = f"{readable(name)} as the only class"
        else:
            contents = f"folders, and in {readable(name)}"
            classes = "the folders as classes"
        remedy = f"Pass {readable(str(inner.folder))}"
        if inner.description.endswith(_OF_VOC) and options.split is None:
            remedy += describe_splits_of_voc(inner.folder)
        remedy = _remedy_of_tables_inside(inner.folder) or remedy
        parts = find_split_parts(names.folders)
        if parts:
            first_split = next(iter(parts[0]))
            remedy = (
                f"--split {first_split} packs one of the splits {first_paths(parts[0])}, in which a "
                f"class has the same number; or pass {readable(str(inner.folder))} alone"
            )
        parent = inner.folder.parent
        names_in_parent = names_in(parent, FEW)
        if inner.description.endswith(_OF_MASKS) and len(names_in_parent.folders) > 1:
            # DSB 2018 has a folder for each sample, with its image and a mask for each nucleus.
            remedy = (
                f"If each folder in {readable(str(parent))} is a sample, list images "
                "and masks in a CSV file (--field mask=COLUMN:mask), or write the samples with "
                "fastpipe.Writer"
            )
            if are_samples(parent, names_in_parent):
                remedy = (
                    f"If each folder in {readable(str(parent))} is a sample with a mask for each "
                    f"object, pass {readable(str(parent))} with --format masks"
                )
            remedy += f". Otherwise pass {readable(str(inner.folder))}"
        # The Semantic Drone Dataset has class_dict_seg.csv two folders above the masks.
        colours = find_colour_list(root, names.files)
        tables = sort_labelled_first(manifest_names(names))
        tables = [name for name in tables if name != colours]
        if colours is not None and inner.description.endswith(_OF_MASKS):
            remedy += f" with --classes-from {quote_for_shell(str(root / colours))}"
        elif tables:
            table = _table_of_split(root, tables, inner.folder, options.split)
            remedy += f"; or the table beside it, if that has the labels: {some_tables([table])}"
        else:
            # LLaVA has a JSON file of conversations beside images/coco/train2017.
            lists = lists_beside_images(names.files)
            listing_tables = find_listing_tables(root, lists, image_folder=inner.folder)
            if listing_tables:
                first_table = some_tables(listing_tables[:1])
                remedy = f"Pass {first_table}: it lists these images. {remedy} for the images alone"
        raise PackError(
            f"{readable(str(root))} holds {contents} {inner.description}. {remedy}. --format "
            f"imagefolder takes {classes}"
        )


def _remedy_of_tables_inside(folder: SourcePath) -> str:
    """What to pass where tables in an inner source list its images; "" if none do."""
    names = names_in(folder, FEW)
    tables = manifest_names(names)
    if has_pictures(names):
        # GTSRB has Final_Test/Images with the images and GT-final_test.csv.
        listing_tables = find_listing_tables(folder, tables)
        if listing_tables:
            return f"Pass {some_tables(listing_tables)}: it lists the images there"
    splits = split_folders(folder, names)
    if splits and _are_images_alone(splits):
        # TensorFlow's tutorials have images/train beside images/train_labels.csv.
        tables = [name for name in tables if not is_result_form(name)]
        listing_tables = find_listing_tables(folder, tables)
        if listing_tables:
            return (
                f"Pass {some_tables(listing_tables)}; or {readable(str(folder))} for the images "
                "alone"
            )
    return ""


def _are_images_alone(splits: Mapping[str, SourcePath]) -> bool:
    """Whether no folder of a split has folders, which would be classes."""
    return not any(names_in(folder, FEW).folders for folder in splits.values())


def _refuse_table_of_sibling(root: SourcePath, names: Names, inner: SourcePath) -> None:
    """Raises PackError if the tables of an inner folder list the images of a folder beside it.

    ISIC has ISIC2018_Task3_Training_GroundTruth beside ISIC2018_Task3_Training_Input.
    """
    if inner.parent != root:
        return
    tables = manifest_names(names_in(inner, FEW))
    table = find_table_of_siblings(inner, tables, names.folders)
    if table is None:
        return
    raise PackError(
        f"{readable(str(root))} holds folders, and in {readable(inner.name)} a table of the images "
        f"in another one. Pass {some_tables([table])}. --format imagefolder takes the folders as "
        "classes"
    )


def _table_of_split(
    root: SourcePath, tables: Sequence[str], inner: SourcePath, split: str | None
) -> ListingTable:
    """The table that is called after the split that the user asks for, or the first one.

    Args:
        root: the source.
        tables: the names of the tables in it.
        inner: the folder in it that has splits, or images.
        split: that the user asks for.
    """
    folder = None
    if split is not None:
        folder = split_folders(inner, names_in(inner, FEW), split).get(split)
    meaning = meaning_of_split(split or "")
    for table in tables:
        if meaning and meaning_of_split(table) == meaning:
            return ListingTable(root / table, folder)
    return ListingTable(root / tables[0], None)


def _find_source(
    folder: SourcePath,
    options: SourceOptions,
    levels_below: int,
    *,
    is_only_folder: bool,
) -> _InnerSource | None:
    """The source in a folder, or in folders below it; None for images and for class folders.

    Args:
        folder: the folder.
        options: of the source, without a split.
        levels_below: how many levels of folders in it to search.
        is_only_folder: each folder around it holds nothing else. Only then folders that are called
            like splits are splits; otherwise they are folders in class folders.
    """
    names = names_in(folder, FEW)
    formats = possible_formats(folder, names, options)
    splits = split_folders(folder, names)
    if splits:
        if not is_only_folder:
            return None
        return _InnerSource(folder, f"the splits {first_paths(splits)}")
    holds_pictures = has_pictures(names)
    if formats != ["imagefolder"] and (is_only_folder or not holds_pictures):
        return _InnerSource(folder, f"a source of the format {' or '.join(formats)}")
    if holds_pictures or levels_below == 0:
        return None

    max_folders = _MAX_FOLDERS
    if not isinstance(folder, Path):
        max_folders = _MAX_FOLDERS_OF_URL
    is_only_folder_below = is_only_folder and len(names.folders) == 1
    for name in names.folders[:max_folders]:
        inner = _find_source(
            folder / name,
            options,
            levels_below - 1,
            is_only_folder=is_only_folder_below,
        )
        if inner is not None:
            return inner
    return None
