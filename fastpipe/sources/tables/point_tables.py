"""A table of landmarks as WFLW or DeepLabCut writes it -> rows with the keypoints of each image.

Formats: README of https://wywu.github.io/projects/LAB/WFLW.html: in a line x and y of 98 points, then
perhaps the corners of the face and six attributes of it, and the path of the image last. CollectedData_ME.csv
of https://github.com/DeepLabCut/DeepLabCut: rows scorer, bodyparts and coords above the rows of images,
which begin with the parts of a path; a row individuals where there are several animals. A missing
point has no numbers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError
from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, open_binary, open_unchanged
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.rows import Row, row_name

# Columns of the rows, and the kinds of their fields.
KINDS: Mapping[str, str] = {"keypoints": "keypoints", "boxes": "boxes"}
_HEAD_BYTES = 1 << 16
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
# Fewer numbers before a path are the box of an object.
_MIN_NUMBERS = 12
_ATTRIBUTES = ("pose", "expression", "illumination", "make-up", "occlusion", "blur")
# The corners of a face and its attributes stand behind its points.
_NUM_BEHIND_POINTS = 4 + len(_ATTRIBUTES)
_SCORER, _INDIVIDUALS, _PARTS, _COORDS = "scorer", "individuals", "bodyparts", "coords"
_VISIBLE = 2
_MISSING = [0.0, 0.0, 0]
_NOT_A_NUMBER = ("", "nan")


class _Header(NamedTuple):
    """The rows above the images in a file of DeepLabCut.

    Attributes:
        path_count: how many cells at the start of a row are parts of its path.
        objects: the cells of x of each point, for each animal.
        row_count: of the header.
    """

    path_count: int
    objects: tuple[tuple[int, ...], ...]
    row_count: int


def find_point_table(
    path: SourcePath, options: SourceOptions
) -> Callable[[], Iterator[Row]] | None:
    """The function that reads the rows of a table of landmarks; None if the file is another table.

    None behind a URL, too, where each look at a file is a request.
    """
    if not isinstance(path, Path):
        return None
    try:
        with open_binary(path) as file:
            data = open_as_utf8(file, options.encoding, str(path)).read(_HEAD_BYTES)
    except (OSError, PackError):
        return None  # the reader of tables says why it cannot be read
    lines = data.decode("utf-8-sig", "replace").splitlines()
    if len(data) == _HEAD_BYTES:
        lines.pop()  # it may be cut off
    if is_list_of_points([line for line in lines if line.strip()]):
        return partial(_read_list, path, options)
    header = _parse_header(lines)
    if header is not None:
        return partial(_read_table, path, header, options)
    return None


def is_list_of_points(lines: Sequence[str]) -> bool:
    """Whether each line has many numbers, and the name of a picture behind them."""
    return bool(lines) and all(_split(line) is not None for line in lines)


def _split(line: str) -> tuple[list[float], str] | None:
    """The numbers of a line, and the path behind them; None if it is another line."""
    words = line.split()
    if len(words) <= _MIN_NUMBERS or not is_picture(words[-1]):
        return None
    numbers = words[:-1]
    if len(numbers) % 2 or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    return [float(word) for word in numbers], words[-1]


def _read_list(path: SourcePath, options: SourceOptions) -> Iterator[Row]:
    """Reads a list of WFLW: a row for each image, with all its faces."""
    where_of_image: dict[str, str] = {}
    faces_of_image: dict[str, list[list[float]]] = {}
    with open_unchanged(path) as opened:
        for number, line in enumerate(
            open_as_utf8(opened, options.encoding, str(path)), 1
        ):
            text = line.decode("utf-8-sig", "replace")
            if not text.strip():
                continue
            entry = _split(text)
            if entry is None:
                problem = f"line {number}: expected points and the path of an image, got {text[:60]!r}"
                yield Row(row_name(path.name, number), problem=problem)
                continue
            numbers, image = entry
            where_of_image.setdefault(image, row_name(path.name, number))
            faces_of_image.setdefault(image, []).append(numbers)

    for image, faces in faces_of_image.items():
        yield Row(where_of_image[image], {"path": image, **_values_of_faces(faces)})


def _values_of_faces(faces: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The points of the faces of an image, and their boxes and attributes, if the list has them."""
    keypoints = []
    boxes = []
    attributes = []
    for numbers in faces:
        points = list(numbers)
        if _has_box(numbers):
            points = points[:-_NUM_BEHIND_POINTS]
            behind = numbers[-_NUM_BEHIND_POINTS:]
            boxes.append(list(behind[:4]))
            flags = [int(flag) for flag in behind[4:]]
            attributes.append(dict(zip(_ATTRIBUTES, flags, strict=True)))
        pairs = zip(points[::2], points[1::2], strict=True)
        keypoints.append([[x, y, _VISIBLE] for x, y in pairs])
    values: dict[str, Any] = {"keypoints": keypoints}
    if boxes:
        values["boxes"] = boxes
        values["attributes"] = attributes
    return values


def _has_box(numbers: Sequence[float]) -> bool:
    """Whether the last ten numbers are the corners of a face and six flags."""
    if len(numbers) < _MIN_NUMBERS + _NUM_BEHIND_POINTS:
        return False
    behind = numbers[-_NUM_BEHIND_POINTS:]
    left, top, right, bottom = behind[:4]
    are_flags = all(flag in (0, 1) for flag in behind[4:])
    return are_flags and left <= right and top <= bottom


def _parse_header(lines: Iterable[str]) -> _Header | None:
    """The header of a file of DeepLabCut; None if it is another file."""
    rows: dict[str, list[str]] = {}
    try:
        for cells in csv.reader(lines):
            name = cells[0].strip().lower() if cells else ""
            if name not in (_SCORER, _INDIVIDUALS, _PARTS, _COORDS):
                break
            rows[name] = [cell.strip() for cell in cells]
    except csv.Error:
        return None
    if not rows.keys() >= {_SCORER, _PARTS, _COORDS}:
        return None
    coords = [cell.lower() for cell in rows[_COORDS]]
    x_cells = [index for index, cell in enumerate(coords) if cell == "x"]
    if not x_cells or any(coords[index + 1 : index + 2] != ["y"] for index in x_cells):
        return None
    animals = rows.get(_INDIVIDUALS, rows[_SCORER])
    cells_of_animal: dict[str, list[int]] = {}
    for index in x_cells:
        cells_of_animal.setdefault(animals[index], []).append(index)
    objects = tuple(tuple(cells) for cells in cells_of_animal.values())
    # Points of the scene beside the animals are no points of one.
    if len({len(cells) for cells in objects}) > 1:
        return None
    return _Header(x_cells[0], objects, len(rows))


def _read_table(path: Path, header: _Header, options: SourceOptions) -> Iterator[Row]:
    """Reads the rows of a file of DeepLabCut."""
    with open_unchanged(path) as opened:
        data = open_as_utf8(opened, options.encoding, str(path)).read()
    for number, cells in enumerate(csv.reader(data.decode("utf-8-sig").splitlines())):
        if number < header.row_count or not any(cells):
            continue
        where = row_name(path.name, number)
        image = "/".join(filter(None, cells[: header.path_count])).replace("\\", "/")
        try:
            objects = [_points_of(cells, x_cells) for x_cells in header.objects]
        except (ValueError, IndexError):
            problem = (
                f"row {number + 1}: expected x and y of each point, got {cells!r:.60}"
            )
            yield Row(where, problem=problem)
            continue
        # An animal of which nothing is seen is not on the image.
        keypoints = [points for points in objects if any(map(any, points))]
        name = _name_beside(path, image, options)
        yield Row(where, {"path": name, "keypoints": keypoints})


def _points_of(cells: Sequence[str], x_cells: Sequence[int]) -> list[list[float]]:
    """x, y and visibility of the points of an animal. ValueError, IndexError: one is no number."""
    points: list[list[float]] = []
    for index in x_cells:
        x, y = (cell.strip() for cell in cells[index : index + 2])
        if x.lower() in _NOT_A_NUMBER and y.lower() in _NOT_A_NUMBER:
            points.append(list(_MISSING))
        else:
            points.append([float(x), float(y), _VISIBLE])
    return points


def _name_beside(path: Path, image: str, options: SourceOptions) -> str:
    """The name of an image beside the table, which writes its path from the project's folder."""
    name = image.rpartition("/")[2]
    if options.image_root is not None:
        return image
    return name if (path.parent / name).is_file() else image
