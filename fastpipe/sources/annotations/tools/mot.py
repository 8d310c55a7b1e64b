"""gt/gt.txt of a sequence of MOTChallenge -> its frames with the boxes of tracked people.

Format: https://arxiv.org/abs/1603.00831, section 3.3, and https://motchallenge.net/instructions: a
line for each box: frame, id of the track, left, top, width, height, whether it counts, class,
visibility. Frames, tracks and pixels are counted from 1. In MOT15, three numbers of a place in the
world stand behind the seventh one, and all boxes are pedestrians.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import readable
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_of_size,
    number,
)
from fastpipe.sources.files import names_in, open_unchanged

# What this reader is called.
READER = "MOT"
# The file and its folder, in that of the sequence.
FOLDER = "gt"
FILE = "gt.txt"
_IMAGES = "img1"
_SEQUENCE = "seqinfo.ini"
_NUM_CELLS = (9, 10)
_NUM_CELLS_OF_2015 = 10
_PEDESTRIAN = "pedestrian"
# By their number, which is counted from 1. MOT20 has the last one.
_CLASSES = (
    _PEDESTRIAN,
    "person on vehicle",
    "car",
    "bicycle",
    "motorbike",
    "non motorized vehicle",
    "static person",
    "distractor",
    "occluder",
    "occluder on the ground",
    "occluder full",
    "reflection",
    "crowd",
)
_FROM_1 = "boxes of MOT: {}; MOT counts pixels from 1, so left and top are 1 less than in gt.txt"
# MOT17 has each sequence three times, with the detections of three detectors.
_OF_DETECTOR = re.compile(r"(MOT17-\d+)-(?:DPM|FRCNN|SDP)")
_REPEATED = (
    "boxes in sequences of MOT17 that are packed several times, once for each detector (DPM, "
    "FRCNN, SDP): {}; their frames are the same, so pass a folder with one of them"
)


def is_list_of_boxes(lines: Sequence[str]) -> bool:
    """Whether all lines have nine or ten numbers, the first of them a frame and a track."""
    return all(_parse_line(line) is not None for line in lines)


def _parse_line(line: str) -> list[float] | None:
    """The numbers of a box; None if the line has something else."""
    cells = line.split(",")
    if len(cells) not in _NUM_CELLS:
        return None
    try:
        values = [number(cell) for cell in cells]
    except ValueError:
        return None
    frame, track = values[:2]
    if frame < 1 or not frame.is_integer() or not track.is_integer():
        return None
    return values


def parse(path: Path) -> Iterator[AnnotatedImage]:
    """The frames of a sequence, also those without a box. ValueError: the file is damaged."""
    sequence = path.absolute().parent.parent
    folder = sequence / _folder_of_images(sequence)
    images: dict[int, AnnotatedImage] = {}
    if folder.is_dir():
        for name in names_in(folder).files:
            stem = name.rpartition(".")[0]
            if is_picture(name) and stem.isdecimal():
                images[int(stem)] = AnnotatedImage(
                    f"{sequence.name}/{folder.name}/{name}", may_leave_image=True
                )
    if not images:
        raise ValueError(
            f"expected its frames in {readable(str(folder))}, called by their numbers, as "
            "000001.jpg"
        )
    is_repeated = _is_repeated(sequence)
    with open_unchanged(path) as file:
        text = file.read().decode("utf-8-sig")
    for index, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        cells = _parse_line(line)
        if cells is None:
            raise ValueError(
                f"line {index}: expected the nine numbers of a box, got {line[:60]!r}"
            )
        image_of_frame = images.get(int(cells[0]))
        if image_of_frame is None:
            raise ValueError(
                f"line {index}: the frame {int(cells[0])} is not in {readable(str(folder))}"
            )
        _add_box(image_of_frame, cells)
    for image in images.values():
        if image.boxes and is_repeated:
            image.remarks[_REPEATED] += len(image.boxes)
        yield image


def _add_box(image: AnnotatedImage, cells: Sequence[float]) -> None:
    _, track, left, top, width, height, counts, class_number = cells[:8]
    name = _PEDESTRIAN
    attributes: dict[str, float] = {"track": int(track)}
    if len(cells) < _NUM_CELLS_OF_2015:
        attributes["visibility"] = cells[8]
        position = int(class_number) - 1
        name = f"class {int(class_number)}"
        if 0 <= position < len(_CLASSES):
            name = _CLASSES[position]
        image.class_numbers[name] = int(class_number)
    if counts == 0:
        image.left_out["boxes that do not count"] += 1
        return
    try:
        box = box_of_size([left - 1, top - 1, width, height])
    except ValueError as problem:
        image.reject_object(str(problem))
        return
    image.add(box, name, attributes)
    image.remarks[_FROM_1] += 1


def _folder_of_images(sequence: Path) -> str:
    """The name of the folder of the frames, as seqinfo.ini says it."""
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(sequence / _SEQUENCE, encoding="utf-8-sig")
        name = settings.get("Sequence", "imDir", fallback=_IMAGES)
    except (configparser.Error, UnicodeDecodeError):
        return _IMAGES
    is_name = name not in ("", ".", "..") and "/" not in name and "\\" not in name
    return name if is_name else _IMAGES


def _is_repeated(sequence: Path) -> bool:
    """Whether the same frames lie beside a sequence of MOT17, for a detector before its own."""
    match = _OF_DETECTOR.fullmatch(sequence.name)
    if match is None:
        return False
    for name in names_in(sequence.parent).folders:
        other = _OF_DETECTOR.fullmatch(name)
        is_same = other is not None and other[1] == match[1]
        if is_same and name < sequence.name:
            return True
    return False
