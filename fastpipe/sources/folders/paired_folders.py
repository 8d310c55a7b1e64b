"""The pictures of class folders -> an assumption where each folder may have one picture of a pair.

Datasets of pairs have two or three folders whose files have the same names: high and low, rgb and
depth, A, B and label. The files of classes may have the same names, too, if they are numbered in
each folder: cat/000.jpg and dog/000.jpg. So names that only count are a sign of pairs only if the
folders are called like the sides of a pair, or if the numbers have the same gaps in each folder.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption, Source

_MAX_FOLDERS = 3
# Fewer pictures may have the same names by chance.
_MIN_PICTURES = 3
# A picture that is only numbered: 000, img_12, frame-0001, and "photo (3)" of Windows.
_NUMBERED = re.compile(r"(\D*)(\d{1,9})\)?")
_WORDS = re.compile(r"[a-z]+")
# Letters that name a side: A, trainB, images_a. Classes may be called a, b and c, too.
_LETTER_OF_SIDE = re.compile(r"[ABCXY]|.*[a-z_-][ABC]|.*[_-][abc]")
# What folders with the sides of pairs are called.
_SIDE = re.compile(
    r"""
    after| before| blur| blurred| blurry| clean| color| colour| degraded|
    depth| disparity| distorted| gray| grayscale| groundtruth| gt| haze| hazy| high|
    highres| hq| hr| image| images| img| imgs| infrared| input| inputs| ir| label| labels|
    low| lowres| lq| lr| mask| masks| nir| noise| noisy| norain| normals| output| outputs|
    rain| rainy| raw| ref| reference| rgb| sharp| source| src| target| targets| thermal|
    truth| vis| visible
    """,
    re.VERBOSE,
)


def assume_no_pairs(
    sources: Sequence[Source], classes: Sequence[str]
) -> list[Assumption]:
    """Says that folders are taken as classes, though their pictures may be pairs.

    Args:
        sources: with labels by their folders.
        classes: the names of the folders, by label.
    """
    text = describe_pairs(sources, classes)
    if not text:
        return []
    return [Assumption(f"{text}. If they are classes, an option says so", AS_CLASSES)]


def describe_pairs(sources: Sequence[Source], classes: Sequence[str]) -> str:
    """As `assume_no_pairs`, without an option; "": they are no pairs."""
    # Folders that are called by numbers are classes, and no pictures of pairs: 00000 of GTSRB.
    if all(name.isdigit() for name in classes):
        return ""
    if not 2 <= len(classes) <= _MAX_FOLDERS:
        return ""
    counts = Counter(source.label for source in sources)
    if NO_LABEL in counts or len(counts) != len(classes):
        return ""
    count = counts[0]
    if count < _MIN_PICTURES or any(other != count for other in counts.values()):
        return ""

    first_names = set(_names_of_class(sources, classes, 0))
    if len(first_names) != count:
        return ""
    for label in range(1, len(classes)):
        # As many names, all of which are among those of the first class.
        if not all(
            name in first_names for name in _names_of_class(sources, classes, label)
        ):
            return ""
    are_sides = all(_is_side(name) for name in classes)
    if not are_sides and _only_count(first_names):
        return ""
    return (
        f"classes: the folders {first_paths(classes)} are packed as classes, but their images have "
        "the same names in each. If images of one name belong together, list each image with the "
        "others in a CSV file, a column for each folder, and pack that with --field "
        "target=COLUMN:image or --field mask=COLUMN:mask"
    )


def _is_side(folder: str) -> bool:
    """Whether a folder is called like one side of pairs: low, trainA, input_images."""
    if _LETTER_OF_SIDE.fullmatch(folder):
        return True
    words = _WORDS.findall(folder.lower())
    return bool(words) and _SIDE.fullmatch(words[-1]) is not None


def _only_count(paths: Iterable[str]) -> bool:
    """Whether pictures are numbered one after the other, so that their names say nothing.

    A step that is always the same is fine: every 10th frame of a film.
    """
    numbers = []
    prefixes = set()
    for path in paths:
        match = _NUMBERED.fullmatch(path.rpartition("/")[2])
        if match is None:
            return False
        prefixes.add(match[1])
        numbers.append(int(match[2]))
    if len(prefixes) > 1:
        return False
    numbers.sort()
    steps = {after - before for before, after in pairwise(numbers)}
    return len(steps) == 1


def _names_of_class(
    sources: Sequence[Source], classes: Sequence[str], label: int
) -> Iterator[str]:
    """The paths of the pictures of a class without its folder and endings; "" for other files."""
    for source in sources:
        if source.label == label:
            path, _ = os.path.splitext(source.path)
            # By a pattern, a class may be any folder of the path: high of our485/high/2.png.
            folders = [name for name in path.split("/") if name != classes[label]]
            yield "/".join(folders) if is_picture(source.path) else ""
