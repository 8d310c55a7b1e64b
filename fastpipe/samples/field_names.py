"""What a user asks for in `fields=` -> the keys of a sample or batch, and the field of each; or an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastpipe.errors import ConfigError
from fastpipe.format.fields import Field
from fastpipe.plan.placed import Boxes, Points, check_point

if TYPE_CHECKING:
    from fastpipe.samples.data import Data

_OF_SAMPLES = ("image", "label", "id", "key", "source")
OWN = (*_OF_SAMPLES, "valid", "epoch")
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
    are boxes, as Points, with the pairs of the field itself where the user gives none, and else its name. `own` has the
    names that are no fields of the dataset.
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


def sample_fields(data: Data, fields: object) -> dict[str, Asked]:
    """What a user asks for, as of chosen_fields."""
    chosen = chosen_fields(data, fields, own=_OF_SAMPLES)
    for asked in chosen.values():
        if isinstance(asked, Boxes) and asked.form != "list":
            raise ConfigError(f"fields: a single sample has its boxes as one tensor, got {asked!r}; leave form out")
    return chosen


def check_mirrored(chosen: Iterable[Asked], mirroring: str) -> None:
    """Raises ConfigError where `mirroring`, what mirrors images ("": nothing), would make points wrong."""
    out = "pass hflip=False" if mirroring == "hflip" else f"leave {mirroring} out"
    for asked in chosen:
        if mirroring and isinstance(asked, Points) and asked.flip_pairs is None:
            raise ConfigError(
                f"fields: {asked.name!r} has points, and {mirroring} mirrors images: a left eye would become a right "
                f"eye. Pass fastpipe.Points({asked.name!r}, flip_pairs=[(1, 2), ...]), the numbers of the points that "
                f"change places; flip_pairs=[] if there are none; or {out}"
            )
