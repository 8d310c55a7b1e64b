"""The start of a file of annotations -> the tool that wrote it, and what the user can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.tools import cub, icdar, mot, named_boxes, svhn
from fastpipe.sources.annotations.tools.dota import HEADER as DOTA_HEADER
from fastpipe.sources.annotations.tools.visdrone import numbers_of
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.matlab_labels import GROUND_TRUTH_REMEDY

# The endings of files that belong to an image, or list images. No picture has one of them.
SIDECAR_ENDINGS = (
    ".txt",
    ".caption",
    ".xml",
    ".json",
    ".yaml",
    ".yml",
    ".csv",
    ".tsv",
    ".npy",
    ".npz",
    ".mat",
    ".bin",
    ".pcd",
    ".pts",
    ".label",
    ".lab",
    ".gt",
    ".ann",
    ".odgt",
    ".geojson",
    ".manifest",
)
# At the start of a file these many bytes are enough to recognise its tool.
TOOL_BYTES = 1 << 16
# Names of the files in which CamVid, CVAT and Kaggle say which colour of a mask is which class.
_COLOUR_LIST = re.compile(
    r"(?:label|class)[-_ ]?(?:colou?rs?|dict|map).*|colou?r[-_ ]?(?:map|table|palette).*|palette.*",
    re.IGNORECASE,
)
# Three numbers of at most three digits: red, green and blue.
_COLOUR = re.compile(rb"(?<!\d)(?:\d{1,3}[ \t,;]+){2}\d{1,3}(?!\d)")
_MAX_LINE_BYTES = 4096
# How many numbers a line of a label file has. KITTI writes them behind the class, and detectors
# append a score to them.
_KITTI_NUMBERS = 14
_YOLO_NUMBERS = 5
_DOTA_NUMBERS = 8
_MIN_WIDER_NUMBERS = 4
_MIN_COMMA_NUMBERS = 6
# At the start of a text, these many lines show which tool wrote it.
_MAX_FIRST_LINES = 8


class AnnotationTool(NamedTuple):
    """A tool, or a dataset, that writes annotations in a form of its own.

    Attributes:
        name: of its files, for a message.
        remedy: what the user can do with them.
        reader: the tool's name in `READERS`; "": fastpipe does not read its files.
    """

    name: str
    remedy: str
    reader: str = ""


ROW_A_BOX = (
    "write them into a CSV file with a row for each box (path,xmin,ymin,xmax,ymax,label), or pass "
    "samples with boxes to fastpipe.Writer"
)
# Of the tools whose files fastpipe reads.
_PACK_BOTH = "the same command with --format annotations packs them with the images"
_LABEL_STUDIO = AnnotationTool("Label Studio's JSON", _PACK_BOTH, "Label Studio")
_CVAT = AnnotationTool("CVAT's XML", _PACK_BOTH, "CVAT")
_LABELBOX = AnnotationTool("Labelbox's NDJSON", _PACK_BOTH, "Labelbox")
_LABELME = AnnotationTool("labelme's JSON", _PACK_BOTH, "labelme")
_VIA = AnnotationTool("the JSON of VGG's annotator", _PACK_BOTH, "VIA")
_VIA_TABLE = AnnotationTool("the CSV of VGG's annotator", _PACK_BOTH, "VIA's CSV")
_SUPERVISELY = AnnotationTool("Supervisely's JSON", _PACK_BOTH, "Supervisely")
_CREATE_ML = AnnotationTool("Create ML's JSON", _PACK_BOTH, "Create ML")
_BDD = AnnotationTool(
    "the JSON of BDD100K or Scalabel", _PACK_BOTH, "BDD100K or Scalabel"
)
_KITTI = AnnotationTool("label files of KITTI", _PACK_BOTH, "KITTI")
_YOLO = AnnotationTool(
    "label files of YOLO", "--format yolo packs a folder of images with these"
)
_DOTA = AnnotationTool("label files of DOTA", _PACK_BOTH, "DOTA")
_WIDER = AnnotationTool(
    "a list of WIDER FACE (an image, a number of boxes, a line for each box)",
    _PACK_BOTH,
    "WIDER FACE",
)
_NUMBERS = AnnotationTool(
    "lines of numbers between commas, as MOT and ICDAR have them for boxes",
    ROW_A_BOX,
)
_ICDAR = AnnotationTool(
    "lists of ICDAR (four corners and a text on each line)", _PACK_BOTH, "ICDAR"
)
_MOT = AnnotationTool("the boxes of a sequence of MOT", _PACK_BOTH, mot.READER)
_NAMED_BOXES = AnnotationTool(
    "label files of the OIDv4 ToolKit (a class, left, top, right and bottom on each line)",
    _PACK_BOTH,
    named_boxes.READER,
)
_VISDRONE = AnnotationTool("label files of VisDrone", _PACK_BOTH, "VisDrone")
_CROWD_HUMAN = AnnotationTool(
    "CrowdHuman's annotations (a line for each image)", _PACK_BOTH, "CrowdHuman"
)
_XVIEW = AnnotationTool("the GeoJSON of xView", _PACK_BOTH, "xView")
_CUB = AnnotationTool(
    "CUB's list of boxes (the id of an image and a box on each line)", _PACK_BOTH, "CUB"
)
_SAGEMAKER = AnnotationTool(
    "a manifest of SageMaker Ground Truth", _PACK_BOTH, "SageMaker Ground Truth"
)
_SVHN = AnnotationTool("SVHN's digitStruct.json", _PACK_BOTH, "SVHN")
_SEGMENT_ANYTHING = AnnotationTool("the JSON of SA-1B", _PACK_BOTH, "SA-1B")
_GROUND_TRUTH = AnnotationTool(
    "ImageNet's ground truth (a number for each image, in the order of their names)",
    "write a CSV file with a row for each image (path,label). " + GROUND_TRUTH_REMEDY,
)
_VOC = AnnotationTool(
    "annotations of Pascal VOC", "--format voc packs a folder of images with these"
)
_VQA = AnnotationTool(
    "the JSON of VQA (questions or answers by the numbers of images)",
    'write a JSONL file with a line for each question, such as {"image": "a.jpg", "question": "how '
    'many dogs?", "answers": ["2", "two"]}',
)
_KARPATHY = AnnotationTool(
    "Karpathy's JSON of captions",
    'write a JSONL file with a line for each image, such as {"image": "a.jpg", "split": "train", '
    '"captions": ["a dog", "a brown dog"]}',
)
TEXT = AnnotationTool(
    "texts",
    "--field caption=txt packs the text of a.txt with a.jpg",
)
DATA = AnnotationTool(
    "data",
    "--field latent=npy packs the array of a.npy with a.jpg, and --field depth=npy:map a map that "
    "lies on the image and is cropped with it; list images and other values in a JSONL file, or "
    "pass samples to fastpipe.Writer",
)
_POINTS = AnnotationTool(
    "landmarks", "--field points=pts packs the points of a.pts with a.jpg"
)
JSON_DATA = AnnotationTool(
    "JSON",
    "--field data=json packs the value in a.json with a.jpg; or write a JSONL file with a line for "
    "each image, or pass samples to fastpipe.Writer",
)

_GROUND_TRUTH_NAME = re.compile(r".*validation_ground_truth\.txt", re.IGNORECASE)
_WIDER_IMAGE = re.compile(r".+\.(?:jpe?g|png|bmp)", re.IGNORECASE)

# A tool wrote a file if all patterns of its row are in the start of the file.
_PATTERNS = (
    (_LABELME, (rb'"shapes"\s*:', rb'"(?:imagePath|shape_type)"\s*:')),
    (
        _LABEL_STUDIO,
        (
            rb'"(?:annotations|completions)"\s*:',
            rb'"data"\s*:',
            rb'"(?:result|from_name)"\s*:',
        ),
    ),
    (
        _LABEL_STUDIO,
        (
            rb'"annotation_id"\s*:',
            rb'"(?:rectangle|polygon|brush|keypoint|ellipse)labels"',
        ),
    ),
    (
        _VIA,
        (rb'"regions"\s*:', rb'"(?:filename|region_attributes|shape_attributes)"\s*:'),
    ),
    (_VIA_TABLE, (rb"region_shape_attributes", rb"region_attributes")),
    (_LABELBOX, (rb'"data_row"\s*:', rb'"(?:projects|media_attributes)"\s*:')),
    (_SAGEMAKER, (rb'"source-ref"\s*:', rb'"[^"\n]+-metadata"\s*:')),
    (_VQA, (rb'"question_id"\s*:', rb'"image_id"\s*:')),
    (_KARPATHY, (rb'"sentids"\s*:', rb'"sentences"\s*:')),
    (_SUPERVISELY, (rb'"classTitle"\s*:',)),
    (
        _CREATE_ML,
        (rb'"coordinates"\s*:', rb'"annotations"\s*:', rb'"image(?:filename)?"\s*:'),
    ),
    (_BDD, (rb'"(?:box2d|poly2d)"\s*:',)),
    (_CROWD_HUMAN, (rb'"gtboxes"\s*:',)),
    (_XVIEW, (rb'"bounds_imcoords"\s*:',)),
    (_SEGMENT_ANYTHING, (rb'"predicted_iou"\s*:', rb'"stability_score"\s*:')),
    (_CVAT, (rb"<annotations\b", rb"<(?:image|track|meta)\b")),
    (_VOC, (rb"<annotation\b", rb"<(?:object|filename|size)\b")),
)


def recognise_tool(start: bytes, name: str) -> AnnotationTool | None:
    """The tool that wrote a file, by the file's first bytes and name; None if they do not tell.

    A .txt file of no tool is `TEXT`.
    """
    for tool, patterns in _PATTERNS:
        if all(re.search(pattern, start) for pattern in patterns):
            return tool
    file_name = name.rpartition("/")[2]
    if svhn.FILE_NAME.fullmatch(file_name) and b'"boxes"' in start:
        return _SVHN
    if not name.lower().endswith(".txt"):
        return None
    if _GROUND_TRUTH_NAME.fullmatch(file_name):
        return _GROUND_TRUTH
    text = start.decode("utf-8", "replace").lstrip("\ufeff").strip()
    lines = [line.strip() for line in text.split("\n", _MAX_FIRST_LINES)]
    if file_name == cub.BOXES and cub.is_line_of_boxes(lines[0]):
        return _CUB
    if _is_wider(lines):
        return _WIDER
    if DOTA_HEADER.fullmatch(lines[0]):
        return _DOTA
    # The last line may be cut off.
    whole_lines = [line for line in lines[:_MAX_FIRST_LINES] if line]
    if whole_lines and all(map(numbers_of, whole_lines)):
        return _VISDRONE
    if whole_lines and icdar.is_list_of_texts(whole_lines):
        return _ICDAR
    if whole_lines and file_name == mot.FILE and mot.is_list_of_boxes(whole_lines):
        return _MOT
    if whole_lines and named_boxes.is_list_of_boxes(whole_lines):
        return _NAMED_BOXES
    return _recognise_line(lines[0])


def is_ground_truth(path: SourcePath) -> bool:
    """Whether a file is called like ImageNet's list of the numbers of classes."""
    return _GROUND_TRUTH_NAME.fullmatch(path.name) is not None


def _is_wider(lines: Sequence[str]) -> bool:
    """Whether the lines are an image, a number of boxes, and the first of these boxes."""
    if len(lines) < 3 or not _WIDER_IMAGE.fullmatch(lines[0]):
        return False
    words = lines[2].split()
    return (
        lines[1].isdigit()
        and len(words) >= _MIN_WIDER_NUMBERS
        and all(map(is_number, words))
    )


def _recognise_line(line: str) -> AnnotationTool:
    """The tool whose label files have such a line."""
    cells = line.split(",")
    number_cells = cells
    if len(cells) > _DOTA_NUMBERS:
        # ICDAR has a text behind the corners of a box, perhaps with commas in it.
        number_cells = cells[:_DOTA_NUMBERS]
    if len(cells) >= _MIN_COMMA_NUMBERS and all(map(is_number, number_cells)):
        return _NUMBERS

    words = line.split()
    # WFLW has the path of the image behind the points of a face: a line of a list of images.
    if is_picture(words[-1] if words else ""):
        return TEXT
    are_numbers = [is_number(word) for word in words]
    # Only the first word of a KITTI line, the class, is not a number.
    kitti_numbers = are_numbers[1 : 1 + _KITTI_NUMBERS]
    has_all_numbers = len(kitti_numbers) == _KITTI_NUMBERS and all(kitti_numbers)
    if has_all_numbers and not are_numbers[0]:
        return _KITTI
    if all(are_numbers) and len(words) >= _YOLO_NUMBERS:
        return _YOLO
    # The class and how difficult the object is stand behind the numbers.
    if len(words) > _DOTA_NUMBERS and all(are_numbers[:_DOTA_NUMBERS]):
        return _DOTA
    return TEXT


def is_number(word: str) -> bool:
    """Whether a word of a label file is a number, as Python reads it."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def describe_file(start: bytes, name: str) -> AnnotationTool:
    """As `recognise_tool`; a file of no tool is text or data, by the ending of its name."""
    tool = recognise_tool(start, name)
    if tool is not None:
        return tool
    ending = name.rpartition(".")[2].lower()
    if ending == "caption":
        return TEXT
    if ending == "pts" and b"n_points" in start:
        return _POINTS
    return JSON_DATA if ending == "json" else DATA


def is_voc(path: SourcePath) -> bool:
    """Whether a file is an annotation of Pascal VOC."""
    return _recognise_file(path) == _VOC


def _recognise_file(path: SourcePath) -> AnnotationTool | None:
    try:
        with open_binary(path) as file:
            start = file.read(TOOL_BYTES)
    except OSError:
        return None
    # A pipe to which nothing has been written gives None.
    return recognise_tool(start or b"", path.name)


def recognise_unread_tool(path: SourcePath) -> AnnotationTool | None:
    """The tool that wrote a file; None for texts, YOLO and VOC, which have formats of their own."""
    tool = _recognise_file(path)
    if tool in (TEXT, _YOLO, _VOC):
        return None
    return tool


def reader_of(path: SourcePath) -> str:
    """The name of the reader of a file, see `AnnotationTool`; "" if there is none."""
    tool = recognise_unread_tool(path)
    return "" if tool is None else tool.reader


def refuse_tool(path: SourcePath) -> None:
    """Raises PackError if a tool wrote a file that is not a source by itself."""
    tool = recognise_unread_tool(path)
    if tool is not None:
        is_unread = "" if tool.reader else ", which fastpipe does not read"
        raise PackError(
            f"{readable(str(path))} is {tool.name}{is_unread}: {tool.remedy}"
        )


def find_colour_list(folder: SourcePath, names: Iterable[str]) -> str | None:
    """The file among `names` that says which colour of a mask is which class; None if none does."""
    for name in names:
        if _COLOUR_LIST.fullmatch(name) and _has_colours(folder / name):
            return name
    return None


def _has_colours(path: SourcePath) -> bool:
    """Whether a list has red, green and blue in its first line, or in the line below its header."""
    try:
        with open_binary(path) as file:
            first_line = file.readline(_MAX_LINE_BYTES)
            second_line = file.readline(_MAX_LINE_BYTES)
    except OSError:
        return False
    return (
        _COLOUR.search(first_line) is not None
        or _COLOUR.search(second_line) is not None
    )
