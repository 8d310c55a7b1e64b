"""A split that a source does not have -> the list beside the source that has its images.

Food-101 has its splits in meta/train.txt, and CUB in train_test_split.txt. A user who asks for the
split of such a source is told how to pass the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_files import is_annotation_folder
from fastpipe.sources.files import SourcePath, files_below, names_in, shared_folders
from fastpipe.sources.folders.splits import FEW, meaning_of_split
from fastpipe.sources.listing import Source
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.split_lists import (
    candidates_in,
    find_value_of_split,
    list_candidates,
    splits_of_images,
)

# A folder with more folders has classes in them, and no list.
_MAX_FOLDERS = 16


def describe_list_of_split(
    root: SourcePath, split: str, *, are_labels_known: bool = False
) -> str:
    """Says which list has the images of a split, with the options; "" if there is none.

    Args:
        root: the folder of the source.
        split: that the user asks for.
        are_labels_known: whether the images have labels or masks. Else a list with further columns
            may have them.
    """
    if not isinstance(root, Path) or not root.is_dir():
        return ""
    paths = [path for path in files_below(root, hidden=False) if is_picture(path)]
    sources = [Source(path, NO_LABEL, 0, 0, 0) for path in paths]
    for file in _lists_near(root):
        try:
            splits = splits_of_images(file, sources, takes_tables=are_labels_known)
        except (PackError, OSError):
            continue
        if splits is None:
            is_table = not are_labels_known and _is_table_of_split(file, split, sources)
            if is_table:
                folder = _folder_of_images(root, paths)
                return (
                    f"{readable(str(file))} lists the images of this split, with further columns: "
                    "if they have the labels, pass it with --image-root "
                    f"{quote_for_shell(str(folder))}"
                )
            continue
        option = f"--split-list {quote_for_shell(str(file))}"
        value = find_value_of_split(split, splits, file)
        if value is not None:
            option += f" --split {quote_for_shell(value)}"
        elif splits or not _is_called_after(file, split):
            continue
        folder = root if are_labels_known else _folder_of_images(root, paths)
        place = ""
        if folder != root:
            place = f" with {readable(str(folder))}"
        return (
            f"{readable(str(file))} has the images of this split: pass {option}{place}"
        )
    return ""


def _is_table_of_split(file: Path, split: str, sources: Sequence[Source]) -> bool:
    """Whether a list with further columns is called after a split, and lists some of the images."""
    if not _is_called_after(file, split):
        return False
    try:
        return splits_of_images(file, sources, takes_tables=True) is not None
    except (PackError, OSError):
        return False


def _lists_near(root: Path) -> Iterator[Path]:
    """The files that are called like lists of splits, in a source, above it and in its folders.

    Also those in a folder of annotations beside it: Oxford's pets have annotations/test.txt.
    """
    folder = Path(os.path.abspath(root))
    yield from list_candidates(folder)
    if folder.parent not in shared_folders(folder):
        for sibling in names_in(folder.parent, FEW).folders[:_MAX_FOLDERS]:
            if sibling != folder.name and is_annotation_folder(sibling):
                yield from candidates_in(folder.parent / sibling)
    try:
        folders = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return
    if len(folders) <= _MAX_FOLDERS:
        for inner_folder in folders:
            yield from candidates_in(inner_folder)


def _is_called_after(file: Path, split: str) -> bool:
    """Whether a file has the name of a split."""
    if file.stem == split:
        return True
    meaning = meaning_of_split(split)
    return bool(meaning) and meaning_of_split(file.stem) == meaning


def _folder_of_images(root: Path, paths: Sequence[str]) -> Path:
    """The folder of the images, where the source has it beside other folders."""
    folders = {path.rpartition("/")[0].partition("/")[0] for path in paths}
    if len(folders) == 1:
        return root / folders.pop()
    return root
