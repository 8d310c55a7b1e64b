"""What a user asks for in `fields=` -> the keys of a sample or batch, and the field of each; or an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.format.columns import Ragged
from fastpipe.format.fields import Field
from fastpipe.plan.placed import Boxes, Points, check_point

if TYPE_CHECKING:
    from fastpipe.samples.data import Data

OWN = ("image", "label", "id", "key", "source", "valid", "epoch")
OF_BUCKETS = ("image_size", "pixel_mask")
OF_MIXING = ("mix_index", "mix_lam")
SPATIAL = ("boxes", "keypoints", "mask", "image")  # kinds that are moved as the pictures are
Asked = str | Boxes | Points  # the name of a field, or its options


def name_of(asked: Asked) -> str:
    """The name of a field that was asked for."""
    return asked if isinstance(asked, str) else asked.name


def keys_of(key: str, asked: Asked, data: Data) -> Iterable[str]:
    """The keys of a batch that a field fills: its key, and behind it those that boxes come with."""
    yield key
    if isinstance(asked, Boxes):
        if data.fields[asked.name].labelled:
            yield f"{key}_labels"
        if asked.form != "list":
            yield f"{key}_offsets" if asked.form == "flat" else f"{key}_counts"


def chosen_fields(data: Data, fields: object, *, own: tuple[str, ...]) -> dict[str, Asked]:
    """Checks what a user asks for; returns the keys of a batch, in order, and the field of each: as Boxes where these
    are boxes, as Points, with the pairs of the field itself where the user gives none, and else its name.

    Args:
        data: the dataset.
        fields: as a user gave them.
        own: names that are no fields of the dataset.

    Raises:
        ConfigError: there is no such field, one is there twice, or it is no sequence of names.
    """
    known = (*own, *data.fields)
    if isinstance(fields, (tuple, list)):
        given = [(each if isinstance(each, str) else getattr(each, "name", each), each) for each in fields]
    else:
        given = [*fields.items()] if isinstance(fields, Mapping) else []
    if not given:
        example = f"{known[:2]!r}, or keys and names, {{'pixel_values': 'image', 'labels': 'label'}}"
        raise ConfigError(f"fields: expected names, for example {example}; got {fields!r}")
    chosen: dict[str, Asked] = {}
    for key, each in given:
        if not isinstance(key, str):
            raise ConfigError(f"fields: expected texts as the keys of a batch, got {key!r} in {fields!r}")
        name = each.name if isinstance(each, (Boxes, Points)) else each
        if name not in known:
            more = data.why_not(name)
            raise ConfigError(f"fields: {data.path} has {', '.join(known)}; got {name!r}{more}")
        asked = _resolved(each, data.fields.get(name))
        if any(name_of(other) == name and other != asked for other in chosen.values()):
            raise ConfigError(f"fields: {name!r} is there twice, with other options; got {fields!r}")
        for one in keys_of(key, asked, data):
            if one in (companion for at, other in chosen.items() for companion in keys_of(at, other, data)):
                raise ConfigError(f"fields: {one!r} would be twice in a batch; got {fields!r}")
        chosen[key] = asked
    return chosen


def _resolved(asked: Any, field: Field | None) -> Asked:
    """A field as Boxes or Points where it is of these kinds, else its name."""
    kinds = {"boxes": Boxes, "keypoints": Points}
    wanted = kinds.get(field.kind) if field is not None else None
    if isinstance(asked, str):
        asked = asked if wanted is None else wanted(asked)
    elif wanted is None or not isinstance(asked, wanted):
        kind = f"a field of {field.kind}" if field is not None else "no field of the dataset"
        raise ConfigError(f"fields: got {asked!r}, but {asked.name!r} is {kind}; pass its name alone")
    if isinstance(asked, Points) and field is not None:
        pairs = field.flip_pairs or None if asked.flip_pairs is None else asked.flip_pairs
        for point in (point for pair in pairs or () for point in pair):
            check_point(point, field.points)
        asked = replace(asked, flip_pairs=pairs)
    return asked  # type: ignore[no-any-return]


def multi_hot(tags: Ragged, classes: int) -> NDArray[np.float32]:
    """(n, classes) float32: 1 for the classes of each sample, else 0."""
    hot = np.zeros((len(tags.offsets) - 1, classes), dtype=np.float32)
    hot[rows_of(tags), tags.values] = 1
    return hot


def rows_of(ragged: Ragged) -> NDArray[np.int64]:
    """(M,) which of the n samples each value belongs to."""
    return np.repeat(np.arange(len(ragged.offsets) - 1), np.diff(ragged.offsets))
