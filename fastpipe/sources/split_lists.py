"""A file that lists the images of splits -> the images of a listing that belong to one of them.

Note [lists of splits]
CUB, CelebA and NIH's X-rays have class folders or a table of labels, and files beside them that say
the split of each image: a name on each line, or a name and a value (000001.jpg 0). CUB's file has
the numbers of images, and images.txt beside it has the path of each number. Such a file is used if
the user names it with --split-list. Else the listing looks for it and says that it is not used,
because training and test images would be mixed without a word.

A name in the file means the image whose path ends like it, with or without the ending of the file.
The folders that both paths have must be the same. If two images fit one name, or if an image has
two values, the file is refused.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.tools import cub
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, names_in, open_binary, shared_folders
from fastpipe.sources.folders.splits import (
    FEW,
    count_shared,
    describe_splits,
    find_split,
    first_paths,
    meaning_of_split,
    split_in_path,
)
from fastpipe.sources.listing import (
    Assumption,
    Listing,
    Source,
    add_assumptions,
    replace_sources,
)
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.tables.split_column import ALL, SPLIT_COLUMNS, SPLIT_NAMES
from fastpipe.sources.tables.table_files import sort_labelled_first

_MAX_BYTES = 1 << 30
# A file that nobody has named is not read if it is larger.
_MAX_SEARCHED_BYTES = 64 << 20
_MAX_LEVELS_ABOVE = 3
_MAX_FILES = 16
_LINES_CHECKED = 200
_ENDINGS = (".txt", ".csv", ".tsv", ".lst")
# train_test_split.txt, list_eval_partition.txt, folds.csv
_CALLED_SPLITS = re.compile(r"split|partition|fold|subset", re.IGNORECASE)
# testImages.txt: `split_in_path` needs a character between words.
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER_OF_SPLIT = re.compile(r"[0-9]")
_NUMBER_OF_IMAGE = re.compile(r"[0-9a-fA-F-]+")
# How datasets number their splits, by the name of the file.
_CUB_SPLITS = re.compile(r"train[-_]test[-_]split.*", re.IGNORECASE)
_CELEBA_SPLITS = re.compile(r"list_eval_partition.*", re.IGNORECASE)
_MEANINGS: tuple[tuple[re.Pattern[str], Mapping[str, str]], ...] = (
    (_CUB_SPLITS, cub.SPLIT_OF_FLAG),
    (_CELEBA_SPLITS, {"0": "train", "1": "val", "2": "test"}),
)
# Where datasets keep their splits beside the folders of images and annotations: Eval of CelebA.
_FOLDERS_OF_LISTS = (
    "Eval",
    "eval",
    "splits",
    "Partition",
    "partition",
    "Partitions",
    "lists",
    "meta",
    "annotations",
)
# Between the cells of a line, beside the characters of CSV.
_LINE = "line"  # the whole line is a cell
_LAST_SPACE = "last space"
_SPACES = "spaces"


class _Entry(NamedTuple):
    """A name in a list of splits."""

    # The folders of its path, and its name.
    parts: tuple[str, ...]
    # The split of the image; "" if the list has names alone.
    value: str


class UnusedLists(NamedTuple):
    """The lists of splits beside a source that the user has not named."""

    files: Sequence[Path]
    assumptions: Sequence[Assumption]


class _SplitList(NamedTuple):
    """What a list of splits says of the images of a listing."""

    entries: Sequence[_Entry]
    # The splits in it, sorted; empty if the list has names alone.
    splits: Sequence[str]


class _Form(NamedTuple):
    """One way to read the lines of a list."""

    # A character, _LINE, _LAST_SPACE or _SPACES.
    separator: str
    path_column: int
    # The path of the image that each number in the path column stands for; empty: it has paths.
    paths_of_numbers: Mapping[str, str]
    # How many of the first lines name an image.
    num_named: int


def pick_listed(listing: Listing, options: SourceOptions) -> Listing:
    """The listing without the images that are not of the split `options.split` by the list
    `options.split_list`. It keeps all its classes, and is the same if the user gives no list.

    Raises:
        PackError: the file cannot be read, has no such split, or its names are not certain.
    """
    file = options.path_of_split_list()
    if file is None:
        return listing
    shown = readable(str(file))
    if not file.exists() or file.is_dir():
        raise PackError(
            f"{shown} is not a file; expected a text or CSV file with the path of an "
            "image on each line, and its split behind it if there are several",
            option="split_list",
        )
    split_list = _read_list(file, listing.sources, options.encoding)
    if split_list is None:
        raise PackError(
            f"{shown} names none of the {len(listing.sources):,} images in "
            f"{readable(str(listing.root))}; expected the path or the name of an image on each line",
            option="split_list",
        )
    chosen = _choose(split_list, options.split, file)
    values = _values_of_images(listing, split_list, shown)

    num_unnamed = 0
    first_unnamed = ""
    for source in listing.sources:
        if source.problem is None and source.file_path not in values:
            num_unnamed += 1
            first_unnamed = first_unnamed or source.path

    def picked(source: Source) -> Source | None:
        value = values.get(source.file_path)
        if value is None:
            # A row that cannot be packed is named with its reason, whatever its split is.
            return source if source.problem is not None else None
        return source if chosen in (ALL, value) else None

    replace_sources(listing.sources, picked)
    if not any(source.problem is None for source in listing.sources):
        raise PackError(
            f"--split {chosen}: {shown} names no image of {readable(str(listing.root))} in it"
        )
    assumptions = []
    # A list of names alone leaves out the images of the other splits.
    if num_unnamed and split_list.splits:
        assumptions.append(
            Assumption(
                f"split: {shown} does not name {num_unnamed:,} images, which are left out: "
                f"{readable(first_unnamed)}"
            )
        )
    num_absent = len(split_list.entries) - len(values)
    if num_absent > 0:
        assumptions.append(
            Assumption(
                f"split: {num_absent:,} of the {len(split_list.entries):,} names in {shown} are of "
                f"no image in {readable(str(listing.root))}"
            )
        )
    return add_assumptions(listing, assumptions)


def find_unused_lists(
    folder: SourcePath, listing: Listing, *, takes_tables: bool = False
) -> UnusedLists:
    """The lists of splits beside a source, or above it, which are not used.

    Args:
        folder: that the source lies in, or that it is.
        listing: of all images of the source.
        takes_tables: a list may have further columns; else these may be labels or boxes.
    """
    if not isinstance(folder, Path) or not listing.sources:
        return UnusedLists([], [])
    texts = " ".join(assumption.text for assumption in listing.assumed)
    assumptions = []
    files: list[Path] = []
    lists_of_names: list[Path] = []
    for file in list_candidates(Path(os.path.abspath(folder))):
        # The listing has named the file as one that may have labels or splits.
        if str(file) in texts or file.name in texts:
            continue
        try:
            splits = splits_of_images(file, listing.sources, takes_tables=takes_tables)
        except (PackError, OSError):
            continue
        if splits is None:
            continue
        files.append(file)
        assumptions += _assume_unread_boxes(file)
        if len(splits) > 1:
            values = ", ".join(map(readable, splits))
            meanings = meanings_of_numbers(file, splits)
            train = next(
                (split for split in splits if meanings.get(split) == "train"), splits[0]
            )
            assumptions.append(
                Assumption(
                    f"split: none; {readable(str(file))} has the splits {values} of these images "
                    f"and is not used{_describe_numbers(splits, meanings)}",
                    f"--split-list {quote_for_shell(str(file))} --split {quote_for_shell(train)}",
                )
            )
        elif not splits or _is_list_of_one_split(file, splits, listing.sources):
            lists_of_names.append(file)
    if lists_of_names:
        names = first_paths(map(str, lists_of_names))
        verb = "names some of these images and is"
        if len(lists_of_names) > 1:
            verb = "name some of these images each and are"
        assumptions.append(
            Assumption(
                f"split: none; {names} {verb} not used",
                f"--split-list {quote_for_shell(str(_list_of_training(lists_of_names)))}",
            )
        )
    return UnusedLists(files, assumptions)


def _is_list_of_one_split(
    file: Path, splits: Sequence[str], sources: Sequence[Source]
) -> bool:
    """Whether a list says of some images alone that they are of one split: 1.jpg train.

    The other images may be in a list of their own. A digit, in all rows, may mean anything.
    """
    if len(splits) != 1 or splits[0].lower() not in SPLIT_NAMES:
        return False
    return len(_read_lines(file, None)) < len(sources)


def _list_of_training(files: Sequence[Path]) -> Path:
    """The list that is called after training, or the first one."""
    for file in files:
        if meaning_of_split(file.stem) in ("train", "trainval"):
            return file
    return files[0]


def is_unused_list(file: Path, folder: Path, sources: Sequence[Source]) -> bool:
    """Whether `find_unused_lists` names the splits in a file, by its name and its lines.

    Args:
        file: a file beside the source, or above it.
        folder: that the source lies in, or that it is.
        sources: all images of the source.
    """
    if not _CALLED_SPLITS.search(file.stem) or file not in list_candidates(folder):
        return False
    try:
        splits = splits_of_images(file, sources)
    except (PackError, OSError):
        return False
    return splits is not None and len(splits) > 1


def meanings_of_numbers(file: SourcePath, splits: Collection[str]) -> Mapping[str, str]:
    """Number -> the split that it means, by the name of the file; empty if that says nothing."""
    for pattern, meanings in _MEANINGS:
        if pattern.fullmatch(file.name) and meanings.keys() >= set(splits):
            return meanings
    return {}


def find_value_of_split(
    requested: str, splits: Sequence[str], file: SourcePath
) -> str | None:
    """The value in a list that the user means: 1 for "train" in CUB's. None if none fits.

    Args:
        requested: as the user writes it.
        splits: the values in the list.
        file: the list.
    """
    value = find_split(requested, splits)
    if value is not None:
        return value
    meanings = meanings_of_numbers(file, splits)
    meaning = meaning_of_split(requested)
    for number in splits:
        if meaning and meanings.get(number) == meaning:
            return number
    return None


def _describe_numbers(splits: Sequence[str], meanings: Mapping[str, str]) -> str:
    """Says which of the numbers of splits means which split; "" if splits are no numbers."""
    if not all(map(_NUMBER_OF_SPLIT.fullmatch, splits)):
        return ""
    if not meanings:
        return "; which of them is for training, the file does not say"
    texts = [f"{split} is {meanings[split]}" for split in splits]
    return f"; by its name, {', '.join(texts)}"


def _assume_unread_boxes(list_of_splits: Path) -> list[Assumption]:
    """Says that the boxes of CUB, by the numbers of images, lie beside its splits and are not read,
    and how to pack them.
    """
    boxes = list_of_splits.parent / cub.BOXES
    if not boxes.is_file() or not _read_paths_of_numbers(list_of_splits, None):
        return []
    return [
        Assumption(
            f"boxes: none; {readable(str(boxes))} has a box by the number of each image. To pack "
            f"both: fastpipe pack {quote_for_shell(str(boxes.parent))} DST --split train"
        )
    ]


def list_candidates(folder: Path) -> Iterator[Path]:
    """The files that are called like lists of splits, in a folder, in those above it, and in the
    folders for lists in these.
    """
    for above in [folder, *list(folder.parents)[:_MAX_LEVELS_ABOVE]]:
        if above != folder and above in shared_folders(folder):
            return
        yield from candidates_in(above)
        if above == folder:
            continue
        for name in _FOLDERS_OF_LISTS:
            if (above / name).is_dir() and above / name != folder:
                yield from candidates_in(above / name)


def candidates_in(folder: Path) -> Iterator[Path]:
    """The files in a folder that are called like lists of splits."""
    try:
        names = names_in(folder, FEW).files
    except (PackError, OSError):
        return  # a folder above may be closed to the user
    num_files = 0
    for name in sort_labelled_first(names):
        stem, ending = os.path.splitext(name)
        is_called_split = _CALLED_SPLITS.search(stem) or split_in_path(
            _CAPITAL.sub("_", stem)
        )
        if ending.lower() not in _ENDINGS or not is_called_split:
            continue
        if (folder / name).stat().st_size <= _MAX_SEARCHED_BYTES:
            yield folder / name
        num_files += 1
        if num_files == _MAX_FILES:
            break


def splits_of_images(
    file: Path, sources: Sequence[Source], *, takes_tables: bool = False
) -> list[str] | None:
    """The splits that a list has for images; [] if it names some of the images alone.

    None if it is no such list. Only its first lines are compared with the images, of which there
    may be a million.

    Args:
        file: may be such a list.
        sources: all images of the source.
        takes_tables: a list may have further columns; else these may be labels or boxes.
    """
    lines = _read_lines(file, None)
    form = _find_form(file, lines, sources, None)
    # The list of another dataset may have a few of the same names.
    if form is None or 2 * form.num_named < len(lines[:_LINES_CHECKED]):
        return None
    width = max(map(len, _split_lines(lines[:_LINES_CHECKED], form.separator)))
    if width == 1:
        is_part = len(lines) < len(sources) and _have_folders_of(lines, sources)
        return [] if is_part else None
    # A table of another name has labels or boxes, such as those of the test images.
    if not _CALLED_SPLITS.search(file.stem):
        is_part = takes_tables and len(lines) < len(sources)
        return [] if is_part else None
    rows = _split_lines(lines, form.separator)
    column = _find_values(rows, form.path_column)
    if column is None:
        return None
    values = {row[column] for row in rows if column < len(row)}
    return sorted(filter(_is_split, values))  # without the name of the column


def _have_folders_of(lines: Sequence[str], sources: Iterable[Source]) -> bool:
    """Whether half of the first lines of a list of names fit images with their folders, too."""
    entries_of_name: dict[str, list[_Entry]] = {}
    head = lines[:_LINES_CHECKED]
    for line in head:
        parts = _parts_of(line)
        if ".." not in parts:
            entries_of_name.setdefault(parts[-1], []).append(_Entry(parts, ""))
    fitting: set[_Entry] = set()
    for source in sources:
        # There may be a million images, and few of them are in the first lines.
        name = source.file_path.rpartition("/")[2]
        if name in entries_of_name or name.rpartition(".")[0] in entries_of_name:
            fitting.update(_fitting_entries(source.file_path, (), entries_of_name))
            if 2 * len(fitting) >= len(head):
                return True
    return False


def _choose(split_list: _SplitList, requested: str | None, file: SourcePath) -> str:
    """The value of the split that the user asks for; ALL for all names of the list.

    PackError: there is no such split, or the user has to name one.
    """
    splits = split_list.splits
    shown = readable(str(file))
    if not splits:
        if requested in (None, ALL):
            return ALL
        raise PackError(
            f"{shown} has names of images without a split, and all of them are packed; leave it "
            f"out; got {readable(str(requested))!r}",
            option="split",
        )
    if requested == ALL:
        return ALL
    chosen = None
    if requested is not None:
        chosen = find_value_of_split(requested, splits, file)
    elif len(splits) == 1:
        chosen = splits[0]
    if chosen is None:
        problem = describe_splits(splits, requested)
        numbers = _describe_numbers(splits, meanings_of_numbers(file, splits))
        raise PackError(
            f"{shown} {problem}{numbers}; {ALL!r} packs all images that it names",
            option="split",
        )
    return chosen


def _values_of_images(
    listing: Listing, split_list: _SplitList, shown: str
) -> dict[str, str]:
    """Path of an image -> its value in the list, of the images that the list names.

    PackError: two images fit one name, or an image has two values.
    """
    entries_of_name: dict[str, list[_Entry]] = {}
    for entry in split_list.entries:
        entries_of_name.setdefault(entry.parts[-1], []).append(entry)

    root_parts = tuple(str(listing.root).rstrip("/").split("/"))
    values: dict[str, str] = {}
    image_of_entry: dict[_Entry, str] = {}
    for source in listing.sources:
        path = source.file_path
        # Several rows of a table may be about one image.
        if path in values:
            continue
        fitting = _fitting_entries(path, root_parts, entries_of_name)
        if not fitting:
            continue
        entry = fitting[0]
        if len({entry.value for entry in fitting}) > 1:
            raise PackError(
                f"{shown} has several splits for {readable(path)}: "
                f"{', '.join(readable(entry.value) for entry in fitting)}",
                option="split_list",
            )
        other = image_of_entry.setdefault(entry, path)
        if other != path:
            raise PackError(
                f"{readable('/'.join(entry.parts))} in {shown} may be "
                f"{readable(other)} or {readable(path)}; write the folder of each image into the "
                "list",
                option="split_list",
            )
        values[path] = entry.value
    return values


def _fitting_entries(
    path: str,
    root_parts: Sequence[str],
    entries_of_name: dict[str, list[_Entry]],
) -> list[_Entry]:
    """The entries that mean an image: those that share the most folders with its path."""
    *folders, name = path.split("/")
    stem = os.path.splitext(name)[0]
    candidates = list(entries_of_name.get(name, ()))
    if stem != name:
        candidates += entries_of_name.get(stem, ())
    # From the name upwards, as a list may write only the last folders of a path.
    actual_upwards = (*root_parts, *folders)[::-1]
    fitting: list[_Entry] = []
    most_shared = -1
    for entry in candidates:
        written_folders = entry.parts[:-1]
        num_shared = count_shared([written_folders[::-1], actual_upwards])
        # Above the root, the list may have the folders of another machine.
        if num_shared < min(len(written_folders), len(folders)):
            continue
        if num_shared > most_shared:
            fitting = []
            most_shared = num_shared
        if num_shared == most_shared:
            fitting.append(entry)
    return fitting


def _read_list(
    file: SourcePath, sources: Sequence[Source], encoding: str | None
) -> _SplitList | None:
    """Reads a list. None if it names no image."""
    lines = _read_lines(file, encoding)
    form = _find_form(file, lines, sources, encoding)
    if form is None:
        return None

    rows = _split_lines(lines, form.separator)
    value_column = _find_values(rows, form.path_column)
    entries: dict[_Entry, None] = {}  # a list may name an image twice
    values = set()
    for number, row in enumerate(rows):
        written = _written_path(row, form.path_column, form.paths_of_numbers)
        if not written:
            continue
        value = ""
        if value_column is not None and value_column < len(row):
            value = row[value_column]
            if number == 0 and not _is_split(value):
                continue  # the names of the columns
            values.add(value)
        entries[_Entry(_parts_of(written), value)] = None
    return _SplitList(list(entries), sorted(values))


def _find_form(
    file: SourcePath,
    lines: Sequence[str],
    sources: Sequence[Source],
    encoding: str | None,
) -> _Form | None:
    """The form in which the first lines name images; None if they name none."""
    head = lines[:_LINES_CHECKED]
    form = _best_form(head, {}, sources)
    if form is None:
        paths_of_numbers = _read_paths_of_numbers(file, encoding)
        if paths_of_numbers:
            form = _best_form(head, paths_of_numbers, sources)
    return form


def _read_lines(file: SourcePath, encoding: str | None) -> list[str]:
    with open_binary(file) as opened:
        data = open_as_utf8(opened, encoding, str(file)).read(_MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise PackError(
            f"{readable(str(file))}: expected a list in UTF-8 ({problem}); --encoding says another "
            "encoding"
        ) from None
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return _without_count(lines)


def _without_count(lines: list[str]) -> list[str]:
    """The lines without a first one that counts the others, as CelebA and DeepFashion have it.

    The names of the columns may stand below it, and are not counted.
    """
    if len(lines) < 2 or not lines[0].isdecimal():
        return lines
    # Else the lines are the numbers of images.
    is_followed_by_names = not lines[1].isdecimal()
    below_count = len(lines) - 1
    if is_followed_by_names and int(lines[0]) in (below_count, below_count - 1):
        return lines[1:]
    return lines


def _read_paths_of_numbers(file: SourcePath, encoding: str | None) -> dict[str, str]:
    """Number -> path of the image, as images.txt of CUB has them beside a list; else empty."""
    numbered = file.parent / cub.PATHS
    if not isinstance(numbered, Path) or not numbered.is_file():
        return {}
    paths = {}
    for line in _read_lines(numbered, encoding):
        number, _, path = line.partition(" ")
        # NABirds has hexadecimal numbers with hyphens.
        if not _NUMBER_OF_IMAGE.fullmatch(number) or not path:
            return {}
        paths[number] = path.strip()
    return paths


def _split_lines(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The cells of each line."""
    if separator == _LINE:
        return [[line] for line in lines]
    if separator == _LAST_SPACE:
        return [line.rsplit(None, 1) for line in lines]
    if separator == _SPACES:
        return [line.split() for line in lines]
    try:
        rows = list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return []  # it is no CSV
    return [[cell.strip() for cell in row] for row in rows]


def _best_form(
    lines: Sequence[str], paths_of_numbers: Mapping[str, str], sources: Sequence[Source]
) -> _Form | None:
    """The form in which most of these lines name images; None if no line does in any form."""
    names_of_column: dict[tuple[str, int], list[str]] = {}
    # The name of a file may have spaces in it, so whole lines come before their words.
    for separator in (",", "\t", ";", _LINE, _LAST_SPACE, _SPACES):
        rows = _split_lines(lines, separator)
        width = max(map(len, rows), default=0)
        for column in range(width):
            names = []
            for row in rows:
                written = _written_path(row, column, paths_of_numbers)
                if written:
                    names.append(_parts_of(written)[-1])
            names_of_column[separator, column] = names

    existing = _existing_names(set().union(*names_of_column.values()), sources)
    best = None
    most_named = 0
    for (separator, column), names in names_of_column.items():
        num_named = sum(name in existing for name in names)
        if num_named > most_named:
            most_named = num_named
            best = _Form(separator, column, paths_of_numbers, num_named)
    return best


def _existing_names(wanted: Collection[str], sources: Iterable[Source]) -> set[str]:
    """Those of the wanted names that images have, with or without their endings."""
    existing = set()
    for source in sources:
        name = source.file_path.rpartition("/")[2]
        if name in wanted:
            existing.add(name)
        stem = name.rpartition(".")[0]
        if stem in wanted:
            existing.add(stem)
    return existing


def _written_path(
    row: Sequence[str], column: int, paths_of_numbers: Mapping[str, str]
) -> str:
    """The path of the image in a row; "" if the row has none."""
    if column >= len(row):
        return ""
    if paths_of_numbers:
        return paths_of_numbers.get(row[column], "")
    return row[column]


def _find_values(rows: Sequence[Sequence[str]], path_column: int) -> int | None:
    """The column with the splits; None if there is none, and all names are of one split."""
    header = [cell.lower() for cell in rows[0]]
    rows_below = rows[1:] or rows
    width = max(map(len, rows_below[:_LINES_CHECKED]))
    for column in range(width):
        if column == path_column:
            continue
        values = {row[column] for row in rows_below if column < len(row)}
        are_words = {value.lower() for value in values} <= SPLIT_NAMES
        is_named = column < len(header) and header[column] in SPLIT_COLUMNS
        # Among other columns, numbers may say anything.
        can_be_numbers = width == 2 or is_named
        if are_words or (can_be_numbers and all(map(_is_split, values))):
            return column
    return None


def _is_split(value: str) -> bool:
    """Whether a value may be a split: a word such as "train", or a digit."""
    return value.lower() in SPLIT_NAMES or _NUMBER_OF_SPLIT.fullmatch(value) is not None


def _parts_of(written: str) -> tuple[str, ...]:
    """The folders and the name in a path as a list writes it."""
    parts = written.replace("\\", "/").split("/")
    return tuple(part for part in parts if part not in ("", ".")) or ("",)
