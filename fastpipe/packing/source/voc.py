"""A folder as Pascal VOC has it: Annotations/*.xml, JPEGImages, ImageSets/Main -> rows and fields."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.rows import Row, list_rows

FOLDERS = ("Annotations", "JPEGImages")
_MOST_BYTES = 4 << 20


def list_voc(root: Path, split: str | None) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    Labels of boxes are the places of the names of all annotations, sorted; so all splits have the same.

    Raises:
        PackError: there is no such split, or several and none is named.
    """
    sets = {path.stem: path for path in (root / "ImageSets" / "Main").glob("*.txt") if "_" not in path.stem}
    named = sorted(path.stem for path in (root / "Annotations").glob("*.xml"))
    parsed = {name: _parse(root / "Annotations" / f"{name}.xml") for name in named}
    if split is not None and split not in sets:
        raise PackError(
            f"--split {split}: {readable(str(root))}/ImageSets/Main has {', '.join(sorted(sets)) or 'none'}"
        )
    if split is None and len(sets) > 1:
        raise PackError(f"{readable(str(root))} has the splits {', '.join(sorted(sets))}: --split picks one")
    wanted = named
    if sets:
        chosen = sets[split] if split is not None else next(iter(sets.values()))
        wanted = [line.split()[0] for line in chosen.read_text("utf-8", "replace").splitlines() if line.strip()]
    classes = sorted({each for found in parsed.values() if not isinstance(found, str) for each in found.names})
    rows = (_row(name, parsed.get(name), classes) for name in wanted)
    fields = [SourceField("boxes", "boxes", True, tuple(classes)), SourceField("difficult", "json", True)]
    return list_rows(root / "JPEGImages", rows, fields)


class _Objects:
    """What an annotation says: the image's file and size, and names, boxes and flags of its objects."""

    def __init__(self, top: ElementTree.Element) -> None:
        def number(element: ElementTree.Element, name: str) -> float:
            return float(element.findtext(name) or "none")

        self.file = top.findtext("filename") or ""
        self.size = int(top.findtext("size/width") or 0), int(top.findtext("size/height") or 0)
        objects = top.findall("object")
        self.names = [(each.findtext("name") or "").strip() for each in objects]
        self.difficult = [int(each.findtext("difficult") or 0) for each in objects]
        self.boxes = [  # pixels are counted from 1, and the last one belongs to the box
            [number(box, "xmin") - 1, number(box, "ymin") - 1, number(box, "xmax"), number(box, "ymax")]
            for each in objects
            for box in each.findall("bndbox")[:1] or [ElementTree.Element("bndbox")]
        ]


def _parse(path: Path) -> _Objects | str:
    """The objects of an annotation, or why they cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
        if len(data) > _MOST_BYTES or "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities could grow without end
            return f"{path.name}: expected at most {_MOST_BYTES:,} bytes, and no DOCTYPE"
        return _Objects(ElementTree.fromstring(text))
    except OSError as problem:
        return f"{path.name} cannot be read: {problem.strerror}"
    except (ValueError, ElementTree.ParseError) as problem:
        return f"{path.name} is no annotation of VOC: {problem}"


def _row(name: str, found: _Objects | str | None, classes: list[str]) -> Row:
    where = f"Annotations/{name}.xml"
    if found is None or isinstance(found, str):
        return Row("", problem=found or "no such annotation", where=where)
    boxes = {"boxes": found.boxes, "labels": [classes.index(each) for each in found.names]}
    size = found.size if all(found.size) else None
    return Row(found.file or f"{name}.jpg", None, {"boxes": boxes, "difficult": found.difficult}, None, where, size)
