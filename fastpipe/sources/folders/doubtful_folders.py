"""Folders that would be classes, and files beside them -> assumptions, or an error."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import (
    find_colour_list,
    recognise_unread_tool,
    refuse_tool,
)
from fastpipe.sources.annotations.annotation_folders import (
    find_label_kind,
    is_called_images,
)
from fastpipe.sources.file_formats import UNREAD_ENDINGS, in_both_cases, unread_remedy
from fastpipe.sources.files import Names, SourcePath, names_in, open_binary
from fastpipe.sources.folders.classes_in_names import option_of_classes_in_names
from fastpipe.sources.folders.doubtful_classes import (
    AS_CLASSES,
    parts_as_classes,
    parts_error,
    split_as_class,
)
from fastpipe.sources.folders.folder_roles import (
    enter_only_folders,
    find_class_root,
    has_pictures,
    is_called_target,
    refuse_split_parts,
)
from fastpipe.sources.folders.nested_folders import check_nested_folders
from fastpipe.sources.folders.splits import (
    FEW,
    are_called_like_parts,
    first_paths,
    split_folders,
    split_of_name,
)
from fastpipe.sources.folders.variant_folders import check_variants
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.tables.listed_images import ListingTable, find_listing_tables
from fastpipe.sources.tables.table_files import is_result_form, sort_labelled_first
from fastpipe.sources.tables.table_remedies import some_tables

# Files that may have the labels of images.
_LISTS = (".csv", ".tsv", ".tab", ".txt", ".lst", ".jsonl", ".ndjson", ".parquet")
_DOCUMENTS = (".json", ".xml", ".odgt", ".manifest", *UNREAD_ENDINGS)
# Files with one of these endings have no labels if their names begin like this.
_NO_LIST = re.compile(
    r"read.?me|licen[cs]e|copying|notice|changelog|citation|attribution[.]|checksum|md5|sha\d"
    r"|requirements",
    re.IGNORECASE,
)
# Where more files than this lie in a folder, each of them belongs to an image.
_MAX_LISTS = 16
# At the start of a list these many bytes show whether it names images.
_START_BYTES = 1 << 16
_NO_NAME = re.compile(r"[\s,;|\"'/\\]+")
# The picture of a file is looked for among this many files whose names begin like that of the file.
_MAX_OF_STEM = 8


def check_class_folders(
    root: SourcePath, names: Names, *, are_classes: bool
) -> Iterator[Assumption]:
    """The assumptions on folders that are taken for classes, and on lists of labels beside them.

    Args:
        root: the folder that they are in.
        names: the names in it.
        are_classes: the user says that the folders are classes.

    Raises:
        PackError: they are no classes, and the user does not say that they are.
    """
    folders = names.folders
    yield from _check_split_names(root, folders, are_classes=are_classes)

    # One pass over the names, of which there may be a million.
    endings = in_both_cases(*_LISTS, *_DOCUMENTS)
    candidates = [name for name in names.files if name.endswith(endings)]
    lists = lists_among(names.files, _LISTS, among=candidates)
    lists = [name for name in lists if not is_result_form(name)]
    if not are_classes:
        tables = find_listing_tables(root, lists) if folders else []
        refuse_split_parts(root, folders, some_tables(tables) if tables else "")
    documents = lists_among(names.files, _DOCUMENTS, among=candidates)
    if not are_classes:
        _refuse_colours(root, folders, [*lists, *documents])
    if len(folders) == 1 and not are_classes:
        _refuse_lists(root, folders[0], [*lists, *documents])
        _refuse_inner_lists(root / folders[0])
    elif lists and folders:
        yield _lists_beside_folders(root, folders, lists, are_classes=are_classes)
    elif lists or documents:
        labels = "the names of the folders" if folders else "none"
        yield _unread_lists(root, [*lists, *documents], labels)

    # images_001 and images_002 are parts of one dataset, but without class folders in them they may
    # be classes.
    if are_called_like_parts(folders) and not are_classes:
        inside = names_in(root / folders[0], FEW).folders
        if not all(map(is_called_images, inside)):
            raise parts_error(root, folders, inside)
        if not lists:
            yield parts_as_classes(folders)
    elif len(folders) == 1 and not are_classes:
        yield _check_only_folder(root / folders[0], folders[0])
    elif folders:
        if not are_classes:
            yield from check_nested_folders(root, folders)
        names_in_first = names_in(root / folders[0], FEW)
        splits = split_folders(root / folders[0], names_in_first)
        if splits:
            yield Assumption(
                f"the folders {first_paths(splits)} in the class folders are no splits: all "
                "are packed together"
            )
        split = next(iter(splits), "")
        if "train" in splits:
            split = "train"
        yield from _masks_in_classes(root / folders[0], names_in_first, split)


def _masks_in_classes(
    class_folder: SourcePath, names: Names, split: str
) -> Iterator[Assumption]:
    """Says that folders in a class folder, such as ground_truth of MVTec, may hold masks.

    Args:
        class_folder: one of several.
        names: the names in it.
        split: of the class folder, if it has splits; else "".
    """
    masks: list[str] = []
    for name in names.folders:
        if is_called_target(name) and find_label_kind(class_folder / name) == "masks":
            masks.append(name)
    if not masks:
        return
    remedy = "move them elsewhere"
    if split:
        folder = quote_for_shell(str(class_folder))
        remedy += (
            f", or pack one folder alone: fastpipe pack {folder} DST --split {split}"
        )
    yield Assumption(
        f"the folders {first_paths(masks)} in the class folders look like folders of masks, and "
        f"their images are packed as those of the classes. To leave them out, {remedy}"
    )


def _check_split_names(
    root: SourcePath, folders: Sequence[str], *, are_classes: bool
) -> Iterator[Assumption]:
    """Refuses a folder that is called like a split and has the classes that are beside it."""
    called_like_split = [name for name in folders if split_of_name(name) is not None]
    if not called_like_split:
        return
    if not are_classes:
        for name in called_like_split:
            classes = [other for other in folders if other != name]
            folders_inside = names_in(root / name, FEW).folders
            if not set(folders_inside).isdisjoint(classes):
                raise PackError(
                    f"{readable(str(root))} has the classes {first_paths(classes)}, and a folder "
                    f"{readable(name)} with the same classes, which is a split: --split "
                    f"{readable(name)} packs it. To pack the others, move {readable(name)} "
                    f"elsewhere. {AS_CLASSES} takes all folders as classes"
                )
    yield split_as_class(called_like_split)


def lists_beside_images(files: Sequence[str]) -> list[str]:
    """The files beside images that may have their labels, and that the user is shown."""
    lists = lists_among(files, (*_LISTS, *_DOCUMENTS))
    return [name for name in lists if not is_result_form(name)]


def lists_among(
    files: Sequence[str],
    endings: tuple[str, ...],
    max_lists: int = _MAX_LISTS,
    among: Sequence[str] | None = None,
) -> list[str]:
    """The files with such an ending that belong to no picture and are no notes for people.

    Empty if there are more than `max_lists`: then each belongs to an image.

    Args:
        files: the names of all files in a folder, sorted.
        endings: of the files to return, in small letters.
        max_lists: how many lists may lie beside images.
        among: those of `files` that may be lists; by default all.
    """
    if among is None:
        among = files
    endings = in_both_cases(*endings)
    lists: list[str] = []
    for name in among:
        if name.endswith(endings) and not _NO_LIST.match(name):
            lists.append(name)
    if len(lists) > max_lists:
        return []
    return [name for name in lists if not _belongs_to_picture(name, files)]


def _belongs_to_picture(name: str, files: Sequence[str]) -> bool:
    """Whether a picture among the sorted files has its name, as a.jpg has of a.txt or a.jpg.txt."""
    # Names that begin alike are neighbours.
    stem = name.rpartition(".")[0]
    stems = (stem, stem.rpartition(".")[0])
    start = bisect_left(files, stem)
    for other in files[start : start + _MAX_OF_STEM]:
        if is_picture(other) and other.rpartition(".")[0] in stems:
            return True
    return False


def _refuse_colours(
    root: SourcePath, folders: Sequence[str], lists: Sequence[str]
) -> None:
    """Raises PackError if a list says which colour is which class: so a folder has masks."""
    if not folders:
        return
    colours = find_colour_list(root, lists)
    if colours is not None:
        raise PackError(
            f"{readable(str(root))} has {readable(colours)}, which says the classes of the colours "
            f"of masks, beside the folders {first_paths(folders)}. Call the folder of the masks "
            "masks and that of the images images, or train_masks and train_images for a split: "
            "then the masks are read by these colours. "
            f"{AS_CLASSES} takes the folders as classes"
        )


def _refuse_lists(root: SourcePath, folder: str, lists: Sequence[str]) -> None:
    """Raises PackError if a list lies beside the only folder.

    The list has the labels, then, and the folder has the images, or class folders.
    """
    for name in lists:
        refuse_tool(root / name)
    if not lists:
        return
    lists = sort_labelled_first(lists)
    path = root / folder
    inside = names_in(path, FEW)
    tables = find_listing_tables(root, lists)
    if not tables:
        # LLaVA's images are a level deeper: images/coco/train2017.
        tables = find_listing_tables(root, lists, image_folder=path)
    # The message shows a list that names the images, if there is one.
    lists_with_images = [
        name for name in lists if _has_name_of(root / name, inside.files)
    ]
    first = (lists_with_images or lists)[0]
    unread = unread_remedy(first)
    class_root = find_class_root(path)
    if class_root is not None:
        names = names_in(class_root, FEW).folders
        remedy = (
            f"If the folders {first_paths(names)} are the classes or splits, pass "
            f"{readable(str(class_root))}"
        )
        if tables:
            remedy = f"Pass {some_tables(tables)}: it lists these images. {remedy}"
    elif tables:
        pronoun = "it" if len(tables) == 1 else "one"
        remedy = f"Pass {pronoun}: {some_tables(tables)}"
    elif unread is not None:
        remedy = f"{readable(first)} is {unread}"
    else:
        remedy = (
            f"Pass it: {readable(str(root / first))}, with --image-root {readable(str(path))} if "
            "its paths are relative to that folder"
        )
    raise PackError(
        f"{readable(str(root))} has one folder, {readable(folder)}, and beside it "
        f"{first_paths(lists)}, which may have the labels. {remedy}. {AS_CLASSES} takes "
        f"{readable(folder)} as the only class"
    )


def _refuse_inner_lists(folder: SourcePath) -> None:
    """As `_refuse_lists`, of a folder that is the only one: archives have a folder around all."""
    names = names_in(folder, FEW)
    if len(names.folders) == 1 and not has_pictures(names):
        # No picture lies beside them, so however many they are, they belong to none.
        lists = lists_among(names.files, (*_LISTS, *_DOCUMENTS), FEW)
        _refuse_lists(folder, names.folders[0], lists)


def _has_name_of(path: SourcePath, files: Sequence[str]) -> bool:
    """Whether the start of a list has one of these names in it, with or without its ending."""
    try:
        with open_binary(path) as file:
            start = file.read(_START_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    words = set(_NO_NAME.split(start))
    for name in files:
        if name in words or name.rpartition(".")[0] in words:
            return True
    return False


def _lists_beside_folders(
    root: SourcePath, folders: Sequence[str], lists: Sequence[str], *, are_classes: bool
) -> Assumption:
    """The assumption that folders are classes, though a list beside them may have the labels.

    PackError: the folders are called like parts of one dataset, and a list has their images.
    """
    tables = find_listing_tables(root, lists)
    if tables and are_called_like_parts(folders) and not are_classes:
        raise PackError(
            f"{readable(str(root))} has the folders {first_paths(folders)}, which are called "
            "like parts of one dataset, and beside them a table that lists their images. Pass "
            f"the table: {some_tables(tables)}. {AS_CLASSES} takes the folders as classes"
        )
    first = readable(str(root / lists[0]))
    if tables:
        first = some_tables(tables)
    return Assumption(
        f"labels: the names of the folders; {first_paths(lists)} beside them is not read. If "
        f"it has the labels, pass {first}"
    )


def _unread_lists(root: SourcePath, lists: Sequence[str], labels: str) -> Assumption:
    """The assumption on the labels of images, though there are lists beside them."""
    first = root / lists[0]
    tool = recognise_unread_tool(first)
    unread = unread_remedy(first.name)
    if unread is not None:
        remedy = f"{readable(first.name)} is {unread}"
    elif tool is not None:
        remedy = f"it is {tool.name}: {tool.remedy}"
    else:
        remedy = f"if it has them, pass {some_tables([ListingTable(first, None)])}"
    return Assumption(
        f"labels: {labels}, though {first_paths(lists)} beside the images may have them; {remedy}"
    )


def _check_only_folder(folder: SourcePath, name: str) -> Assumption:
    """The assumption that the only folder is a class, with what to do if it is not."""
    folder = enter_only_folders(folder)
    names = names_in(folder, FEW)
    one_class = f"all images are of the class {readable(name)}, the only folder"
    lists = lists_among(names.files, _LISTS)
    # Final_Training and Final_Test of GTSRB are no parts of one class.
    refuse_split_parts(folder, names.folders)
    check_variants(folder, names.folders)
    if len(names.folders) > 1:
        return Assumption(
            f"{one_class}; if the folders in it ({first_paths(names.folders)}) are the classes or "
            f"splits, pass {readable(str(folder))}"
        )
    if lists:
        return Assumption(
            f"{one_class}, though {first_paths(lists)} in it may have labels; if so, pass "
            f"{readable(str(folder / lists[0]))}"
        )
    remedy = f"for images without labels, pass {readable(str(folder))}"
    option = option_of_classes_in_names(list(filter(is_picture, names.files)))
    if option:
        remedy += f"; the names of the images may have classes: {option} takes them"
    return Assumption(f"{one_class}; {remedy}")
