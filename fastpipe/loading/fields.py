"""The names of fields, and the plan of a batch -> their values for its rows, moved as the pictures are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields
from fastpipe.errors import ConfigError
from fastpipe.format.columns import BytesColumn, Ragged, RaggedColumn, RowColumn, open_column
from fastpipe.format.fields import Field
from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.format.source_paths import SourcePaths
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.geometry import geometry_of, move_boxes, move_points
from fastpipe.plan.placed import Boxes, PlacedBoxes, PlacedPoints, Points, check_point
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine, Job
    from fastpipe.engine.fetched_job import FetchedJob

OWN = ("image", "label", "id", "key", "valid", "epoch")
OF_BUCKETS = ("image_size", "pixel_mask")
OF_MIXING = ("mix_index", "mix_lam")
SPATIAL = ("boxes", "keypoints", "mask", "image")  # kinds that are moved as the pictures are
Asked = str | Boxes | Points  # the name of a field, or its options


class FieldReader:
    """Reads what the rows of a batch carry besides their pictures.

    Args:
        index: of the dataset.
        recipe: of the loader.
        chosen: as of chosen_fields.

    Attributes:
        names: of the fields.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(self, index: Index, recipe: Recipe, chosen: Mapping[str, Asked]) -> None:
        self._recipe = recipe
        self._options = {name_of(asked): asked for asked in chosen.values()}
        self._boxes = {name: each for name, each in self._options.items() if isinstance(each, Boxes)}
        self.names = tuple(self._options)
        self._stored: dict[str, StoredImages] = {}
        self._moved: dict[str, RaggedColumn] = {}  # boxes and points
        self._parts = [part for name in self.names if (part := self._part(index, name))]
        self._keys = {
            key + own.removeprefix(name_of(asked)): own
            for key, asked in chosen.items()
            for own in keys_of(name_of(asked), asked, index)
        }

    def read(self, rows: BatchPlan) -> HostFields:
        """The values for the rows of a batch.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        values = HostFields(self._keys, tuple(self._stored), self._boxes)
        for part in self._parts:
            part(values, rows)
        for view, recipe in zip(rows.views, self._recipe.views, strict=True):
            boxes, points = dict[str, PlacedBoxes](), dict[str, PlacedPoints]()
            values.places.append((boxes, points))
            if not self._moved:
                continue
            each = view.by_row()
            widths, heights = (each.records[side].astype(np.int64) for side in ("width", "height"))
            geometry = geometry_of(recipe.crop, each.crops, widths, heights, each.flips)
            for name, column in self._moved.items():
                given = column.take(each.samples)
                of, options = rows_of(given), self._options[name]
                if isinstance(options, Points):
                    pairs = options.flip_pairs or ()
                    points[name] = PlacedPoints(move_points(given.values, of, geometry, pairs), of, pairs)
                else:
                    boxes[name] = PlacedBoxes(move_boxes(given.values, of, geometry), of, given.labels)
        return values

    def slots(self, plan: BatchPlan) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of a batch; see Note [entries of views]."""
        return {
            f"{number}.{name}": each.slot(len(view.flips), view.crops.size)
            for name, each in self._stored.items()
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
        """Has the masks and second pictures of a batch made; `exacts`, `rows`: of each view, as of Engine.submit.

        Raises:
            DatasetError: a file cannot be read.
        """
        for name, each in self._stored.items():
            records = each.column.take(plan.by_row().samples)
            for number, (view, exact) in enumerate(zip(plan.views, exacts, strict=True)):
                yield engine.submit_field(view.by_row(), records, slots[f"{number}.{name}"], exact=exact, rows=rows)

    def _part(self, index: Index, name: str) -> _Part | None:
        """Adds the values of a field; None: they are there already, as labels are, or made apart."""
        if name == "key":
            paths = SourcePaths(index)
            return lambda values, rows: values.lists.update(key=paths.of(rows.samples, rows.records))
        if name not in index.fields:
            sources = index.part_of if name == "source" and isinstance(index, MixedIndex) else None
            return sources and (lambda values, rows: values.arrays.update(source=sources(rows.samples)))
        field = index.fields[name]
        column = open_column(index, field)
        if isinstance(column, RowColumn) and field.kind in ("mask", "image"):
            self._stored[name] = StoredImages(column, len(index), picture=field.kind == "image")
            return None
        if isinstance(column, BytesColumn):
            return lambda values, rows: values.lists.update({name: column.take(rows.samples)})
        if not isinstance(column, RaggedColumn):
            return lambda values, rows: values.arrays.update({name: column.take(rows.samples)})
        if field.kind == "classes":
            many = field.classes
            return lambda values, rows: values.arrays.update({name: multi_hot(column.take(rows.samples), many)})
        self._moved[name] = column
        return None


_Part = Callable[[HostFields, BatchPlan], None]


def own_names(index: Index, *, bucketed: bool, mixing: bool) -> tuple[str, ...]:
    """The names that are no fields of the dataset."""
    sources = ("source",) if isinstance(index, MixedIndex) else ()
    return OWN + sources + (OF_BUCKETS if bucketed else ()) + (OF_MIXING if mixing else ())


def name_of(asked: Asked) -> str:
    """The name of a field that was asked for."""
    return asked if isinstance(asked, str) else asked.name


def keys_of(key: str, asked: Asked, index: Index) -> Iterable[str]:
    """The keys of a batch that a field fills: its key, and behind it those that boxes come with."""
    yield key
    if isinstance(asked, Boxes):
        if index.fields[asked.name].labelled:
            yield f"{key}_labels"
        if asked.form != "list":
            yield f"{key}_offsets" if asked.form == "flat" else f"{key}_counts"


def chosen_fields(index: Index, fields: object, *, own: tuple[str, ...]) -> dict[str, Asked]:
    """Checks what a user asks for; returns the keys of a batch, in order, and the field of each: as Boxes where these
    are boxes, as Points, with the pairs of the field itself where the user gives none, and else its name.

    Args:
        index: of the dataset.
        fields: as a user gave them.
        own: names that are no fields of the dataset.

    Raises:
        ConfigError: there is no such field, one is there twice, or it is no sequence of names.
    """
    known = (*own, *index.fields)
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
            more = (
                "" if index.packed else ". It is not packed: `fastpipe pack` keeps captions and other members of tars"
            )
            if isinstance(index, MixedIndex):
                more = ". A mixture has no fields of its datasets: these work with one dataset only"
            raise ConfigError(f"fields: {index.path} has {', '.join(known)}; got {name!r}{more}")
        asked = _resolved(each, index.fields.get(name))
        if any(name_of(other) == name and other != asked for other in chosen.values()):
            raise ConfigError(f"fields: {name!r} is there twice, with other options; got {fields!r}")
        for one in keys_of(key, asked, index):
            if one in (companion for at, other in chosen.items() for companion in keys_of(at, other, index)):
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


_AT_ONCE = 1 << 16  # records


class StoredImages:
    """Masks or second pictures.

    Args:
        column: their records.
        samples: in the dataset.
        picture: they are pictures, not masks.

    Attributes:
        column: as given.
        picture: as given.

    Raises:
        DatasetError: the records cannot be read.
    """

    def __init__(self, column: RowColumn, samples: int, *, picture: bool) -> None:
        self.column = column
        self.picture = picture
        self._dtype = np.int32 if not picture and _any_wide(column, samples) else np.uint8

    def slot(self, rows: int, size: tuple[int, int]) -> NDArray[Any]:
        """Memory for a batch: (rows, height, width) of ids, int32 if any mask of the dataset has 16 bits, else uint8;
        (rows, height, width, 3) uint8 for pictures.
        """
        return np.empty((rows, *size, 3) if self.picture else (rows, *size), dtype=self._dtype)


def _any_wide(column: RowColumn, samples: int) -> bool:
    """Whether a mask has 16 bits. All batches of a loader have to be of one type, so all records are looked at."""
    starts = range(0, samples, _AT_ONCE)
    parts = (column.take(np.arange(start, min(start + _AT_ONCE, samples))) for start in starts)
    return any(bool((part["bits"] > 8).any()) for part in parts)
