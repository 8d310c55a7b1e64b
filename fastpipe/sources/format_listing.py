"""A recognised source -> the listing of its images, by its format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_images import list_annotated_images
from fastpipe.sources.annotations.annotation_folders import FolderPair, pair_folders
from fastpipe.sources.annotations.coco import list_coco
from fastpipe.sources.annotations.masks import MaskFolders, list_kinds, list_masks
from fastpipe.sources.annotations.sample_folders import (
    are_samples,
    list_sample_folders,
)
from fastpipe.sources.annotations.voc import (
    MASK_LISTS,
    lie_in_class_folders,
    list_voc,
    read_split_names,
)
from fastpipe.sources.annotations.yolo import list_yolo
from fastpipe.sources.annotations.yolo_yaml import find_misnamed_splits
from fastpipe.sources.file_formats import format_of, is_named_after, is_tar
from fastpipe.sources.files import SourcePath, names_in, path_below
from fastpipe.sources.folders.class_folders import (
    find_class_folders,
    list_class_folders,
)
from fastpipe.sources.folders.folder_formats import manifest_names, tar_names
from fastpipe.sources.folders.splits import (
    FEW,
    choose_split,
    find_split,
    first_paths,
    split_folders,
    split_of_name,
    training_or_first,
)
from fastpipe.sources.listing import Assumption, Listing, add_assumptions
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.path_labels import BY_FIRST_FOLDER
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.recognition import recognise_folder
from fastpipe.sources.tables.manifest import list_manifest
from fastpipe.sources.tables.table_files import assume_forms_skipped
from fastpipe.sources.tables.tables import list_tables
from fastpipe.sources.tars.tar_reader import compressed_error
from fastpipe.sources.tars.tar_samples import TarColumns
from fastpipe.sources.tars.tars import (
    list_archives,
    list_dataset,
    list_tar_classes,
)
from fastpipe.sources.unused_split_lists import describe_list_of_split

_COMPRESSED_TAR = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)


def list_recognised(source: Recognised, options: SourceOptions) -> Listing:
    """Lists the images of a source, in no order; of a split, with its own classes alone."""
    match source.format:
        case "dataset":
            return list_dataset(source.root, options.remote)
        case "imagefolder":
            return _list_image_folder(source, options)
        case "webdataset":
            return _list_tars(source, options)
        case "parquet" | "arrow":
            return list_tables(source.root, options)
        case "coco":
            # The images of "val" may lie in val2017, as the files of annotations are called.
            if options.split is not None:
                options = replace(options, split=source.list_name)
            return list_coco(source.files, options)
        case "yolo":
            return _list_yolo(source, options)
        case "voc":
            return _list_voc(source, options)
        case "masks":
            return _list_masks(source, options)
        case "annotations":
            return _list_annotations(source, options)
        case _:
            return _list_manifest(source, options)


def _list_image_folder(source: Recognised, options: SourceOptions) -> Listing:
    """Lists class folders, or images without classes."""
    root = source.root
    names = source.names
    if not names.folders:
        _refuse_compressed(source)
        if not names.files:
            raise _empty_error(root, "folders and no files")
        tars = tar_names(names)
        if tars and options.label_pattern is not None:
            raise PackError(
                f"it has no effect on tars, and {readable(str(root))} holds some; unpack them, or "
                "leave it out",
                option="label_pattern",
            )
        if tars:  # with --format imagefolder each is a class
            stray = [name for name in names.files if not is_tar(name)]
            return list_tar_classes(root, tars, [*stray, *names.hidden])
    folders = find_class_folders(source, options)
    return list_class_folders(
        folders, options.fields, are_classes=options.format == "imagefolder"
    )


def _list_tars(source: Recognised, options: SourceOptions) -> Listing:
    """Lists a tar, or the tars in a folder; if it is a split, only those of the split."""
    names = source.names
    stray: list[str] = []
    if source.is_file:
        tars = [""]  # the root itself
    else:
        _refuse_compressed(source)
        tars = tar_names(names)
        if not tars:
            raise _empty_error(source.root, "tars")
        if source.tars:
            tars = list(source.tars[source.split])
        else:
            stray = [name for name in names.files if not is_tar(name)]
            stray += [*names.folders, *names.hidden]
    columns = TarColumns(options.image_column, options.label_column)
    return list_archives(
        source.root, tars, stray, options.fields, options.split, columns
    )


def _refuse_compressed(source: Recognised) -> None:
    """Raises PackError for a compressed tar: its members have no ranges to read."""
    for name in source.names.files:
        if _COMPRESSED_TAR.search(name):
            raise compressed_error(source.root / name)


def _empty_error(root: SourcePath, missing: str) -> PackError:
    return PackError(
        f"{readable(root)} holds no {missing}; expected one folder of images for each class "
        f"({root.name}/cat/1.jpg, {root.name}/dog/2.jpg), images without classes, or tars"
    )


def _list_manifest(source: Recognised, options: SourceOptions) -> Listing:
    """Lists the rows of a CSV or JSONL file, or of ImageFolder's metadata."""
    path = source.files[0]
    if len(source.files) > 1:
        names = " and ".join(file.name for file in source.files)
        raise PackError(
            f"{readable(path.parent)} holds {names}; expected one of them. Pass {path.name} "
            f"with --format {format_of(path.name)} to pack what it lists"
        )
    is_metadata = source.format == "metadata"
    format_name = source.format
    if is_metadata:
        format_name = format_of(path.name) or ""

    # The name of the file may say the split that the user asks for. Otherwise its rows have to.
    split = options.split
    is_of_split = split is not None and (
        split == source.list_name or is_named_after(path.name, split)
    )
    is_only_list = source.is_file or not (source.other_files or is_of_split)
    listing = list_manifest(
        path,
        format_name,
        options,
        is_metadata=is_metadata,
        is_alone=is_only_list,
        is_joined=bool(source.split),
    )
    return add_assumptions(listing, assume_forms_skipped(manifest_names(source.names)))


def _list_yolo(source: Recognised, options: SourceOptions) -> Listing:
    root, pair = _local_pair(source)
    # Folders that may have the names of the classes.
    tops = [root, *_folders_around(source)]
    listing = list_yolo(
        pair,
        options.split,
        tops,
        options.first_label or 0,
        options.fields,
        drops_bad_lines=options.keeps_images,
    )
    return add_assumptions(listing, find_misnamed_splits(root, source.names))


def _folders_around(source: Recognised) -> list[Path]:
    """The folder around a split, which may say the classes of all splits; or none."""
    if isinstance(source.top, Path):
        return [source.top]
    if isinstance(source.root, Path) and split_of_name(source.root.name) is not None:
        # The user has passed the folder of a split.
        return [source.root.absolute().parent]
    return []


def _list_voc(source: Recognised, options: SourceOptions) -> Listing:
    root, pair = _local_pair(source)
    pair = _enter_wrappers(pair)
    split = options.split
    pairs_by_split = _split_pairs(pair)
    if pairs_by_split:
        split = choose_split(pair.images, split, dict.fromkeys(pairs_by_split))
        pair = pairs_by_split.pop(split)
        split = None  # the folder of a split has no lists of splits
    elif split is not None and not (root / MASK_LISTS).parent.is_dir():
        _refuse_split_of_list(root, split)
    # VOC's classes are names without numbers. To number them, the names of all splits are needed.
    pairs_of_others = list(pairs_by_split.values())
    for other_split, folder in source.splits.items():
        if other_split == source.split:
            continue
        try:
            other = recognise_folder(folder, replace(options, format="voc"))
        except PackError:
            continue  # a split for a contest, say, has no annotations
        if other.pair is not None:
            pairs_of_others.append(other.pair)
    listing = list_voc(
        root,
        pair,
        split,
        pairs_of_others,
        drops_bad_objects=options.keeps_images,
        unlisted=options.unlisted,
        first_pixel=options.first_pixel,
    )

    # VOC has masks beside the annotations.
    for other_pair in pair_folders(root, names_in(root)):
        if other_pair.kind == "masks":
            text = f"{other_pair.labels.name}: left out, for only boxes are packed"
            listing = add_assumptions(listing, [Assumption(text, "--format masks")])
    return listing


def _enter_wrappers(pair: FolderPair) -> FolderPair:
    """The folders in which the images and annotations of VOC lie.

    Kaggle's Stanford Dogs has images/Images/ and annotations/Annotation/, each the only folder.
    """
    images = _only_folder_in(pair.images) or pair.images
    labels = _only_folder_in(pair.labels) or pair.labels
    inner_pair = pair._replace(images=images, labels=labels)
    return inner_pair if lie_in_class_folders(inner_pair) else pair


def _only_folder_in(folder: SourcePath) -> SourcePath | None:
    """The folder that is all in another one, and is no split; None if there is none."""
    names = names_in(folder, FEW)
    if names.files or len(names.folders) != 1:
        return None
    name = names.folders[0]
    return None if split_of_name(name) is not None else folder / name


def _split_pairs(pair: FolderPair) -> dict[str, FolderPair]:
    """Split -> its folders, where the folders of images and of annotations have splits in them.

    Raises:
        PackError: the images lie in folders, and these are no splits with annotations.
    """
    names = names_in(pair.images, FEW)
    if names.files or not names.folders:
        return {}
    if lie_in_class_folders(pair) and not split_folders(pair.images, names):
        return {}
    annotation_folders = names_in(pair.labels, FEW).folders
    pairs: dict[str, FolderPair] = {}
    for split, images in split_folders(pair.images, names).items():
        name = find_split(split, annotation_folders)
        if name is not None:
            pairs[split] = pair._replace(images=images, labels=pair.labels / name)
    if not pairs:
        raise PackError(
            f"{readable(str(pair.images))} holds the folders {first_paths(names.folders)} and no "
            f"images. Expected all images in {pair.images.name} and all annotations of VOC in "
            f"{pair.labels.name}, or folders of the same splits in both, such as train and val. "
            f"Move them so; or pass {readable(str(pair.images))} to pack the images without the "
            "annotations"
        )
    return pairs


def _list_annotations(source: Recognised, options: SourceOptions) -> Listing:
    if not isinstance(source.root, Path):
        raise PackError(
            f"{source.root}: files of annotation tools are not read by URL: copy them to a folder of "
            "this machine"
        )
    other_files: list[SourcePath] = []
    for files in source.other_files.values():
        other_files += [file for file in files if file not in source.files]
    return list_annotated_images(
        source.root, source.files, options, other_files, is_file=source.is_file
    )


def _local_pair(source: Recognised) -> tuple[Path, FolderPair]:
    """The root, and its pair of folders. PackError: they are behind a URL."""
    if not isinstance(source.root, Path):
        raise PackError(
            f"{source.root} is a folder of the format {source.format}, which fastpipe does not "
            "read by URL: copy it to a folder of this machine"
        )
    return source.root, _pair(source)


def _refuse_split_of_list(root: SourcePath, split: str | None) -> None:
    """Raises PackError if a list beside images with masks has the split that the user asks for."""
    remedy = describe_list_of_split(root, split or "", are_labels_known=True)
    if remedy:
        raise PackError(
            f"{readable(root)} has no folders of splits; {remedy}", option="split"
        )


def _pair(source: Recognised) -> FolderPair:
    assert source.pair is not None  # sources of these formats have a pair
    return source.pair


def _list_masks(source: Recognised, options: SourceOptions) -> Listing:
    """Lists images with their masks: all, or those of a split that is a folder in both folders."""
    pair = _pair(source)
    images = pair.images
    masks = pair.labels
    if images == masks and are_samples(source.root, source.names):
        for name in ("fields", "label_pattern", "split"):
            if getattr(options, name) is not None:
                raise PackError(
                    f"{readable(source.root)} has a folder for each sample, with a mask for each "
                    "object, and no such option; leave it out",
                    option=name,
                )
        return list_sample_folders(source.root)
    if options.label_pattern is not None and (pair.split or options.split is not None):
        raise PackError(
            f"{readable(source.root)} has splits of images and masks, and the classes in paths of "
            "one split would not have the numbers of another; leave it out",
            option="label_pattern",
        )
    splits: dict[str, SourcePath] = {}
    if not pair.classes:
        splits = split_folders(images, names_in(images, FEW))
    listed = None
    # VOC has masks of some of its images only, and lists of these for each split.
    has_lists = isinstance(source.root, Path) and (source.root / MASK_LISTS).is_dir()
    if has_lists and not splits:
        listed = read_split_names(
            Path(str(source.root)), MASK_LISTS.name, options.split
        )
    elif splits or (options.split is not None and not pair.classes):
        if not splits:
            _refuse_split_of_list(source.root, options.split)
        more = ""
        if len(splits) > 1 and options.split is None and options.fields is None:
            more = _describe_kinds(source.root, splits, masks)
        chosen = choose_split(images, options.split, splits, more)
        split_of_masks = find_split(chosen, names_in(masks, FEW).folders)
        if split_of_masks is None:
            raise PackError(
                f"{readable(masks)}: expected a folder {readable(chosen)}, as in {images.name}"
            )
        images = splits[chosen]
        masks = masks / split_of_masks
    root = source.root
    images_below = path_below(root, images)
    masks_below = path_below(root, masks)
    parts = []
    for images_of_part, masks_of_part in pair.folders:
        parts.append(
            (path_below(root, images_of_part), path_below(root, masks_of_part))
        )
    folders = MaskFolders(root, images_below, masks_below, pair.classes, tuple(parts))
    listing = list_masks(folders, options, listed, _folders_around(source))
    if not parts or options.label_pattern is not None:
        return listing
    names = [path.partition("/")[0] for path, _ in parts]
    text = f"labels: none, for {first_paths(names)} have images and masks each, and are packed together"
    if source.split:
        return add_assumptions(listing, [Assumption(text)])
    text += "; if they are the classes, pass the option"
    return add_assumptions(listing, [Assumption(text, BY_FIRST_FOLDER)])


def _describe_kinds(
    root: SourcePath, splits: Mapping[str, SourcePath], masks: SourcePath
) -> str:
    """The option to add where each image of a split has masks of several kinds; or "".

    Cityscapes has gtFine_labelIds, gtFine_instanceIds and gtFine_color.
    """
    split = training_or_first(splits)
    split_of_masks = find_split(split, names_in(masks, FEW).folders)
    if split_of_masks is None:
        return ""
    images_below = path_below(root, splits[split])
    folders = MaskFolders(root, images_below, path_below(root, masks / split_of_masks))
    kinds = list_kinds(folders)
    if len(kinds) < 2:
        return ""
    return (
        f". Each image has masks of the kinds {first_paths(kinds)}: add --field mask={kinds[0]}, or "
        "that of another kind"
    )
