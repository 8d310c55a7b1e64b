"""A folder as Pascal VOC or YOLO has it: images, and a file with boxes for each -> rows and fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotation_folders import Beside
from fastpipe.sources.darknet import listed_images
from fastpipe.sources.files import SourcePath, files_below, names_in, open_unchanged
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import is_picture, pick_split
from fastpipe.sources.rows import Row, list_rows
from fastpipe.sources.voc_annotation import Annotation, parse_annotation
from fastpipe.sources.yolo_labels import LabelReader, listed_names, read_data_yaml

_MOST_BYTES = 4 << 20


class _Voc(NamedTuple):
    """An annotation, or why it is none."""

    annotation: Annotation | None
    problem: str | None = None


def list_voc(
    root: Path, beside: Beside, split: str | None, others: Sequence[Beside] = ()
) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order. All splits have the same classes, also
    `others`, which have folders of their own.
    """
    main, folder = root / "ImageSets" / "Main", _local(beside.images)
    splits = [name for name in _stems(main, ".txt") if "_" not in name] if main.is_dir() else []
    parsed = _annotations(_local(beside.labels))
    wanted = list(parsed)
    if splits or split is not None:
        chosen = main / f"{pick_split(split, splits, root)}.txt"
        with open_unchanged(chosen) as text:
            lines = text.read().decode("utf-8-sig", "replace").splitlines()
        wanted = [line.split()[0] for line in lines if line.strip()]
    annotations = [each.annotation for each in parsed.values() if each.annotation is not None]
    of_others = [each for other in others for each in _annotations(_local(other.labels)).values()]
    of_all = annotations + [each.annotation for each in of_others if each.annotation is not None]
    classes = sorted({name for each in of_all for name in each.names})
    numbers = {name: number for number, name in enumerate(classes)}
    first = 0 if any(each.from_zero for each in of_all) else 1
    by_stem: dict[str, list[str]] = defaultdict(list)
    for file in names_in(folder).files:
        if not file.endswith(".xml"):
            by_stem[Path(file).stem].append(file)

    def row(name: str) -> Row:
        where = f"Annotations/{name}.xml"
        found, problem = parsed.get(name) or _Voc(None, "no such annotation")
        if found is None:
            return Row(where, problem=problem)
        path = found.filename
        if "/" not in path and path not in by_stem[Path(path).stem]:
            # Many tools write it without its ending, or another file's; VOC calls an image after its annotation.
            called = (by_stem[stem] for stem in (path, name) if len(by_stem[stem]) == 1)
            path = next(called, [path or f"{name}.jpg"])[0]
        # Pixels are counted from 1, and the last one is inside.
        boxes = [
            [left - first, top - first, right, bottom] for left, top, right, bottom in found.boxes
        ]
        labelled = {"boxes": boxes, "labels": [numbers[each] for each in found.names]}
        return Row(
            where, {"boxes": labelled, "difficult": found.difficult}, path=path, size=found.size
        )

    fields = [SourceField("boxes", "boxes", names=tuple(classes)), SourceField("difficult", "json")]
    listing = list_rows(folder, map(row, wanted), fields, place=folder.name)
    return replace(listing, assumed=tuple(_assumed_of_voc(annotations)))


def _assumed_of_voc(annotations: Sequence[Annotation]) -> Iterator[Assumption]:
    boxes = sum(len(each.boxes) for each in annotations)
    from_zero = sum(each.from_zero for each in annotations)
    if from_zero:
        yield Assumption(
            f"boxes that begin at 0: {from_zero:,} of {boxes:,}; so pixels are counted from 0, not from 1"
        )
    unsaid = sum(each.unsaid for each in annotations)
    if unsaid:
        yield Assumption(
            f"objects that say neither 0 nor 1 as difficult: {unsaid:,}; they are taken as not difficult"
        )
    around = sum(each.around for each in annotations)
    if around:
        yield Assumption(
            f"objects with a polygon and no bndbox: {around:,}; the boxes are those around them"
        )


def _annotations(folder: Path) -> dict[str, _Voc]:
    """Name -> what each annotation of a folder says."""
    return {name: _voc(folder / f"{name}.xml") for name in _stems(folder, ".xml")}


def _stems(folder: Path, ending: str) -> list[str]:
    """The names of files with this ending, without it."""
    return [name.removesuffix(ending) for name in names_in(folder).files if name.endswith(ending)]


def _text(path: Path) -> str:
    """The text of a small file, or an ImageError that says why it has none; "": it is not there."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ImageError(f"{path.name}: expected at most {_MOST_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise ImageError(
            f"{path.name} cannot be read: {getattr(problem, 'strerror', problem)}"
        ) from None


def _voc(path: Path) -> _Voc:
    try:
        return _Voc(parse_annotation(_text(path)))
    except (ValueError, ElementTree.ParseError) as problem:
        return _Voc(None, f"{path.name} is no annotation of VOC: {problem}")


def list_yolo(
    beside: Beside, split: str | None, tops: Sequence[Path], first_label: int = 0
) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a text file have no boxes. The names of
    the classes are in one of `tops`.
    """
    images, labels = _local(beside.images), _local(beside.labels)
    if beside.only is None:
        splits = names_in(images).folders
        split = pick_split(split, splits, images) if split is not None or splits else ""
        images, labels = images / split, labels / split
    paths = sorted(files_below(images, hidden=False))
    is_flat = images == labels
    if is_flat:
        paths = [path for path in paths if is_picture(path)]
    absent = 0
    if beside.only is not None:
        listed = set(listed_images(_local(beside.only), images))
        paths = [path for path in paths if path in listed]
        absent = len(listed) - len(paths)
    has_labels = labels.is_dir()
    below_labels = files_below(labels, hidden=False) if has_labels else []
    texts = {
        path for path in below_labels if path.endswith(".txt") and Path(path).name != "classes.txt"
    }
    text_of = {path: str(Path(path).with_suffix(".txt")) for path in paths}
    stray = texts - set(text_of.values()) if beside.only is None else set()
    if texts and len(stray) == len(texts):
        raise PackError(
            f"none of the {len(texts):,} label files in {readable(str(labels))}, such as {readable(min(texts))}, is "
            f"called after an image in {readable(str(images))}; expected {text_of[paths[0]] if paths else 'images'}"
        )
    data = read_data_yaml(tops)
    if not data.names:
        folders = [*tops, labels, _local(beside.labels)]
        if is_flat:
            folders.append(labels.parent)
        data = data._replace(names=listed_names(list(dict.fromkeys(folders))))
    reader = LabelReader(data, first_label)
    fields = [SourceField("boxes", "boxes", names=data.names)]
    if data.points is not None:
        fields.append(SourceField("keypoints", "keypoints", flip_pairs=data.flip_pairs))
    rows = (
        _yolo_row(path, labels / text_of[path], reader, has_points=data.points is not None)
        for path in paths
    )
    place = images.name if beside.part else "images"
    listing = list_rows(
        images, rows, fields, beside=(f"labels/{path}" for path in stray), place=place
    )
    reader.check_first_label(readable(str(labels)))
    assumed = reader.assumed()
    if not data.names:
        text = "boxes: their classes have no names, for there is no data.yaml and no classes.txt"
        assumed.append(Assumption(text, "--classes-from FILE"))
    if not has_labels:
        assumed.append(Assumption(f"boxes: none, for there is no folder {readable(str(labels))}"))
    bare = sum(text not in texts for text in text_of.values())
    if has_labels and bare:
        assumed.append(
            Assumption(
                f"images without a label file: {bare:,} of {len(paths):,}; they have no boxes"
            )
        )
    if absent:
        assumed.append(
            Assumption(
                f"images that the list names, and that are not there: {absent:,}; they are left out"
            )
        )
    sharing = len(paths) - len(set(text_of.values()))
    if sharing:
        names = "images whose names differ in the ending alone, such as 1.jpg and 1.png"
        assumed.append(Assumption(f"{names}: {sharing:,}; they have the same label file"))
    return replace(listing, assumed=tuple(assumed))


def _local(folder: SourcePath) -> Path:
    """The folder of a source of this machine."""
    return Path(str(folder))


def _yolo_row(path: str, text: Path, reader: LabelReader, *, has_points: bool) -> Row:
    try:
        found = reader.read(_text(text), text.name)
    except ValueError as problem:  # and ImageError
        return Row(path, problem=str(problem), path=path)
    values: dict[str, Any] = {"boxes": {"shares": found.boxes, "labels": found.classes}}
    if has_points:
        values["keypoints"] = {"shares": found.points}
    return Row(path, values, path=path)
