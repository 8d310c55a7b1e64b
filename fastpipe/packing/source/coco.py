"""COCO's annotations, of one file or of several about the same images -> the images' rows and fields.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.packing.source.coco_notes import Annotated, Annotation, is_object
from fastpipe.packing.source.column_kinds import xyxy
from fastpipe.packing.source.field_names import named
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.options import FieldColumn, SourceOptions
from fastpipe.packing.source.rows import Row, list_rows, row_name

T = TypeVar("T")

_TASKS = ("instances", "person_keypoints", "captions")
_OWN = {"bbox": ("boxes", "boxes"), "keypoints": ("keypoints", "keypoints"), "caption": ("captions", "json")}
_BESIDE = ("iscrowd", "area")
_ALL = (*(FieldColumn(name, entry) for entry, (name, _) in _OWN.items()), *map(FieldColumn, _BESIDE, _BESIDE))
_MASKS = ("segmentation", "instances")


def coco_files(folder: SourcePath, names: Sequence[str]) -> dict[str, list[SourcePath]]:
    """Split -> the files of a folder that COCO calls after it, such as instances_val2017.json; tasks in order."""
    found: dict[str, list[SourcePath]] = {}
    for task in _TASKS:
        for name in names:
            split = name.removeprefix(f"{task}_").removesuffix(".json")
            if split and name == f"{task}_{split}.json":
                found.setdefault(split, []).append(folder / name)
    return dict(sorted(found.items()))


def list_coco(paths: Sequence[SourcePath], how: SourceOptions) -> Listing:
    """Lists the images of COCO's files, in no order.

    Args:
        paths: files about the same images; annotations of several with one id are one.
        how: which fields count.

    Raises:
        PackError: a file is damaged, or two do not agree, or it is not certain where the images are.
    """
    # A field that is called as COCO's own is made of the entry that this is made of: boxes of bbox.
    entry_of = {name: entry for entry, (name, _) in _OWN.items()}
    asked = how.fields and [each._replace(column=entry_of.get(each.column, each.column)) for each in how.fields]
    columns = {each.column for each in asked or _ALL}
    drawn = {"segmentation"} if columns & set(_MASKS) else set()
    annotated = Annotated(paths, {*columns, "category_id", "iscrowd", *drawn})
    if asked is None:
        asked = [each for each in _ALL if each.column in annotated.entries]
    fields = [_field(annotated, each) for each in asked]
    root = how.root_of_images() or _image_root(annotated, how.split)
    return list_rows(root, _rows(annotated, fields), fields)


def _image_root(annotated: Annotated, split: str | None) -> SourcePath:
    """The folder with the first image: beside the annotations, or called after their split."""
    path = annotated.paths[0]
    task, _, after = path.stem.partition("_")
    split = split or (after if task in ("instances", "captions") else after.removeprefix("keypoints_"))
    tops = dict.fromkeys([path.parent, path.parent.parent] if path.parent.name == "annotations" else [path.parent])
    roots = dict.fromkeys(root for top in tops for root in (top, top / "images", top / split, top / "images" / split))
    first = next((image.path for image in annotated.images if image.path), "")
    here = []
    for root in roots:
        try:
            if first and (root / first).is_file():
                here.append(root)
        except (OSError, ValueError):
            break
    if len(here) == 1:
        return here[0]
    names = ", ".join(readable(str(root)) for root in here or roots)
    found = f"is in several: {names}" if here else f"is in none of {names}"
    raise PackError(
        f"{readable(str(path))}: the first image, {first[:200]!r}, {found}. --image-root says where the images are"
    )


def _field(annotated: Annotated, asked: FieldColumn) -> SourceField:
    name, column, kind = asked
    file = readable(str(annotated.paths[0]))
    needs = "segmentation" if column == "instances" else column
    if needs not in annotated.entries:
        raise PackError(f"{asked}: the annotations of {file} have {named(annotated.entries)}")
    if column in _MASKS and (kind == "mask" or column == "instances"):
        if kind != "mask":
            raise PackError(f"{asked}: the numbers of instances are a mask; expected --field {name}={column}:mask")
        if importlib.util.find_spec("pycocotools") is None:
            raise PackError(f"{asked}: masks need pycocotools: pip install 'fastpipe[coco]'")
        if column == "segmentation" and 0 in annotated.categories:
            raise PackError(
                f"{asked}: category 0 of {file} has the number of the background; pack instances={needs}:mask"
            )
        return SourceField(name, "mask", names=annotated.names if column == "segmentation" else (), column=column)
    expected = _OWN.get(column, ("", "json"))[1]
    if column == "caption" and not annotated.several_captions:
        expected = "text" if kind != "json" else "json"
    if kind not in (None, expected):
        raise PackError(f"{asked}: expected the kind {expected}, or none")
    names = {"boxes": annotated.names, "keypoints": annotated.points}.get(expected, ())
    pairs = flip_pairs(names) if expected == "keypoints" else ()
    return SourceField(name, expected, names=names, flip_pairs=pairs, column=column)


def flip_pairs(points: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The points that change places in a mirrored image: those whose names differ in left and right only."""
    place = {name: number for number, name in enumerate(points)}
    mirrored = (re.sub("left|right", lambda side: {"left": "right"}.get(side[0], "left"), name) for name in points)
    pairs = ((number, place.get(name, number)) for number, name in enumerate(mirrored))
    return tuple(pair for pair in pairs if pair[0] < pair[1])


def _rows(annotated: Annotated, fields: Sequence[SourceField]) -> Iterator[Row]:
    for image, of_image in annotated:
        values: dict[str, Any] = {}
        problem = image.problem
        for field in fields:
            try:
                values[field.name] = _value(annotated, field, of_image)
            except ImageError as wrong:
                problem = problem or f"field {field.name}: {wrong}"
        yield image._replace(values=values, problem=problem)
    for number, file, image_id in annotated.lost:
        where = row_name(f"{annotated.paths[file].name}/annotations", number)
        yield Row("", problem=f"expected the image_id of one of the images, got {image_id}", where=where)


def _value(annotated: Annotated, field: SourceField, of_image: Sequence[Annotation]) -> Any:
    """The value of a field of one image."""
    if field.column == "caption":
        captions = [each.entry["caption"] for each in of_image if "caption" in each.entry]
        return captions if field.kind == "json" else next(iter(captions), None)
    objects = [each for each in of_image if is_object(each.entry)]
    if field.kind == "boxes":
        labels = _each(objects, annotated.category)
        return {"boxes": _each(objects, _box), "labels": labels}
    if field.kind == "keypoints":
        return _each(objects, lambda entry: _points(entry, len(annotated.points)))
    if field.kind != "mask":
        return [each.entry.get(field.column) for each in objects]
    numbered = field.column == "instances"
    numbers = range(1, len(objects) + 1) if numbered else _each(objects, annotated.category)
    shapes = [(number, each.entry) for number, each in zip(numbers, objects, strict=True)]
    shapes.sort(key=lambda shape: not shape[1].get("iscrowd"))  # crowds first: they cover no single object
    return {"shapes": [(number, entry.get("segmentation") or []) for number, entry in shapes]}


def _each(objects: Sequence[Annotation], value: Callable[[dict[str, Any]], T]) -> list[T]:
    """A value of each annotation; an error names the annotation."""
    found = []
    for each in objects:
        try:
            found.append(value(each.entry))
        except ImageError as problem:
            raise ImageError(f"{each.name}: {problem}") from None
    return found


def _box(entry: dict[str, Any]) -> list[float]:
    (box,) = xyxy([entry.get("bbox")], None)["boxes"]
    return list(box)


def _points(entry: dict[str, Any], points: int) -> list[list[float]]:
    flat = entry.get("keypoints")
    if flat is None:
        return [[0, 0, 0]] * points
    if not isinstance(flat, list) or len(flat) != 3 * points:
        got = f"{len(flat)}" if isinstance(flat, list) else repr(flat)[:60]
        raise ImageError(f"expected 3 x {points} numbers as keypoints, got {got}")
    return [flat[at : at + 3] for at in range(0, len(flat), 3)]
