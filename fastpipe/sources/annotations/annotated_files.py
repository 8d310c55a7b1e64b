"""A folder -> the files of annotation tools in it, by the split that they are about."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import reader_of
from fastpipe.sources.annotations.tools import mot, named_boxes
from fastpipe.sources.annotations.tools.readers import READERS
from fastpipe.sources.file_formats import in_both_cases
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, first_paths, split_in_path

ENDINGS = (".json", ".geojson", ".ndjson", ".xml", ".txt", ".odgt", ".csv", ".manifest")
_BOTH_CASES = in_both_cases(*ENDINGS)
# Folders of annotations: label_2, labelTxt, ann, annotations, jsons, wider_face_split.
_FOLDER = re.compile(
    r"(?:.*[-_ ])?(?:labels?|labeltxt|anns?|annots?|annotations?|annos?|jsons?|xmls?|gts?|"
    r"ground[-_ ]?truths?|labelme|splits?|boxes|bbox(?:es)?|meta|metadata|manifests?)(?:[-_ v.\d].*)?",
    re.IGNORECASE,
)
# A labeling job of SageMaker Ground Truth has the manifests of its steps in manifests/intermediate.
_UNFINISHED = "intermediate"
# In each folder so many files are read to recognise their tool, and so many folders looked at.
_MAX_READ = 8
_MAX_LISTS = 16
_MAX_FOLDERS = 64
_MAX_DEPTH = 3


class AnnotatedFiles(NamedTuple):
    """Annotations of a tool: a file of many images, or a folder with a file for each image."""

    reader: str
    path: Path


def annotated_by_split(
    root: SourcePath, names: Names, *, is_asked: bool = False
) -> dict[str, list[SourcePath]]:
    """Split -> its files, or folders of files; "" if their names say no split.

    Of several exports without a split, and of files beside those of splits, each is a split of its
    own, called like the file.

    Args:
        root, names: the folder, and the names in it.
        is_asked: the user says that there are annotations, so they are looked for in all folders.

    Raises:
        PackError: there are annotations of several tools.
    """
    if not isinstance(root, Path):
        return {}
    annotations = list(_in_folder(root, names, _MAX_DEPTH, is_asked=is_asked))
    readers = {entry.reader for entry in annotations}
    if len(readers) > 1:
        paths = first_paths(str(entry.path) for entry in annotations)
        raise PackError(
            f"{readable(str(root))} has annotations of several tools ({', '.join(sorted(readers))}): "
            f"pass one of {paths}, with --image-root {readable(str(root))}"
        )
    by_split: dict[str, list[SourcePath]] = {}
    for entry in annotations:
        split = split_in_path(os.path.relpath(entry.path, root))
        by_split.setdefault(split, []).append(entry.path)
    may_be_exports = any(
        not READERS[reader].is_beside and not READERS[reader].is_of_sequence
        for reader in readers
    )
    if may_be_exports and len(annotations) > 1 and list(by_split) == [""]:
        # Two exports of one project have the same images.
        return _by_name(by_split[""], root)
    if len(by_split) > 1 and "" in by_split:
        by_split.update(_by_name(by_split.pop(""), root))
    return by_split


def _by_name(files: Sequence[SourcePath], root: Path) -> dict[str, list[SourcePath]]:
    """Name of each file without its ending -> the file.

    Files of one name, such as annotations.xml of several tasks of CVAT, have their paths below
    `root` as names.
    """
    name_counts = Counter(os.path.splitext(file.name)[0] for file in files)
    by_name: dict[str, list[SourcePath]] = {}
    for file in files:
        name = os.path.splitext(file.name)[0]
        if name_counts[name] > 1:
            name = os.path.splitext(os.path.relpath(str(file), str(root)))[0]
        by_name[name] = [file]
    return by_name


def is_annotation_folder(name: str) -> bool:
    """Whether a folder is called like one of annotations."""
    return _FOLDER.fullmatch(name) is not None


def read_by(path: Path) -> str:
    """The name of the reader of a file, or of the files in a folder; "" if there is none."""
    if not path.is_dir():
        return reader_of(path)
    for entry in _files_in(path, names_in(path)):
        if entry.path == path:
            return entry.reader
    return ""


def files_of_folder(folder: Path, reader: str) -> list[Path]:
    """The files of a folder that has a file of a tool for each image."""
    ending = None
    files = []
    for name in names_in(folder).files:
        path = folder / name
        if not name.endswith(_BOTH_CASES):
            continue
        if ending is None and reader_of(path) == reader:
            ending = path.suffix.lower()
        if ending is None or path.suffix.lower() == ending:
            files.append(path)
    return [file for file in files if file.suffix.lower() == ending]


def _in_folder(
    folder: Path, names: Names, depth: int, *, is_asked: bool
) -> Iterator[AnnotatedFiles]:
    yield from _files_in(folder, names)
    if depth == 0:
        return
    for name in names.folders[:_MAX_FOLDERS]:
        if name == _UNFINISHED:
            continue
        inner = folder / name
        is_candidate = is_asked or is_annotation_folder(name)
        annotations = None
        if not is_candidate and depth == _MAX_DEPTH:
            annotations = _find_annotations_of_dataset(inner)
        if annotations is not None:
            yield from _in_folder(
                annotations, names_in(annotations, FEW), 0, is_asked=False
            )
        elif is_candidate:
            yield from _in_folder(inner, names_in(inner, FEW), depth - 1, is_asked=True)


def _find_annotations_of_dataset(folder: Path) -> Path | None:
    """The folder of annotations in that of a dataset or a sequence; None if it has none."""
    # Supervisely has the folders img and ann in a folder for each dataset.
    if (folder / "ann").is_dir():
        return folder / "ann"
    # The OIDv4 ToolKit has Label in the folder of the images of a class.
    if (folder / named_boxes.FOLDER).is_dir():
        return folder / named_boxes.FOLDER
    # MOT has img1 and gt in a folder for each sequence.
    if (folder / mot.FOLDER / mot.FILE).is_file():
        return folder / mot.FOLDER
    return None


def _files_in(folder: Path, names: Names) -> Iterator[AnnotatedFiles]:
    """The annotations in a folder itself."""
    candidates = [name for name in names.files if name.endswith(_BOTH_CASES)]
    if not candidates:
        return
    are_lists = len(candidates) <= _MAX_LISTS
    for name in candidates if are_lists else _spread(candidates):
        reader = reader_of(folder / name)
        if not reader:
            continue
        if READERS[reader].is_beside:
            yield AnnotatedFiles(reader, folder)
            return
        if are_lists:
            yield AnnotatedFiles(reader, folder / name)


def _spread(names: Sequence[str]) -> list[str]:
    """A few of many names, from their start to their end."""
    step = max(1, len(names) // _MAX_READ)
    return list(names[::step][:_MAX_READ])
