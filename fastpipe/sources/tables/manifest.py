"""A file with a row for each image (CSV, TSV, JSON, JSONL, or metadata) -> the listing of these
images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fastpipe.dataset.format.folder import scheme_of
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.files import SourcePath, files_below
from fastpipe.sources.folders.splits import (
    SplitChoiceError,
    are_called_like_parts,
    first_paths,
    split_of_name,
)
from fastpipe.sources.listing import Assumption, Listing, add_assumptions
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.path_labels import BY_FOLDER
from fastpipe.sources.tables.image_rows import (
    caption_fields,
    gather_boxes,
    gather_captions,
    gather_masks,
    settle_rows,
)
from fastpipe.sources.tables.likely import columns_of_ids
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.listed_images import find_listing_tables
from fastpipe.sources.tables.manifest_columns import (
    Manifest,
    choose_manifest_columns,
    columns_of_pictures,
    describe_image_column,
    name_image_columns,
    scan_columns,
)
from fastpipe.sources.tables.manifest_reader import METADATA, choose_reader
from fastpipe.sources.tables.picture_lists import (
    find_picture_columns,
    settle_picture_lists,
)
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.run_order import settle_run_order
from fastpipe.sources.tables.split_column import (
    ALL,
    SplitColumn,
    assume_all_splits_packed,
    describe_other_values,
    find_split_column,
    find_split_folders,
    find_value_as_split,
)
from fastpipe.sources.tables.table_boxes import BOXES, find_box_columns
from fastpipe.sources.tables.table_colours import settle_colours
from fastpipe.sources.tables.table_files import tables_of_other_splits
from fastpipe.sources.tables.table_masks import (
    find_run_field,
    find_wish_of_objects,
    with_run_column,
)
from fastpipe.sources.tables.table_remedies import describe_options_of_labels
from fastpipe.sources.tables.training_tables import compare_with_training
from fastpipe.sources.tables.unlisted import Unlisted
from fastpipe.sources.tables.written_names import folded_stem

# Shorter names, such as IMG_0001, occur in many datasets, so they prove little alone.
_MIN_CHARACTERS = 10
_NUM_NAMES_CHECKED = 20
_OF_COCO_ANNOTATIONS = {"image_id", "category_id", "bbox"}


def list_manifest(
    path: SourcePath,
    kind: str,
    options: SourceOptions,
    *,
    is_metadata: bool = False,
    is_alone: bool = True,
    is_joined: bool = False,
) -> Listing:
    """Lists the images that a file names, in no order. Reads the file twice.

    Args:
        kind: "csv", "jsonl" (also for .json files), or "parquet" for metadata.
        is_metadata: the file is metadata of Hugging Face's ImageFolder.
        is_alone: the file is the source by itself, and not one of the files of a folder.
        is_joined: it is of a split whose classes are joined with those of others.

    Raises:
        PackError: the file cannot be read, or an option has to say what its columns hold.
    """
    table = readable(str(path))
    reader = choose_reader(path, kind, options)
    assumed = reader.assumed
    is_typed = kind != "csv" or bool(reader.kinds)
    manifest = Manifest(
        path, table, options, is_typed, is_metadata, reader.read_rows, reader.kinds
    )
    # The first reading shows what the columns hold. The second one makes the rows.
    scan_columns(manifest)
    _refuse_coco_annotations(manifest)
    objects_wish = find_wish_of_objects(manifest.summaries, options)
    if objects_wish is not None:
        options = with_run_column(options, objects_wish)
        manifest = replace(manifest, options=options)

    try:
        split = find_split_column(manifest.summaries, options, table)
    except SplitChoiceError as problem:
        raise _with_image_column(problem, manifest) from None
    if split is None and is_alone:
        assumed += assume_all_splits_packed(manifest.summaries, options)
    has_splits = split is not None or options.split == ALL
    if split is not None and len(set(split.names.values())) == 1:
        split = None  # all rows are of this split, so the column may become a field
    field_values = dict(manifest.summaries)
    if split is not None:
        del field_values[split.column]

    boxes = None
    if not reader.kinds:
        boxes = find_box_columns(manifest.summaries, options, table)
    column_names = list(field_values)
    if boxes is not None and BOXES not in manifest.summaries:
        # --field can name the boxes as if they were a column.
        column_names.append(BOXES)
    lists = find_picture_columns(manifest) if boxes is None else []
    images = [column for column in name_image_columns(manifest) if column not in lists]
    if not images and not lists and not is_metadata and options.image_column is None:
        images = columns_of_pictures(manifest)
        for column in images:
            text = f"images: column {column!r} has names of images"
            assumed.append(Assumption(text, f"--image-column {column}"))
    columns = choose_manifest_columns(
        manifest, column_names, images, has_picture_lists=bool(lists)
    )
    columns, assumed_of_lists = settle_picture_lists(columns, lists, manifest)
    assumed += assumed_of_lists
    if columns.image and not has_splits:
        split = _find_split_of_paths(manifest, columns.image, is_alone)
        if split is not None and options.fields is None:
            # A column of splits is no field; one of paths is none already.
            fields = [field for field in columns.fields if field.column != split.column]
            columns = columns._replace(fields=tuple(fields))

    if options.first_label is not None:
        _check_first_label(manifest, columns.label, has_boxes=boxes is not None)
    run_field = None
    if boxes is None and columns.image:
        run_field = find_run_field(manifest.summaries, columns, options)
    if run_field is not None and objects_wish is not None:
        run_field = run_field._replace(has_object_numbers=True)
    if boxes is not None:
        images_of_rows = gather_boxes(manifest, columns, boxes, split)
    elif run_field is not None:
        images_of_rows = gather_masks(manifest, field_values, columns, run_field, split)
    elif columns.image and (captions := caption_fields(manifest, columns)):
        images_of_rows = gather_captions(
            manifest, field_values, columns, captions, split
        )
    else:
        images_of_rows = settle_rows(manifest, field_values, columns, split)
    root = options.root_of_images() or path.parent
    listing = list_rows(
        root,
        images_of_rows.rows,
        images_of_rows.fields,
        classes=reader.classes,
        beside=_files_beside_metadata(root) if is_metadata else (),
        assumed=[*assumed, *images_of_rows.assumed],
        unlisted=Unlisted(
            options.unlisted,
            images_of_rows.values_without_row,
            lambda: _rows_of_other_tables(path, kind, columns.image, options),
        ),
        table=path.name,
        options=options,
        has_first_label=boxes is None,
    )
    listing = settle_colours(listing, path.parent)
    if run_field is not None:
        listing = settle_run_order(listing, run_field, options.run_order)
    elif options.run_order is not None:
        raise PackError(
            f"{table} has no column with run lengths of masks, such as EncodedPixels; "
            "--field mask=COLUMN:mask names it",
            option="run_order",
        )
    if is_alone and options.image_root is None:
        id_columns = columns_of_ids(manifest.summaries)
        other_columns = [column for column in id_columns if column != columns.image]
        _refuse_images_elsewhere(path, listing, options, other_columns)
    if columns.image and _lists_paths_alone(manifest, columns):
        reason = "the list says paths alone"
        listing = add_assumptions(listing, _folders_as_classes(listing, reason))
    elif is_metadata and columns.image and _has_no_classes(listing, options):
        reason = f"{path.name} has none"
        listing = add_assumptions(listing, _folders_as_classes(listing, reason))

    # Another table may have the numbers that the classes have in training. A split of this table
    # has the numbers of the whole table, and classes that the user gives have theirs.
    if is_alone and split is None and options.classes is None and not is_joined:
        class_columns = ColumnChoice(
            columns.image, images_of_rows.class_column, tuple(images_of_rows.fields)
        )
        more = compare_with_training(path, kind, class_columns, listing, options)
        listing = add_assumptions(listing, more)
    return listing


def _with_image_column(
    problem: SplitChoiceError, manifest: Manifest
) -> SplitChoiceError:
    """The error about splits, which also names the column of images if the user has to."""
    is_named = manifest.options.image_column is not None
    if is_named or name_image_columns(manifest) or columns_of_pictures(manifest):
        return problem
    columns = describe_image_column(manifest)
    if not columns:
        return problem
    message = f"{problem.problem}. Also name the column with the images{columns}"
    return SplitChoiceError(message, problem.split_names)


def _refuse_coco_annotations(manifest: Manifest) -> None:
    """Raises PackError if the rows are the annotations of a COCO file, without its images.

    There an image is named by a number. A table in which it is a text is another one.
    """
    image_ids = manifest.summaries.get("image_id")
    is_coco = manifest.summaries.keys() >= _OF_COCO_ANNOTATIONS
    if not is_coco or not manifest.is_typed or not (image_ids and image_ids.is_numeric):
        return
    if any(values.are_pictures for values in manifest.summaries.values()):
        return
    raise PackError(
        f"{manifest.table} is a list of COCO's annotations (image_id, category_id, bbox), and lacks "
        'the images and categories. Pass the whole file, {"images": [...], "annotations": [...], '
        '"categories": [...]}'
    )


def _rows_of_other_tables(
    path: SourcePath, kind: str, image_column: str, options: SourceOptions
) -> Iterator[Row]:
    """The rows of the tables of other splits beside a table, with nothing but their images."""
    for table in tables_of_other_splits(path):
        try:
            for row in choose_reader(table, kind, options).read_rows():
                image = row.values.get(image_column)
                if isinstance(image, str):
                    yield Row(row.where, path=image, is_of_another=True)
        except PackError:
            continue  # it is another kind of table


def _check_first_label(
    manifest: Manifest, label: str | None, *, has_boxes: bool
) -> None:
    """Raises PackError if a table has no labels of images that are numbers."""
    if label is not None and not has_boxes:
        summary = manifest.summaries[label]
        is_numbered = summary.are_numbers(
            f"{manifest.table}, column {label}",
            is_chosen=manifest.options.label_column is not None,
        )
        if is_numbered or (manifest.is_typed and summary.kind == "int"):
            return
    raise PackError(
        f"expected a column of labels in {manifest.table} that are numbers, and no boxes; leave it "
        "out, or pass 0",
        option="first_label",
    )


def _lists_paths_alone(manifest: Manifest, columns: ColumnChoice) -> bool:
    """Whether a table says nothing of images but their paths, and at most a number of each."""
    options = manifest.options
    if columns.label is not None or options.label_pattern is not None:
        return False
    others = [column for column in manifest.summaries if column != columns.image]
    if not others:
        return True
    # CUB's images.txt numbers the images.
    summary = manifest.summaries[others[0]]
    return len(others) == 1 and summary.kind == "int" and summary.are_all_different


def _has_no_classes(listing: Listing, options: SourceOptions) -> bool:
    """Whether a listing has no classes, and nothing says yet why its images have no labels."""
    if listing.classes or options.label_pattern is not None:
        return False
    if any(field.kind in ("boxes", "mask", "classes") for field in listing.fields):
        return False
    return not any(
        assumption.text.startswith(("labels:", "classes:"))
        for assumption in listing.assumed
    )


def _folders_as_classes(listing: Listing, reason: str) -> Iterator[Assumption]:
    """The assumption that images have no labels, though they lie in folders.

    `reason`: why they have none.
    """
    folders: dict[str, None] = {}  # in place of a set, as it keeps the order
    for source in listing.sources:
        if source.problem is None:
            folders[source.path.rpartition("/")[0]] = None
    if len(folders) < 2 or "" in folders or are_called_like_parts(list(folders)):
        return
    if all(split_of_name(folder.partition("/")[0]) for folder in folders):
        return
    yield Assumption(
        f"labels: none, for {reason}; the images lie in {first_paths(folders)}. "
        "If the folder of each image is its class:",
        BY_FOLDER,
    )


def _find_split_of_paths(
    manifest: Manifest, image_column: str, is_alone: bool
) -> SplitColumn | None:
    """The split to pack, by the folders in the paths of images; None if these are no splits.

    PackError: the user names a split, and nothing in the table says splits.
    """
    options = manifest.options
    folders = manifest.folders.get(image_column, ())
    split = find_split_folders(image_column, folders, options, manifest.table)
    if split is None and is_alone and options.split is not None:
        split = find_value_as_split(manifest.summaries, options.split)
    if split is None and is_alone and options.split is not None:
        other_values = describe_other_values(manifest.summaries, options.split)
        if other_values:
            raise PackError(
                f"{manifest.table} has no such split: {other_values}", option="split"
            )
        raise PackError(
            f"{manifest.table} has no column of splits; leave it out",
            option="split",
        )
    return split


def _files_beside_metadata(root: SourcePath) -> Iterator[str]:
    """The files below an image root but metadata itself; none where a server lists no files."""
    if not isinstance(root, Path) and not root.objects.has_lists:
        return
    for path in files_below(root):
        if path.rpartition("/")[2] not in METADATA:
            yield path


def _refuse_images_elsewhere(
    path: SourcePath,
    listing: Listing,
    options: SourceOptions,
    id_columns: Sequence[str],
) -> None:
    """Raises PackError if no image of a table is beside it, with the place where they may be.

    `id_columns`: other columns that may have the names of the images.
    """
    if any(source.problem is None for source in listing.sources):
        return
    first_path = ""
    if listing.sources:
        first_path = listing.sources[0].path
    if scheme_of(first_path):
        by_id = ""
        if id_columns:
            # Google Landmarks has the names of its files beside their URLs.
            option = f"--image-column {quote_for_shell(id_columns[0])}"
            by_id = f". If files here have the names in column {id_columns[0]!r}, {option} finds them"
        raise PackError(
            f"{readable(str(path))} lists URLs, such as {readable(first_path)}, and its images are "
            "not downloaded. Download them, and write their paths into the table; or name the URL "
            f"that all of them begin with: --image-root URL{by_id}"
        )
    folder = path.parent
    if not isinstance(folder, Path):
        return
    parent = folder.parent
    if not folder.name:
        parent = folder / ".."  # "." has no parent for pathlib
    tables = find_listing_tables(folder, [path.name], options.encoding, parent)
    if not tables:
        return
    image_root = tables[0].image_root
    if image_root is None:
        return
    # Other datasets may lie beside the folder, with files of the same names. ISIC_0024306 is no such
    # name, and the folder ISIC2018_Task3_Training_Input is not called like images.
    first_paths = [source.path for source in listing.sources[:_NUM_NAMES_CHECKED]]
    are_long = all(len(folded_stem(path)) >= _MIN_CHARACTERS for path in first_paths)
    if are_long or is_called_images(image_root.name):
        raise PackError(
            f"{readable(str(path))} lists images that are not in {readable(str(folder))}. Files of "
            f"these names are elsewhere in {readable(str(parent))}: if they are the images, pass "
            f"--image-root {readable(str(image_root))}"
            f"{describe_options_of_labels(path, image_root)}"
        )
