"""A folder as Pascal VOC or YOLO has it: images, and a file with boxes for each -> rows and fields."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotation_folders import Beside
from fastpipe.sources.files import SourcePath, files_below, names_in, open_unchanged
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import pick_split
from fastpipe.sources.rows import Row, list_rows
from fastpipe.sources.yolo_yaml import class_names

VOC_FOLDERS = ("Annotations", "JPEGImages")
_MOST_BYTES = 4 << 20


def list_voc(root: Path, beside: Beside, split: str | None, others: Sequence[Beside] = ()) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order. All splits have the same classes, also
    `others`, which have folders of their own.
    """
    main, folder, annotations = root / "ImageSets" / "Main", _local(beside.images), _local(beside.labels)
    splits = [name for name in _stems(main, ".txt") if "_" not in name] if main.is_dir() else []
    parsed = _voc_rows(annotations)
    wanted = list(parsed)
    if splits or split is not None:
        chosen = main / f"{pick_split(split, splits, root)}.txt"
        with open_unchanged(chosen) as text:
            lines = text.read().decode("utf-8-sig", "replace").splitlines()
        wanted = [line.split()[0] for line in lines if line.strip()]
    rows = [*parsed.values(), *(row for each in others for row in _voc_rows(_local(each.labels)).values())]
    classes = sorted({name for row in rows if row.problem is None for name in row.values["boxes"]["labels"]})
    by_stem: dict[str, list[str]] = defaultdict(list)
    for file in names_in(folder).files:
        if not file.endswith(".xml"):
            by_stem[Path(file).stem].append(file)

    def row(name: str) -> Row:
        found = parsed.get(name) or Row(f"Annotations/{name}.xml", problem="no such annotation")
        if found.problem is not None:
            return found
        path, boxes = found.path, found.values["boxes"]
        if "/" not in path and path not in by_stem[Path(path).stem]:
            # Many tools write it without its ending, or another file's; VOC calls an image after its annotation.
            called = (by_stem[stem] for stem in (path, name) if len(by_stem[stem]) == 1)
            path = next(called, [path or f"{name}.jpg"])[0]
        numbered = {**boxes, "labels": [classes.index(each) for each in boxes["labels"]]}
        return found._replace(values={**found.values, "boxes": numbered}, path=path)

    fields = [SourceField("boxes", "boxes", names=tuple(classes)), SourceField("difficult", "json")]
    return list_rows(folder, map(row, wanted), fields, place=folder.name)


def _voc_rows(annotations: Path) -> dict[str, Row]:
    """Name -> what each annotation of a folder says."""
    return {name: _voc_row(annotations / f"{name}.xml") for name in _stems(annotations, ".xml")}


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
        raise ImageError(f"{path.name} cannot be read: {getattr(problem, 'strerror', problem)}") from None


def _voc_row(path: Path) -> Row:
    """What an annotation says of its image; labels are names."""
    where = f"Annotations/{path.name}"
    try:
        text = _text(path)
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise ValueError("expected no DOCTYPE, for entities could grow without end")
        root = ElementTree.fromstring(text)
        width, height = (int(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        boxes, names, difficult = [], [], []
        for each in root.findall("object"):
            sides = ("xmin", "ymin", "xmax", "ymax")
            left, top, right, bottom = (float(each.findtext(f"bndbox/{side}") or "none") for side in sides)
            boxes.append([left - 1, top - 1, right, bottom])  # pixels are counted from 1; the last one is inside
            names.append((each.findtext("name") or "").strip())
            difficult.append(int(each.findtext("difficult") or 0))
    except (ValueError, ElementTree.ParseError) as problem:
        return Row(where, problem=f"{path.name} is no annotation of VOC: {problem}")
    values = {"boxes": {"boxes": boxes, "labels": names}, "difficult": difficult}
    size = (width, height) if width and height else None
    return Row(where, values, path=root.findtext("filename") or "", size=size)


def list_yolo(beside: Beside, split: str | None, tops: Sequence[Path]) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a text file have no boxes. The names of
    the classes are in one of `tops`.
    """
    images, labels = _local(beside.images), _local(beside.labels)
    if beside.only is None:
        splits = names_in(images).folders
        split = pick_split(split, splits, images) if split is not None or splits else ""
        images, labels = images / split, labels / split
    paths = sorted(files_below(images, hidden=False))
    if beside.only is not None:
        listed = set(_listed_images(_local(beside.only), images))
        paths = [path for path in paths if path in listed]
    there = labels.is_dir()
    beside_images = files_below(labels, hidden=False) if there and beside.only is None else []
    texts = {path for path in beside_images if path.endswith(".txt") and Path(path).name != "classes.txt"}
    stray = texts - {str(Path(path).with_suffix(".txt")) for path in paths}
    names = class_names([*tops, _local(beside.labels)])
    rows = (_yolo_row(path, labels, len(names) or 1 << 31) for path in paths)
    fields = [SourceField("boxes", "boxes", names=names)]
    place = images.name if beside.part else "images"
    listing = list_rows(images, rows, fields, beside=(f"labels/{path}" for path in stray), place=place)
    assumed = [] if there else [Assumption(f"boxes: none, for there is no folder {readable(str(labels))}")]
    if not names:
        assumed.append(Assumption("boxes: their classes have no names, for there is no data.yaml and no classes.txt"))
    return replace(listing, assumed=tuple(assumed))


def _local(folder: SourcePath) -> Path:
    """The folder of a source of this machine."""
    return Path(str(folder))


def _listed_images(file: Path, images: Path) -> Iterator[str]:
    """The images of a list, relative to their folder."""
    top = os.path.abspath(images)
    with open_unchanged(file) as text:
        lines = text.read().decode("utf-8-sig", "replace").splitlines()
    for line in filter(None, map(str.strip, lines)):
        path = os.path.abspath(file.parent / line)
        if not path.startswith(f"{top}/"):
            raise PackError(f"{readable(str(file))}: expected images below {readable(top)}, got {line[:200]!r}")
        yield os.path.relpath(path, top)


def _yolo_row(path: str, labels: Path, classes: int) -> Row:
    text = labels / Path(path).with_suffix(".txt")
    boxes, numbers = [], []
    try:
        for at, line in enumerate(_text(text).splitlines(), 1):
            where = f"{text.name}, line {at}"
            if words := line.split():
                label, x, y, width, height = int(words[0]), *map(float, words[1:])
                boxes.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
                numbers.append(range(classes).index(label))  # ValueError: there is no such class
    except ImageError as problem:
        return Row(path, problem=str(problem), path=path)
    except ValueError:
        expected = f"a class from 0 to {classes - 1} and x, y, width, height as shares of the image"
        return Row(path, problem=f"{where}: expected {expected}, got {line[:60]!r}", path=path)
    return Row(path, {"boxes": {"shares": boxes, "labels": numbers}}, path=path)
