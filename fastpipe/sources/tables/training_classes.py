"""A table of the images of a split -> the options that give its classes the numbers of training.

ImageNet and Tiny ImageNet have class folders for training, and one folder with a table for
validation. Without these options, the classes of the table would be numbered by themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fastpipe.sources.files import names_in
from fastpipe.sources.folders.splits import FEW, find_training
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.tables.listed_images import first_cells, first_rows


def describe_options_of_training(table: Path, images: Path) -> str:
    """The options for a table whose labels are class folders of training; "" if they are not.

    Args:
        table: a table or a list.
        images: the folder of its images, which is a split or lies in one.
    """
    training = find_training(images)
    if training is None:
        return ""
    column = _find_column_of_classes(table, names_in(training, FEW).folders)
    if column is None:
        return ""
    options = ""
    # Columns without a header are called by their numbers, and are no labels by themselves.
    name = f"column_{column + 1}"
    if any(name in row for row in first_cells(table)):
        options += f" --label-column {name}"
    return f"{options} --classes-from {quote_for_shell(str(training))}"


def _find_column_of_classes(table: Path, classes: Collection[str]) -> int | None:
    """The first column of a table with names of these classes; None if none has.

    Kaggle's ImageNet has boxes behind the name of the class: n01978930 85 1 499 272.
    """
    for row in first_rows(table):
        for column, cell in enumerate(row):
            if cell in classes or cell.partition(" ")[0] in classes:
                return column
    return None
