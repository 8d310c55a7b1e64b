"""A table in JSON whose samples have none to many pictures -> a field of them.

Data for vision-language models is written so: LLaVA's `image`, which is a path, a list of paths, or
missing for a conversation without a picture; and `images` beside `messages`, as for Qwen-VL. Such a
sample has no image of its own.
"""

from __future__ import annotations

from fastpipe.sources.column_choice import IMAGE_COLUMNS, ColumnChoice
from fastpipe.sources.column_names import field_name
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.tables.conversations import conversation_names
from fastpipe.sources.tables.manifest_columns import Manifest

_LIST_COLUMNS = IMAGE_COLUMNS | {"images", "image_paths", "pictures", "imgs"}


def find_picture_column(manifest: Manifest) -> str | None:
    """The column with the pictures of samples that have none to many; None if there is none.

    Its values are lists of paths. Beside a conversation they may be single paths, too, if some
    samples have no picture.
    """
    options = manifest.options
    if (
        not manifest.is_typed
        or manifest.is_metadata
        or options.image_column is not None
    ):
        return None
    columns = []
    for column, values in manifest.summaries.items():
        is_named = column.lower() in _LIST_COLUMNS
        is_taken = column in options.field_columns
        if not is_named or is_taken:
            continue
        is_optional = values.has_missing and values.are_pictures
        if values.are_path_lists or (
            is_optional and conversation_names(manifest.summaries)
        ):
            columns.append(column)
    return columns[0] if len(columns) == 1 else None


def with_picture_lists(
    columns: ColumnChoice, manifest: Manifest
) -> tuple[ColumnChoice, list[Assumption]]:
    """The same columns, where that of images becomes a field of lists of pictures."""
    column = columns.image
    names = [field.name for field in columns.fields]
    name = field_name("images" if column.lower() == "image" else column.lower(), names)
    pictures = SourceField(name, "images", column=column)
    text = (
        f"images: column {column!r} has the pictures of each sample, none to many, so samples have "
        f"a field {name!r} and no image of their own: load them with fields=[{name!r}, ...]"
    )
    fields = (pictures, *columns.fields)
    return columns._replace(image="", fields=fields), [Assumption(text)]
