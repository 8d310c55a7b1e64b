"""A table in JSON whose samples have lists of pictures -> fields of them.

Data for vision-language models is written so: LLaVA's `image`, which is a path, a list of paths, or
missing for a conversation without a picture; and `images` beside `messages`, as for Qwen-VL. Where
no other column has an image for each sample, samples have no image of their own.
"""

from __future__ import annotations

from fastpipe.errors import PackError
from fastpipe.sources.column_choice import IMAGE_COLUMNS, ColumnChoice
from fastpipe.sources.column_names import field_name
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.tables.conversations import conversation_names
from fastpipe.sources.tables.manifest_columns import Manifest

# Columns that may name each sample.
_NAME_COLUMNS = ("id", "uid", "sample_id", "question_id", "key")
_LIST_COLUMNS = IMAGE_COLUMNS | {"images", "image_paths", "pictures", "imgs", "frames"}


def find_picture_columns(manifest: Manifest) -> list[str]:
    """The columns with none to many pictures of each sample.

    Their values are lists of paths. Beside a conversation they may also be single paths, if some
    samples have no picture; or all be empty.
    """
    options = manifest.options
    if not manifest.is_typed or manifest.is_metadata:
        return []
    has_conversation = bool(conversation_names(manifest.summaries))
    columns = []
    for column, values in manifest.summaries.items():
        is_named = column.lower() in _LIST_COLUMNS
        is_optional = values.has_missing and values.are_pictures
        has_lists = values.has_name_lists
        if has_conversation:
            has_lists = has_lists or is_optional or values.are_empty_lists
        if not is_named or not has_lists:
            continue
        if column == options.image_column:
            raise PackError(
                f"--image-column {column}: its values are lists of images; expected the path of one "
                f"image in each row of {manifest.table}. Leave it out, or store the lists with "
                f"--field images={column}:images"
            )
        columns.append(column)
    return columns


def settle_picture_lists(
    columns: ColumnChoice, list_columns: list[str], manifest: Manifest
) -> tuple[ColumnChoice, list[Assumption]]:
    """The same choice, in which the columns with lists are fields of kind "images".

    If the user has named the fields, they stay as they are.

    Args:
        columns: that are read of the table.
        list_columns: those with lists of pictures; there may be none.
        manifest: the table.

    Raises:
        PackError: samples would have neither an image nor a list of pictures.
    """
    fields: list[SourceField] = []
    for field in columns.fields:
        is_list = field.column in list_columns
        if manifest.options.fields is None and is_list:
            name = field.name
            if field.column.lower() == "image":
                other_names = [other.name for other in columns.fields]
                name = field_name("images", other_names)
            field = field._replace(name=name, kind="images")
        fields.append(field)
    columns = columns._replace(fields=tuple(fields))
    if columns.image:
        return columns, []
    columns = columns._replace(name=_name_column(manifest))

    names = [field.name for field in fields if field.kind == "images"]
    if not names:
        raise PackError(
            f"{manifest.table}: expected a column with images; it has lists of images, which no "
            f"--field stores. Add --field images={list_columns[0]}:images"
        )
    if manifest.options.fields is not None:
        return columns, []
    listed = " and ".join(repr(column) for column in list_columns)
    text = (
        f"images: column {listed} has the images of each sample, none to many, so samples have a "
        f"field {names[0]!r} and no image of their own: load them with fields={names}"
    )
    return columns, [Assumption(text)]


def _name_column(manifest: Manifest) -> str:
    """The column with another name for each sample; "" if there is none."""
    for column, values in manifest.summaries.items():
        is_named = column.lower() in _NAME_COLUMNS
        if is_named and values.are_all_different and not values.has_missing:
            return column
    return ""
