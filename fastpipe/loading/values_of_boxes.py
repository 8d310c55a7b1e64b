"""Fields with a value for each box, beside boxes that a crop may drop -> a warning.

A loader drops boxes that the crop has made too small, with their labels. Lists, points and masks
that number the objects keep all values: then value i is not that of box i any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import FieldRequest
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.folder import Url
from fastpipe.errors import FastpipeError
from fastpipe.plan.placed import Boxes
from fastpipe.plan.spread import spread
from fastpipe.warnings_once import is_known, remember

_LOG = logging.getLogger("fastpipe")

# So many samples with boxes show what belongs to the boxes.
_MAX_SAMPLES = 32
# Reading a mask takes longer than reading a column.
_MAX_MASKS = 4


def warn_of_dropped_boxes(data: Dataset, requests: Mapping[str, FieldRequest]) -> None:
    """Says which fields have a value for each box, if a loader may drop boxes.

    `requests`: what the batches have, by the name of the field.
    """
    candidates = [name for name in requests if _may_have_values(data.fields.get(name))]
    for request in requests.values():
        if not isinstance(request, Boxes) or not (request.min_size or request.min_area):
            continue
        looked_at = f"values of dropped boxes {data.path} {request.name} {candidates}"
        if not candidates or is_known(looked_at):
            continue
        remember(looked_at)
        names = list(_fields_of_boxes(data, request.name, candidates))
        if names:
            _LOG.warning(_message(request, names))


def _may_have_values(field: Field | None) -> bool:
    """Whether a field may have a value for each box."""
    if field is None:
        return False
    # A mask of classes has their names.
    is_mask_of_objects = field.kind == "mask" and not field.names
    return is_mask_of_objects or field.kind in ("json", "keypoints")


def _message(boxes: Boxes, names: Sequence[str]) -> str:
    verb = "has" if len(names) == 1 else "have"
    keeping = f"fastpipe.Boxes({boxes.name!r}, min_size=0)"
    if boxes.min_area:
        keeping = f"fastpipe.Boxes({boxes.name!r}, min_size=0, min_area=0)"
    return (
        f"{' and '.join(names)} {verb} a value for each box of {boxes.name!r}. A batch has all of these "
        f"values, but not the boxes that the crop makes too small (min_size={boxes.min_size:g}, "
        f"min_area={boxes.min_area:g}), so value i may be that of another box. Pass {keeping}, which keeps "
        "all boxes in their order; one outside of the crop has no area. Then drop boxes and values together"
    )


def _fields_of_boxes(
    data: Dataset, boxes: str, candidates: Sequence[str]
) -> Iterator[str]:
    """The names of fields whose values are as many as the boxes of the sample."""
    counts = _count_boxes(data, boxes)
    # With one box in each image, a list of one value may be about the image.
    if max(counts.values(), default=0) < 2:
        return
    for name in candidates:
        if data.fields[name].kind == "mask":
            is_of_boxes = _numbers_objects(data, name, counts)
        else:
            column = data[name]
            is_of_boxes = all(
                _length(column[sample]) == count for sample, count in counts.items()
            )
        if is_of_boxes:
            yield name


def _count_boxes(data: Dataset, boxes: str) -> dict[int, int]:
    """Sample -> the number of its boxes, of some samples that have at least one."""
    column = data[boxes]
    counts: dict[int, int] = {}
    for sample in spread(len(data), _MAX_SAMPLES):
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
