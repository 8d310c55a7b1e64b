"""Tables and the pictures in folders -> the tables that list the pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError
from fastpipe.sources.annotations.annotation_folders import is_called_masks
from fastpipe.sources.column_choice import find_image_like_columns
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, names_in, open_binary
from fastpipe.sources.folders.splits import FEW, are_called_like_parts
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.joined_column import picture_in_joined
from fastpipe.sources.tables.likely_encoding import likely_encoding
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.table_files import sort_labelled_first
from fastpipe.sources.tables.table_text import LISTS, SPACES, TextForm, detect_text_form
from fastpipe.sources.tables.text_rows import (
    csv_rows,
    detect_json_layout,
    json_array_rows,
    json_rows,
)
from fastpipe.sources.tables.written_names import (
    ends_with_id,
    fold_name,
    split_joined_id,
)

_ROWS_READ = 20
# The rows of a table that are read for a message. One with more is not compared with the images.
ALL_ROWS = 200_000
# Comments may stand before the rows of a list.
_LINES_READ = 32
_HEAD_BYTES = 1 << 16
_TABLES_READ = 16
# Folders in which pictures are looked for, beside a table and below. Behind a URL each costs a
# request.
_MAX_FOLDERS = 16
_MAX_REMOTE_FOLDERS = 2
_CAPTION_NUMBER = re.compile(r"(?<=\.jpg)#\d$")
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_TABLE_ENDINGS = (".csv", ".tsv", ".tab", *LISTS, *_JSON_ENDINGS)
_ENDINGS = ("", ".jpg", ".png", ".jpeg", ".JPG", ".JPEG", ".tif", ".webp")


class ListingTable(NamedTuple):
    """A table that lists pictures, and where these are."""

    path: SourcePath
    # The folder to pass as --image-root; None if the pictures are found without it.
    image_root: SourcePath | None


def lists_images(
    table: SourcePath, pictures: Collection[str], encoding: str | None = None
) -> bool:
    """Whether at least half of the first rows of a table name a picture.

    Args:
        table: a file of CSV, TSV or JSONL, or a list.
        pictures: the names of some files, without folders. A table may write them with any folder,
            without the ending, and in other letter case.
    """
    names = with_stems(pictures)
    rows = first_rows(table, encoding)
    naming_count = sum(not names.isdisjoint(map(_folded_name, row)) for row in rows)
    return naming_count > 0 and 2 * naming_count >= len(rows)


def lists_none_of(table: SourcePath, pictures: Collection[str]) -> bool:
    """Whether no row of a table names one of some pictures.

    False if it has no columns, or too many rows to read them all for a message.
    """
    cells_of_rows = first_cells(table, ALL_ROWS)
    if not cells_of_rows or len(cells_of_rows) == ALL_ROWS:
        return False
    names = with_stems(pictures)
    for cells in cells_of_rows:
        if not names.isdisjoint(map(_folded_name, cells.values())):
            return False
    return True


def has_only_ids(table: SourcePath) -> bool:
    """Whether a table has two columns, the path of an image and a number of its own."""
    if table.suffix.lower() in _JSON_ENDINGS:
        return False  # values that are no texts are no part of the rows below
    rows = first_rows(table, encoding=None)
    if len(rows) < 2 or any(len(row) != 2 for row in rows):
        return False
    for column in zip(*rows, strict=True):
        if all(text.isdigit() for text in column) and len(set(column)) == len(column):
            return True
    return False


def find_listing_tables(
    root: SourcePath,
    tables: Iterable[str],
    encoding: str | None = None,
    image_folder: SourcePath | None = None,
) -> list[ListingTable]:
    """The tables in a folder that list pictures in a folder, or in folders below it.

    Those that are likely to have labels come first, lists of paths alone last.

    Args:
        root: the folder with the tables.
        tables: their names.
        encoding: of their text.
        image_folder: the folder with the pictures; None if it is `root`.
    """
    if image_folder is None:
        image_folder = root
    folders = _folders_with_pictures(image_folder)
    with_labels = []
    paths_alone = []
    names = [name for name in tables if name.lower().endswith(_TABLE_ENDINGS)]
    for name in sort_labelled_first(names)[:_TABLES_READ]:
        rows = first_rows(root / name, encoding)
        places = []
        for row in rows:
            place = _find_picture(row, folders) or _find_deep_file(row, image_folder)
            if place is not None:
                places.append(place)
        # Some pictures of a table may be missing.
        if not places or 2 * len(places) < len(rows):
            continue
        listing_table = ListingTable(root / name, _image_root(root, places))
        if max(map(len, rows)) > 1:
            with_labels.append(listing_table)
        else:
            paths_alone.append(listing_table)
    return with_labels + paths_alone


def find_table_of_siblings(
    folder: SourcePath, tables: Iterable[str], siblings: Sequence[str]
) -> ListingTable | None:
    """The first table in a folder that lists the images in a folder beside it; None if none does.

    Args:
        folder: the folder with the tables.
        tables: their names.
        siblings: the names of the folders beside it.
    """
    tables = list(tables)
    max_folders = _MAX_FOLDERS if isinstance(folder, Path) else _MAX_REMOTE_FOLDERS
    for name in siblings[:max_folders]:
        images = folder.parent / name
        if images == folder:
            continue
        for table in find_listing_tables(folder, tables, image_folder=images):
            return table._replace(image_root=table.image_root or images)
    return None


def find_columns_of_pictures(
    root: SourcePath, values: Mapping[str, Sequence[str]]
) -> list[str]:
    """The columns whose first values all name pictures in a folder or in folders below it.

    `values` has some values of each column.
    """
    folders = _folders_with_pictures(root)
    columns = []
    for column, texts in values.items():
        first = texts[:_ROWS_READ]
        if first and all(_find_picture([text], folders) for text in first):
            columns.append(column)
    return columns


class _Place(NamedTuple):
    """Where the picture of a row is."""

    folder: SourcePath
    # The path as the row writes it.
    written: str


class _Pictures(NamedTuple):
    """The pictures in a folder."""

    # Their names as `fold_name` writes them, with and without their endings.
    names: Collection[str]
    # Whether the folder has more names than were read.
    is_cut: bool


def _folders_with_pictures(root: SourcePath) -> dict[SourcePath, _Pictures]:
    """The pictures in a folder and in the first folders below it, to a depth of two."""
    most_folders = _MAX_REMOTE_FOLDERS
    if isinstance(root, Path):
        most_folders = _MAX_FOLDERS
    pictures: dict[SourcePath, _Pictures] = {}
    # The root, then the folders in it, then those in these.
    level = [root]
    for _ in range(3):
        below: list[SourcePath] = []
        for folder in level:
            if len(pictures) == most_folders:
                return pictures
            names = names_in(folder, FEW)
            is_cut = len(names.files) + len(names.folders) >= FEW
            in_folder = with_stems(filter(is_picture, names.files))
            pictures[folder] = _Pictures(in_folder, is_cut)
            # Masks are called like their images, which count first.
            folders = sorted(names.folders[:most_folders], key=is_called_masks)
            below += [folder / name for name in folders]
        level = below
    return pictures


def _find_picture(
    row: Sequence[str], folders: Mapping[SourcePath, _Pictures]
) -> _Place | None:
    """The folder of the picture that a value of the row names; None if none does."""
    # The number of a class may be the name of a picture, so values with its ending come first, and
    # whole numbers last.
    values = sorted(row, key=is_picture, reverse=True)
    numbers = [value for value in values if value.isdecimal()]
    names = [value for value in values if not value.isdecimal()]
    return (
        _find_picture_of_names(names, folders)
        or _find_picture_of_joined_id(names, folders)
        or _find_picture_of_names(numbers, folders)
    )


def _find_picture_of_joined_id(
    values: Sequence[str], folders: Mapping[SourcePath, _Pictures]
) -> _Place | None:
    """As `_find_picture`, of values such as 0-16 for video_0/16.jpg."""
    for value in values:
        joined = split_joined_id(value)
        if joined is None:
            continue
        folder_id, picture = joined
        for folder, pictures in folders.items():
            if picture in pictures.names and ends_with_id(folder.name, folder_id):
                return _Place(folder.parent, value)
    return None


def _find_picture_of_names(
    values: Sequence[str], folders: Mapping[SourcePath, _Pictures]
) -> _Place | None:
    """As `_find_picture`, of values that are paths or names."""
    for value in values:
        name = _last_part(value)
        for folder, pictures in folders.items():
            if fold_name(name) in pictures.names:
                return _Place(folder, value)
            # Only some names of a large folder were read, so the file itself is looked for.
            if pictures.is_cut and _is_picture_in(folder, name):
                return _Place(folder, value)
    return None


def _find_deep_file(row: Sequence[str], root: SourcePath) -> _Place | None:
    """The folder of the picture whose path below a folder the row has; None if it has none.

    RVL-CDIP has imagesa/a/a/a/aaa08d00/2071.tif, in deeper folders than are listed.
    """
    for value in row:
        if is_picture(value) and "/" in value and _is_file_below(root, value):
            folder = root
            for name in value.strip("/").split("/")[:-1]:
                folder = folder / name
            return _Place(folder, value)
    return None


def _is_picture_in(folder: SourcePath, name: str) -> bool:
    if not isinstance(folder, Path):
        return False
    try:
        for ending in _ENDINGS:
            file_name = name + ending
            if is_picture(file_name) and (folder / file_name).is_file():
                return True
    except (OSError, ValueError):
        pass  # no file can have such a name
    return False


def _is_file_below(root: SourcePath, written: str) -> bool:
    """Whether a path of a row, as it is written, leads to a file."""
    if not isinstance(root, Path):
        return False
    try:
        return (root / written.replace("\\", "/").lstrip("/")).is_file()
    except (OSError, ValueError):
        return False  # no file can have such a name


def _image_root(root: SourcePath, places: Sequence[_Place]) -> SourcePath | None:
    """The folder that the paths in rows are relative to.

    None if it need not be named, or if there are several: then the listing finds the pictures.
    """
    if any(_is_file_below(root, place.written) for place in places):
        return None
    roots = set()
    for place in places:
        written_folders = place.written.replace("\\", "/").split("/")[:-1]
        image_root = place.folder
        # The folders that the row writes lie below the root, as a/b of a/b/1.jpg.
        for name in reversed(written_folders):
            if fold_name(image_root.name) == fold_name(name):
                image_root = image_root.parent
        roots.add(image_root)
    if len(roots) > 1 or root in roots:
        return None
    # images_001 and images_002 hold one set of images: the first rows may name those of one folder.
    if are_called_like_parts(names_in(root, FEW).folders):
        return None
    return roots.pop()


def first_rows(table: SourcePath, encoding: str | None = None) -> list[list[str]]:
    """The texts in each of the first rows of a table; empty if it cannot be read."""
    try:
        encoding = encoding or likely_encoding(table)
        form = _form_of(table, encoding)
        if form is not None and _is_list(table, form):
            return _first_lines(table, form.separator, encoding)
        cells_of_rows = _read_first_cells(table, form, encoding)
    except (PackError, OSError):
        return []
    return [list(cells.values()) for cells in cells_of_rows]


def first_cells(
    table: SourcePath, max_rows: int = _ROWS_READ
) -> list[Mapping[str, str]]:
    """The texts in the first rows of a table with columns, by column; empty if it has none."""
    try:
        encoding = likely_encoding(table)
        form = _form_of(table, encoding)
        if form is not None and _is_list(table, form):
            return []
        return _read_first_cells(table, form, encoding, max_rows)
    except (PackError, OSError):
        return []


def _form_of(table: SourcePath, encoding: str | None) -> TextForm | None:
    """How a table is written as text; None if it is JSON. Raises OSError or PackError."""
    if table.suffix.lower() in _JSON_ENDINGS:
        return None
    return detect_text_form(table, encoding)


def _is_list(table: SourcePath, form: TextForm) -> bool:
    """Whether a file is called like a list, and its first line may be a header or a row."""
    # Stanford Online Products has the header image_id class_id super_class_id path.
    has_header = bool(find_image_like_columns(form.header, SourceOptions()))
    return not form.columns and not has_header and table.suffix.lower() in LISTS


def _read_first_cells(
    table: SourcePath,
    form: TextForm | None,
    encoding: str | None,
    max_rows: int = _ROWS_READ,
) -> list[Mapping[str, str]]:
    """The texts in each of the first rows of a table, by column. Raises OSError or PackError."""
    rows: Iterator[Row]
    if form is None and detect_json_layout(table, encoding) == "array":
        rows = json_array_rows(table, encoding)
    elif form is None:
        rows = json_rows(table, encoding)
    else:
        rows = csv_rows(table, form, encoding)
    cells_of_rows: list[Mapping[str, str]] = []
    for row in islice(rows, max_rows):
        texts = {}
        for column, value in row.values.items():
            if isinstance(value, str):
                texts[column] = value
        cells_of_rows.append(texts)
    return cells_of_rows


def _first_lines(
    table: SourcePath, separator: str, encoding: str | None
) -> list[list[str]]:
    """The texts in the first lines of a list, of which the first one may be a header or a row."""
    with open_binary(table) as file:
        data = open_as_utf8(file, encoding, str(table)).read(_HEAD_BYTES)
    texts = []
    for line in data.decode("utf-8-sig", "replace").split("\n")[:_LINES_READ]:
        if line.strip() and not line.startswith("#"):
            cells = line.split() if separator == SPACES else line.split(separator)
            texts.append([cell.strip() for cell in cells])
    if len(texts) < 2:
        return []  # one line may be anything
    return texts


def with_stems(pictures: Iterable[str]) -> set[str]:
    """The names of pictures, with and without their endings, as `fold_name` writes them."""
    names = set()
    for picture in pictures:
        name = fold_name(picture)
        names.add(name)
        names.add(os.path.splitext(name)[0])
    return names


def _folded_name(path: str) -> str:
    """The name at the end of a path, to compare with `with_stems`."""
    return fold_name(_last_part(path))


def _last_part(path: str) -> str:
    """The name at the end of a path, as a table writes it."""
    name = path.replace("\\", "/").rpartition("/")[2].strip()
    # Flickr8k numbers the captions of an image: 1000.jpg#0. Severstal has 0002cc93b.jpg_1.
    return picture_in_joined(_CAPTION_NUMBER.sub("", name))
