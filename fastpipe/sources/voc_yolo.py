"""A folder as Pascal VOC or YOLO has it: images, and a file with boxes for each -> rows and fields."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.files import files_below, names_in, open_unchanged
from fastpipe.sources.listing import Listing, SourceField
from fastpipe.sources.options import pick_split
from fastpipe.sources.rows import Row, list_rows

VOC_FOLDERS = ("Annotations", "JPEGImages")
YOLO_FOLDERS = ("images", "labels")
_MOST_BYTES = 4 << 20


def list_voc(root: Path, split: str | None) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order. All splits have the same classes."""
    main, folder = root / "ImageSets" / "Main", root / "JPEGImages"
    splits = [name for name in _stems(main, ".txt") if "_" not in name] if main.is_dir() else []
    parsed = {name: _voc_row(root / "Annotations" / f"{name}.xml") for name in _stems(root / "Annotations", ".xml")}
    wanted = list(parsed)
    if splits or split is not None:
        chosen = main / f"{pick_split(split, splits, root)}.txt"
        with open_unchanged(chosen) as text:
            lines = text.read().decode("utf-8-sig", "replace").splitlines()
        wanted = [line.split()[0] for line in lines if line.strip()]
    labels = [row.values["boxes"]["labels"] for row in parsed.values() if row.problem is None]
    classes = sorted({name for names in labels for name in names})
    by_stem: dict[str, list[str]] = defaultdict(list)
    for file in names_in(folder).files:
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
    return list_rows(folder, map(row, wanted), fields, place="JPEGImages")


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


def list_yolo(root: Path, split: str | None) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a text file have no boxes."""
    splits = names_in(root / "images").folders
    split = pick_split(split, splits, root / "images") if split is not None or splits else ""
    images, labels = (root / folder / split for folder in YOLO_FOLDERS)
    paths = sorted(files_below(images, hidden=False))
    beside = files_below(labels, hidden=False) if labels.is_dir() else []
    texts = {path for path in beside if path.endswith(".txt") and Path(path).name != "classes.txt"}
    stray = texts - {str(Path(path).with_suffix(".txt")) for path in paths}
    names = _class_names(root)
    rows = (_yolo_row(path, labels, len(names) or 1 << 31) for path in paths)
    fields = [SourceField("boxes", "boxes", names=names)]
    return list_rows(images, rows, fields, beside=(f"labels/{path}" for path in stray), place="images")


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
        said: Any = yaml.safe_load(file.read_text("utf-8"))["names"]
        names = {int(number): name for number, name in (enumerate(said) if isinstance(said, list) else said.items())}
        if max(names, default=0) > 100_000 or not all(isinstance(name, str) for name in names.values()):
            raise ValueError("got numbers over 100,000, or names that are no texts")
        return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, yaml.YAMLError) as problem:
        raise PackError(f"{readable(str(file))}: expected names of the classes: {problem}") from problem
