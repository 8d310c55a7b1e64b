"""The lists of CUB-200-2011 or NABirds -> the images with the box of the bird and its class.

Format: the README of https://www.vision.caltech.edu/datasets/cub_200_2011/: files beside each other
have a line for each image, which begins with its id: bounding_boxes.txt (x, y, width, height in
pixels), images.txt (the path), image_class_labels.txt (the number of the class),
train_test_split.txt (1 for training). classes.txt has the names by number. In NABirds, ids are
hexadecimal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from fastpipe.errors import readable
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    box_of_size,
)

BOXES = "bounding_boxes.txt"
CLASSES = "classes.txt"
LABELS = "image_class_labels.txt"
PATHS = "images.txt"
SPLITS = "train_test_split.txt"
FILES = (BOXES, CLASSES, LABELS, PATHS, SPLITS)

_LINE = re.compile(r"[0-9a-fA-F-]+(?: +-?[0-9.]+){4}")
# In train_test_split.txt: is_training_image.
SPLIT_OF_FLAG = {"1": "train", "0": "test"}
_ONLY_CLASS = "object"
_WITHOUT_CLASS = (
    f"images that {LABELS} gives no class, or that are not in a folder of one: {{}}; the class of "
    f"their boxes is called {_ONLY_CLASS}"
)


def is_line_of_boxes(line: str) -> bool:
    """Whether a line has an id and the four numbers of a box."""
    return _LINE.fullmatch(line) is not None


def parse(path: Path) -> Iterator[AnnotatedImage]:
    """The images of a list of boxes, by the lists beside it. ValueError: a list is damaged."""
    folder = path.parent
    path_of_id = _read_pairs(folder / PATHS)
    if not path_of_id:
        raise ValueError(
            f"expected {PATHS} beside it, with the id and path of each image"
        )
    class_of_id = _read_classes(folder)
    flag_of_id = _read_pairs(folder / SPLITS)
    for image_id, numbers in _read_pairs(path).items():
        image = AnnotatedImage(path_of_id.get(image_id, ""))
        image.split = SPLIT_OF_FLAG.get(flag_of_id.get(image_id, ""), "")
        if not image.path:
            image.reject(f"{PATHS} has no path of the id {readable(image_id)}")
        name = class_of_id.get(image_id) or PurePosixPath(image.path).parent.name
        if not name:
            name = _ONLY_CLASS
            image.remarks[_WITHOUT_CLASS] += 1
        image.tags.append(name)
        try:
            image.add(box_of_size(numbers.split()), name)
        except ValueError as problem:
            image.reject_object(str(problem))
        yield image


def _read_classes(folder: Path) -> dict[str, str]:
    """Id of an image -> the name of its class, as far as the lists say it."""
    number_of_id = _read_pairs(folder / LABELS)
    name_of_number = _read_pairs(folder / CLASSES)
    used_numbers = sorted(set(number_of_id.values()) & name_of_number.keys())
    uses = Counter(name_of_number[number] for number in used_numbers)
    unique_names: dict[str, str] = {}
    for number in used_numbers:
        name = name_of_number[number]
        # Two classes stay two classes.
        unique_names[number] = f"{number} {name}" if uses[name] > 1 else name
    return {
        image_id: unique_names[number]
        for image_id, number in number_of_id.items()
        if number in unique_names
    }


def _read_pairs(path: Path) -> Mapping[str, str]:
    """First word of each line -> the rest of the line; empty if there is no such file."""
    if not path.is_file():
        return {}
    pairs: dict[str, str] = {}
    for line in path.read_text("utf-8-sig").splitlines():
        key, _, rest = line.strip().partition(" ")
        if key:
            pairs[key] = rest.strip()
    return pairs
