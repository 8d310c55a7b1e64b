"""A table above class folders -> whether it has labels that the folders do not have.

People keep the lists of several datasets in one folder. A list of another dataset names pictures
such as ant/000.jpg, too, and a list of this one may only repeat what the folders say.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.listing import Source
from fastpipe.sources.tables.listed_images import first_cells

_MAX_ROWS = 500
# Of the rows of a table in a folder further above: so many are about the images, if it is.
_MIN_SHARE = 0.9
# A table that pandas has written has the numbers of its rows in a first column without a name, which
# is called so when it is read.
_COLUMNS_OF_PANDAS = ("column_1", "Unnamed: 0")


def is_of_other_images_or_repeats(
    table: Path, sources: Sequence[Source], *, is_far: bool
) -> bool:
    """Whether a table is about other images than these, or says only their class folders.

    Args:
        table: a file with columns; of others nothing is known.
        sources: the images, in class folders.
        is_far: the table does not lie right beside the folder of the images. Then the names of its
            images prove little.
    """
    rows = first_cells(table, _MAX_ROWS)
    if not rows:
        return False
    folders = _folders_by_name(sources)
    num_named = 0
    num_repeated = 0
    for row in rows:
        cells = _cells_of(row)
        folder = _folder_of_row(cells, folders)
        if folder is None:
            continue
        num_named += 1
        # The path, and a second cell with the class, unless the row has no label.
        is_class = [cell.casefold() == folder.casefold() for cell in cells]
        num_repeated += len(cells) == 1 or (len(cells) == 2 and any(is_class))
    if is_far and num_named < _MIN_SHARE * len(rows):
        return True
    return 0 < num_named == num_repeated


def _cells_of(row: Mapping[str, str]) -> list[str]:
    """The cells of a row with a text, without the number of the row that pandas writes."""
    cells = []
    for column, cell in row.items():
        is_row_number = column in _COLUMNS_OF_PANDAS and cell.strip().isdigit()
        if cell.strip() and not is_row_number:
            cells.append(cell.strip())
    return cells


def _folders_by_name(sources: Sequence[Source]) -> Mapping[str, set[str]]:
    """The class folders that have a picture of a name, by the name."""
    folders = defaultdict(set)
    for source in sources:
        folder, _, name = source.path.rpartition("/")
        folders[name].add(folder.rpartition("/")[2])
    return folders


def _folder_of_row(cells: Sequence[str], folders: Mapping[str, set[str]]) -> str | None:
    """The class folder of the picture that a row names; None if it names none, or may mean several."""
    for cell in cells:
        if not is_picture(cell):
            continue
        folder, _, name = cell.replace("\\", "/").rpartition("/")
        candidates = folders.get(name, set())
        written_folder = os.path.basename(folder)
        if written_folder in candidates:
            return written_folder
        if len(candidates) == 1:
            return next(iter(candidates))
    return None
