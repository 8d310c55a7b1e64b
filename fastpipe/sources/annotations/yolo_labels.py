"""Label files, as Ultralytics' YOLO has them -> shares of boxes, classes and points of each image.

Formats: https://docs.ultralytics.com/datasets/detect, .../segment, .../pose and .../obb
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError
from fastpipe.sources.annotations.annotation_files import is_number
from fastpipe.sources.annotations.yolo_yaml import DataYaml, read_data_yaml
from fastpipe.sources.files import files_below
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import KEEP_IMAGE
from fastpipe.sources.tables.label_text import read_label_text

# The limit where no file names the classes.
_MAX_CLASSES = 1 << 31
# A line begins with the class and the box (cxcywh).
_BOX_COLUMNS = 5
# A class, and at least three corners; a class and four corners.
_MIN_POLYGON = 7
_ROTATED_BOX = 9
# So many label files show what they have.
_FILES_CHECKED = 16
# A box may end outside its image, but not be much larger.
_MAX_SHARE = 2
# DOTA has the name of the class in this column, behind the four corners of a box in pixels.
_DOTA_NAME_COLUMN = 8


class Labels(NamedTuple):
    """The labels of one image; each list has an entry an object."""

    # Left, top, right and bottom (xyxy), as shares of the image.
    boxes: list[list[float]]
    classes: list[int]
    points: list[list[list[float]]]  # x, y as shares, and visibility
    polygons: list[list[float]]  # x, y, x, y, ... as shares; empty for a box
    bad_line_count: int = 0  # lines that are not labels, and are left out


class LabelReader:
    """Parses the label files of a source, and counts what was not read as it is written."""

    def __init__(
        self, data: DataYaml, first_label: int, *, drops_bad_lines: bool = False
    ) -> None:
        self._data = data
        self._drops_bad_lines = drops_bad_lines
        self._first_label = first_label
        self._class_count = len(data.names) or _MAX_CLASSES
        self._polygon_count = 0
        # How many numbers stand in the lines of polygons; one if all lines are alike.
        self._polygon_lengths: set[int] = set()
        # Whether each polygon may be a box and points inside it.
        self._may_be_points = True
        self._sixth_number_count = 0
        self._repeated_line_count = 0
        self._has_first_class = False
        self._has_class_behind_last = False

    def parse(self, text: str, file_name: str) -> Labels:
        """ValueError: a line is wrong, and such lines are not dropped."""
        labels = Labels([], [], [], [])
        bad_line_count = 0
        earlier_lines = set[tuple[float, ...]]()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words:
                continue
            try:
                numbers = _parse_numbers(words)
                label = self._parse_class(numbers[0])
                box, points, polygon = self._parse_shape(numbers)
                in_pixels = _is_in_pixels(box)
            except ValueError:
                if self._drops_bad_lines:
                    bad_line_count += 1
                    continue
                raise ValueError(
                    f"{file_name}, line {number}: {self._describe_line(words)}, got "
                    f"{line[:60]!r}; {KEEP_IMAGE}"
                ) from None
            if in_pixels and self._drops_bad_lines:
                bad_line_count += 1
                continue
            if in_pixels:
                raise ValueError(
                    f"{file_name}, line {number}: expected normalised coordinates (0 to 1), got "
                    f"{line[:60]!r}, which looks like pixels: divide x and width by the image's width, "
                    "y and height by its height"
                )
            # Tools write a box twice by mistake. Ultralytics leaves out the second, too.
            if numbers in earlier_lines:
                self._repeated_line_count += 1
                continue
            earlier_lines.add(numbers)
            labels.boxes.append(box)
            labels.classes.append(label)
            labels.points.append(points)
            labels.polygons.append(polygon)
        return labels._replace(bad_line_count=bad_line_count)

    def _parse_class(self, number: float) -> int:
        if not number.is_integer():
            raise ValueError
        label = int(number) - self._first_label
        # Noted for `check_first_label`, also of lines that are refused.
        if label == 0:
            self._has_first_class = True
        if label == self._class_count:
            self._has_class_behind_last = True
        if not 0 <= label < self._class_count:
            raise ValueError
        return label

    def _parse_shape(
        self, numbers: tuple[float, ...]
    ) -> tuple[list[float], list[list[float]], list[float]]:
        """The box (xyxy), the points and the polygon of a line, as shares of the image.

        Raises:
            ValueError: the line has another form. It has no text: `parse` describes the line.
        """
        if len(numbers) < _BOX_COLUMNS:
            raise ValueError
        rest = numbers[_BOX_COLUMNS:]
        point_shape = self._data.points
        if point_shape is not None:
            num_dims = point_shape.num_dims
            if len(rest) != point_shape.num_points * num_dims:
                raise ValueError
            points: list[list[float]] = []
            for start in range(0, len(rest), num_dims):
                x, y, *visibility = rest[start : start + num_dims]
                # 2 is COCO's "labelled and visible".
                points.append([x, y, *(visibility or [2.0])])
            return _corners(numbers), points, []

        # A sixth number is no error: detectors write their confidence, trackers an id.
        if len(rest) <= 1:
            if rest:
                self._sixth_number_count += 1
            return _corners(numbers), [], []
        # Noted for `check_points`, also of lines that are refused: keypoints of three numbers.
        self._polygon_lengths.add(len(numbers))
        self._may_be_points = self._may_be_points and _has_points_in_box(numbers)
        # A polygon is a class, which is one number, and pairs of x and y.
        if len(numbers) % 2 == 0:
            raise ValueError
        self._polygon_count += 1
        xs = numbers[1::2]
        ys = numbers[2::2]
        box = [min(xs), min(ys), max(xs), max(ys)]
        return box, [], list(numbers[1:])

    def _describe_line(self, words: Sequence[str]) -> str:
        """Says what a line should have had."""
        if len(words) > _DOTA_NAME_COLUMN and not is_number(words[_DOTA_NAME_COLUMN]):
            return (
                "expected a class and normalised coordinates (0 to 1); this is a line of DOTA's: "
                "convert it to YOLO's OBB"
            )
        last_label = self._class_count - 1 + self._first_label
        numbers = "x, y, width, height"
        if self._data.points is not None:
            num_points, num_dims = self._data.points
            numbers += f" and {num_points} points of {num_dims} numbers"
        return (
            f"expected a class from {self._first_label} to {last_label} and {numbers}, normalised "
            "(0 to 1)"
        )

    def check_first_label(self, folder: str) -> None:
        """PackError: classes are counted from 1, so most labels would be the next class."""
        if (
            self._first_label
            or self._has_first_class
            or not self._has_class_behind_last
        ):
            return
        names = self._data.names
        raise PackError(
            f"{folder}: the highest label is {len(names)}, none is 0, and there are {len(names)} "
            f"names: the labels are counted from 1. With --first-label 1, label 1 is the class "
            f"{names[0]!r:.60}"
        )

    def check_points(self, folder: str) -> None:
        """PackError: the lines are a box and keypoints, and no data.yaml says how many."""
        # Polygons have any number of corners; four corners are those of a rotated box.
        if (
            not self._may_be_points
            or len(self._polygon_lengths) != 1
            or self._polygon_lengths == {1 + 2 * 4}
        ):
            return
        count = self._polygon_lengths.copy().pop() - _BOX_COLUMNS
        shape = f"[{count // 2}, 2]" if count % 3 else f"[{count // 3}, 3]"
        raise PackError(
            f"{folder}: each line has a box and {count} numbers that lie in it, so they are "
            "keypoints, and no data.yaml says how many. Write a file data.yaml beside the folders, "
            f"with names: and kpt_shape: {shape}"
        )

    def assumptions(self, *, has_masks: bool) -> list[Assumption]:
        """Says which lines were changed or left out. `has_masks`: masks are made of polygons."""
        assumed: list[Assumption] = []
        if self._polygon_count and not has_masks:
            text = (
                f"polygons or rotated boxes in label files: {self._polygon_count:,}; the boxes are "
                "those around them, and the outlines and angles are lost"
            )
            option = "--field boxes --field mask=segmentation:mask"
            assumed.append(Assumption(text, option))
        if self._sixth_number_count:
            text = (
                "lines with a sixth number, such as a confidence or a track: "
                f"{self._sixth_number_count:,}; it is left out"
            )
            assumed.append(Assumption(text))
        if self._repeated_line_count:
            text = (
                f"lines that are listed twice in a label file: {self._repeated_line_count:,}; each is "
                "taken once"
            )
            assumed.append(Assumption(text))
        return assumed


def describe_polygons(folder: Path, tops: Sequence[Path]) -> str:
    """Says behind the splits how to make masks of a folder's label files; "" if they have boxes.

    Args:
        folder: has the label files of one split.
        tops: the folders that may have data.yaml.
    """
    try:
        if read_data_yaml(tops).points is not None or not _have_polygons(folder):
            return ""
    except (PackError, ValueError):
        return ""  # the pack says which file is wrong
    return (
        ". The label files have polygons: add --field boxes --field mask=segmentation:mask to pack "
        "boxes and masks"
    )


def _have_polygons(folder: Path) -> bool:
    """Whether all lines of the first label files in a folder are polygons.

    A box has no outline for a mask. Where all have four corners, they are rotated boxes.

    Raises:
        ImageError: a file cannot be read.
    """
    if not folder.is_dir():
        return False
    names = (path for path in files_below(folder) if path.endswith(".txt"))
    num_polygons = 0
    for name in islice(names, _FILES_CHECKED):
        for line in read_label_text(folder / name).splitlines():
            words = line.split()
            if not words:
                continue
            is_polygon = len(words) >= _MIN_POLYGON and len(words) % 2 == 1
            if not is_polygon or not all(map(is_number, words)):
                return False
            if len(words) != _ROTATED_BOX:
                num_polygons += 1
    return num_polygons > 0


def _parse_numbers(words: Sequence[str]) -> tuple[float, ...]:
    """The numbers of a line. ValueError: a word is none, or is nan or inf."""
    numbers = tuple(map(float, words))
    if not all(map(math.isfinite, numbers)):
        raise ValueError
    return numbers


def _corners(numbers: Sequence[float]) -> list[float]:
    """Left, top, right and bottom (xyxy) of the box at the start of a line, which is cxcywh."""
    _, x, y, width, height = numbers[:_BOX_COLUMNS]
    half_width = width / 2
    half_height = height / 2
    return [x - half_width, y - half_height, x + half_width, y + half_height]


def _is_in_pixels(box: Sequence[float]) -> bool:
    """Whether a box has sides that no share of an image can be. It must not be cut to the image."""
    left, top, right, bottom = box
    return max(right - left, bottom - top) > _MAX_SHARE


def _has_points_in_box(numbers: Sequence[float]) -> bool:
    """Whether the numbers behind the box of a line are points in it, with or without visibility."""
    left, top, right, bottom = _corners(numbers)
    rest = numbers[_BOX_COLUMNS:]
    for num_dims in (2, 3):
        if len(rest) % num_dims:
            continue
        xs = rest[0::num_dims]
        ys = rest[1::num_dims]
        # A point that is not visible is 0, 0.
        if all(
            (x == 0 and y == 0) or (left <= x <= right and top <= y <= bottom)
            for x, y in zip(xs, ys, strict=True)
        ):
            return True
    return False
