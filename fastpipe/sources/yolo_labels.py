"""Label files and data.yaml, as Ultralytics' YOLO has them -> shares of boxes, classes and points of each image.

Formats: https://docs.ultralytics.com/datasets/detect, .../segment, .../pose and .../obb
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.darknet import names_file
from fastpipe.sources.listing import Assumption
from fastpipe.sources.yolo_yaml import YAML_FILES, load_yaml

_MOST_CLASSES = 100_000
_NO_NAMES = 1 << 31  # classes may have any number up to it
_BOX, _WITH_ONE_MORE = 5, 6  # columns of a line
_CORNERS = 8  # numbers of a box of DOTA's, before the name of its class
FIRST_LABEL = "--first-label 1"


class DataYaml(NamedTuple):
    """What a data.yaml says of all images."""

    names: tuple[
        str, ...
    ] = ()  # of the classes, by number; "" where one is missing; (): it says none
    points: tuple[int, int] | None = (
        None  # points an object, and numbers a point: 2, or 3 with its visibility
    )
    flip_index: tuple[int, ...] = ()  # the point of a mirrored image that takes the place of each

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((one, other) for one, other in enumerate(self.flip_index) if one < other)


def read_data_yaml(folders: Sequence[Path]) -> DataYaml:
    """Of the first folder that has one; without such a file it says nothing."""
    file = next(
        (folder / name for folder in folders for name in YAML_FILES if (folder / name).is_file()),
        None,
    )
    if file is None:
        return DataYaml()
    said = load_yaml(file)
    try:
        points = _points(said.get("kpt_shape"))
        names = _names(said["names"])
        if "nc" in said and said["nc"] not in (len(names), len(said["names"])):
            raise ValueError(f"nc is {said['nc']!r:.20}, and there are {len(said['names'])} names")
        return DataYaml(names, points, _flip_index(said.get("flip_idx"), points))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise PackError(
            f"{readable(str(file))}: expected names of the classes: {problem}"
        ) from problem


def _names(said: Any) -> tuple[str, ...]:
    names = {
        int(number): name
        for number, name in (enumerate(said) if isinstance(said, list) else said.items())
    }
    texts = {number: str(name) if type(name) is int else name for number, name in names.items()}
    if max(texts, default=0) > _MOST_CLASSES or not all(
        isinstance(name, str) for name in texts.values()
    ):
        raise ValueError(f"got numbers over {_MOST_CLASSES:,}, or names that are no texts")
    return tuple(texts.get(number, "") for number in range(max(texts, default=-1) + 1))


def _points(said: Any) -> tuple[int, int] | None:
    if said is None:
        return None
    count, numbers = map(int, said)
    if count < 1 or numbers not in (2, 3):
        raise ValueError(
            f"kpt_shape: expected the number of points, and 2 or 3 numbers a point; got {said!r:.60}"
        )
    return count, numbers


def _flip_index(said: Any, points: tuple[int, int] | None) -> tuple[int, ...]:
    if not said or points is None:
        return ()
    if sorted(said) != list(range(points[0])):
        raise ValueError(
            f"flip_idx: expected the numbers 0 to {points[0] - 1} in another order, got {said!r:.60}"
        )
    return tuple(said)


def listed_names(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names of a classes.txt, obj.names or the like in the first folder that has one."""
    file = names_file(folders)
    if file is None:
        return ()
    lines = file.read_bytes().decode("utf-8-sig", "replace").splitlines()
    names = [line.strip() for line in lines]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


@dataclass
class Labels:
    """The labels of one image."""

    boxes: list[list[float]]  # left, top, right and bottom, as shares of the image
    classes: list[int]
    points: list[list[list[float]]]  # x, y as shares, and visibility


class LabelReader:
    """Reads the label files of a source, and counts what they have beside boxes."""

    def __init__(self, data: DataYaml, first_label: int) -> None:
        self._data, self._first = data, first_label
        self._classes = len(data.names) or _NO_NAMES
        self._polygons = self._sixths = self._twice = self._of_first = self._past_last = 0

    def read(self, text: str, name: str) -> Labels:
        """ValueError: a line cannot be, with its number; `name` is the file's."""
        found, seen = Labels([], [], []), set[tuple[float, ...]]()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words:
                continue
            try:
                numbers = tuple(map(float, words))
                label = self._class(numbers[0])
                box, points = self._shape(numbers)
            except ValueError as problem:
                raise ValueError(
                    f"{name}, line {number}: {self._expected(words, problem)}, got {line[:60]!r}"
                ) from None
            if numbers in seen:  # Ultralytics leaves it out, too
                self._twice += 1
                continue
            seen.add(numbers)
            found.boxes.append(box)
            found.classes.append(label)
            found.points.append(points)
        return found

    def _class(self, number: float) -> int:
        if not number.is_integer():
            raise ValueError
        label = int(number) - self._first
        self._of_first += label == 0
        self._past_last += label == self._classes
        if not 0 <= label < self._classes:
            raise ValueError
        return label

    def _shape(self, numbers: tuple[float, ...]) -> tuple[list[float], list[list[float]]]:
        """The box and the points of a line."""
        count = len(numbers)
        if self._data.points is not None:
            points, each = self._data.points
            if count != _BOX + points * each:
                raise ValueError
            rest = numbers[_BOX:]
            visible = [[*rest[at : at + each], 2.0][:3] for at in range(0, len(rest), each)]
            return _box(numbers[1:_BOX]), visible
        if count in (_BOX, _WITH_ONE_MORE):
            self._sixths += count == _WITH_ONE_MORE
            return _box(numbers[1:_BOX]), []
        if count < _WITH_ONE_MORE or count % 2 == 0:
            raise ValueError
        self._polygons += 1
        xs, ys = numbers[1::2], numbers[2::2]
        return [min(xs), min(ys), max(xs), max(ys)], []

    def _expected(self, words: Sequence[str], problem: ValueError) -> str:
        if len(words) > _CORNERS and not _is_number(words[_CORNERS]):
            return "expected shares of the image, and a class first; this is a line of DOTA's: convert it to YOLO's OBB"
        most = self._classes - 1 + self._first
        shares = "x, y, width, height"
        if self._data.points is not None:
            shares += f" and {self._data.points[0]} points of {self._data.points[1]} numbers"
        return f"expected a class from {self._first} to {most} and {shares} as shares of the image"

    def check_first_label(self, folder: object) -> None:
        """PackError: classes are counted from 1, so that most labels would be those of the next class."""
        if self._past_last and not self._of_first and not self._first:
            names = self._data.names
            raise PackError(
                f"{folder}: the highest label is {len(names)}, none is 0, and there are {len(names)} names: the labels "
                f"are counted from 1. With {FIRST_LABEL}, label 1 is the class {names[0]!r:.60}"
            )

    def assumed(self) -> list[Assumption]:
        """What was read otherwise than it stands there."""
        found = []
        if self._polygons:
            found.append(
                Assumption(
                    f"polygons or rotated boxes in label files: {self._polygons:,}; the boxes are those around them"
                )
            )
        if self._sixths:
            found.append(
                Assumption(
                    f"lines with a sixth number, such as a confidence or a track: {self._sixths:,}; it is left out"
                )
            )
        if self._twice:
            found.append(
                Assumption(
                    f"lines that stand twice in a label file: {self._twice:,}; each is taken once"
                )
            )
        return found


def _box(numbers: Sequence[float]) -> list[float]:
    x, y, width, height = numbers
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
