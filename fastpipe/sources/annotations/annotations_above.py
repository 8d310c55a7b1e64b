"""A folder of images -> the assumption that annotations in the folders above it were not read.

Note [annotations above]
A user may pass train2017 of COCO, or WIDER_train/images. The annotations lie in a folder beside it,
or beside a folder around it. So the files there are looked at, and the user is shown those that
name these images, with the command that packs them. Only the start of a file is read, and only a
few files of each folder.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fastpipe.dataset.format.description import is_dataset
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_files import is_annotation_folder
from fastpipe.sources.annotations.annotation_files import (
    SIDECAR_ENDINGS,
    TOOL_BYTES,
    AnnotationTool,
    describe_file,
    is_ground_truth,
    recognise_unread_tool,
)
from fastpipe.sources.annotations.annotation_folders import (
    FolderPair,
    first_files,
    is_called_images,
    pair_folders,
)
from fastpipe.sources.annotations.coco_folders import begins_like_coco
from fastpipe.sources.annotations.defect_masks import find_defect_pairs
from fastpipe.sources.annotations.masks import are_masks_of
from fastpipe.sources.annotations.repeated_labels import is_of_other_images_or_repeats
from fastpipe.sources.annotations.tools import mot
from fastpipe.sources.file_formats import unread_remedy
from fastpipe.sources.files import Names, names_in, shared_folders
from fastpipe.sources.folders.classes_in_names import option_of_classes_in_names
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.doubtful_folders import lists_among
from fastpipe.sources.folders.folder_formats import possible_formats
from fastpipe.sources.folders.folder_roles import (
    enter_only_folders,
    has_pictures,
    is_called_target,
)
from fastpipe.sources.folders.labelled import pair_by_roles
from fastpipe.sources.folders.splits import (
    FEW,
    are_called_like_parts,
    find_training,
    first_paths,
    meaning_of_split,
)
from fastpipe.sources.listing import Assumption, Listing
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.path_labels import LABEL_PATTERN
from fastpipe.sources.split_lists import is_unused_list
from fastpipe.sources.tables.joined_column import picture_in_joined
from fastpipe.sources.tables.json_mappings import find_json_mapping
from fastpipe.sources.tables.likely import is_label_name
from fastpipe.sources.tables.likely_encoding import likely_encoding
from fastpipe.sources.tables.listed_images import (
    find_listing_tables,
    first_cells,
    has_only_ids,
    lists_images,
)
from fastpipe.sources.tables.table_files import (
    has_answers,
    is_result_form,
    sort_labelled_first,
)
from fastpipe.sources.tables.table_options import describe_options_of_table
from fastpipe.sources.tables.table_remedies import describe_options_of_labels
from fastpipe.sources.tables.training_classes import describe_options_of_training
from fastpipe.sources.tables.written_names import WrittenNames

# Kaggle's ImageNet has its tables three folders above the splits, BDD100K has its labels there.
_MAX_LEVELS_ABOVE = 3
# Folders that hold lists of images, beside those that are called like labels or masks.
_LIST_FOLDER = re.compile(
    r"(?:.*[-_ ])?(?:imagesets|lists?|devkit(?:[-_ ].*)?|eval)",
    re.IGNORECASE,
)
# Before the name of an image, in the name of its file of annotations.
_TARGET_PREFIX = re.compile(r"(?<![^/])(?:gt|label|poly)[-_](?=[^/]*$)", re.IGNORECASE)
_JSON_ENDINGS = (".json", ".geojson", ".jsonl", ".ndjson", ".odgt", ".manifest")
_COLUMN_ENDINGS = (".csv", ".tsv", ".tab")
_LIST_ENDINGS = (*SIDECAR_ENDINGS, ".jsonl", ".ndjson", ".lst", ".tab")
# Folders above the images are searched down to this many levels.
_MAX_LEVELS_BELOW = 2
# At most this many folders and files are looked at in each folder.
_MAX_FOLDERS = 8
_MAX_FILES = 16
# At most this many names at the start of a file are looked for among the images.
_MAX_NAMES = 200
# So many lines show whether a text is a list.
_MAX_LINES = 20
_MAX_NAME_LENGTH = 300
# A text in quotes, of JSON and XML, or between two tags of XML.
_TEXT = re.compile(
    rf'"[^"\n]{{1,{_MAX_NAME_LENGTH}}}"|>[^<>"\n]{{1,{_MAX_NAME_LENGTH}}}<'
)
# Files of data, which may have the labels of the images in the folder beside them.
_DATA_ENDINGS = (".mat", ".pkl", ".pickle", ".npy", ".npz", ".h5", ".hdf5", ".xlsx")
_SEPARATOR = re.compile(r"[,;|\t]| +")
# A few digits are a label or a coordinate as often as the name of an image.
_SHORT_NUMBER = re.compile(r"[-+\d.eE]{1,5}")
# A path may begin with the folders of another machine, so up to this many names at its end are
# tried.
_MAX_PARTS = 3
# Names shorter than this, such as 1.jpg, occur in many datasets, so they prove little alone.
_MIN_CHARACTERS = 6
# Ranks of annotations: the one with the lowest rank says most, and the message recommends it.
_PAIR, _TOOL, _TABLE, _LIST = range(4)
_CONTENT_OF_KIND = {
    "yolo": "label files of YOLO",
    "voc": "annotations of Pascal VOC",
    "masks": "masks",
}


class _Annotations(NamedTuple):
    """Annotations of the images that the user passes, which lie above them.

    Attributes:
        path: of the file, or of the folder.
        content: such as "label files of YOLO", for a message.
        remedy: what the user can do with it.
        rank: _PAIR, _TOOL, _TABLE or _LIST.
        has_classes: False of a table without a column that looks like classes, such as one of ages.
    """

    path: str
    content: str
    remedy: str
    rank: int
    has_classes: bool = True


class _Images:
    """The images of the user: tells whether a name is one of them."""

    def __init__(self, root: Path, passed: Path, listing: Listing) -> None:
        """`root`, `passed`: as of `find_annotations_above`."""
        self.passed = passed
        self.root = enter_only_folders(root)
        # Whether `root` is one of several splits, which the user has named.
        self.is_split = root != passed
        self.sources = listing.sources
        self.count = len(listing.sources)
        step = max(1, self.count // _MAX_FILES)
        samples = listing.sources[::step]
        self.have_labels = any(source.label != NO_LABEL for source in samples)
        self._written_names = WrittenNames(self.root)
        self._endings = {os.path.splitext(source.path)[1] for source in samples}

    def find(self, written_path: str, *, is_far: bool) -> str | None:
        """The name of the image that has the end of a path, with or without the file's ending.

        `is_far`: the path is not from the folder right above. Then 1.jpg alone may be an image of
        another dataset, and its folder has to fit as well.
        """
        parts = written_path.replace("\\", "/").strip("/").split("/")
        if ".." in parts or not parts[-1]:
            return None
        endings = self._endings
        if is_picture(parts[-1]):
            endings = {""}
        # Packing finds img_1.jpg of a table in IMG_1.JPG. See Note [names as written].
        stem = os.path.splitext(parts[-1])[0]
        min_parts = 1
        if is_far and len(stem) < _MIN_CHARACTERS:
            min_parts = 2
        for part_count in range(min_parts, min(len(parts), _MAX_PARTS) + 1):
            path = os.path.join(self.root, *parts[-part_count:])
            for ending in endings:
                if os.path.isfile(path + ending):
                    return parts[-1] + ending
            written = "/".join(parts[-part_count:])
            image = self._find_as_written(written)
            if image is not None:
                return image
        return None

    def _find_as_written(self, written: str) -> str | None:
        """The name of the only image that a table may write so."""
        try:
            path = self._written_names.find(written)
        except ValueError:
            return None  # several fit
        if path is None or not is_picture(path):
            return None
        return os.path.basename(path)


def find_annotations_above(
    passed: Path, root: Path, listing: Listing, options: SourceOptions
) -> list[Assumption]:
    """The assumption that annotations above the images were not read; none if there are none.

    See Note [annotations above].

    Args:
        passed: the folder that the user passes.
        root: the folder of the images: `passed`, or a split in it.
        listing: of the images in `root`.
        options: with which it was made.
    """
    folder = Path(os.path.abspath(passed))
    images = _Images(Path(os.path.abspath(root)), folder, listing)
    annotations = _collect_annotations(folder, images)
    # A table beside splits is named by another assumption.
    texts = " ".join(assumption.text for assumption in listing.assumed)
    annotations = [entry for entry in annotations if not _is_named(entry.path, texts)]
    split_list = options.path_of_split_list()
    if isinstance(split_list, Path):
        annotations = [
            entry
            for entry in annotations
            if not _is_of_splits(Path(entry.path), split_list)
        ]
    if not annotations:
        return []

    best = min(annotations, key=lambda entry: (entry.rank, not entry.has_classes))
    other_paths = [entry.path for entry in annotations if entry is not best]
    also = ""
    if other_paths:
        also = f" (also: {first_paths(other_paths)})"
    labels = "none"
    if images.have_labels and options.label_pattern is not None:
        labels = f"those by {LABEL_PATTERN}"
    elif images.have_labels:
        labels = "the names of the folders"
    text = (
        f"labels: {labels}, though {readable(best.path)} has {best.content}{also}. {best.remedy}. "
        f"{AS_CLASSES} packs the images alone"
    )
    return [Assumption(text)]


def _is_of_splits(path: Path, split_list: Path) -> bool:
    """Whether a file is the list of the split that the user passes, or that of another split."""
    if path == split_list:
        return True
    return path.parent == split_list.parent and bool(meaning_of_split(path.stem))


def _is_named(path: str, texts: str) -> bool:
    """Whether texts name a file, also relative to the working folder, as the user may write it."""
    for written_path in (path, os.path.relpath(path)):
        if re.search(rf"(?<![\w./-]){re.escape(written_path)}(?![\w/-])", texts):
            return True
    return False


def _collect_annotations(folder: Path, images: _Images) -> list[_Annotations]:
    """The annotations above the images, from the nearest folder on.

    `folder`: the one that the user passes, in which the images lie.
    """
    annotations: list[_Annotations] = []
    max_levels = _MAX_LEVELS_ABOVE
    if meaning_of_split(folder.name):
        max_levels += 1  # the levels count from the folder of the splits
    folders_above = list(folder.parents)[:max_levels]
    # Images without labels may have them in a folder that the user passes, above their own.
    if not images.have_labels:
        folders_above = [*_folders_between(images.root, folder), *folders_above]
    for above in folders_above:
        if above in shared_folders(folder):
            break
        try:
            names = names_in(above, FEW)
            nearby = [
                *_find_pairs(above, names, images),
                *_find_files(above, names, images),
            ]
        except (PackError, OSError):
            continue  # a folder above may be closed to the user
        # In the folder that the user passes, the other files are named by another assumption.
        is_in_passed_folder = above.is_relative_to(folder)
        for entry in nearby:
            if entry.rank == _TABLE or not is_in_passed_folder:
                annotations.append(entry)
    return annotations


def _folders_between(inner: Path, outer: Path) -> list[Path]:
    """The folders around `inner`, from the nearest to `outer`."""
    return [folder for folder in inner.parents if folder.is_relative_to(outer)]


def _find_pairs(above: Path, names: Names, images: _Images) -> Iterator[_Annotations]:
    """The folders of labels or masks that belong to the folder of the images."""
    pairs: list[FolderPair] = []
    folder_pairs = pair_folders(above, names)
    # MVTec AD and Penn-Fudan have masks in folders that only the format masks pairs. Where class
    # folders have the labels, masks beside them that do not follow MVTec are one more thing.
    mask_pairs = find_defect_pairs(above, names)
    if not mask_pairs and not folder_pairs and not images.have_labels:
        mask_pairs = pair_by_roles(above, names)
    for pair in [*folder_pairs, *mask_pairs]:
        if not pair.kind or not images.root.is_relative_to(str(pair.images)):
            continue
        # seg/train/masks of another task may lie beside photos/train.
        if (
            pair.kind == "masks"
            and not pair.classes
            and not _has_masks_of(images, pair)
        ):
            continue
        pairs.append(pair)
    # Packing refuses a folder with several kinds of labels, unless the user names one.
    are_several_kinds = len({pair.kind for pair in pairs}) > 1
    if pairs and not are_several_kinds:
        try:
            formats = possible_formats(above, names, SourceOptions())
            are_several_kinds = len(formats) > 1
        except PackError:
            are_several_kinds = True
    for pair in pairs:
        command = f"fastpipe pack {shlex.quote(str(above))} DST"
        if are_several_kinds:
            command += f" --format {pair.kind}"
        split = pair.split
        folders_inside = images.root.relative_to(str(pair.images)).parts
        if folders_inside:
            split = folders_inside[0]
        if split and meaning_of_split(split):
            command += f" --split {shlex.quote(split)}"
        elif pair.kind == "masks" and not images.have_labels:
            paths = [source.path for source in images.sources]
            option = option_of_classes_in_names(paths)
            command += f" {option}" if option else ""
        yield _Annotations(
            str(pair.labels),
            f"{_CONTENT_OF_KIND[pair.kind]}, and lies beside these images",
            f"To pack both: {command}",
            _PAIR,
        )


def _has_masks_of(images: _Images, pair: FolderPair) -> bool:
    """Whether a few of the masks of a pair are called after the images."""
    image_stems = (PurePosixPath(source.path).stem for source in images.sources)
    mask_stems = (PurePosixPath(path).stem for path in first_files(pair.labels))
    return are_masks_of(image_stems, mask_stems)


def _find_files(above: Path, names: Names, images: _Images) -> Iterator[_Annotations]:
    is_far = above != images.root.parent  # see `_Images.find`
    for path in _annotation_files(above, names, images.root, _MAX_LEVELS_BELOW):
        stem = os.path.splitext(path.relative_to(above))[0]
        # labels/a.txt, or ann/a.jpg.json, belongs to a.jpg, and so does gt_a.txt of ICDAR.
        image = images.find(stem, is_far=is_far)
        if image is None:
            image = images.find(_TARGET_PREFIX.sub("", stem), is_far=is_far)
        if path.parent != above and image is not None:
            yield _describe_sidecar(path, images.root)
            break  # the other files beside it belong to the other images
        if path.name.lower().endswith(_DATA_ENDINGS):
            if not is_far and not images.have_labels:
                yield _describe_data(path)
            continue
        if images.have_labels and _says_no_labels(path, images, is_far=is_far):
            continue
        listed = _images_named_in(path, images, is_far=is_far)
        if listed or _is_about_folder(path, images.root):
            yield _describe_list(path, images.root, listed)
        elif not is_far and path.parent != above:
            # MOT has the boxes of img1 in gt/gt.txt, by the numbers of the frames.
            tool = recognise_unread_tool(path)
            if tool is None:
                continue
            # The files of other tools that fastpipe reads name their images, and these name others.
            if not tool.reader:
                remedy = _remedy_of_tool(tool, path, images.root)
                yield _Annotations(str(path), tool.name, remedy, _TOOL)
            elif tool.reader == mot.READER and path.parent.parent == above:
                remedy = (
                    f"To pack both: fastpipe pack {quote_for_shell(str(above))} DST"
                )
                yield _Annotations(str(path), tool.name, remedy, _TOOL)
        elif not images.have_labels and _has_label_for_each(path, images.count):
            yield _describe_numbers(path, images.root)


def _says_no_labels(path: Path, images: _Images, *, is_far: bool) -> bool:
    """Whether a table says nothing of images that their class folders do not say, or splits alone."""
    # Another assumption names the splits in a list, unless the user has named a split already.
    if not images.is_split and is_unused_list(path, images.passed, images.sources):
        return True
    # CUB numbers its images so; ImageNet's folders say what its numbers say.
    if has_only_ids(path) or is_ground_truth(path):
        return True
    rows = first_cells(path)
    if rows and has_answers(rows[0]):
        return True
    # A list of a tool has no header, and fewer rows that name an image.
    if path.suffix.lower() not in _COLUMN_ENDINGS:
        return False
    return is_of_other_images_or_repeats(path, images.sources, is_far=is_far)


def _annotation_files(
    above: Path, names: Names, image_folder: Path, levels_below: int
) -> Iterator[Path]:
    """The files in a folder, and in its folders of annotations, that may be annotations.

    Args:
        above: the folder.
        names: the names in `above`.
        image_folder: the folder of the images. The listing has looked at its files already.
        levels_below: how many levels of folders in `above` to search.
    """
    endings = (*_LIST_ENDINGS, *_DATA_ENDINGS)
    # If several tables list the images, the user is shown the one that is likely to have labels.
    lists = sort_labelled_first(lists_among(names.files, endings, FEW))
    for name in lists[:_MAX_FILES]:
        if not is_result_form(name):
            yield above / name
    if levels_below == 0:
        return
    num_folders = 0
    for name in names.folders:
        inner = above / name
        # In a folder of annotations, all folders may hold some.
        is_candidate = (
            levels_below < _MAX_LEVELS_BELOW
            or is_called_target(name)
            or is_annotation_folder(name)
            or _LIST_FOLDER.fullmatch(name) is not None
            or name.lower().endswith(
                _LIST_ENDINGS
            )  # unpacked by Kaggle: train.csv/train.csv
        )
        has_images = image_folder.is_relative_to(inner)
        if is_candidate and not has_images and not is_dataset(inner):
            inner_names = names_in(inner, FEW)
            if _has_own_images(inner_names):
                continue
            yield from _annotation_files(
                inner, inner_names, image_folder, levels_below - 1
            )
            num_folders += 1
        if num_folders == _MAX_FOLDERS:
            return


def _has_own_images(names: Names) -> bool:
    """Whether a folder is another dataset: people keep their datasets beside one another."""
    return has_pictures(names) or any(map(is_called_images, names.folders))


def _images_named_in(path: Path, images: _Images, *, is_far: bool) -> list[str]:
    """The names of images at the start of a file."""
    text = _read_text(path)
    # The start may hold names of anything. The images decide which of them are paths.
    written_names: list[str] = []
    if path.suffix.lower() in (*_JSON_ENDINGS, ".xml"):
        written_names = [name.strip('"<>') for name in _TEXT.findall(text)]
    else:
        if not _is_list_of_images(path, text, images, is_far=is_far):
            return []
        for line in text.splitlines()[:_MAX_NAMES]:
            written_names += _names_in_line(line)
    listed = []
    # A dict in place of a set keeps the order of the names.
    for name in list(dict.fromkeys(written_names))[:_MAX_NAMES]:
        if len(name) > _MAX_NAME_LENGTH or _SHORT_NUMBER.fullmatch(name):
            continue
        image = images.find(name, is_far=is_far)
        if image is not None and not _leads_elsewhere(path.parent, name, images.root):
            listed.append(image)
    return listed


def _leads_elsewhere(folder: Path, written_path: str, images: Path) -> bool:
    """Whether a path from the folder of a list leads to a file that is not among the images.

    The list is then about other images, which may be called alike: a/cat/1.jpg and b/cat/1.jpg.
    """
    file = folder / written_path.replace("\\", "/")
    return os.path.isfile(file) and not file.is_relative_to(images)


def _names_in_line(line: str) -> list[str]:
    """The whole line, and its cells: each may be the name of an image."""
    cells = _SEPARATOR.split(line.strip())
    return [line.strip(), *map(picture_in_joined, cells)]


def _is_list_of_images(path: Path, text: str, images: _Images, *, is_far: bool) -> bool:
    """Whether a text lists images, and is not one that names some of them, such as a log.

    Half of the lines of a list name an image. Or those that do have nothing else in them, with lines
    about the image below. A table with commas or tabs is no log. It may be about the images of many
    folders, of which the user passes one.
    """
    if (
        path.suffix.lower() in _COLUMN_ENDINGS
        or recognise_unread_tool(path) is not None
    ):
        return True
    lines = [line.strip() for line in text.splitlines()[:_MAX_LINES] if line.strip()]
    num_naming = 0
    num_alone = 0
    for line in lines:
        names = []
        for name in _names_in_line(line):
            if len(name) <= _MAX_NAME_LENGTH and not _SHORT_NUMBER.fullmatch(name):
                names.append(name)
        if any(images.find(name, is_far=is_far) is not None for name in names):
            num_naming += 1
            num_alone += images.find(line, is_far=is_far) is not None
    return 2 * num_naming >= len(lines) or num_alone == num_naming > 0


def _is_coco(path: Path) -> bool:
    return path.suffix.lower() == ".json" and begins_like_coco(path)


def _is_about_folder(path: Path, images: Path) -> bool:
    """Whether a file of COCO is named after the folder of the images.

    Its annotations may stand before the images, so that its start names none.
    """
    return path.stem.endswith(f"_{images.name}") and _is_coco(path)


def _has_label_for_each(path: Path, count: int) -> bool:
    """Whether a text has a label on each line, and as many lines as there are images.

    A label is a whole number, or a word that comes again, such as n01440764.
    """
    if path.suffix.lower() != ".txt" or path.stat().st_size > count * _MAX_NAME_LENGTH:
        return False
    lines = path.read_bytes().split(b"\n")
    labels = [line.strip() for line in lines if line.strip()]
    if len(labels) != count or any(len(label.split()) > 1 for label in labels):
        return False
    # Words that come once are the names of classes, or of something else.
    return all(label.isdigit() for label in labels) or 2 * len(set(labels)) <= count


def _remedy_of_tool(tool: AnnotationTool, path: Path, images: Path) -> str:
    """What the user can do with annotations of a tool that fastpipe does not read."""
    remedy = f"To keep what they say: {tool.remedy}"
    training = find_training(images)
    if is_ground_truth(path) and training is not None:
        remedy += f", which is {quote_for_shell(str(training))}"
    return remedy


def _describe_numbers(path: Path, images: Path) -> _Annotations:
    if is_ground_truth(path):
        tool = describe_file(_read_start(path), path.name)
        remedy = _remedy_of_tool(tool, path, images)
        content = f"as many numbers as there are images: {tool.name}"
        return _Annotations(str(path), content, remedy, _TOOL)
    content = "as many lines with a label as there are images"
    command = _pack_command(path, images)
    command += describe_options_of_training(path, images)
    return _Annotations(str(path), content, f"To pack what they say: {command}", _TABLE)


def _describe_sidecar(path: Path, images: Path) -> _Annotations:
    tool = describe_file(_read_start(path), path.name)
    remedy = f"To keep what they say: {tool.remedy}"
    if tool.reader:
        remedy = f"To pack both: {_pack_command(path.parent, images, is_folder=True)}"
    return _Annotations(
        str(path),
        f"the name of one of these images: {tool.name}",
        remedy,
        _TOOL,
    )


def _describe_data(path: Path) -> _Annotations:
    content = "data, which may be the labels of these images"
    return _Annotations(str(path), content, f"It is {unread_remedy(path.name)}", _LIST)


def _describe_list(path: Path, images: Path, listed: list[str]) -> _Annotations:
    content = "the names of these images"
    tool = recognise_unread_tool(path)
    if tool is not None:
        remedy = f"To keep what it says: {tool.remedy}"
        if tool.reader:
            remedy = f"To pack both: {_pack_command(path, images)}"
        return _Annotations(str(path), f"{content}: {tool.name}", remedy, _TOOL)
    is_coco = _is_coco(path)
    # ImageNet's val.txt numbers the images, so a table with labels is shown in place of it.
    has_labels = _has_columns(path) and not has_only_ids(path)
    is_table = has_labels and lists_images(path, listed)
    is_mapping = path.suffix.lower() == ".json" and find_json_mapping(path) is not None
    if is_coco or is_table or is_mapping:
        image_root = _find_image_root(path, images) if is_table else images
        command = _pack_command(path, image_root)
        has_classes = True
        if is_table:
            command += describe_options_of_table(path, listed, images)
            options_of_labels = describe_options_of_labels(path, images)
            command += options_of_labels
            has_classes = bool(options_of_labels) or _may_have_classes(path)
        return _Annotations(
            str(path),
            content,
            f"To pack what it says: {command}",
            _TABLE,
            has_classes,
        )
    remedy = (
        "If it says classes or splits, write a CSV file with a row for each image "
        "(path,label,split), and pack that"
    )
    return _Annotations(str(path), content, remedy, _LIST)


def _may_have_classes(table: Path) -> bool:
    """Whether a column of a table is called like labels, or nothing says how they are called."""
    rows = first_cells(table, 1)
    return not rows or any(map(is_label_name, rows[0]))


def _lie_in_parts(folder: Path, images: Path) -> bool:
    """Whether images are in one of several parts of a folder, such as images_001 of NIH."""
    if folder == images or not images.is_relative_to(folder):
        return False
    return are_called_like_parts(names_in(folder, FEW).folders)


def _find_image_root(table: Path, images: Path) -> Path:
    """The folder of images, or one above it if the paths in a table begin there.

    LLaVA has images/coco/train2017, and its JSON file has coco/train2017/000000033471.jpg.
    """
    for listing_table in find_listing_tables(
        table.parent, [table.name], image_folder=images
    ):
        root = listing_table.image_root
        if isinstance(root, Path) and images.is_relative_to(root):
            return root
    return images


def _pack_command(annotations: Path, images: Path, *, is_folder: bool = False) -> str:
    """The command that packs images with annotations elsewhere."""
    command = f"fastpipe pack {shlex.quote(str(annotations))} DST"
    if is_folder:
        command += " --format annotations"
    elif _lie_in_parts(annotations.parent, images):
        return command  # the images of the other parts are looked for, too
    return f"{command} --image-root {shlex.quote(str(images))}"


def _has_columns(path: Path) -> bool:
    """Whether a file is more than a list of names, which say a split at most."""
    if path.suffix.lower() in _JSON_ENDINGS:
        return True
    # CelebA has the number of its rows above the names of the columns.
    first_lines = _read_text(path).splitlines()[:3]
    return any(_SEPARATOR.search(line.strip()) for line in first_lines)


def _read_text(path: Path) -> str:
    """The text at the start of a file."""
    return _read_start(path).decode(likely_encoding(path) or "utf-8", "replace")


def _read_start(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(TOOL_BYTES)
