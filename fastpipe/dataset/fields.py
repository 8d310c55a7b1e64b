"""A user's `fields=` -> the keys of a batch; the plan of samples -> the values of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastpipe.arrays import Float32s, Int64s
from fastpipe.dataset.arrays import ArrayReader, fit_arrays
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import spans
from fastpipe.dataset.format.columns import Ragged, row_of_values
from fastpipe.dataset.format.fields import PICTURE_KINDS, Field
from fastpipe.dataset.format.pixel_form import PixelForm, has_images
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.dataset.maps import MapReader, fit_maps
from fastpipe.dataset.picture_lists import PictureListReader
from fastpipe.errors import ConfigError
from fastpipe.plan.arrays import Arrays
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.crops import Crop
from fastpipe.plan.host_batch import HostFields, Places
from fastpipe.plan.maps import Maps
from fastpipe.plan.patches import Patches
from fastpipe.plan.picture_lists import Images
from fastpipe.plan.placed import (
    Boxes,
    Placed,
    Points,
    check_point,
    geometry_of,
    move_boxes,
    move_points,
)
from fastpipe.plan.texts import Text, draw_texts
from fastpipe.plan.whole_images import WholeImages

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job

# Entries that all samples have, whatever the dataset.
SAMPLE_FIELDS = ("image", "label", "id", "key", "source")
# Entries of a batch that say how images became rows; see `_add_crops`.
CROP_FIELDS = ("crop_box", "mirrored", "original_size", "patch")
# The kinds of fields that may have texts.
_TEXT_KINDS = ("text", "json")
# The options of the other kinds of fields that have any.
_OPTION_TYPES: dict[str, type[Boxes | Points | Arrays | Images | Maps]] = {
    "boxes": Boxes,
    "keypoints": Points,
    "array": Arrays,
    "images": Images,
    "map": Maps,
}
# Entries of a batch that is mixed: the row that is mixed in, and its share.
MIXING_FIELDS = ("mix_index", "mix_lam")
# The name of a field, or its options.
FieldRequest = str | Boxes | Points | Arrays | Images | Maps | Text


def field_name(request: FieldRequest) -> str:
    """The name of a field that was asked for."""
    if isinstance(request, str):
        return request
    return request.name


def list_batch_keys(key: str, request: FieldRequest, data: BaseDataset) -> list[str]:
    """The keys of a batch that a field fills: its own, and those of what comes with boxes."""
    keys = [key]
    if isinstance(request, Boxes):
        field = data.fields[request.name]
        if field.labelled:
            keys.append(f"{key}_labels")
    if isinstance(request, (Boxes, Arrays, Images)):
        if request.form == "flat":
            keys.append(f"{key}_offsets")
        elif request.form == "pad":
            keys.append(f"{key}_counts")
    return keys


def parse_fields(
    data: BaseDataset, fields: object, *, entries: tuple[str, ...]
) -> dict[str, FieldRequest]:
    """Checks a user's `fields=`.

    Args:
        data: the dataset.
        fields: names or options of fields; or a dict of these, by the keys of a batch.
        entries: names that are allowed beside the fields of the dataset, such as "image".

    Returns:
        By key of a batch, in order, the field: as Boxes where these are boxes; as Points, with the
        pairs of the field itself where the user gives none; as Arrays, with their form; as Images; as
        Maps, with their interpolation; as Text; else its name.

    Raises:
        ConfigError: `fields` is wrong.
    """
    known = (*entries, *data.fields)
    chosen: dict[str, FieldRequest] = {}  # by key of a batch
    # A field may come under several keys, such as "image" as "left" and "right", but it is read
    # once, so its options must be the same.
    request_by_name: dict[str, FieldRequest] = {}
    # Also of what comes with boxes: the user may have named another field "boxes_labels".
    batch_keys: set[str] = set()
    for key, value in _keyed_fields(fields, known):
        if not isinstance(key, str):
            raise ConfigError(
                f"fields: expected texts as the keys of a batch, got {key!r} in {fields!r}"
            )
        name: Any = value  # as the user wrote it, so it may not be a text
        if isinstance(value, (Boxes, Points, Arrays, Images, Maps, Text)):
            name = value.name
        if name not in known:
            raise ConfigError(
                f"fields: {data.path} has {', '.join(known)}; got {name!r}"
                f"{data.missing_name_hint(name, known)}"
            )
        request = _with_options(value, data.fields.get(name))
        if request_by_name.setdefault(name, request) != request:
            raise ConfigError(
                f"fields: {name!r} is listed twice, with different options; got {fields!r}"
            )
        for batch_key in list_batch_keys(key, request, data):
            if batch_key in batch_keys:
                raise ConfigError(
                    f"fields: {batch_key!r} would be in a batch twice; got {fields!r}"
                )
            batch_keys.add(batch_key)
        chosen[key] = request
    return chosen


def _keyed_fields(fields: object, known: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Pairs of a batch's key and a field. ConfigError: there are none."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(fields, Mapping):
        pairs = list(fields.items())
    elif isinstance(fields, (tuple, list)):
        for value in fields:
            key = value
            if not isinstance(value, str):
                # The key of Boxes and the like is their name.
                key = getattr(value, "name", value)
            pairs.append((key, value))
    if not pairs:
        # One name that is not in a list; a comma alone makes a tuple.
        meant = ""
        if isinstance(fields, str):
            meant = f"; write fields=({fields!r},)"
        raise ConfigError(
            f"fields: expected names, for example {known[:2]!r}, or keys and names, "
            f"{{'pixel_values': 'image', 'labels': 'label'}}; got {fields!r}{meant}"
        )
    return pairs


def _with_options(request: Any, field: Field | None) -> FieldRequest:
    """A field as a user asks for it -> its options, where its kind has any; else its name.

    The name alone of boxes, keypoints, arrays, maps or lists of pictures stands for their default
    options.

    Args:
        request: the name of the field, or Boxes, Points, Arrays, Images, Maps or Text.
        field: None for an entry that every sample has, such as "key".

    Raises:
        ConfigError: the options are those of another kind of field.
    """
    if field is None:
        if isinstance(request, str):
            return request
        raise _other_kind_error(request, "not a field of the dataset")
    is_text = field.kind in _TEXT_KINDS
    if is_text and isinstance(request, Text):
        return request

    option_type = _OPTION_TYPES.get(field.kind)
    if isinstance(request, str):
        if option_type is None:
            return request
        request = option_type(request)
    elif option_type is None or not isinstance(request, option_type):
        raise _other_kind_error(request, f"a field of {field.kind}")
    if isinstance(request, Arrays):
        return fit_arrays(request, field)
    if isinstance(request, Maps):
        return fit_maps(request, field)
    if isinstance(request, Points):
        return _with_flip_pairs(request, field)
    assert isinstance(request, (Boxes, Images))
    return request


def _other_kind_error(request: Any, kind: str) -> ConfigError:
    return ConfigError(
        f"fields: got {request!r}, but {request.name!r} is {kind}; pass its name alone"
    )


def _with_flip_pairs(request: Points, field: Field) -> Points:
    """Points without pairs get those that the dataset was packed with."""
    flip_pairs = request.flip_pairs
    if flip_pairs is None and field.flip_pairs:
        flip_pairs = field.flip_pairs
    for pair in flip_pairs or ():
        for point in pair:
            check_point(point, field.points)
    return replace(request, flip_pairs=flip_pairs)


def sample_fields(data: BaseDataset, fields: object) -> dict[str, FieldRequest]:
    """Checks the `fields=` of single samples; returns the same as parse_fields."""
    chosen = parse_fields(data, fields, entries=SAMPLE_FIELDS)
    for request in chosen.values():
        if isinstance(request, Boxes) and request.form != "list":
            raise ConfigError(
                f"fields: a single sample has its boxes as one tensor, got {request!r}; leave "
                "form out"
            )
        if isinstance(request, Text):
            raise ConfigError(
                f"fields: a single sample has its text as it is stored, got {request!r}; texts are "
                f'drawn by fastpipe.loader. Pass the name "{request.name}" alone'
            )
        if isinstance(request, Images) and request.form != "list":
            raise ConfigError(
                f"fields: a single sample has its images as a list, got {request!r}; leave form "
                "out"
            )
        if isinstance(request, Arrays) and request.form in ("flat", "pad"):
            raise ConfigError(
                f"fields: a single sample has its array as one tensor, got {request!r}; leave "
                "form out"
            )
    return chosen


def check_mirrored(chosen: Iterable[FieldRequest], mirroring: str) -> None:
    """Refuses points and directions that would be wrong in mirrored images.

    Args:
        chosen: the fields.
        mirroring: the option that mirrors images; "": none does.

    Raises:
        ConfigError: there are points without flip_pairs, or maps that may have directions and are
            without flip_signs, and images are mirrored.
    """
    if not mirroring:
        return
    way_out = f"leave {mirroring} out"
    if mirroring == "hflip":
        way_out = "pass hflip=False"
    for request in chosen:
        if isinstance(request, Points) and request.flip_pairs is None:
            raise ConfigError(
                f"fields: {request.name!r} has points, and {mirroring} mirrors images: a left eye "
                f"would become a right eye. Pass fastpipe.Points({request.name!r}, "
                "flip_pairs=[(1, 2), ...]), the numbers of the points that change places; "
                f"flip_pairs=[] if there are none; or {way_out}"
            )
        if isinstance(request, Maps) and request.flip_signs is None:
            raise ConfigError(
                f"fields: {request.name!r} has maps of two or three channels of floats, and "
                f"{mirroring} mirrors images: optical flow to the left would have to become flow to "
                f"the right. Pass fastpipe.Maps({request.name!r}, flip_signs=(0,)), the channels "
                f"that change their signs; flip_signs=() if there are none; or {way_out}"
            )


class FieldReader:
    """Reads the values that samples have besides their pictures.

    Args:
        data: the dataset.
        chosen: the fields, as parse_fields returns them.
        crops: for each view, how its pictures become rows; None: they stay whole.
        form: of the images, and so of second pictures; None: nobody calls `slots` and `begin`.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(
        self,
        data: BaseDataset,
        chosen: Mapping[str, FieldRequest],
        crops: Sequence[Crop | WholeImages | None],
        form: PixelForm | None = None,
    ) -> None:
        self._crops = crops
        # By name of the field. A field that comes under several keys is read once.
        self.requests: dict[str, FieldRequest] = {}
        for request in chosen.values():
            name = field_name(request)
            self.requests[name] = request
        self.names = tuple(self.requests)
        # Key of a batch -> the entry that it has: the name of a field, with "_labels" or the like.
        self.keys: dict[str, str] = {}
        for key, request in chosen.items():
            name = field_name(request)
            for entry in list_batch_keys(name, request, data):
                ending = entry.removeprefix(name)
                self.keys[key + ending] = entry

            field = data.fields.get(name)
            if field is not None and field.kind == "images":
                for fact in _facts_of_patches(crops):
                    self.keys[f"{key}_{fact}"] = f"{name}_{fact}"

        # The columns by name, in six groups: numbers and texts; boxes and points; the records of
        # masks and second pictures; those of arrays; of lists of pictures; of maps.
        self._plain: dict[str, ColumnReader] = {}
        self._placed: dict[str, ColumnReader] = {}
        self.pictures: dict[str, ColumnReader] = {}
        self.arrays: dict[str, ArrayReader] = {}
        self.picture_lists: dict[str, PictureListReader] = {}
        self.maps: dict[str, MapReader] = {}
        # By name of the plain columns whose values are sets of classes, the number of classes.
        self._class_counts: dict[str, int] = {}
        self.masks: set[str] = set()  # the names of the pictures that are masks
        # Those of CROP_FIELDS that are asked for. A field of the dataset may have such a name.
        self._crop_fields = []
        for name in self.names:
            if name in CROP_FIELDS and name not in data.fields:
                self._crop_fields.append(name)
        self._source_paths: SourcePaths | None = None  # None: no keys are read
        if "key" in self.names:
            self._source_paths = SourcePaths(data.index)
        for name in self.names:
            field = data.fields.get(name)
            if field is None:
                if name == "source":
                    self._plain[name] = data.open_column(name)
                continue  # the plan of a batch has the others: label, id, ...
            column = data.open_column(name)
            if field.kind in PICTURE_KINDS:
                self.pictures[name] = column
            elif field.kind in ("boxes", "keypoints"):
                self._placed[name] = column
            elif field.kind == "array":
                request = self.requests[name]
                assert isinstance(request, Arrays)
                self.arrays[name] = ArrayReader(field, request, column)
            elif field.kind == "images":
                request = self.requests[name]
                assert isinstance(request, Images)
                self.picture_lists[name] = PictureListReader(request, column)
            elif field.kind == "map":
                request = self.requests[name]
                assert isinstance(request, Maps)
                self.maps[name] = MapReader(field, request, column)
            else:
                self._plain[name] = column
            if field.kind == "mask":
                self.masks.add(name)
            if field.kind == "classes":
                self._class_counts[name] = field.classes

        # By name of masks and second pictures, the shape and the dtype of a pixel in batches.
        self._pixels: dict[str, tuple[tuple[int, ...], DTypeLike]] = {}
        # Without a form, nobody calls `slots` and `begin`, which need the pixels.
        if form is not None:
            for name, column in self.pictures.items():
                if name in self.masks:  # a pixel is one id
                    dtype = _mask_dtype(column, len(data))
                    self._pixels[name] = ((), dtype)
                else:
                    pixel_shape = (form.channels,)
                    self._pixels[name] = (pixel_shape, form.dtype)

    def read(self, plan: BatchPlan, *, seed: int = 0, epoch: int = 0) -> HostFields:
        """The values for the rows of a plan. `seed` and `epoch` are of the draws of texts.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        boxes: dict[str, Boxes] = {}
        for name, request in self.requests.items():
            if isinstance(request, Boxes):
                boxes[name] = request
        images = (*self.pictures, *self.maps)
        arrays = tuple(self.arrays)
        picture_lists = tuple(self.picture_lists)
        maps = {}
        for name, reader in self.maps.items():
            maps[name] = reader.form
        values = HostFields(
            names=self.keys,
            images=images,
            stored_arrays=arrays,
            picture_lists=picture_lists,
            options=boxes,
            maps=maps,
        )
        if self._source_paths is not None:
            paths = self._source_paths.of(plan.samples, plan.records)
            values.lists["key"] = paths
        for name in self._plain:
            column_values = self._read_plain(name, plan, seed, epoch)
            # Texts stay lists on the host; arrays become tensors.
            if isinstance(column_values, list):
                values.lists[name] = column_values
            else:
                values.arrays[name] = column_values
        for view, crop in zip(plan.views, self._crops, strict=True):
            places = self._read_places(view, crop)
            values.places.append(places)
        if self._crop_fields:
            self._add_crops(plan, values)
        return values

    def _read_plain(self, name: str, plan: BatchPlan, seed: int, epoch: int) -> Any:
        """The values of a column of numbers, classes or texts: an array or a list."""
        column = self._plain[name]
        values = column.take(plan.ids)
        if name in self._class_counts:
            class_count = self._class_counts[name]
            return to_multi_hot(values, class_count)
        request = self.requests[name]
        if isinstance(request, Text):
            return draw_texts(request, values, seed=seed, epoch=epoch, names=plan.names)
        return values

    def _add_crops(self, plan: BatchPlan, values: HostFields) -> None:
        """Adds how the images of each view became their rows; see Note [entries of views]."""
        if "original_size" in self._crop_fields:
            # (n, 2) height and width
            heights = plan.records["height"]
            widths = plan.records["width"]
            sizes = np.stack([heights, widths], axis=1)
            values.arrays["original_size"] = sizes.astype(np.int64)
        if "patch" in self._crop_fields and plan.crops.patches is not None:
            values.arrays["patch"] = plan.crops.patches
        rows_per_sample = plan.rows_per_sample
        for number, view in enumerate(plan.views):
            boxes_xywh = view.crops.boxes
            # (rows, 2) each
            left_top = boxes_xywh[:, :2]
            sides = boxes_xywh[:, 2:]
            right_bottom = left_top + sides
            boxes_xyxy = np.concatenate([left_top, right_bottom], axis=1)
            records = plan.by_row().records
            has_image = has_images(records)
            boxes_xyxy[~has_image] = 0  # there is nothing to cut
            crop_boxes = boxes_xyxy.astype(np.float32)
            # (rows, ...) each
            entries = {"crop_box": crop_boxes, "mirrored": view.flips}
            for name, array in entries.items():
                if name not in self._crop_fields:
                    continue
                if rows_per_sample > 1:
                    shape_of_row = array.shape[1:]
                    array = array.reshape(len(plan), rows_per_sample, *shape_of_row)
                entry = f"{number}.{name}"
                values.arrays[entry] = array

    def _read_places(
        self, view_plan: BatchPlan, crop: Crop | WholeImages | None
    ) -> Places:
        """The boxes and points on the rows of a view, moved as its pictures are."""
        if not self._placed:
            return {}
        # A sample with several crops has its boxes and points in each of them.
        rows = view_plan.by_row()
        geometry = None
        if crop is not None:
            # Positions are stored in pixels of the whole picture, and wanted in pixels of the row.
            widths = rows.records["width"].astype(np.int64)
            heights = rows.records["height"].astype(np.int64)
            geometry = geometry_of(crop, rows.crops, widths, heights, rows.flips)

        places: dict[str, Placed] = {}
        for name, column in self._placed.items():
            ragged = column.take(rows.ids)
            # (M, 4) boxes, x0, y0, x1, y1; or (M, K, 3) points, x, y, visibility; of all rows.
            values = ragged.values
            row_of_value = row_of_values(ragged)  # (M,)
            request = self.requests[name]
            if isinstance(request, Points):
                flip_pairs = request.flip_pairs or ()
                if geometry is not None:
                    values = move_points(values, row_of_value, geometry, flip_pairs)
                points = Placed(values, row_of_value, flip_pairs=flip_pairs)
                places[name] = points
            else:
                if geometry is not None:
                    values = move_boxes(values, row_of_value, geometry)
                boxes = Placed(values, row_of_value, labels=ragged.labels)
                places[name] = boxes
        return places

    def slots(self, plan: BatchPlan) -> dict[str, NDArray[Any]]:
        """Memory for the masks, second pictures and maps of a batch; see Note [entries of views]."""
        slots: dict[str, NDArray[Any]] = {}
        for name, (pixel_shape, dtype) in self._pixels.items():
            for number, view in enumerate(plan.views):
                # (rows, height, width) or (rows, height, width, channels); see Crops.slot_shape
                image_shape = view.crops.slot_shape()
                shape = (*image_shape, *pixel_shape)
                entry = f"{number}.{name}"
                slots[entry] = np.empty(shape, dtype)
        for name, reader in self.maps.items():
            for number, view in enumerate(plan.views):
                entry = f"{number}.{name}"
                slots[entry] = reader.slot(view)
        return slots

    def begin(
        self,
        engine: Engine,
        plan: BatchPlan,
        slots: Mapping[str, NDArray[Any]],
        exacts: Sequence[bool],
        rows: Int64s | None = None,
    ) -> Iterator[Job | FetchedJob]:
        """Lets the engine make the masks, second pictures and maps of a batch.

        It begins a job each time the caller takes the next one from the iterator.

        Args:
            engine: of the loader.
            plan: of the batch.
            slots: its memory, of `slots`.
            exacts: of each view, as of Engine.submit.
            rows: (n,) the rows that are filled; None: in order.
        """
        row_ids = plan.by_row().ids
        for name, column in self.pictures.items():
            # Where the picture of each row is stored; the same for all views.
            records = column.take(row_ids)
            views = zip(plan.views, exacts, strict=True)
            for number, (view, exact) in enumerate(views):
                slot = slots[f"{number}.{name}"]
                row_plan = view.by_row()
                yield engine.submit_field(
                    row_plan, records, slot, exact=exact, rows=rows
                )
        for name, reader in self.maps.items():
            for number, view in enumerate(plan.views):
                slot = slots[f"{number}.{name}"]
                row_plan = view.by_row()
                yield reader.begin(engine, row_plan, slot, rows)


def _facts_of_patches(crops: Sequence[Crop | WholeImages | None]) -> tuple[str, ...]:
    """What lists of pictures have beside their patches; empty if they are not cut into patches."""
    for crop in crops:
        if isinstance(crop, Patches):
            return crop.fact_names
    return ()


def _mask_dtype(column: ColumnReader, samples: int) -> DTypeLike:
    """uint8, or int32 if any mask of the dataset has 16 bits: all batches have one dtype.

    Not uint16, for which torch has no arithmetic.
    """
    for ids in spans(samples):
        records = column.take(ids)
        has_16_bits = records["bits"] > 8
        if has_16_bits.any():
            return np.int32
    return np.uint8


def split_by_row(
    values: NDArray[Any], rows: Int64s, plan: BatchPlan
) -> list[NDArray[Any]]:
    """The values that are on each row of a plan.

    Args:
        values: (M, ...)
        rows: (M,) the row of each value, ascending.
        plan: of the rows.
    """
    row_count = len(plan.flips)
    counts = np.bincount(rows, minlength=row_count)
    row_ends = np.cumsum(counts)
    cuts = row_ends[:-1]
    return np.split(values, cuts)


def group_by_sample(row_values: list[Any], plan: BatchPlan) -> list[Any]:
    """The values of rows -> those of samples: of several rows a sample, a list for each sample."""
    rows_per_sample = plan.rows_per_sample
    if rows_per_sample == 1:
        return row_values
    sample_values = []
    for first_row in range(0, len(row_values), rows_per_sample):
        end_row = first_row + rows_per_sample
        values_of_sample = row_values[first_row:end_row]
        sample_values.append(values_of_sample)
    return sample_values


def to_multi_hot(tags: Ragged, classes: int) -> Float32s:
    """(n, classes) float32: 1 for the classes of each sample, else 0."""
    row_count = len(tags.offsets) - 1
    shape = (row_count, classes)
    hot = np.zeros(shape, dtype=np.float32)
    row_of_value = row_of_values(tags)
    # A class that comes twice is set to the same 1.
    hot[row_of_value, tags.values] = 1
    return hot
