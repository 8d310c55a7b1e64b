"""The name of a file -> the format of source that it is, or an error if it is of none."""

from __future__ import annotations

import os
import re

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import refuse_tool
from fastpipe.sources.files import SourcePath
from fastpipe.sources.matlab_labels import matlab_remedy

# Formats whose files list images, a row for each.
MANIFESTS = ("csv", "jsonl")

_FORMAT_OF_ENDING = {
    ".tar": "webdataset",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".json": "coco",
}
# Files that are read with the folder that they lie in.
_OF_FOLDERS = {
    ".xml": "an annotation of Pascal VOC, or another file of annotations",
    ".yaml": "a file that describes a folder, as YOLO has it",
    ".yml": "a file that describes a folder, as YOLO has it",
    ".names": "a file that describes a folder, as Darknet has it",
    ".data": "a file that describes a folder, as Darknet has it",
}
UNREAD_ENDINGS = {
    ".npy": "a file of NumPy",
    ".npz": "a file of NumPy",
    ".pkl": "a pickle",
    ".pickle": "a pickle",
    ".pt": "a pickle",
    ".pth": "a pickle",
    ".h5": "a file of HDF5",
    ".hdf5": "a file of HDF5",
    ".tfrecord": "a file of TensorFlow",
    ".tfrecords": "a file of TensorFlow",
    ".rec": "a file of MXNet",
    ".idx": "a file of MXNet",
    ".mdb": "a database of LMDB",
    ".lmdb": "a database of LMDB",
    ".sqlite": "a database",
    ".db": "a database",
    ".xlsx": "a table of Excel",
    ".xls": "a table of Excel",
    ".mp4": "a video",
    ".avi": "a video",
    ".mov": "a video",
    ".mkv": "a video",
    ".mat": "a file of MATLAB",
    ".geojson": "a file of GeoJSON, with coordinates of the earth and not of pixels",
}
# MNIST and its likes: train-images-idx3-ubyte, with the number of dimensions and the type.
_IDX = re.compile(
    r".*[-.]idx\d[-.](?:ubyte|byte|short|int|float|double)(?:[.]gz)?", re.IGNORECASE
)
_WRITE_SAMPLES = (
    "which fastpipe does not read: read it in Python and give its samples to "
    "fastpipe.Writer, or write the images into folders and the labels into a CSV file"
)
_IDX_REMEDY = f"a file of arrays in the format IDX, as of MNIST, {_WRITE_SAMPLES}"
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")  # between the words of a file's name


def format_of(name: str) -> str | None:
    """The format of a file by the ending of its name; None if the ending is of no format."""
    _, ending = os.path.splitext(name)
    return _FORMAT_OF_ENDING.get(ending.lower())


def in_both_cases(*endings: str) -> tuple[str, ...]:
    """Endings in small and in capital letters, as `str.lower` of a million names takes long."""
    return (*endings, *map(str.upper, endings))


def is_tar(name: str) -> bool:
    """As `format_of`, for a million names."""
    return name.lower().endswith(".tar")


def is_named_after(name: str, split: str) -> bool:
    """Whether a file is called like a split, or has it as a word in its name: my_train.csv.

    In any letter case, as Train.csv of GTSRB.
    """
    stem = os.path.splitext(name)[0].lower()
    return split.lower() == stem or split.lower() in _SEPARATORS.split(stem)


def refuse_unread_file(path: SourcePath) -> None:
    """Raises PackError if fastpipe does not read a file, or reads it only with its folder."""
    ending = path.suffix.lower()
    if ending in (".json", ".xml", ".txt", ".odgt"):
        refuse_tool(path)
    shown = readable(path)
    if ending in _OF_FOLDERS:
        raise PackError(
            f"{shown} is {_OF_FOLDERS[ending]}; expected the folder: pass "
            f"{readable(path.parent)}, or the folder that holds the images and this"
        )
    remedy = unread_remedy(path.name)
    if remedy is not None:
        raise PackError(f"{shown} is {remedy}")


def unread_remedy(name: str) -> str | None:
    """The kind of a file that fastpipe does not read, and what to do; None for other files."""
    if _IDX.fullmatch(name):
        return _IDX_REMEDY
    _, ending = os.path.splitext(name)
    kind = UNREAD_ENDINGS.get(ending.lower())
    if kind is None:
        return None
    if name.lower().endswith(".mat"):
        return f"{kind}, which fastpipe does not read: {matlab_remedy(name)}"
    return f"{kind}, {_WRITE_SAMPLES}"
