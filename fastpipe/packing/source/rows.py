"""Rows of a manifest, of annotations or of a table, one an image -> a listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """What a manifest says of one image.

    Attributes:
        path: of the image's file, relative to the image root, with "/".
        label: a number, the name of a class, or None.
        values: name -> value of its fields, as JSON has them; of "mask" and "image" the path of a file, relative to
            the image root.
        problem: why it cannot be packed; None: nothing is known.
    """

    path: str
    label: int | str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
