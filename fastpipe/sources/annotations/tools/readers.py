"""A tool's name -> how its files are read, and the annotated images in a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.tools import (
    bdd,
    create_ml,
    crowd_human,
    cub,
    cvat,
    dota,
    ground_truth,
    icdar,
    kitti,
    label_studio,
    labelbox,
    labelme,
    mot,
    named_boxes,
    segment_anything,
    supervisely,
    svhn,
    via,
    visdrone,
    wider_face,
    xview,
)
from fastpipe.sources.annotations.tools.annotated_image import AnnotatedImage, load_json
from fastpipe.sources.files import open_unchanged
from fastpipe.sources.json_stream import array_entries, object_entries

# Forms of files: one text, an array or lists of JSON, a line of JSON for each image. A large file
# whose images are scattered in it is given to its parser as a path.
_TEXT, _JSON, _LINES, _PATH = range(4)


class Reader(NamedTuple):
    """How the files of a tool are read.

    Attributes:
        parse: a text, or an entry of a list -> its images. ValueError, ElementTree.ParseError: it
            is damaged.
        form: _TEXT, _JSON, _LINES or _PATH.
        is_beside: each image has a file of its own, which is called like it.
        is_of_sequence: a file has the images of one sequence, and others those of other ones.
        prefix: at the start of the names of such files; the image is called like the rest.
        classes: the names of all classes by number, if the format says them; else the names in
            the files, sorted.
    """

    parse: Callable[[Any], Iterator[AnnotatedImage]]
    form: int = _TEXT
    is_beside: bool = False
    is_of_sequence: bool = False
    prefix: str = ""
    classes: tuple[str, ...] = ()


READERS = {
    "labelme": Reader(labelme.parse, is_beside=True),
    "CVAT": Reader(cvat.parse),
    "Label Studio": Reader(label_studio.parse, _JSON),
    "VIA": Reader(via.parse),
    "VIA's CSV": Reader(via.parse_table),
    "KITTI": Reader(kitti.parse, is_beside=True),
    "WIDER FACE": Reader(wider_face.parse),
    "DOTA": Reader(dota.parse, is_beside=True),
    "BDD100K or Scalabel": Reader(bdd.parse, _JSON),
    "Supervisely": Reader(supervisely.parse, is_beside=True),
    "CrowdHuman": Reader(crowd_human.parse, _LINES),
    "Labelbox": Reader(labelbox.parse, _LINES),
    "SageMaker Ground Truth": Reader(ground_truth.parse, _LINES),
    "VisDrone": Reader(visdrone.parse, is_beside=True, classes=visdrone.CLASSES),
    "Create ML": Reader(create_ml.parse, _JSON),
    "xView": Reader(xview.parse, _PATH),
    "CUB": Reader(cub.parse, _PATH),
    "SVHN": Reader(svhn.parse, _JSON, classes=svhn.CLASSES),
    "ICDAR": Reader(icdar.parse, is_beside=True, prefix=icdar.PREFIX),
    mot.READER: Reader(mot.parse, _PATH, is_of_sequence=True),
    named_boxes.READER: Reader(named_boxes.parse, is_beside=True),
    "SA-1B": Reader(segment_anything.parse, is_beside=True),
}


def read_annotated(path: Path, reader: Reader) -> Iterator[AnnotatedImage]:
    """The annotated images in a file. PackError: the file is damaged."""
    try:
        for entry in _entries(path, reader):
            yield from reader.parse(entry)
    except (ValueError, csv.Error, ElementTree.ParseError) as problem:
        # ValueError is also of JSON and of UTF-8.
        raise PackError(f"{readable(str(path))}: {problem}") from None


def _entries(path: Path, reader: Reader) -> Iterator[Any]:
    if reader.form == _TEXT:
        with open_unchanged(path) as file:
            yield file.read().decode("utf-8-sig")
    elif reader.form == _PATH:
        yield path
    elif reader.form == _LINES:
        with open_unchanged(path) as file:
            for line in file:
                if line.strip():
                    yield load_json(line.decode("utf-8-sig"))
    elif _is_array(path):
        yield from array_entries(path)
    else:
        # Scalabel has the images in "frames", beside lists of groups and of categories.
        for list_name, number, entry in object_entries(path):
            if list_name == "frames" and number >= 0:
                yield entry


def _is_array(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(1024).decode("utf-8-sig", "replace").lstrip().startswith("[")
