"""Names of folders that would be classes -> an error if they are parts of samples, or splits.

Note [roles of folders]
DUTS-TR-Image and DUTS-TR-Mask, or HR and LR, have two files of each sample. As classes they would
make samples of masks, with wrong labels. One such name alone may be a class, as with_mask is. The
same holds for cars_train and cars_test: no list of classes has both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import refuse_tool
from fastpipe.sources.annotations.annotation_folders import (
    find_first_file,
    find_label_kind,
)
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.splits import (
    FEW,
    find_split_parts,
    first_paths,
    split_folders,
    training_or_first,
    words_in,
)

_IMAGE_WORDS = re.compile(r"images?|imgs?|inputs?|hr|photos?|pictures?|rgb")
_TARGET_WORDS = re.compile(
    r"masks?|labels?|gts?|truths?|groundtruths?|annotations?|annots?|anns?|segs?|segmentations?|"
    r"trimaps?|targets?|manual|lr|instances|panoptic"
)
# Of these, the words that say masks, and not other targets.
_MASK_WORDS = re.compile(
    r"masks?|gts?|truths?|groundtruths?|segs?|segmentations?|manual"
)
# Words that say labels of any kind, which may be masks.
_LABEL_WORDS = re.compile(r"labels?|annotations?|annots?|anns?")
# Such folders are looked for in this many class folders, and a class root down to this many levels.
_MAX_FOLDERS = 3
_MAX_LEVELS = 3
# A link may lead to the folder itself, so the way into only folders ends somewhere.
_MAX_ONLY_FOLDERS = 8
# A Path stays a Path; a folder behind a URL stays one.
PathType = TypeVar("PathType", Path, SourcePath)


def is_called_target(name: str) -> bool:
    """Whether a folder is called like one of masks, labels or other targets of images."""
    return any(_TARGET_WORDS.fullmatch(word) for word in words_in(name))


def is_called_mask(name: str) -> bool:
    """Whether a folder is called like one of masks, also as PedMasks or ISIC_GroundTruth."""
    return any(_MASK_WORDS.fullmatch(word) for word in words_in(name))


def is_called_label(name: str) -> bool:
    """Whether a folder is called like one of labels of any kind, as label_images_semantic."""
    return any(_LABEL_WORDS.fullmatch(word) for word in words_in(name))


def is_called_image(name: str) -> bool:
    """Whether a folder is called like one of images, as image_2 of KITTI."""
    if is_called_target(name):
        return False
    return any(_IMAGE_WORDS.fullmatch(word) for word in words_in(name))


def refuse_roles(root: SourcePath, folders: Sequence[str]) -> None:
    """Raises PackError if folders, or those in them, have images and their targets.

    See Note [roles of folders].
    """
    paths = list(folders)
    for folder in folders[:_MAX_FOLDERS]:
        inside = names_in(root / folder, FEW).folders
        paths += [f"{folder}/{name}" for name in inside]
    images: list[str] = []
    targets: list[str] = []
    for path in paths:
        name = path.rpartition("/")[2]
        if is_called_image(name):
            images.append(path)
        elif is_called_target(name):
            targets.append(path)
    if not images:
        return

    for path in targets:
        # Other files than masks are refused or named later; see Note [sidecar files].
        first = find_first_file(root / path)
        if first is not None and first.suffix.lower() in (".json", ".xml"):
            refuse_tool(first)
    masks = [path for path in targets if find_label_kind(root / path) == "masks"]
    if masks:
        raise PackError(
            f"{readable(str(root))}: the folders {readable(images[0])} and {readable(masks[0])} "
            "look like folders of images and of their masks or targets, not like classes. List each "
            "image with its mask, or second image, in a CSV file (--field mask=COLUMN:mask, or "
            "--field target=COLUMN:image); or move masks to a folder masks beside a folder images "
            "(--format masks); or write the samples with fastpipe.Writer. "
            f"{AS_CLASSES} takes the folders as classes"
        )


def refuse_split_parts(
    root: SourcePath, folders: Sequence[str], tables: str = ""
) -> None:
    """Raises PackError if folders differ in the word of a split alone, as cars_train and cars_test.

    See Note [roles of folders].

    Args:
        root: has the folders.
        folders: their names.
        tables: the arguments that pack the tables beside them that list their images; "": none do.
    """
    for by_split in find_split_parts(folders):
        split = training_or_first(by_split)
        folder = root / by_split[split]
        # GTSRB has its classes in Final_Training/Images.
        folder = find_class_root(folder) or folder
        by_table = ""
        if tables:
            by_table = (
                f"If the table beside them has the labels, pass {tables}. Else pass"
            )
        raise PackError(
            f"{readable(str(root))} has the folders {first_paths(by_split.values())}, "
            f"which look like splits, not like classes. {by_table or 'Pass'} one of "
            "them: "
            f"{readable(str(folder))}; or, if a class is to have the same number in all of them, "
            f"{readable(str(root))} with --split {split}. {AS_CLASSES} takes the folders as classes"
        )


def find_class_root(
    folder: SourcePath, levels_below: int = _MAX_LEVELS
) -> SourcePath | None:
    """The folder in a folder, or itself, that has class folders or splits; None if none has.

    `levels_below`: how many levels of folders to search.
    """
    names = names_in(folder, FEW)
    if split_folders(folder, names):
        return folder
    if levels_below == 0 or has_pictures(names):
        return None
    folders = [name for name in names.folders if not is_called_target(name)]
    # Several folders are classes if the first one has pictures.
    if len(folders) > 1 and has_pictures(names_in(folder / folders[0], FEW)):
        return folder
    for name in folders[:_MAX_FOLDERS]:
        root = find_class_root(folder / name, levels_below - 1)
        if root is not None:
            return root
    return None


def enter_only_folders(folder: PathType) -> PathType:
    """The folder itself, or the one in it that holds more than one folder.

    Unpacked archives often have a folder in a folder, as images in WIDER_train.
    """
    for _ in range(_MAX_ONLY_FOLDERS):
        names = names_in(folder, FEW)
        if len(names.folders) != 1 or has_pictures(names):
            break
        folder = folder / names.folders[0]
    return folder


def has_pictures(names: Names) -> bool:
    """Whether the first files of a folder have the ending of a picture."""
    return any(map(is_picture, names.files[:FEW]))
