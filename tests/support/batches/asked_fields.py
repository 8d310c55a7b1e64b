"""Names of fields, and options for all boxes and points among them -> what fastpipe.loader gets as fields=."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastpipe

BOXES = ("boxes", "plain")
POINTS = ("joints", "points", "pose", "face", "hand")
_OF_BOXES = ("form", "min_size", "min_area")


def asked(fields: Any, options: dict[str, Any]) -> Any:
    """Takes form=, min_size=, min_area= and flip_pairs= out of the options, and puts them to the names of fields."""
    of_boxes = {name: options.pop(name) for name in _OF_BOXES if name in options}
    of_points = {"flip_pairs": options.pop("flip_pairs")} if "flip_pairs" in options else {}

    def one(name: Any) -> Any:
        if name in BOXES and of_boxes:
            return fastpipe.Boxes(name, **of_boxes)
        return fastpipe.Points(name, **of_points) if name in POINTS and of_points else name

    if isinstance(fields, Mapping):
        return {key: one(name) for key, name in fields.items()}
    return [one(name) for name in fields] if isinstance(fields, (tuple, list)) else fields
