"""Text lists without a header whose first row has no name of a picture -> their rows.

Note [lists of ids]
FGVC-Aircraft, Oxford's pets and Food-101 list images by the names of their files without endings
(1025794 707-320; Abyssinian_100 1 1 1; apple_pie/1005649). Such a row looks like a header. It is
none if the first rows name images that lie below the image root. Behind the id stands a label,
which may have spaces in it, or some numbers. The numbers 1, 2, 3 and so on are those of the images.
Where one of several numbers says the same as the name of the file without its own number, it is the
class, and the start of the name is the name of the class.

Note [labels by line]
Other files have a label on each line and no names: line 1 is the label of the first image. They
are read if the folder has as many images, and if it is certain which is the first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, names_in, open_binary, shared_folders
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.listed_images import find_columns_of_pictures
from fastpipe.sources.tables.rows import Row, row_name
from fastpipe.sources.tables.table_text import SPACES, TextForm, describe_columns
from fastpipe.sources.tables.text_rows import csv_rows

# Longer lists are read by their first bytes alone.
_MAX_BYTES = 16 << 20
_HEAD_BYTES = 1 << 16
_NUM_CHECKED = 20
# In a shorter list, each image may have a class of its own.
_MIN_RUNNING = 3
_WHOLE_NUMBER = re.compile(r"\d{1,9}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
# The number at the end of a file's name: Abyssinian_100.
_OWN_NUMBER = re.compile(r"[-_ .]*\d+$")


class HeadlessList(NamedTuple):
    """The rows of a list without a header."""

    read_rows: Callable[[], Iterator[Row]]
    assumed: tuple[Assumption, ...]
    # Names of the classes by number; None: the labels of the rows say them.
    classes: tuple[str, ...] | None = None


def find_headless_list(
    path: SourcePath, form: TextForm, options: SourceOptions
) -> HeadlessList | None:
    """The rows of a list that seemed to have a header; None if it has one.

    Raises:
        PackError: it has labels or numbers alone, and it is not certain which image has which.
    """
    head, _ = _read_rows(path, form, options, _HEAD_BYTES)
    first_rows = head[:_NUM_CHECKED]
    ids = [row[0] for row in first_rows]
    if not ids:
        return None
    if _are_ids_of_images(path, ids, options):
        rows, id_form = _read_rows(path, form, options, _MAX_BYTES)
        return _list_of_ids(path, id_form, rows, options)
    if len(first_rows[0]) > 1 and all(
        map(_NUMBER.fullmatch, chain.from_iterable(first_rows))
    ):
        raise PackError(
            f"{readable(str(path))} has numbers alone in its rows ({' '.join(first_rows[0])}), and "
            "no images of these names are in the image root (--image-root). If they number the "
            "images of another list, as in CUB, write both into a CSV file with a header row: "
            "path,label"
        )
    has_one_column = all(len(row) == 1 for row in first_rows)
    if has_one_column and options.image_column is None:
        rows, label_form = _read_rows(path, form, options, _MAX_BYTES)
        if all(len(row) == 1 for row in rows):
            labels = [row[0] for row in rows]
            return _list_of_labels(path, label_form.skipped, labels, options)
    return None


def _read_rows(
    path: SourcePath, form: TextForm, options: SourceOptions, max_bytes: int
) -> tuple[list[list[str]], TextForm]:
    """The cells of all rows at the start of a list, and how they are written.

    Comments may stand before the first row.
    """
    with open_binary(path) as file:
        data = open_as_utf8(file, options.encoding, str(path)).read(max_bytes)
    lines = data.decode("utf-8-sig", "replace").split("\n")
    if len(data) == max_bytes:
        lines.pop()  # it may be cut off
    skipped = 0
    while skipped < len(lines) and _is_before_rows(lines[skipped]):
        skipped += 1
    lines = lines[skipped:]

    separator = SPACES
    if lines and form.separator != SPACES and form.separator in lines[0]:
        separator = form.separator
    rows = []
    for line in lines:
        if not line.strip():
            continue
        if separator == SPACES:
            rows.append(line.split())
        else:
            rows.append([cell.strip() for cell in line.split(separator)])
    return rows, TextForm(separator, skipped=skipped)


def _is_before_rows(line: str) -> bool:
    return not line.strip() or line.startswith("#")


def _are_ids_of_images(
    path: SourcePath, ids: Sequence[str], options: SourceOptions
) -> bool:
    """Whether all of these name images below the image root, or beside the folder of the list."""
    roots = [options.root_of_images() or path.parent]
    if options.image_root is None and isinstance(path, Path):
        # Such images are refused later, with the image root to name.
        parent = path.absolute().parent.parent
        if parent not in shared_folders(path.absolute()):
            roots.append(parent)
    for root in roots:
        if root.is_dir() and find_columns_of_pictures(root, {"path": ids}):
            return True
    return False


def _list_of_ids(
    path: SourcePath,
    form: TextForm,
    rows: Sequence[Sequence[str]],
    options: SourceOptions,
) -> HeadlessList:
    """The rows of a list of ids. See Note [lists of ids]."""
    num_cells = len(rows[0])
    has_numbers = all(
        len(row) == num_cells and all(map(_NUMBER.fullmatch, row[1:])) for row in rows
    )
    is_split_at_spaces = form.separator == SPACES
    columns: tuple[str, ...] = ("path",)
    is_numbered = num_cells == 2 and _are_running_numbers([row[-1] for row in rows])
    if is_numbered and options.label_column is None:
        columns = ("path", "column_2")
    elif num_cells == 2 or (is_split_at_spaces and not has_numbers):
        # The label is the rest of the line.
        columns = ("path", options.label_column or "label")
    elif num_cells > 2:
        columns += tuple(f"column_{number}" for number in range(2, num_cells + 1))

    classes: Sequence[str] | None = None
    class_index = 0
    can_name = options.label_column is None and options.label_pattern is None
    if has_numbers and can_name:
        for index in range(1, num_cells):
            classes = _name_classes(rows, index)
            if classes is not None:
                class_index = index
                break
    if class_index:
        columns = (*columns[:class_index], "label", *columns[class_index + 1 :])
    form = form._replace(columns=columns, has_ids=True)
    text = describe_columns(path, columns)
    assumed = [Assumption(text)]
    if columns[-1] == "column_2" and not class_index:
        text = "labels: none, for the number behind each name is that of the image"
        assumed.append(Assumption(text, "--label-column column_2"))
    read_rows = partial(csv_rows, path, form, options.encoding)
    if classes is None:
        return HeadlessList(read_rows, tuple(assumed))
    text = (
        f"classes: named by the starts of the files' names, and numbered as in column "
        f"{class_index + 1}: {rows[0][class_index]} is {readable(_start_of_name(rows[0][0]))}"
    )
    number_column = f"column_{class_index + 1}"
    assumed.append(Assumption(text, f"--label-column {number_column}"))
    return HeadlessList(partial(_named_rows, read_rows), tuple(assumed), tuple(classes))


def _are_running_numbers(texts: Sequence[str]) -> bool:
    """Whether texts are 1, 2, 3 and so on, as in ImageNet's val.txt: they number the images."""
    if len(texts) < _MIN_RUNNING:
        return False
    return list(texts) == [str(number) for number in range(1, len(texts) + 1)]


def _start_of_name(path: str) -> str:
    """The name of a file without the number at its end: Abyssinian of Abyssinian_100."""
    return _OWN_NUMBER.sub("", path.rpartition("/")[2])


def _name_classes(rows: Sequence[Sequence[str]], index: int) -> list[str] | None:
    """The names of the classes by number, if the numbers in a column stand for starts of names.

    None if they do not. A number that no row has is a name itself.
    """
    names: dict[int, str] = {}
    for row in rows:
        name = _start_of_name(row[0])
        if not name or not _WHOLE_NUMBER.fullmatch(row[index]):
            return None
        if names.setdefault(int(row[index]), name) != name:
            return None
    if len(names) < 2 or len(set(names.values())) < len(names):
        return None
    first = min(1, *names)
    last = max(names)
    # Numbers of classes have few gaps. Others are numbers of something else.
    if last > 2 * len(names):
        return None
    return [names.get(number, str(number)) for number in range(first, last + 1)]


def _named_rows(read_rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows with the start of the file's name in place of the number of the class."""
    for row in read_rows():
        if row.problem is None:
            values: Mapping[str, str] = row.values
            name = _start_of_name(values["path"])
            row = row._replace(values={**values, "label": name})
        yield row


def _list_of_labels(
    path: SourcePath, skipped: int, labels: Sequence[str], options: SourceOptions
) -> HeadlessList | None:
    """The rows of a list with a label on each line. See Note [labels by line].

    None if these are no labels.
    """
    are_numbers = all(map(_WHOLE_NUMBER.fullmatch, labels))
    if not are_numbers and len(set(labels)) * 2 > len(labels):
        return None  # names that come once are a list of classes, or of something else
    root = options.root_of_images() or path.parent
    images = []
    if root.is_dir():
        images = [name for name in names_in(root).files if is_picture(name)]
    if len(images) != len(labels):
        if not are_numbers:
            return None
        raise PackError(
            f"{readable(str(path))} has a number on each of {len(labels):,} lines and no names of "
            f"images, and {readable(str(root))} has {len(images):,} images; expected as many. "
            "--image-root names the folder of the images; or write a CSV file with a row for each "
            "image: path,label"
        )
    by_number = sorted(images, key=_natural_key)
    if images != by_number:
        index = next(
            index for index, image in enumerate(images) if image != by_number[index]
        )
        raise PackError(
            f"{readable(str(path))} has a label on each line and no names of images, and it is not "
            f"certain which image line {index + 1} is about: {readable(images[index])} by name, "
            f"or {readable(by_number[index])} by number. Write a CSV file with a row for each "
            "image: path,label"
        )
    text = (
        f"labels: line by line, of the images in the order of their names: {readable(images[0])} is "
        f"{readable(labels[0])}, {readable(images[-1])} is {readable(labels[-1])}"
    )

    def read_rows() -> Iterator[Row]:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            where = row_name(path.name, skipped + number + 1)
            yield Row(where, {"path": image, "label": label})

    return HeadlessList(read_rows, (Assumption(text),))


def _natural_key(name: str) -> list[tuple[int, str]]:
    """The key that sorts names by the numbers in them: 2.png before 10.png."""
    key = []
    for part in re.split(r"(\d+)", name):
        if part.isdigit():
            key.append((int(part), ""))
        else:
            key.append((-1, part))
    return key
