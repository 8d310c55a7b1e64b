"""A source and the user's options -> what the source is, or an error if that is not certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.description import is_dataset, is_foreign
from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.dataset.format.layout import DATASET_FILE, WORK_FOLDER
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_files import ENDINGS, annotated_by_split
from fastpipe.sources.annotations.annotation_files import reader_of, refuse_tool
from fastpipe.sources.annotations.coco_folders import find_coco_files
from fastpipe.sources.annotations.tools.readers import READERS
from fastpipe.sources.file_formats import (
    MANIFESTS,
    format_of,
    is_named_after,
    refuse_unread_file,
)
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.classes_in_names import (
    describe_classes_in_split,
    option_of_classes_in_names,
)
from fastpipe.sources.folders.folder_formats import (
    lies_at_top,
    manifest_names,
    metadata_by_split,
    metadata_in,
    possible_formats,
    tar_names,
)
from fastpipe.sources.folders.folder_roles import find_class_root
from fastpipe.sources.folders.inner_sources import refuse_inner_sources
from fastpipe.sources.folders.labelled import (
    LABELLED_FORMATS,
    choose_pair,
    describe_polygons_of_pair,
    find_pairs,
)
from fastpipe.sources.folders.splits import (
    FEW,
    choose_split,
    find_split,
    find_split_parts,
    first_paths,
    split_folders,
    split_in_path,
    split_tars,
    training_or_first,
)
from fastpipe.sources.folders.tables_of_splits import describe_tables_of_splits
from fastpipe.sources.options import SourceOptions, pick_split
from fastpipe.sources.recognised import OPTIONS_OF_FORMAT, Recognised, check_options
from fastpipe.sources.tables.json_mappings import find_json_mapping
from fastpipe.sources.tables.listed_images import find_listing_tables
from fastpipe.sources.tables.manifest_reader import METADATA
from fastpipe.sources.tables.table_files import sort_labelled_first
from fastpipe.sources.tables.table_remedies import some_tables
from fastpipe.sources.tables.table_text import LISTS
from fastpipe.sources.tables.text_rows import detect_json_layout

# Formats of a folder with images and annotations, which says more than a table above it.
_ANNOTATED_FORMATS = ("voc", "yolo", "coco", "annotations")
# So many folders of a source are looked at.
_MAX_FOLDERS = 8
_FOLDER_FORMATS = ("imagefolder", *LABELLED_FORMATS)


def recognise(root: SourcePath, options: SourceOptions) -> Recognised:
    """Finds out what a source is.

    Raises:
        PackError: it may be several things, or an option has no meaning for it.
    """
    options = options.without_listed_split()
    if root.is_dir():
        recognised = recognise_folder(root, options)
    else:
        recognised = _recognise_file(root, options)
    check_options(recognised, options)
    return recognised


def options_of(root: SourcePath, options: SourceOptions) -> tuple[str, ...]:
    """The options that mean something for a source."""
    return OPTIONS_OF_FORMAT[recognise(root, options).format]


def could_be_source(path: Path) -> bool:
    """Whether a path looks like a folder to pack, or a tar, and not like a dataset."""
    try:
        if not path.is_dir():
            return path.is_file() and format_of(path.name) is not None
        if is_dataset(path) or (path / WORK_FOLDER).exists():
            return False
        for entry in path.iterdir():
            if entry.is_dir() or entry.suffix.lower() == ".tar":
                return True
    except OSError:
        pass  # a folder that cannot be read is no proposal
    return False


def _recognise_file(path: SourcePath, options: SourceOptions) -> Recognised:
    if options.format in _FOLDER_FORMATS:
        raise PackError(
            f"--format {options.format}: expected a folder, and {readable(path)} is a file"
        )
    if options.format == "annotations" and isinstance(path, Path):
        return _recognise_annotations(path)
    if options.format != "auto":
        return Recognised(options.format, path, is_file=True, files=[path])
    if path.name in METADATA:
        return Recognised(
            "metadata", path, is_file=True, files=metadata_in(path.parent)
        )

    if isinstance(path, Path) and path.suffix.lower() in ENDINGS and reader_of(path):
        return _recognise_annotations(path)
    refuse_unread_file(path)
    if isinstance(path, Path) and is_picture(path.name):
        raise PackError(
            f"{readable(str(path))} is one image; pass the folder of your images, such as "
            f"{readable(str(path.parent))}"
        )
    # A tar may have any name. Its listing says if it is none.
    format_name = format_of(path.name) or "webdataset"
    if path.suffix.lower() in LISTS:
        format_name = "csv"
    elif format_name == "coco":
        layout = detect_json_layout(path, options.encoding)
        if layout != "object" or find_json_mapping(path) is not None:
            format_name = (
                "jsonl"  # an array of objects, an object a line, or classes of paths
            )
        else:
            refuse_tool(path)
    return Recognised(format_name, path, is_file=True, files=[path])


def _recognise_annotations(path: Path) -> Recognised:
    """A file of an annotation tool. The files of other splits beside it have classes, too."""
    split = split_in_path(path.name)
    files_by_split: dict[str, list[SourcePath]] = {}
    if split:
        files_by_split = annotated_by_split(path.parent, names_in(path.parent))
    files_by_split.pop(split, None)
    files_by_split.pop("", None)
    return Recognised(
        "annotations",
        path,
        is_file=True,
        files=[path],
        list_name=split,
        other_files=files_by_split,
    )


def recognise_folder(root: SourcePath, options: SourceOptions) -> Recognised:
    """As `recognise`, of a folder. It does not check whether the options fit."""
    names = names_in(root)
    if options.format in ("auto", "webdataset") and _is_packed_dataset(root, names):
        return Recognised("dataset", root, names)

    # A folder of splits is a source itself if it has files about all splits, such as COCO's folder
    # of annotations. Otherwise one of its splits is the source.
    is_auto = options.format == "auto"
    splits = split_folders(root, names, options.split)
    formats = [options.format]
    if is_auto:
        formats = possible_formats(root, names, options)
    has_split_folders = bool(splits) and len(formats) == 1
    if has_split_folders and not lies_at_top(formats[0], root, names, options):
        return _recognise_split(root, splits, options)
    # A --split that names a class folder is refused by `check_options`.
    if is_auto and formats == ["imagefolder"] and options.split not in names.folders:
        refuse_inner_sources(root, names, options)
    if len(formats) > 1:
        raise _ambiguous_error(root, names, formats)

    format_name = formats[0]
    if format_name in ("metadata", "coco", *MANIFESTS):
        return _recognise_lists(format_name, root, names, options.split)
    if format_name == "annotations":
        return _recognise_annotated(root, names, options)
    if format_name in LABELLED_FORMATS:
        pair = choose_pair(format_name, root, names, options)
        return Recognised(format_name, root, names, split=pair.split, pair=pair)
    if format_name == "webdataset":
        tars = split_tars(tar_names(names))
        if tars:
            split = choose_split(root, options.split, dict.fromkeys(tars))
            return Recognised(format_name, root, names, split=split, tars=tars)
    return Recognised(format_name, root, names)


def _recognise_annotated(
    root: SourcePath, names: Names, options: SourceOptions
) -> Recognised:
    """The files of an annotation tool in a folder, of one split.

    Raises:
        PackError: there are none, or the user has to choose a split.
    """
    by_split = annotated_by_split(root, names)
    if not by_split and options.format == "annotations":
        by_split = annotated_by_split(root, names, is_asked=True)
    if not by_split:
        raise PackError(
            f"--format annotations: {readable(root)} has no annotations of a tool that fastpipe "
            f"reads; expected files of {', '.join(READERS)}"
        )
    if list(by_split) == [""]:
        # The tool itself may write splits, see `list_annotated_images`.
        return Recognised("annotations", root, names, files=by_split[""])
    chosen = choose_split(root, options.split, dict.fromkeys(by_split))
    other_files = {
        split: files for split, files in by_split.items() if split and split != chosen
    }
    return Recognised(
        "annotations",
        root,
        names,
        files=by_split[chosen],
        list_name=chosen,
        other_files=other_files,
        split=chosen,
    )


def _is_packed_dataset(root: SourcePath, names: Names) -> bool:
    """Whether a folder is a packed dataset, even if it is damaged or unfinished."""
    try:
        if is_dataset(root):
            return True
    except OSError as problem:
        raise PackError(
            f"cannot read {root / DATASET_FILE}: {problem.strerror}"
        ) from problem
    # Others have files of this name as well, and folders beside them.
    has_only_fields = set(names.folders) <= {FIELDS_FOLDER}
    is_damaged = DATASET_FILE in names.files and has_only_fields
    return (is_damaged and not is_foreign(root)) or (root / WORK_FOLDER).is_dir()


def _ambiguous_error(
    root: SourcePath, names: Names, formats: Sequence[str]
) -> PackError:
    kinds = ", ".join(formats)
    remedy = "--format picks one; or pass "
    if "metadata" in formats:
        # It is no value of --format.
        others = [name for name in formats if name != "metadata"]
        files = metadata_by_split(root, names)
        file = next(iter(files.values()))[0]
        kinds = f"{', '.join(others)}, or images that {readable(file.name)} describes"
        remedy = (
            f"--format {' or '.join(others)} leaves {readable(file.name)} out; or pass "
        )
    inner = _inner_annotations(root, names)
    if inner is not None:
        remedy += (
            f"{readable(inner.folder)}, which is of the format {inner.format}; or "
        )
    remedy += "the file that lists the images"
    manifests = sort_labelled_first(manifest_names(names))
    listing_tables = find_listing_tables(root, manifests)
    if listing_tables:
        remedy += f", such as {some_tables(listing_tables)}"
    elif manifests:
        remedy += f", such as {readable(root / manifests[0])}"
    if "masks" in formats:
        remedy += _labels_beside_masks(root, names)
    class_root = _inner_class_root(root, names) if "imagefolder" in formats else None
    if class_root is not None:
        folders = first_paths(names_in(class_root, FEW).folders)
        remedy += f"; or, if the folders {folders} are the classes or splits, {readable(class_root)}"
    return PackError(
        f"{readable(root)} may be several kinds of source: {kinds}. {remedy}"
    )


def _labels_beside_masks(root: SourcePath, names: Names) -> str:
    """Says how masks get the classes in the names of their images; "" if these have none."""
    try:
        pair = choose_pair("masks", root, names, SourceOptions())
    except PackError:
        return ""  # the error of --format masks says why
    if pair.split:
        return ""
    files = names_in(pair.images, FEW).files
    option = option_of_classes_in_names(list(filter(is_picture, files)))
    if not option:
        return ""
    return f"; --format masks with {option} takes the classes in the names of the images, too"


class _InnerAnnotations(NamedTuple):
    """A folder in a source that has annotations beside its images."""

    folder: SourcePath
    format: str


def _inner_annotations(root: SourcePath, names: Names) -> _InnerAnnotations | None:
    """The first folder that is a source with annotations, as BCCD/ beside test.csv; or None."""
    if not isinstance(root, Path):
        return None
    for name in names.folders[:_MAX_FOLDERS]:
        folder = root / name
        try:
            formats = possible_formats(folder, names_in(folder, FEW), SourceOptions())
        except PackError:
            continue  # it has labels that are not read
        if len(formats) == 1 and formats[0] in _ANNOTATED_FORMATS:
            return _InnerAnnotations(folder, formats[0])
    return None


def _inner_class_root(root: SourcePath, names: Names) -> SourcePath | None:
    """The folder below a source that has class folders or splits; or None.

    It is sought in the only folder, or in that of training: Final_Training of GTSRB.
    """
    if len(names.folders) == 1:
        return find_class_root(root / names.folders[0])
    for folder_of_split in find_split_parts(names.folders):
        if "train" in folder_of_split:
            return find_class_root(root / folder_of_split["train"])
    return None


def _recognise_split(
    root: SourcePath, splits: Mapping[str, SourcePath], options: SourceOptions
) -> Recognised:
    """The split of a folder that the user asks for, or the only one.

    Raises:
        PackError: the user has to say which split; or it has no labels, and others have boxes or masks.
    """
    options_inside = replace(options, split=None)
    more = ""
    is_undecided = options.split is None and options.format == "auto"
    if is_undecided and len(splits) > 1:
        first = next(iter(splits.values()))
        if isinstance(root, Path):  # behind a URL, each look at a folder is a request
            splits_of_images = _splits_of_images(splits)
            more = describe_tables_of_splits(root, splits_of_images)
            more = more or describe_classes_in_split(splits_of_images)
        formats = possible_formats(first, names_in(first), options_inside)
        if formats == ["yolo"] and options.fields is None:
            more = _describe_polygons_of_split(root, splits)
        elif formats == ["imagefolder"]:
            more += ". --format imagefolder (format='imagefolder') takes these folders as classes"
    chosen = choose_split(root, options.split, splits, more)
    recognised = recognise_folder(splits[chosen], options_inside)

    # test/images beside train/images and train/labels would be packed as the class "images".
    folders = recognised.names.folders
    if recognised.format == "imagefolder" and len(folders) == 1:
        formats_of_others = set()
        for split, folder in splits.items():
            if split != chosen:
                other = recognise_folder(folder, options_inside)
                formats_of_others.add(other.format)
        labelled = sorted(formats_of_others & LABELLED_FORMATS.keys())
        if labelled:
            raise PackError(
                f"the split {chosen} of {readable(root)} has no labels, and others are of the "
                f"format {labelled[0]}; pass {readable(recognised.root / folders[0])} to pack "
                "its images alone"
            )
    return replace(recognised, split=chosen, splits=splits, top=root)


def _describe_polygons_of_split(
    root: SourcePath, splits: Mapping[str, SourcePath]
) -> str:
    """Says behind the splits how masks are made of YOLO's polygons; "" if there are none."""
    folder = splits[training_or_first(splits)]
    pairs = find_pairs("yolo", folder, names_in(folder))
    if len(pairs) != 1:
        return ""
    return describe_polygons_of_pair(pairs[0], root)


def _splits_of_images(splits: Mapping[str, SourcePath]) -> dict[str, SourcePath]:
    """The splits whose folders have no annotations of a format beside their images."""
    of_images = {}
    for split, folder in splits.items():
        try:
            formats = possible_formats(folder, names_in(folder), SourceOptions())
        except PackError:
            continue  # the error comes where the user asks for this split
        if "imagefolder" in formats and set(formats) <= {"imagefolder", *MANIFESTS}:
            of_images[split] = folder
    return of_images


def _recognise_lists(
    format_name: str, root: SourcePath, names: Names, split: str | None
) -> Recognised:
    """The files in a folder that list its images: of one split, or of all images."""
    if split == "":  # below, "" stands for files that name no split
        raise PackError(
            "expected the name of a split, got ''; leave it out if there are none",
            option="split",
        )
    by_split: dict[str, list[SourcePath]] = {}
    if format_name == "metadata":
        by_split = metadata_by_split(root, names)
    elif format_name == "coco":
        by_split = find_coco_files(root, names)

    if by_split:
        wanted = _choose_by_split(format_name, split, by_split)
    else:
        # From here on, `by_split` is by the names of files.
        by_split = _files_by_name(format_name, root, names)
        wanted = _choose_by_name(split, by_split)
    chosen = pick_split(wanted, by_split, root)

    is_one_of_folders = chosen != "" and len(names.folders) > 1
    if format_name == "metadata" and split is None and is_one_of_folders:
        raise PackError(
            f"{readable(root)} has metadata in {chosen} and none in its other folders: "
            f"--split {chosen} packs what it lists, --format imagefolder takes the folders as "
            "classes"
        )
    if format_name == "coco":
        for file in by_split[chosen]:
            refuse_tool(file)
    other_files = {}
    for name, files in by_split.items():
        # A file that names no split may list anything, such as all images once more.
        if name != chosen and split_in_path(name):
            other_files[name] = files
    return Recognised(
        format_name,
        root,
        names,
        files=by_split[chosen],
        list_name=chosen,
        other_files=other_files,
    )


def _choose_by_split(
    format_name: str, split: str | None, by_split: Mapping[str, object]
) -> str | None:
    """The split whose lists the user means; "" for lists of no split, None for the only ones."""
    if split is None:
        return "" if "" in by_split else None
    # "val" also means "Valid" or "val2017", if that is the only such split.
    known_split = find_split(split, by_split)
    if known_split is not None:
        return known_split
    # Rows of metadata beside the images may name a split that no folder is called after.
    if format_name == "metadata" and "" in by_split:
        return ""
    return split


def _files_by_name(
    format_name: str, root: SourcePath, names: Names
) -> dict[str, list[SourcePath]]:
    """Name -> file of this name, of a format."""
    file_names = [name for name in names.files if format_of(name) == format_name]
    if not file_names:
        raise PackError(f"{readable(root)} holds no file of the format {format_name}")
    return {name: [root / name] for name in sort_labelled_first(file_names)}


def _choose_by_name(split: str | None, files: Mapping[str, object]) -> str | None:
    """The file that is called after a split, or the only one; else the split as it is."""
    names = []
    if split is not None:
        names = [name for name in files if is_named_after(name, split)]
    if not names:
        names = list(files)  # the only file may have all splits in its rows
    if len(names) == 1:
        return names[0]
    return split
