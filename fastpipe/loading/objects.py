"""The fields of boxes at which, or around which, crops cut images: found, checked, opened."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.index import Index
from fastpipe.device.augment import Augment
from fastpipe.errors import ConfigError
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.crops import Crop, CropAt
from fastpipe.plan.recipe import Recipe
from fastpipe.plan.whole_images import WholeImages


def open_objects(dataset: Dataset, recipe: Recipe) -> dict[str, ColumnReader]:
    """The fields of boxes that the crops of a recipe name, by name.

    Raises:
        ConfigError: the dataset has no such field, or it is not one of boxes.
        DatasetError: the field's files are missing or damaged.
    """
    columns = {}
    for view in recipe.views:
        name = view.crop.objects_field
        if name is not None and name not in columns:
            _check_boxes(dataset, name, view.crop)
            columns[name] = dataset.open_column(name)
    return columns


def names_of_labels(index: Index, crop: Crop | WholeImages) -> list[str] | None:
    """The names of the labels of boxes, if these are the labels of rows; None: samples have them."""
    if not isinstance(crop, CropAt):
        return None
    field = index.fields[crop.name]
    return list(field.names) if field.labelled else None


def check_class_count(
    names: list[str] | None,
    crop: Crop | WholeImages,
    augments: Sequence[Augment | None],
) -> None:
    """Raises ConfigError for soft labels of boxes whose classes nobody knows.

    `names` are those of the labels of boxes; see names_of_labels.
    """
    if names is None or names:
        return
    for augment in augments:
        if augment is not None and augment.soft and augment.num_classes is None:
            raise ConfigError(
                f"augment: soft labels need the number of classes, and the labels of "
                f"{crop.objects_field!r} have no names. Pass num_classes= to fastpipe.Augment"
            )


def _check_boxes(dataset: Dataset, name: str, crop: Crop | WholeImages) -> None:
    option = f"CropAt({name!r})"
    if not isinstance(crop, CropAt):
        option = f"{type(crop).__name__}(where={name!r})"
    field = dataset.fields.get(name)
    if field is not None and field.kind == "boxes":
        return
    if field is None:
        problem = f"{dataset.path} has no field {name!r}"
    else:
        problem = (
            f"{name!r} of {dataset.path} is a field of kind {field.kind}, not of boxes"
        )
    fields_of_boxes = []
    for other_name, other in dataset.fields.items():
        if other.kind == "boxes":
            fields_of_boxes.append(other_name)
    if fields_of_boxes:
        advice = f". Pass one of its fields of boxes: {', '.join(fields_of_boxes)}"
    elif dataset.index.packed:
        advice = (
            ", and no other field has boxes. Pack annotations with the images: `fastpipe pack` "
            "reads COCO, YOLO, VOC and tables of boxes"
        )
    else:
        advice = (
            ". Only packed datasets have fields of boxes: pack it with `fastpipe pack`"
        )
    raise ConfigError(f"crop: {option}: {problem}{advice}")
