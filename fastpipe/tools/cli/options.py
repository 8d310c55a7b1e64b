"""Options that several commands have, as typer takes them: name, metavar, help, group in --help.

A command says `workers: options.Workers = None`. Options that only one command has stand in its
signature.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fastpipe.pages import name_page
from fastpipe.sources.options import Format

# The groups of options in --help.
SOURCE = "Source"
LABELS = "Labels and fields"
IMAGES = "Images"
OUTPUT = "Output"
WORK = "Work"

# The values to choose from are the names in small letters. tests/tools/cli/test_cli_options.py compares
# them with those that the Python functions take.
OnError = StrEnum("OnError", "REPORT FAIL")
Coordinates = StrEnum("Coordinates", "SHOWN STORED")
BoxFormat = StrEnum("BoxFormat", "XYXY XYWH CXCYWH")
RunOrder = StrEnum("RunOrder", "COLUMNS ROWS")
Unlisted = StrEnum("Unlisted", "DROP KEEP")
BadBoxes = StrEnum("BadBoxes", "REJECT CLIP DROP")
Executor = StrEnum("Executor", "THREADS RAY")

# Datasets

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A packed dataset: its folder, or its URL (s3://, https://, ...); or images that are "
        "not packed: a folder, tars, a pattern.",
    ),
]
PackedData = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A packed dataset: its folder, or its URL (s3://, https://, ...).",
    ),
]
GrowingData = Annotated[
    str,
    typer.Argument(
        metavar="DST",
        help="A packed dataset: its folder, or its URL (s3://, gs://, az://).",
    ),
]

# How a source is read: of `pack` and `add`

SourceFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="KIND",
        help="The kind of SRC: imagefolder, webdataset, parquet, arrow, csv (or TSV), jsonl, coco, "
        "voc, yolo, masks or annotations (files of labelme, CVAT, Label Studio and others). auto "
        "finds out, and stops if it is not certain.",
        rich_help_panel=SOURCE,
    ),
]
ImageColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column with the images, or with their paths.",
        show_default="the only one",
        rich_help_panel=SOURCE,
    ),
]
ImageRoot = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The folder or URL that paths of images are relative to.",
        show_default="folder of the file that has them",
        rich_help_panel=SOURCE,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The split of SRC to pack, such as train, if it has several. A class has the same "
        "number in all of them.",
        rich_help_panel=SOURCE,
    ),
]
SplitList = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A file that says which images are of a split, if SRC itself does not: the path or name "
        "of an image on each line; or a path and a split, of which --split picks one.",
        rich_help_panel=SOURCE,
    ),
]
UnlistedImages = Annotated[
    Unlisted | None,
    typer.Option(
        "--unlisted",
        help="Images that lie in the folders of a table's images and have no row, images that a file "
        "of COCO does not list, and images without an annotation of Pascal VOC or a tool: drop them, "
        "or keep them as images without boxes and without a label. Images that COCO lists are packed, "
        "with boxes or without.",
        show_default="drop; the summary counts them",
        rich_help_panel=SOURCE,
    ),
]
BadBoxesOf = Annotated[
    BadBoxes | None,
    typer.Option(
        "--bad-boxes",
        help="Boxes that end outside their image or cannot be read: reject the image, clip them at "
        "its border (and drop the others), or drop them.",
        show_default="reject",
        rich_help_panel=LABELS,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The encoding of a table's text (CSV, TSV, lists, JSONL, JSON), such as cp1252.",
        show_default="UTF-8, or UTF-16 if its first bytes say so",
        rich_help_panel=SOURCE,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column with the labels.",
        show_default="label, if there is one",
        rich_help_panel=LABELS,
    ),
]
LabelPattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="The class is in the path of each image: the first group of this regular expression. "
        "'(.+)/' takes the folder, however deep it is, '(.+)_' the start of the file's name.",
        rich_help_panel=LABELS,
    ),
]
ClassesFrom = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Where the names of all classes are, in the order of their numbers: a packed dataset, "
        "a source such as a folder of class folders, a text file with a name on each line, or a "
        'JSON file such as {"0": "cat"}. A class of SRC that is not among them is refused; one '
        "that SRC lacks is kept.",
        show_default="the classes of SRC",
        rich_help_panel=LABELS,
    ),
]
FirstLabel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The number of the first class in YOLO's label files, or in a table whose labels are "
        "numbers: 0, the default, or 1.",
        rich_help_panel=LABELS,
    ),
]
FirstPixel = Annotated[
    int | None,
    typer.Option(
        "--first-pixel",
        metavar="N",
        help="The number of the first pixel in annotations of Pascal VOC: 0, as scripts count, or "
        "1, as VOC counts; with 1, xmin and ymin become one smaller.",
        show_default="0 if a box begins at 0, else 1; the summary names it",
        rich_help_panel=LABELS,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=COLUMN",
        help="Store a column as a field; may be repeated. NAME=COLUMN:KIND also says the kind of "
        "the field.",
        show_default="all columns",
        rich_help_panel=LABELS,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The text between the classes of an image in a column, such as | in cat|dog. For "
        "fields of the kind classes.",
        show_default="found in the column; the summary names it",
        rich_help_panel=LABELS,
    ),
]
FormatOfBoxes = Annotated[
    BoxFormat | None,
    typer.Option(
        "--box-format",
        help="The four numbers of a box in a table with a row for each box, or in bbox of COCO: "
        "xyxy (left, top, right, bottom), xywh (left, top, width, height) or cxcywh (centre, width, "
        "height).",
        show_default="by the names of the columns, else xywh; the summary names it",
        rich_help_panel=LABELS,
    ),
]
OrderOfRuns = Annotated[
    RunOrder | None,
    typer.Option(
        "--run-order",
        help="The pixels in a table's run lengths of masks are numbered down the columns, or along "
        "the rows.",
        show_default="by the sizes of some images, else columns; the summary names it",
        rich_help_panel=LABELS,
    ),
]
CoordinatesOf = Annotated[
    Coordinates | None,
    typer.Option(
        "--coordinates",
        help="Boxes, points and masks are of the image as shown, with its EXIF orientation "
        "applied, or as stored.",
        show_default="by the width and height in the annotations, else shown",
        rich_help_panel=LABELS,
    ),
]

# How the work is done

Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The number of threads.",
        show_default="the CPUs granted to this process",
        rich_help_panel=WORK,
    ),
]
IfFileFails = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="If a file cannot be packed: report lists it in rejected.jsonl and continues, fail "
        "stops.",
        rich_help_panel=WORK,
    ),
]
Spool = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="If DST is a URL: the folder in which shards are made before they are uploaded. On a "
        "cluster: a folder or URL that all workers see, for lists and converted rows of tables.",
        show_default="the cache folder; on a cluster: in DST",
        rich_help_panel=WORK,
    ),
]
On = Annotated[
    Executor,
    typer.Option(
        "--on",
        help="Work in threads of this process, or with ray in tasks of a Ray cluster; see "
        f"{name_page('cluster')}. The bytes are the same.",
        rich_help_panel=WORK,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With --on ray: the cluster, as auto (the one of this machine) or HOST:PORT.",
        show_default="$RAY_ADDRESS, else Ray is started on this machine",
        rich_help_panel=WORK,
    ),
]

# Output

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the figures as JSON on standard output."),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace the file if it exists. Earlier sheets are replaced without it.",
    ),
]
