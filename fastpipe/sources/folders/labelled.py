"""Folders of images beside folders of labels or masks -> the format, and the pair to pack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import refuse_tool
from fastpipe.sources.annotations.annotation_folders import (
    FolderPair,
    find_first_file,
    find_first_picture,
    find_label_kind,
    has_masks_beside_images,
    is_flat_voc,
    pair_folders,
)
from fastpipe.sources.annotations.darknet import (
    find_darknet_folders,
    find_listed_splits,
    is_flat_yolo,
)
from fastpipe.sources.annotations.defect_masks import find_defect_pairs
from fastpipe.sources.annotations.sample_folders import are_samples
from fastpipe.sources.annotations.two_levels import JPEG_START
from fastpipe.sources.annotations.yolo_labels import describe_polygons
from fastpipe.sources.annotations.yolo_yaml import YOLO_FOLDERS, find_yaml_folders
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.files import (
    Names,
    SourcePath,
    names_in,
    path_below,
)
from fastpipe.sources.folders.folder_roles import (
    is_called_image,
    is_called_label,
    is_called_mask,
    is_called_target,
)
from fastpipe.sources.folders.splits import (
    FEW,
    choose_split,
    find_split,
    first_paths,
    meaning_of_split,
    split_folders,
    split_of_name,
    training_or_first,
)
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.png_of_numbers import is_png_of_numbers, read_start
from fastpipe.sources.tables.listed_images import find_listing_tables
from fastpipe.sources.tables.table_remedies import some_tables

_VOC_FOLDERS = ("Annotations", "JPEGImages")
# VOC has the masks of classes in the first folder, and those of objects in the second one.
_VOC_MASKS = ("SegmentationClass", "SegmentationObject")
# More folders are classes, or samples.
_MAX_PARTS = 64
# Forms of the pictures in a folder of masks.
_NUMBERS = "numbers"
_JPEG = "JPEG"
# Format -> the folders that it usually has.
LABELLED_FORMATS = {
    "voc": _VOC_FOLDERS,
    "yolo": YOLO_FOLDERS,
    "masks": ("images", "masks"),
}


def labelled_formats(
    root: SourcePath, names: Names, *, is_other_format: bool
) -> list[str]:
    """The formats with labels beside images that a folder may have.

    Args:
        root, names: the folder, and the names in it.
        is_other_format: the files of the folder are of another format.

    Raises:
        PackError: a folder is called like labels and holds none, and there is no other format.
    """
    if find_yaml_folders(root, names) or find_darknet_folders(root, names):
        return ["yolo"]
    if find_defect_pairs(root, names):
        return ["masks"]
    pairs = (
        pair_folders(root, names)
        or pair_by_roles(root, names)
        or _pair_parts(root, names)
    )
    if not pairs:
        if is_flat_voc(names):
            return ["voc"]
        if is_flat_yolo(root, names):
            return ["yolo"]
        return []

    formats = {pair.kind for pair in pairs if pair.kind}
    has_voc_folders = set(_VOC_FOLDERS) <= set(names.folders)
    if "voc" in formats and has_voc_folders:
        # VOC has them for another task, beside the annotations.
        formats.discard("masks")
    if formats:
        return sorted(formats)

    # Where all folders of labels are empty, no image has a box, and their names tell the format.
    is_empty = all(find_first_file(pair.labels) is None for pair in pairs)
    if is_empty and set(YOLO_FOLDERS) <= set(names.folders):
        return ["yolo"]
    if is_empty and has_voc_folders:
        return ["voc"]
    if is_other_format or any(pair.split for pair in pairs):
        return []
    first_label_file = find_first_file(pairs[0].labels)
    if first_label_file is not None:
        refuse_tool(first_label_file)
    raise _unread_labels_error(root, pairs[0])


def _unread_labels_error(root: SourcePath, pair: FolderPair) -> PackError:
    """The error for a folder that is called like labels, and whose files fastpipe does not read."""
    images = pair.images.name
    labels = pair.labels.name
    files = names_in(pair.labels, FEW).files
    tables = find_listing_tables(pair.labels, files, image_folder=pair.images)
    if tables:
        return PackError(
            f"{readable(str(root))} holds {images} beside {labels}, and {labels} has a table that "
            f"lists these images. Pass the table: {some_tables(tables)}. --format imagefolder "
            "takes the folders as classes"
        )
    folders = names_in(pair.images, FEW).folders
    class_folders = ""
    if len(folders) > 1:
        class_folders = (
            f"If the folders {first_paths(folders)} are the classes, pass "
            f"{readable(str(pair.images))}. "
        )
    return PackError(
        f"{readable(str(root))} holds {images} beside {labels}, which has no masks, no texts of "
        f"YOLO and no annotations of VOC. {class_folders}Write what it says into a CSV or JSONL file, or pass the "
        "file of COCO in it. --format imagefolder takes the folders as classes"
    )


def choose_pair(
    format_name: str, root: SourcePath, names: Names, options: SourceOptions
) -> FolderPair:
    """The folder of images to pack, with that of their labels or masks.

    Several such pairs are splits, of which the user chooses one. A field of the user may be called
    after the folder of the masks, where several may have them.

    Raises:
        PackError: there is no pair, or the user has to choose.
    """
    pairs = find_pairs(format_name, root, names)
    if not pairs:
        expected = " and ".join(LABELLED_FORMATS[format_name])
        raise PackError(
            f"--format {format_name}: expected the folders {expected} in {readable(str(root))}"
        )
    by_split = {pair.split: pair for pair in pairs}
    if len(by_split) < len(pairs):
        labels = first_paths(pair.labels.name for pair in pairs)
        raise PackError(
            f"{readable(str(root))} has the folders {labels} beside its images; expected one. Move "
            "the rest"
        )
    if "" in by_split:
        if format_name == "masks":
            return _choose_masks(root, names, by_split[""], options.fields or ())
        return by_split[""]

    # The splits without labels, as test in many datasets, are named in errors as well.
    splits = list(by_split)
    for name in names.folders:
        if split_of_name(name) is not None and find_split(name, by_split) is None:
            splits.append(name)
    more = ""
    is_certain = len(splits) == 1
    if options.split is not None:
        is_certain = find_split(options.split, splits) is not None
    if format_name == "yolo" and options.fields is None and not is_certain:
        more = describe_polygons_of_pair(by_split[training_or_first(by_split)], root)
    chosen = choose_split(root, options.split, dict.fromkeys(splits), more)
    if chosen not in by_split:
        raise PackError(
            f"the split {chosen} of {readable(str(root))} has no labels or masks; pass "
            f"{readable(str(root / chosen))} to pack its images alone"
        )
    return by_split[chosen]


def describe_polygons_of_pair(pair: FolderPair, top: SourcePath) -> str:
    """Says behind the splits how masks are made of YOLO's polygons; "" if a split has none.

    Args:
        pair: of a split.
        top: the folder that may have data.yaml.
    """
    if not isinstance(pair.labels, Path) or not isinstance(top, Path):
        return ""  # behind a URL, each look at a file is a request
    return describe_polygons(pair.labels, [top])


def _choose_masks(
    root: SourcePath, names: Names, pair: FolderPair, fields: Sequence[FieldColumn]
) -> FolderPair:
    """The pair with the folder of masks that the user names, or the only one.

    DRIVE has masks of vessels (1st_manual) and masks of the field of view (mask).

    Raises:
        PackError: several folders may have the masks.
    """
    requested = {field.column for field in fields}
    # The folder in the root that has the masks, perhaps in a folder of its own.
    masks_folder = path_below(root, pair.labels).partition("/")[0]
    if masks_folder in requested:
        return pair
    known = (pair.images.name, masks_folder, *_VOC_MASKS)
    others = []
    for name in names.folders:
        is_candidate = name not in known and is_called_target(name)
        if is_candidate and find_label_kind(root / name) == "masks":
            if name in requested:
                return pair._replace(labels=root / name)
            others.append(name)
    if not others:
        return pair
    # labelme2voc writes SegmentationClassVisualization, with JPEGs for people to look at.
    forms = {name: _form_of_first(root / name) for name in others}
    form_of_masks = _form_of_first(pair.labels)
    if form_of_masks == _NUMBERS and set(forms.values()) == {_JPEG}:
        return pair
    suggested = others[0]
    if form_of_masks == _NUMBERS:
        suggested = masks_folder
    else:
        suggested = next(
            (name for name in others if forms[name] == _NUMBERS), suggested
        )
    raise PackError(
        f"{readable(str(root))} has the folders {readable(others[0])} and "
        f"{readable(pair.labels.name)} beside its images, which both may have the masks; "
        f"expected one. --field mask={quote_for_shell(suggested)} picks one; or list images and "
        "masks in a CSV file (--field mask=COLUMN:mask)"
    )


def _form_of_first(folder: SourcePath) -> str:
    """Whether the first picture in a folder is a PNG of numbers, or a JPEG; "" if it is neither."""
    file = find_first_picture(folder)
    if file is None:
        return ""
    start = read_start(file)
    if is_png_of_numbers(start):
        return _NUMBERS
    return _JPEG if start.startswith(JPEG_START) else ""


def pair_by_roles(root: SourcePath, names: Names) -> list[FolderPair]:
    """Pairs of folders by a word in their names: PNGImages and PedMasks, Training_Input and
    Training_GroundTruth.

    Several pairs are splits. There are none if pictures lie in other folders, which may be classes.
    """
    images_of_split: dict[str, list[str]] = {}
    masks_of_split: dict[str, list[str]] = {}
    others: list[str] = []
    for name in names.folders:
        split = meaning_of_split(name)
        if is_called_mask(name) or _has_label_numbers(root, name):
            masks_of_split.setdefault(split, []).append(name)
        elif is_called_image(name):
            images_of_split.setdefault(split, []).append(name)
        else:
            others.append(name)
    # Most folders have no such names, and then none of them is listed.
    if not masks_of_split or not images_of_split:
        return []
    # Any folder of pictures has "masks" by its files; only its name says whether they are.
    if any(find_label_kind(root / name) == "masks" for name in others):
        return []
    pairs: list[FolderPair] = []
    for split, masks in masks_of_split.items():
        images = images_of_split.get(split, [])
        if len(masks) != 1 or len(images) != 1:
            return []
        if find_label_kind(root / masks[0]) != "masks":
            return []
        pairs.append(FolderPair("masks", root / images[0], root / masks[0], split))
    return pairs


def _pair_parts(root: SourcePath, names: Names) -> list[FolderPair]:
    """One pair of all folders of a source, if each of them has images beside masks; or none.

    LoveDA has Rural/images_png and Rural/masks_png, and Urban with the same folders. Each part has
    more images than there are parts.
    """
    if not isinstance(root, Path) or not 2 <= len(names.folders) <= _MAX_PARTS:
        return []
    if any(map(is_picture, names.files)) or split_folders(root, names):
        return []
    folders: list[tuple[Path, Path]] = []
    for name in names.folders:
        part = root / name
        inner = names_in(part, FEW)
        pairs = pair_folders(part, inner) or pair_by_roles(part, inner)
        if len(pairs) != 1 or pairs[0].kind != "masks" or pairs[0].split:
            return []
        folders.append((Path(str(pairs[0].images)), Path(str(pairs[0].labels))))
    # Folders with few images may be samples, whose masks are those of objects.
    num_images = sum(map(is_picture, names_in(folders[0][0], FEW).files))
    if num_images <= len(folders):
        return []
    return [FolderPair("masks", root, root, "", folders=tuple(folders))]


def _has_label_numbers(root: SourcePath, name: str) -> bool:
    """Whether a folder is called like labels, and has PNGs of numbers: label_images_semantic."""
    return is_called_label(name) and _form_of_first(root / name) == _NUMBERS


def find_pairs(format_name: str, root: SourcePath, names: Names) -> list[FolderPair]:
    """The pairs of a format; pairs with empty folders of labels only if there are no others."""
    if format_name == "yolo":
        pairs = find_yaml_folders(root, names) or find_darknet_folders(root, names)
        if pairs:
            return pairs
    if format_name == "masks":
        pairs = find_defect_pairs(root, names)
        if pairs:
            return pairs
    # Pairs of the format come first; pairs whose folders of labels are empty may be of any format.
    all_pairs = pair_folders(root, names)
    if not all_pairs and format_name == "masks":
        all_pairs = pair_by_roles(root, names) or _pair_parts(root, names)
    pairs = [pair for pair in all_pairs if pair.kind == format_name]
    if not pairs:
        pairs = [pair for pair in all_pairs if not pair.kind]
    if pairs:
        return _split_by_lists(root, names, pairs)

    # Images and labels may lie in one folder.
    is_flat = False
    if format_name == "voc":
        is_flat = is_flat_voc(names)
    elif format_name == "yolo":
        is_flat = is_flat_yolo(root, names)
    elif format_name == "masks" and not split_folders(root, names):
        is_flat = has_masks_beside_images(root) or are_samples(root, names)
    if not is_flat:
        return []
    return _split_by_lists(root, names, [FolderPair(format_name, root, root, "")])


def _split_by_lists(
    root: SourcePath, names: Names, pairs: list[FolderPair]
) -> list[FolderPair]:
    """The splits of YOLO's only pair of folders, if lists name their images; else the pairs."""
    if len(pairs) != 1 or pairs[0].kind != "yolo" or pairs[0].split:
        return pairs
    splits = find_listed_splits(root, names, pairs[0].images)
    if not splits:
        return pairs
    return [split._replace(labels=pairs[0].labels) for split in splits]
