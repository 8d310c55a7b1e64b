"""A folder as YOLO has it: images/, labels/ with a text file an image, and data.yaml with names -> rows and fields."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.source.rows import Row, list_rows
from fastpipe.packing.source.visible import entries_of, files_below

FOLDERS = ("images", "labels")
_MOST_BYTES = 4 << 20


def list_yolo(root: Path, split: str | None) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a text file have no boxes.

    Raises:
        PackError: there is no such split, or several and none is named; or a folder or data.yaml cannot be read.
    """
    splits = [name for name, is_folder in entries_of(root / "images").items() if is_folder]
    if split is not None and split not in splits:
        raise PackError(f"--split {split}: {readable(str(root))}/images has the folders {', '.join(splits) or 'none'}")
    if split is None and splits:
        raise PackError(f"{readable(str(root))}/images has the folders {', '.join(splits)}: --split picks one")
    images, labels = (root / folder / (split or "") for folder in FOLDERS)
    paths = sorted(files_below(images))
    beside = files_below(labels) if labels.is_dir() else []
    texts = {path for path in beside if path.endswith(".txt") and Path(path).name != "classes.txt"}
    stray = sorted(texts - {str(Path(path).with_suffix(".txt")) for path in paths})
    fields = [SourceField("boxes", "boxes", True, _class_names(root))]
    listing = list_rows(images, (_row(path, labels) for path in paths), fields, place="images")
    listing.stray.extend(f"labels/{path}" for path in stray)
    return listing


def _row(path: str, labels: Path) -> Row:
    text = labels / Path(path).with_suffix(".txt")
    try:
        with open(text, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        data = b""
    except OSError as problem:
        return Row(path, problem=f"{text.name} cannot be read: {problem.strerror}", where=path)
    if len(data) > _MOST_BYTES:
        return Row(path, problem=f"{text.name}: expected at most {_MOST_BYTES:,} bytes", where=path)
    boxes, numbers = [], []
    for at, line in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            label, x, y, width, height = int(words[0]), *map(float, words[1:])
        except ValueError:
            why = f"expected a class and x, y, width, height as shares of the image, got {line[:60]!r}"
            return Row(path, problem=f"{text.name}, line {at}: {why}", where=path)
        boxes.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        numbers.append(label)
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
