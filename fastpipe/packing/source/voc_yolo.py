"""A folder as Pascal VOC or YOLO has it: images, and a file with boxes for each -> rows and fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.packing.source.files import files_below, names_in
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.options import pick_split
from fastpipe.packing.source.rows import Row, list_rows

VOC_FOLDERS = ("Annotations", "JPEGImages")
YOLO_FOLDERS = ("images", "labels")
_MOST_BYTES = 4 << 20


def list_voc(root: Path, split: str | None) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    Labels of boxes are the places of the names of all annotations, sorted; so all splits have the same.

    Raises:
        PackError: there is no such split, or several and none is named; or a folder or a split cannot be read.
    """
    main = root / "ImageSets" / "Main"
    splits = [name for name in _names(main, ".txt") if "_" not in name] if main.is_dir() else []
    parsed = {name: _parse(root / "Annotations" / f"{name}.xml") for name in _names(root / "Annotations", ".xml")}
    wanted = list(parsed)
    if splits or split is not None:
        chosen = main / f"{pick_split(split, splits, root)}.txt"
        try:
            lines = chosen.read_text("utf-8-sig", "replace").splitlines()
        except OSError as problem:
            raise PackError(f"cannot read {readable(str(chosen))}: {problem.strerror}") from problem
        wanted = [line.split()[0] for line in lines if line.strip()]
    classes = sorted({each for found in parsed.values() if not isinstance(found, str) for each in found.names})
    images = _Images(root / "JPEGImages")
    rows = (_voc_row(name, parsed.get(name), classes, images) for name in wanted)
    fields = [SourceField("boxes", "boxes", names=tuple(classes)), SourceField("difficult", "json")]
    return list_rows(root / "JPEGImages", rows, fields, place="JPEGImages")


class _Images:
    """The files in JPEGImages, by what annotations call them.

    Many tools write <filename> without its ending, or that of another file; VOC calls an image after its annotation.
    """

    def __init__(self, folder: Path) -> None:
        self._files = set(names_in(folder).files)
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
    return [name.removesuffix(ending) for name in names_in(folder).files if name.endswith(ending)]


def _text(path: Path, absent: str | None = None) -> str:
    """The text of a small file; `absent` is that of one that is not there.

    Raises:
        ImageError: it cannot be read, or is no such text; the message is the reason.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ImageError(f"{path.name}: expected at most {_MOST_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as problem:
        if absent is not None and isinstance(problem, FileNotFoundError):
            return absent
        raise ImageError(f"{path.name} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise ImageError(f"{path.name}: expected UTF-8, got a byte {data[problem.start]:#04x}") from None


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
        text = _text(path)
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            return f"{path.name}: expected no DOCTYPE, for entities could grow without end"
        return _Objects(ElementTree.fromstring(text))
    except ImageError as problem:
        return str(problem)
    except (ValueError, ElementTree.ParseError) as problem:
        return f"{path.name} is no annotation of VOC: {problem}"


def _voc_row(name: str, found: _Objects | str | None, classes: list[str], images: _Images) -> Row:
    where = f"Annotations/{name}.xml"
    if found is None or isinstance(found, str):
        return Row("", problem=found or "no such annotation", where=where)
    boxes = {"boxes": found.boxes, "labels": [classes.index(each) for each in found.names]}
    size = found.size if all(found.size) else None
    values = {"boxes": boxes, "difficult": found.difficult}
    return Row(images.called(found.file, name), None, values, None, where, size)


def list_yolo(root: Path, split: str | None) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a text file have no boxes.

    Raises:
        PackError: there is no such split, or several and none is named; or a folder or data.yaml cannot be read.
    """
    splits = names_in(root / "images").folders
    if split is not None or splits:
        split = pick_split(split, splits, root / "images", "the folders")
    images, labels = (root / folder / (split or "") for folder in YOLO_FOLDERS)
    paths = sorted(files_below(images, hidden=False))
    beside = files_below(labels, hidden=False) if labels.is_dir() else []
    texts = {path for path in beside if path.endswith(".txt") and Path(path).name != "classes.txt"}
    stray = sorted(texts - {str(Path(path).with_suffix(".txt")) for path in paths})
    fields = [SourceField("boxes", "boxes", names=_class_names(root))]
    listing = list_rows(images, (_yolo_row(path, labels) for path in paths), fields, place="images")
    listing.stray.extend(f"labels/{path}" for path in stray)
    return listing


def _yolo_row(path: str, labels: Path) -> Row:
    text = labels / Path(path).with_suffix(".txt")
    boxes, numbers = [], []
    try:
        for at, line in enumerate(_text(text, absent="").splitlines(), 1):
            words = line.split()
            if not words:
                continue
            try:
                label, x, y, width, height = int(words[0]), *map(float, words[1:])
            except ValueError:
                raise ImageError(
                    f"{text.name}, line {at}: expected a class and x, y, width, height as shares of the image, got "
                    f"{line[:60]!r}"
                ) from None
            boxes.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            numbers.append(label)
    except ImageError as problem:
        return Row(path, problem=str(problem), where=path)
    return Row(path, None, {"boxes": {"shares": boxes, "labels": numbers}}, where=path)


def _class_names(root: Path) -> tuple[str, ...]:
    """The names of the classes, by number; none without a data.yaml."""
    file = next((root / name for name in ("data.yaml", "dataset.yaml") if (root / name).is_file()), None)
    if file is None:
        return ()
    try:
        import yaml
    except ImportError as problem:
        raise PackError(f"{readable(str(file))} needs PyYAML ({problem}): pip install pyyaml") from problem
    try:
        names: Any = yaml.safe_load(file.read_text("utf-8"))["names"]
        names = (
            dict(enumerate(names)) if isinstance(names, list) else {int(number): name for number, name in names.items()}
        )
        if max(names, default=0) > 100_000 or not all(isinstance(name, str) for name in names.values()):
            raise ValueError("got numbers over 100,000, or names that are no texts")
        return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, yaml.YAMLError) as problem:
        raise PackError(f"{readable(str(file))}: expected names of the classes: {problem}") from problem
