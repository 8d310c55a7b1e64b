"""Classes, texts and points that tell left and right apart, and mirrored images -> warnings."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import FieldRequest
from fastpipe.dataset.format.fields import CLASS_KINDS
from fastpipe.plan.placed import Points
from fastpipe.plan.spread import spread
from fastpipe.warnings_once import is_known, remember, warn_once

_LOG = logging.getLogger("fastpipe")
_LEAST_CHARACTERS = 10  # classes, each called by a letter or a digit
_SIDE = re.compile("left|right", re.IGNORECASE)  # in the name of a class
_OTHER_SIDES = {"left": "right", "right": "left"}
_SIDE_WORD = re.compile(r"(?<!all )\b(left|right)\b", re.IGNORECASE)  # in a text
_NUM_TEXTS = 400  # that are looked at
# Of these texts: some say "right" and mean something else.
_LEAST_SIDED = 2
_SHARE_SIDED = 0.02


def warn_mirrored_sides(data: Dataset, fields: Collection[str] | None) -> None:
    """Says if classes or texts tell left and right apart, and images are mirrored by default.

    `fields`: the names of those that batches have; None: images and labels.
    """
    _warn_mirrored_names(data, data.classes)
    if fields is not None:
        _warn_mirrored_texts(data, fields)
        for field in data.fields.values():
            if field.kind in CLASS_KINDS:
                _warn_mirrored_names(data, field.names)


def _warn_mirrored_names(data: Dataset, classes: Collection[str]) -> None:
    names = {name.lower() for name in classes}
    if _are_characters(data, classes):
        warn_once(
            f"mirrored characters {data.path}",
            f"half of the images are mirrored, by default, and the classes of {data.path} look like "
            "characters: a mirrored character is another one, or none. Pass hflip=False",
        )
    for name in classes:
        # Of two such names, one at least has a left side in it.
        if "left" not in name.lower():
            continue
        mirrored = _SIDE.sub(lambda side: _OTHER_SIDES[side[0].lower()], name).lower()
        if mirrored != name.lower() and mirrored in names:
            warn_once(
                f"mirrored sides {data.path}",
                f"half of the images are mirrored, by default, and {data.path} has classes that differ in "
                f"left and right: a mirrored {name!r} looks like {mirrored!r} and keeps its label. Pass "
                "hflip=False",
            )
            return


def _are_characters(data: Dataset, classes: Collection[str]) -> bool:
    """Whether classes are letters, or digits of gray images: numbers may name anything in colour."""
    if len(classes) < _LEAST_CHARACTERS:
        return False
    if not all(
        len(name) == 1 and name.isascii() and name.isalnum() for name in classes
    ):
        return False
    is_gray = all(form.channels == 1 for form in data.index.form_counts)
    return is_gray or not any(name.isdigit() for name in classes)


def _warn_mirrored_texts(data: Dataset, fields: Collection[str]) -> None:
    for name in fields:
        field = data.fields.get(name)
        if field is None or field.kind not in ("text", "column"):
            continue
        warning = f"mirrored texts {data.path} {name}"
        if is_known(warning):
            continue
        column = data.column(name)
        # Rows of numbers may be large.
        first = column[:1]
        if first.ndim != 1 or first.dtype.kind not in "UO":
            continue
        remember(warning)
        texts = column[np.array(spread(len(data), _NUM_TEXTS))]
        num_sided = sum(_SIDE_WORD.search(str(text)) is not None for text in texts)
        if num_sided < max(_LEAST_SIDED, _SHARE_SIDED * len(texts)):
            continue
        _LOG.warning(
            "half of the images are mirrored, by default, and %d of %d texts of %r of %s that were "
            "looked at have the word left or right, which may be wrong of a mirrored image. Pass "
            "hflip=False",
            num_sided,
            len(texts),
            name,
            data.path,
        )


def _unswapped_points(data: Dataset, field: str) -> str:
    """The name of the warning about points of a field that do not change places."""
    return f"unswapped points {data.path} {field}"


def leave_points_unswapped(data: Dataset, field: str) -> None:
    """From now on `warn_unswapped_points` says nothing of this field: it is to be so."""
    remember(_unswapped_points(data, field))


def warn_unswapped_points(data: Dataset, requests: Iterable[FieldRequest]) -> None:
    """Says if points of mirrored images do not change places, though the dataset has pairs of them."""
    for request in requests:
        if not isinstance(request, Points) or request.flip_pairs != ():
            continue
        field = data.fields[request.name]
        if not field.flip_pairs:
            continue
        first, second = field.flip_pairs[0]
        pair = f"points {first} and {second}"
        if field.names:
            pair = f"{field.names[first]} and {field.names[second]}"
        warn_once(
            _unswapped_points(data, request.name),
            f"flip_pairs=[] for {request.name!r}: no points change places in mirrored images, though "
            f"{data.path} was packed with pairs that do, such as {pair}. To swap these, leave flip_pairs "
            "out",
        )
