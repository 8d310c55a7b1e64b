"""The file_name of COCO's images, as tools write it -> the folder of the images, and the path of each below it.

Note [paths of COCO]
The specification has the name of a file. Tools write what they know: a path on the machine of the annotator
(Label Studio: ../../label-studio/data/media/upload/1/a.jpg), backslashes, escapes of URLs. Where no folder has the
first image by its whole path, the folder is looked for that has it by the end of the path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, state_or_problem
from fastpipe.sources.listing import Assumption
from fastpipe.sources.written_names import WrittenNames

_DRIVE = re.compile(r"^[A-Za-z]:(?=[\\/])")


class ImageFolder(NamedTuple):
    """The folder that has the images, and how a path as it is written becomes the path below it."""

    root: SourcePath
    below: Callable[[str], str]
    assumed: tuple[Assumption, ...] = ()


def find_by_end(first: str, roots: Sequence[SourcePath]) -> list[ImageFolder]:
    """The folders that have the first image by the longest end of its path that any of them has."""
    for clean in (_with_slashes, _without_escapes):
        parts = clean(first).split("/")
        for dropped in range(len(parts)):
            end = "/".join(parts[dropped:])
            if ".." in parts[dropped:]:
                continue
            folders = [root for root in roots if _has(root, end)]
            if folders:
                return [_folder_by_end(root, first, dropped, clean) for root in folders]
    return []


def _folder_by_end(
    root: SourcePath, first: str, dropped: int, clean: Callable[[str], str]
) -> ImageFolder:
    start = clean(first).split("/")[:dropped]

    def below(path: str) -> str:
        parts = clean(path).split("/")
        if parts[:dropped] == start:
            return "/".join(parts[dropped:])
        return parts[-1]

    if not dropped and clean is _with_slashes:
        return ImageFolder(root, below)
    assumed = Assumption(
        f"images are found by the end of their file_name: {readable(first)[:200]} is "
        f"{readable(below(first))} in {readable(str(root))}",
        "--image-root FOLDER",
    )
    return ImageFolder(root, below, (assumed,))


def check_unique(paths: Iterable[str], below: Callable[[str], str], file: SourcePath) -> None:
    """PackError: two images are one file by the ends of their paths."""
    known: dict[str, str] = {}
    for path in paths:
        other = known.setdefault(below(path), path)
        if other != path:
            raise PackError(
                f"{readable(str(file))}: {readable(other)[:200]} and {readable(path)[:200]} end alike, and no folder "
                "has them by their whole paths. Write paths below one folder as file_name; --image-root names the "
                "folder"
            )


def _has(root: SourcePath, path: str) -> bool:
    """Whether a folder has a file, also where its name is written in another form."""
    if not path:
        return False
    if not isinstance(state_or_problem(root, path), str):
        return True
    try:
        return WrittenNames(root).find(path) is not None
    except ValueError:  # several files fit
        return False


def _with_slashes(path: str) -> str:
    parts = _DRIVE.sub("", path).replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def _without_escapes(path: str) -> str:
    return _with_slashes(unquote(path))
