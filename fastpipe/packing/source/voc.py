"""A folder as Pascal VOC has it: Annotations/*.xml, JPEGImages, ImageSets/Main -> rows and fields."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.rows import Row, list_rows
from fastpipe.packing.source.visible import entries_of

FOLDERS = ("Annotations", "JPEGImages")
_MOST_BYTES = 4 << 20


def list_voc(root: Path, split: str | None) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    Labels of boxes are the places of the names of all annotations, sorted; so all splits have the same.

    Raises:
        PackError: there is no such split, or several and none is named; or a folder or a split cannot be read.
    """
    main = root / "ImageSets" / "Main"
    sets = {name: main / f"{name}.txt" for name in _names(main, ".txt") if "_" not in name} if main.is_dir() else {}
    named = _names(root / "Annotations", ".xml")
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
        wanted = [line.split()[0] for line in _text(chosen).splitlines() if line.strip()]
    classes = sorted({each for found in parsed.values() if not isinstance(found, str) for each in found.names})
    images = _Images(root / "JPEGImages")
    rows = (_row(name, parsed.get(name), classes, images) for name in wanted)
    fields = [SourceField("boxes", "boxes", True, tuple(classes)), SourceField("difficult", "json", True)]
    return list_rows(root / "JPEGImages", rows, fields, place="JPEGImages")


class _Images:
    """The files in JPEGImages, by what annotations call them.

    Many tools write <filename> without its ending, or that of another file; VOC calls an image after its annotation.
    """

    def __init__(self, folder: Path) -> None:
        self._files = entries_of(folder)
        self._by_stem: dict[str, list[str]] = {}
        for name in self._files:
            self._by_stem.setdefault(Path(name).stem, []).append(name)

    def called(self, file: str, annotation: str) -> str:
        """The file of an annotation of this name, whose <filename> is `file`."""
        if file in self._files or "/" in file:
            return file
        for stem in (file, annotation):
            if len(found := self._by_stem.get(stem, [])) == 1:
                return found[0]
        return file or f"{annotation}.jpg"


def _names(folder: Path, ending: str) -> list[str]:
    """The names of files with this ending, without it."""
    return [name.removesuffix(ending) for name in entries_of(folder) if name.endswith(ending)]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig", "replace")
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(path))}: {problem.strerror}") from problem


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


def _row(name: str, found: _Objects | str | None, classes: list[str], images: _Images) -> Row:
    where = f"Annotations/{name}.xml"
    if found is None or isinstance(found, str):
        return Row("", problem=found or "no such annotation", where=where)
    boxes = {"boxes": found.boxes, "labels": [classes.index(each) for each in found.names]}
    size = found.size if all(found.size) else None
    values = {"boxes": boxes, "difficult": found.difficult}
    return Row(images.called(found.file, name), None, values, None, where, size)
