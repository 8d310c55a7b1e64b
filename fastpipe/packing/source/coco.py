"""COCO's annotations, of one file or of several about the same images -> the images' rows and fields.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.coco_notes import Annotated, Annotation, is_object, read_annotations
from fastpipe.packing.source.column_kinds import xyxy
from fastpipe.packing.source.files import SourcePath, names_in
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.options import FieldColumn, SourceOptions
from fastpipe.packing.source.rows import Row, list_rows, row_name

_TASK = re.compile(r"(instances|person_keypoints|captions)_(.+)\.json")
_TASKS = ("instances", "person_keypoints", "captions")
_OWN = {"bbox": ("boxes", "boxes"), "keypoints": ("keypoints", "keypoints"), "caption": ("captions", "json")}
_BESIDE = ("iscrowd", "area")
_MASKS = ("segmentation", "instances")


def coco_files(folder: SourcePath) -> dict[str, list[SourcePath]]:
    """Split -> the files of a folder that COCO calls after it, such as instances_val2017.json; tasks in order."""
    found: dict[str, list[tuple[int, SourcePath]]] = {}
    for name in names_in(folder):
        match = _TASK.fullmatch(name)
        if match is not None:
            found.setdefault(match[2], []).append((_TASKS.index(match[1]), folder / name))
    return {split: [path for _, path in sorted(found[split])] for split in sorted(found)}


def list_coco(paths: Sequence[SourcePath], how: SourceOptions, image_roots: Sequence[SourcePath]) -> Listing:
    """Lists the images of COCO's files, in no order.

    Args:
        paths: files about the same images; annotations of several with one id are one.
        how: which fields count.
        image_roots: folders that may hold the images, if the user has not said.

    Raises:
        PackError: a file is damaged, or two do not agree, or it is not certain where the images are.
    """
    how = replace(how, fields=how.fields and tuple(map(_by_entry, how.fields)))
    columns = [*_OWN, *_BESIDE] if how.fields is None else [field.column for field in how.fields]
    annotated = read_annotations(paths, [*columns, "category_id", "iscrowd", "segmentation" if _draws(how) else "id"])
    fields = _fields(annotated, how)
    root = how.root_of_images() or _image_root(annotated, image_roots)
    return list_rows(root, _rows(annotated, fields), [field for field, _ in fields])


def _by_entry(field: FieldColumn) -> FieldColumn:
    """The same with the entry of COCO for what is called as the field that is made of it: boxes for bbox."""
    return field._replace(column=next((entry for entry, own in _OWN.items() if own[0] == field.column), field.column))


def _draws(how: SourceOptions) -> bool:
    return any(field.column in _MASKS for field in how.fields or ())


def _image_root(annotated: Annotated, roots: Sequence[SourcePath]) -> SourcePath:
    first = next((image.path for image in annotated.images if isinstance(image.path, str)), "")
    here = []
    for root in dict.fromkeys(roots):
        try:
            if first and (root / first).is_file():
                here.append(root)
        except (OSError, ValueError):
            break
    if len(here) == 1:
        return here[0]
    names = ", ".join(readable(str(root)) for root in (here or dict.fromkeys(roots)))
    found = f"is in several: {names}" if here else f"is in none of {names}"
    raise PackError(
        f"{readable(str(annotated.paths[0]))}: the first image, {first[:200]!r}, {found}. --image-root says where the "
        "images are"
    )


def _fields(annotated: Annotated, how: SourceOptions) -> list[tuple[SourceField, str]]:
    """The fields, each with the entry of an annotation that it is made of."""
    wanted: list[FieldColumn] = list(how.fields or ())
    if how.fields is None:
        columns = [*_OWN, *_BESIDE]
        wanted = [FieldColumn(_OWN.get(name, (name, ""))[0], name) for name in columns if name in annotated.entries]
    return [(_field(annotated, each), each.column) for each in wanted]


def _field(annotated: Annotated, wanted: FieldColumn) -> SourceField:
    name, column, kind = wanted
    asked = f"--field {name}={column}" + (f":{kind}" if kind else "")
    file = readable(str(annotated.paths[0]))
    needs = "segmentation" if column == "instances" else column
    if needs not in annotated.entries:
        there = ", ".join(sorted(annotated.entries)[:20])
        raise PackError(f"{asked}: the annotations of {file} have {there or 'no entries'}")
    if column in _MASKS and (kind == "mask" or column == "instances"):
        if kind != "mask":
            raise PackError(f"{asked}: the numbers of instances are a mask; expected --field {name}={column}:mask")
        if importlib.util.find_spec("pycocotools") is None:
            raise PackError(f"{asked}: masks need pycocotools: pip install 'fastpipe[coco]'")
        if column == "segmentation" and 0 in annotated.categories:
            raise PackError(
                f"{asked}: category 0 of {file} has the number of the background; pack instances={needs}:mask"
            )
        return SourceField(name, "mask", True, annotated.names if column == "segmentation" else ())
    expected = _OWN.get(column, ("", "json"))[1]
    if column == "caption" and not annotated.several_captions:
        expected = "text" if kind != "json" else "json"
    if kind not in (None, expected):
        raise PackError(f"{asked}: expected the kind {expected}, or none")
    if expected == "boxes":
        return SourceField(name, "boxes", True, annotated.names)
    if expected == "keypoints":
        return SourceField(name, "keypoints", True, annotated.points, flip_pairs(annotated.points))
    return SourceField(name, expected, True)


def flip_pairs(points: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The points that change places in a mirrored image: those whose names differ in left and right only."""
    place = {name: number for number, name in enumerate(points)}
    mirrored = (re.sub("left|right", lambda side: {"left": "right"}.get(side[0], "left"), name) for name in points)
    pairs = ((number, place.get(name, number)) for number, name in enumerate(mirrored))
    return tuple(pair for pair in pairs if pair[0] < pair[1])


def _rows(annotated: Annotated, fields: Sequence[tuple[SourceField, str]]) -> Iterator[Row]:
    for image, of_image in annotated:
        where = row_name(f"{annotated.paths[0].name}/images", image.number)
        if not isinstance(image.path, str):
            yield Row("", problem=f"expected a file_name, got {image.path!r:.60}", where=where)
            continue
        values: dict[str, Any] = {}
        problem = image.problem
        for field, column in fields:
            try:
                values[field.name] = _value(annotated, field, column, of_image)
            except _WrongAnnotationError as wrong:
                problem = problem or f"field {field.name}: {wrong}"
        yield Row(image.path, None, values, problem, where, image.size)
    for number, file, image_id in annotated.lost:
        where = row_name(f"{annotated.paths[file].name}/annotations", number)
        yield Row("", problem=f"expected the image_id of one of the images, got {image_id}", where=where)


class _WrongAnnotationError(ValueError):
    """An annotation cannot be; the message is the reason."""


def _value(annotated: Annotated, field: SourceField, column: str, of_image: Sequence[Annotation]) -> Any:
    """The value of a field of one image."""
    if column == "caption":
        captions = [each.entry["caption"] for each in of_image if "caption" in each.entry]
        return captions if field.kind == "json" else next(iter(captions), None)
    objects = [each for each in of_image if is_object(each.entry)]
    if field.kind == "boxes":
        return _boxes(annotated, objects)
    if field.kind == "keypoints":
        return [_points(each, len(annotated.points)) for each in objects]
    if field.kind != "mask":
        return [each.entry.get(column) for each in objects]
    if column == "instances":
        shapes = [(number, each) for number, each in enumerate(objects, 1)]
    else:
        shapes = [(_category(annotated, each), each) for each in objects]
    shapes.sort(key=lambda shape: not shape[1].entry.get("iscrowd"))  # crowds first: they cover no single object
    return {"shapes": [(number, each.entry.get("segmentation") or []) for number, each in shapes]}


def _boxes(annotated: Annotated, objects: Sequence[Annotation]) -> dict[str, Any]:
    try:
        return xyxy([each.entry.get("bbox") for each in objects], [_category(annotated, each) for each in objects])
    except _WrongAnnotationError:
        raise
    except ValueError as problem:
        for each in objects:
            try:
                xyxy([each.entry.get("bbox")], None)
            except ValueError as one:
                raise _WrongAnnotationError(f"{each.name}: {one}") from None
        raise _WrongAnnotationError(str(problem)) from None


def _category(annotated: Annotated, annotation: Annotation) -> int:
    number = annotation.entry.get("category_id")
    if type(number) is not int or number not in annotated.categories:
        raise _WrongAnnotationError(f"{annotation.name}: expected a category_id of the categories, got {number!r:.60}")
    return number


def _points(annotation: Annotation, points: int) -> list[list[float]]:
    flat = annotation.entry.get("keypoints")
    if flat is None:
        return [[0, 0, 0]] * points
    if not isinstance(flat, list) or len(flat) != 3 * points:
        got = f"{len(flat)}" if isinstance(flat, list) else repr(flat)[:60]
        raise _WrongAnnotationError(f"{annotation.name}: expected 3 x {points} numbers as keypoints, got {got}")
    return [flat[at : at + 3] for at in range(0, len(flat), 3)]
