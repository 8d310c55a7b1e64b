"""A field -> whether its values can be mirrored with the image, without options of the user."""

from __future__ import annotations

from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.map_file import may_be_directions


def can_be_mirrored(field: Field) -> bool:
    """Whether the dataset says what becomes of a field's values in a mirrored image.

    Of points it has to say which of them change places. Of maps that may have directions, only the
    user knows which channels change their signs.
    """
    if field.kind == "keypoints":
        return bool(field.flip_pairs)
    if field.kind == "map":
        return not may_be_directions(field.dtype, field.shape)
    return True
