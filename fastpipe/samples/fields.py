"""What a user asks for in `fields=` -> the keys of a batch; the plan of samples -> the values of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastpipe.errors import ConfigError
from fastpipe.format.columns import Ragged
from fastpipe.format.fields import Field
from fastpipe.format.index import SourcePaths
from fastpipe.format.pixel_form import PixelForm
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ById
from fastpipe.plan.crops import Crop
from fastpipe.plan.host_batch import HostFields, Places
from fastpipe.plan.placed import Boxes, Placed, Points, check_point, geometry_of, move_boxes, move_points
from fastpipe.plan.recipe import Recipe
from fastpipe.samples.by_id import spans

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.samples.data import Data

OF_SAMPLES = ("image", "label", "id", "key", "source")
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
    chosen = chosen_fields(data, fields, own=OF_SAMPLES)
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


class Fields:
    """Reads what samples have besides their pictures: the fields `chosen`, as of chosen_fields. `crops` says of each
    view how its pictures become rows; None: they are whole. DatasetError: a field's files are missing or damaged.
    """

    def __init__(self, data: Data, chosen: Mapping[str, Asked], crops: Sequence[Crop | Buckets | None]) -> None:
        self._crops = crops
        self._options = {name_of(asked): asked for asked in chosen.values()}
        self.names = tuple(self._options)
        self._paths = SourcePaths(data.index) if "key" in self.names else None
        self._plain: dict[str, tuple[ById, int | None]] = {}  # with how many classes, where a value is a set of them
        self._moved: dict[str, ById] = {}  # boxes and points
        self._stored: dict[str, tuple[ById, bool]] = {}  # records of pictures, and whether these are masks
        for name in self.names:
            field = data.fields.get(name)
            kind = "" if field is None else field.kind
            if kind in ("mask", "image"):
                self._stored[name] = data.by_id(name), kind == "mask"
            elif kind in ("boxes", "keypoints"):
                self._moved[name] = data.by_id(name)
            elif field is not None or name == "source":
                self._plain[name] = data.by_id(name), field.classes if field and kind == "classes" else None
        self._keys = {
            key + own.removeprefix(name_of(asked)): own
            for key, asked in chosen.items()
            for own in keys_of(name_of(asked), asked, data)
        }

    def read(self, plan: BatchPlan) -> HostFields:
        """The values for the rows of a plan; DatasetError: a file cannot be read, or is damaged."""
        boxes = {name: each for name, each in self._options.items() if isinstance(each, Boxes)}
        values = HostFields(self._keys, tuple(self._stored), boxes)
        if self._paths is not None:
            values.lists["key"] = self._paths.of(plan.samples, plan.records)
        for name, (column, classes) in self._plain.items():
            found: Any = column.take(plan.ids)
            found = found if classes is None else multi_hot(found, classes)
            (values.lists if isinstance(found, list) else values.arrays)[name] = found
        values.places.extend(self._placed(*each) for each in zip(plan.views, self._crops, strict=True))
        return values

    def _placed(self, view: BatchPlan, crop: Crop | Buckets | None) -> Places:
        """The boxes and points on its rows, moved as the pictures are."""
        places, rows, geometry = dict[str, Placed](), view.by_row(), None
        if self._moved and crop is not None:
            widths, heights = (rows.records[side].astype(np.int64) for side in ("width", "height"))
            geometry = geometry_of(crop, rows.crops, widths, heights, rows.flips)
        for name, column in self._moved.items():
            given, options = column.take(rows.ids), self._options[name]
            of, values = rows_of(given), given.values
            if isinstance(options, Points):
                pairs = options.flip_pairs or ()
                values = values if geometry is None else move_points(values, of, geometry, pairs)
                places[name] = Placed(values, of, flip_pairs=pairs)
            else:
                values = values if geometry is None else move_boxes(values, of, geometry)
                places[name] = Placed(values, of, given.labels)
        return places


class FieldReader(Fields):
    """Reads what the rows of a batch carry besides their pictures: the fields `chosen`, as of chosen_fields."""

    def __init__(self, data: Data, recipe: Recipe, chosen: Mapping[str, Asked], form: PixelForm) -> None:
        super().__init__(data, chosen, [view.crop for view in recipe.views])
        # Shape and type of a pixel of masks and second pictures, these as the images'. All batches are of one type.
        self._pixels: dict[str, tuple[tuple[int, ...], DTypeLike]] = {}
        for name, (column, mask) in self._stored.items():
            wide = mask and any((column.take(ids)["bits"] > 8).any() for ids in spans(len(data)))
            self._pixels[name] = ((), np.int32 if wide else np.uint8) if mask else ((form.channels,), form.dtype)

    def slots(self, plan: BatchPlan) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of a batch; see Note [entries of views]."""
        return {
            f"{number}.{name}": np.empty((len(view.flips), *view.crops.size, *pixel), dtype)
            for name, (pixel, dtype) in self._pixels.items()
            for number, view in enumerate(plan.views)
        }

    def begin(
        self,
        engine: Engine,
        plan: BatchPlan,
        slots: Mapping[str, NDArray[Any]],
        exacts: Sequence[bool],
        rows: NDArray[np.int64] | None = None,
    ) -> Iterator[Job | FetchedJob]:
        """Has the masks and second pictures of a batch made; `exacts`, `rows`: of each view, as of Engine.submit."""
        for name, (column, _) in self._stored.items():
            records = column.take(plan.by_row().ids)
            for number, (view, exact) in enumerate(zip(plan.views, exacts, strict=True)):
                yield engine.submit_field(view.by_row(), records, slots[f"{number}.{name}"], exact=exact, rows=rows)


def split(values: NDArray[Any], rows: NDArray[np.int64], plan: BatchPlan) -> list[NDArray[Any]]:
    """The values that are on each row of a plan; `rows`, ascending, says on which each is."""
    return np.split(values, np.cumsum(np.bincount(rows, minlength=len(plan.flips)))[:-1])


def by_sample(of_rows: list[Any], plan: BatchPlan) -> list[Any]:
    """The values of each row; of several rows a sample, a list of these for each sample."""
    each = plan.rows_per_sample
    return of_rows if each == 1 else [of_rows[at : at + each] for at in range(0, len(of_rows), each)]


def multi_hot(tags: Ragged, classes: int) -> NDArray[np.float32]:
    """(n, classes) float32: 1 for the classes of each sample, else 0."""
    hot = np.zeros((len(tags.offsets) - 1, classes), dtype=np.float32)
    hot[rows_of(tags), tags.values] = 1
    return hot


def rows_of(ragged: Ragged) -> NDArray[np.int64]:
    """(M,) which of the n samples each value belongs to."""
    return np.repeat(np.arange(len(ragged.offsets) - 1), np.diff(ragged.offsets))
