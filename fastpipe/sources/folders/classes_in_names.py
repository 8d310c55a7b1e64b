"""Names of images without labels -> the assumption that they may have the classes in them.

Dogs vs. Cats has cat.0.jpg and dog.0.jpg, Oxford's pets Abyssinian_100.jpg, Market-1501 the number
of a person (0002_c1s1_000451_03.jpg), UTKFace the age (26_1_0_20170116174525125.jpg.chip.jpg), and
MNIST as PNGs often 00000_7.png. See Note [labels in paths] of path_labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import readable
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.splits import first_paths, training_or_first, words_in
from fastpipe.sources.listing import Assumption, Source
from fastpipe.sources.options import quote_for_shell
from fastpipe.sources.path_labels import LABEL_PATTERN, class_by_pattern

# A name and then the number of the image; a number of at most six digits; one or two digits last.
_NAME = r"(?:^|/)([^\W\d_][^/]*?)[-_. ]+\d+[.]\w+$"
_FIRST_NUMBER = r"(?:^|/)(-?\d{1,6})_[^/]+$"
_LAST_DIGITS = r"[-_](\d{1,2})[.]\w+$"
_PATTERNS = (_NAME, _FIRST_NUMBER, _LAST_DIGITS)
# The words with which cameras, phones and scripts call any image: IMG_0001.jpg.
_ANY_IMAGE = re.compile(
    r"images?|imgs?|photos?|pics?|pictures?|frames?|scans?|screenshots?|captures?|cam|dcim|dscn?|"
    r"dscf|dji|gopr|mvi|pano|pxl|sam|vid|wp|whats|app|\d+"
)
# A year, perhaps with the month: 2007_000027.jpg of VOC.
_YEAR = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])?")
_DATE = re.compile(r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])")
# UTKFace: age, gender, race and time. Among a few images each may have an age of its own.
# Three of its 23,708 names lack the race.
_MIN_FACES = 0.8
_GENDER_OF_FACE = r"(?:^|/)\d+_([01])_"
_RACE_OF_FACE = r"(?:^|/)\d+_[01]_([0-4])_"
_AGE_OF_FACE = re.compile(r"(?:^|/)\d{1,3}_[01]_[0-4]_20\d{12,}[.]")
# There may be millions of images. So many show how they are called.
_NUM_CHECKED = 4096
_MIN_IMAGES = 4


def describe_classes_in_names(sources: Sequence[Source]) -> Iterator[Assumption]:
    """The assumption that images have no labels, though their names look like classes."""
    step = max(1, len(sources) // _NUM_CHECKED)
    paths = []
    for source in sources[::step]:
        if source.label != NO_LABEL:
            return
        if source.problem is None:
            paths.append(source.path)
    match = _find_pattern(paths)
    if match is None:
        return
    pattern, classes = match
    text = (
        f"labels: none. The names of the images may have the classes "
        f"({first_paths(classes)}, as in {readable(paths[0])})"
    )
    if _are_faces(paths):
        text = (
            "labels: none. The names of the images have age, gender and race, as UTKFace's, such "
            f"as {readable(paths[0])}. {LABEL_PATTERN} '{_GENDER_OF_FACE}' takes the gender, "
            f"'{_RACE_OF_FACE}' the race, and the option the age"
        )
    yield Assumption(text, f"{LABEL_PATTERN} '{pattern}'")


def option_of_classes_in_names(paths: Sequence[str]) -> str:
    """The option that takes the classes in the names of images; "" if they have none."""
    step = max(1, len(paths) // _NUM_CHECKED)
    match = _find_pattern(paths[::step])
    return "" if match is None else f"{LABEL_PATTERN} '{match[0]}'"


def describe_classes_in_split(splits: Mapping[str, SourcePath]) -> str:
    """Names the options that take the classes in the names of images of a split; "" if they have none.

    Dogs vs. Cats has train/cat.0.jpg and test1/1.jpg.

    Args:
        splits: the folder of each split whose images have no other labels.
    """
    if not splits:
        return ""
    split = training_or_first(splits)
    names = names_in(splits[split])
    if names.folders:
        return ""
    paths = list(filter(is_picture, names.files))
    step = max(1, len(paths) // _NUM_CHECKED)
    match = _find_pattern(paths[::step])
    if match is None:
        return ""
    pattern, classes = match
    return (
        f". The names of the images of {readable(split)} may have the classes "
        f"({first_paths(classes)}): --split {quote_for_shell(split)} {LABEL_PATTERN} '{pattern}' "
        "takes them"
    )


def _find_pattern(paths: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The pattern that finds classes in the names of images, and these; None if there are none."""
    if len(paths) < _MIN_IMAGES:
        return None
    for pattern in _PATTERNS:
        classes = _classes_by(pattern, paths)
        # Classes come several times. Where each image has its own, or all have one, it is no class.
        is_repeated = 1 < len(classes) <= len(paths) // 2
        if pattern == _FIRST_NUMBER and _are_faces(paths):
            is_repeated = len(classes) > 1
        if is_repeated and not _are_usual(pattern, classes, paths):
            return pattern, classes
    return None


def _are_faces(paths: Sequence[str]) -> bool:
    """Whether nearly all images are called like UTKFace's."""
    num_faces = sum(_AGE_OF_FACE.search(path) is not None for path in paths)
    return num_faces > 0 and num_faces >= _MIN_FACES * len(paths)


def _are_usual(pattern: str, classes: Sequence[str], paths: Sequence[str]) -> bool:
    """Whether the texts that a pattern finds are in the names of any images: dates, IMG, DSC."""
    if pattern == _NAME:
        return all(map(_is_any_image, classes))
    if pattern == _FIRST_NUMBER:
        return all(map(_YEAR.fullmatch, classes))
    return all(map(_DATE.search, paths))


def _is_any_image(name: str) -> bool:
    """Whether a name is made of the words of `_ANY_IMAGE` alone."""
    return all(map(_ANY_IMAGE.fullmatch, words_in(name)))


def _classes_by(pattern: str, paths: Sequence[str]) -> list[str]:
    """The classes of all paths by a pattern, each once; none if a path has none."""
    class_of = class_by_pattern(pattern)
    classes: dict[str, None] = {}  # in place of a set, as it keeps the order
    for path in paths:
        name = class_of(path)
        if name is None:
            return []
        classes[name] = None
    return list(classes)
