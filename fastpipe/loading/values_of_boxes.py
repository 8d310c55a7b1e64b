"""Fields with a value for each box, beside boxes that a crop may drop -> a warning.

A loader drops boxes that the crop has made too small, with their labels. Lists, points and masks
that number the objects keep all values: then value i is not that of box i any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import FieldRequest, field_name
from fastpipe.dataset.format.folder import Url
from fastpipe.errors import FastpipeError
from fastpipe.plan.placed import Boxes
from fastpipe.warnings_once import is_known, warn_once

# So many samples with boxes show what belongs to the boxes.
_MAX_SAMPLES = 32
# Reading a mask takes longer than reading a column.
_MAX_MASKS = 4


def warn_of_dropped_boxes(data: Dataset, requests: Mapping[str, FieldRequest]) -> None:
    """Says which fields have a value for each box, if a loader may drop boxes.

    `requests`: what the batches have, by the name of the field.
    """
    for request in requests.values():
        if not isinstance(request, Boxes) or not (request.min_size or request.min_area):
            continue
        warning = f"values of dropped boxes {data.path} {request.name}"
        if is_known(warning):
            continue
        names = list(_fields_of_boxes(data, request.name, requests))
        if not names:
            continue
        shown = " and ".join(names)
        keeping = f"fastpipe.Boxes({request.name!r}, min_size=0)"
        if request.min_area:
            keeping = f"fastpipe.Boxes({request.name!r}, min_size=0, min_area=0)"
        verb = "has" if len(names) == 1 else "have"
        warn_once(
            warning,
            f"{shown} {verb} a value for each box of {request.name!r}. A batch has all of these values, but "
            f"not the boxes that the crop makes too small (min_size={request.min_size:g}, "
            f"min_area={request.min_area:g}), so value i may be that of another box. Pass {keeping}, which "
            "keeps all boxes in their order; one outside of the crop has no area. Then drop boxes and values "
            "together",
        )


def _fields_of_boxes(
    data: Dataset, boxes: str, requests: Mapping[str, FieldRequest]
) -> Iterator[str]:
    """The names of fields whose values are as many as the boxes of the sample."""
    counts = _count_boxes(data, boxes)
    # With one box in each image, a list of one value may be about the image.
    if max(counts.values(), default=0) < 2:
        return
    for request in requests.values():
        name = field_name(request)
        field = data.fields.get(name)
        if field is None:
            continue
        if field.kind in ("json", "keypoints"):
            column = data[name]
            if all(
                _length(column[sample]) == count for sample, count in counts.items()
            ):
                yield name
        # A mask of classes has their names.
        elif (
            field.kind == "mask"
            and not field.names
            and _numbers_objects(data, name, counts)
        ):
            yield name


def _count_boxes(data: Dataset, boxes: str) -> dict[int, int]:
    """Sample -> the number of its boxes, of some samples that have at least one."""
    column = data[boxes]
    counts: dict[int, int] = {}
    step = max(1, len(data) // _MAX_SAMPLES)
    for sample in range(0, len(data), step):
        count = len(column[sample])
        if count:
            counts[sample] = count
    return counts


def _length(value: object) -> int:
    """The number of values for boxes; -1: it is no list."""
    return len(value) if isinstance(value, (list, np.ndarray)) else -1


def _numbers_objects(data: Dataset, mask: str, counts: Mapping[int, int]) -> bool:
    """Whether a mask has the number of an object in its pixels: 1 for the first box, and so on."""
    several = [sample for sample, count in counts.items() if count > 1]
    # Behind a URL the answers would take too long.
    if not several or isinstance(data.index.path, Url):
        return False
    masks = data.with_fields((mask,))
    is_numbered = False
    for sample in several[:_MAX_MASKS]:
        try:
            largest = int(masks[sample][mask].max())
        except FastpipeError:
            continue  # damaged; the loader says so when it comes to the sample
        if largest > counts[sample]:
            return False
        # The last object may be hidden by another one.
        is_numbered |= largest == counts[sample]
    return is_numbered
