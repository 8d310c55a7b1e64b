"""A file of annotations that no source of fastpipe is -> which tool writes it, and what to do with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, open_binary

# Of files that belong to an image, or list images. They are no pictures.
ENDINGS = (
    *(".txt", ".caption", ".xml", ".json", ".yaml", ".yml", ".csv", ".tsv"),
    *(".npy", ".npz", ".mat", ".bin", ".pcd", ".pts", ".label", ".lab", ".gt", ".ann"),
)
START_BYTES = 1 << 16
# Of CamVid, CVAT and Kaggle: which colour of a mask is which class.
_COLOURS = re.compile(
    r"(?:label|class)[-_ ]?(?:colou?rs?|dict|map).*|colou?r[-_ ]?(?:map|table|palette).*|palette.*",
    re.IGNORECASE,
)
_COLOUR = re.compile(rb"(?<!\d)(?:\d{1,3}[ \t,;]+){2}\d{1,3}(?!\d)")
_MOST_LINE_BYTES = 4096
_ROW_A_BOX = (
    "write them into a CSV file with a row for each box (path,xmin,ymin,xmax,ymax,label), or pass samples with boxes "
    "to fastpipe.Writer"
)
_KITTI_NUMBERS = 14  # of a line, behind the class; results of detectors have a score, too
_YOLO_NUMBERS = 5
_DOTA_NUMBERS = 8


class AnnotationTool(NamedTuple):
    """A tool, or a dataset, that writes annotations in a form of its own."""

    name: str
    remedy: str


_LABEL_STUDIO = AnnotationTool(
    "Label Studio's JSON",
    "in Label Studio, choose Export, COCO or YOLO with images, and pass the folder that it writes; labels of whole "
    "images are in its export CSV",
)
_CVAT = AnnotationTool(
    "CVAT's XML",
    "in CVAT, export the task as COCO 1.0, Pascal VOC 1.1 or YOLO 1.1, and pass the folder",
)
_LABELME = AnnotationTool(
    "labelme's JSON",
    f"convert them to COCO (labelme2coco), VOC or YOLO (labelme's own scripts); or {_ROW_A_BOX}",
)
_VIA = AnnotationTool(
    "the JSON of VGG's annotator", f"in the annotator, export as COCO; or {_ROW_A_BOX}"
)
_SUPERVISELY = AnnotationTool(
    "Supervisely's JSON", "in Supervisely, export as COCO, Pascal VOC or YOLO"
)
_CREATE_ML = AnnotationTool("Create ML's JSON", f"export as COCO; or {_ROW_A_BOX}")
_BDD = AnnotationTool(
    "the JSON of BDD100K or Scalabel", f"convert it to COCO (bdd2coco); or {_ROW_A_BOX}"
)
_KITTI = AnnotationTool("label files of KITTI", f"convert them to COCO; or {_ROW_A_BOX}")
_YOLO = AnnotationTool("label files of YOLO", "--format yolo packs a folder of images with these")
_DOTA = AnnotationTool(
    "label files of DOTA", f"convert them to YOLO's or COCO's form; or {_ROW_A_BOX}"
)
_VOC = AnnotationTool(
    "annotations of Pascal VOC", "--format voc packs a folder of images with these"
)
TEXT = AnnotationTool(
    "texts", "write a CSV file with a column for the path of the image, and one for the text"
)
_DATA = AnnotationTool(
    "data", "list images and values in a JSONL file, or pass samples to fastpipe.Writer"
)

# All of the words of a row stand in the start of such a file.
_WORDS = (
    (_LABELME, (rb'"shapes"\s*:', rb'"(?:imagePath|shape_type)"\s*:')),
    (
        _LABEL_STUDIO,
        (rb'"(?:annotations|completions)"\s*:', rb'"data"\s*:', rb'"(?:result|from_name)"\s*:'),
    ),
    (
        _LABEL_STUDIO,
        (rb'"annotation_id"\s*:', rb'"(?:rectangle|polygon|brush|keypoint|ellipse)labels"'),
    ),
    (_VIA, (rb'"regions"\s*:', rb'"(?:filename|region_attributes|shape_attributes)"\s*:')),
    (_SUPERVISELY, (rb'"classTitle"\s*:',)),
    (_CREATE_ML, (rb'"coordinates"\s*:', rb'"annotations"\s*:', rb'"image(?:filename)?"\s*:')),
    (_BDD, (rb'"(?:box2d|poly2d)"\s*:',)),
    (_CVAT, (rb"<annotations\b", rb"<(?:image|track|meta)\b")),
    (_VOC, (rb"<annotation\b", rb"<(?:object|filename|size)\b")),
)


def tool_of(start: bytes, name: str) -> AnnotationTool | None:
    """Which tool wrote a file, by its first bytes and its name; None: these say none."""
    for tool, patterns in _WORDS:
        if all(re.search(pattern, start) for pattern in patterns):
            return tool
    if not name.lower().endswith(".txt"):
        return None
    text = start.decode("utf-8", "replace").lstrip("\ufeff").strip()
    return _of_line(text.partition("\n")[0])


def _of_line(line: str) -> AnnotationTool:
    """Which tool writes label files with such a line."""
    words = line.split()
    are_numbers = [_is_number(word) for word in words]
    behind_class = are_numbers[1 : 1 + _KITTI_NUMBERS]
    if are_numbers[:1] == [False] and behind_class == [True] * _KITTI_NUMBERS:
        return _KITTI
    if all(are_numbers) and len(words) >= _YOLO_NUMBERS:
        return _YOLO
    if len(words) > _DOTA_NUMBERS and all(are_numbers[:_DOTA_NUMBERS]):
        return _DOTA
    return TEXT


def describe_file(start: bytes, name: str) -> AnnotationTool:
    """As `tool_of`; of a file that says none, by the ending of its name."""
    is_text = name.lower().endswith((".txt", ".caption"))
    return tool_of(start, name) or (TEXT if is_text else _DATA)


def unread_tool(path: SourcePath) -> AnnotationTool | None:
    """The tool that wrote a file, if it is one whose form fastpipe does not read; else None."""
    with suppress(OSError), open_binary(path) as file:
        tool = tool_of(file.read(START_BYTES), path.name)
        return None if tool in (TEXT, _YOLO, _VOC) else tool
    return None


def refuse_tool(path: SourcePath) -> None:
    """PackError: a file is of a tool whose form fastpipe does not read."""
    tool = unread_tool(path)
    if tool is not None:
        raise PackError(
            f"{readable(str(path))} is {tool.name}, which fastpipe does not read: {tool.remedy}"
        )


def colour_list(folder: SourcePath, names: Iterable[str]) -> str | None:
    """The file of a folder that says which colour of masks is which class; None: there is none."""
    for name in names:
        if _COLOURS.fullmatch(name) and _has_colours(folder / name):
            return name
    return None


def _has_colours(path: SourcePath) -> bool:
    """Whether a list has red, green and blue in its first line, or in the line below its header."""
    with suppress(OSError), open_binary(path) as file:
        return any(_COLOUR.search(file.readline(_MOST_LINE_BYTES)) for _ in range(2))
    return False


def _is_number(word: str) -> bool:
    with suppress(ValueError):
        float(word)
        return True
    return False
