"""The name of an image as an annotation tool writes it -> the picture below a folder.

Note [pictures of annotations]
A tool writes the paths of the machine that it ran on, or only names. A file for each image (labelme,
KITTI) belongs to a picture beside it, or in one other folder: the nearest one that has pictures of
these names, and of several as near the one that has most. A file of many images (CVAT, WIDER FACE)
writes paths. All of them lose the same folders at their start, as few as possible, until pictures
end so. A picture in a folder of another split is never taken. Of several pictures the one nearest
to the annotations is taken; two that are equally near are refused.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import files_below
from fastpipe.sources.folders.splits import count_shared, first_paths, meaning_of_split
from fastpipe.sources.tables.written_names import fold_name

_FINAL_NUMBER = re.compile(r"\d+$")
# Files are copied and renamed with their pictures, and the name that is written in them stays.
OTHER_NAME = (
    "files that have the name of one image, and name another image inside: {}; the name of the file "
    "counts"
)
# So many of the names show the folder of the pictures.
_MAX_COUNTED_NAMES = 1000


class Pictures:
    """The pictures below a folder. See Note [pictures of annotations]."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folded name of a picture, with and without its ending -> paths below the root.
        self._of_name: dict[str, list[str]] = {}
        self.paths: set[str] = set()
        for path in files_below(root, hidden=False):
            if not is_picture(path):
                continue
            name = path.rpartition("/")[2]
            self.paths.add(path)
            self._of_name.setdefault(fold_name(name), []).append(path)
            stem = fold_name(os.path.splitext(name)[0])
            self._of_name.setdefault(stem, []).append(path)

    def of_name(self, name: str) -> list[str]:
        """The pictures of a name, which may lack the ending."""
        return self._of_name.get(fold_name(name), [])

    def find_folder(self, names: Iterable[str], near: str) -> str | None:
        """The folder whose pictures have the names of the annotations in the folder `near`.

        Args:
            names: of the pictures, with or without their endings.
            near: the path of the folder of the annotations, below the root.

        Returns:
            None: no folder has such a picture.

        Raises:
            PackError: two folders fit equally well.
        """
        counts: Counter[str] = Counter()
        for name in list(names)[:_MAX_COUNTED_NAMES]:
            counts.update({_folder_of(path) for path in self.of_name(name)})
        candidates = [
            folder
            for folder in counts
            if folder == near or not _is_of_other(folder, near)
        ]
        if near in candidates:
            return near
        best = _nearest(candidates, near)
        if len(best) > 1:
            most = max(counts[folder] for folder in best)
            best = [folder for folder in best if counts[folder] == most]
        if len(best) > 1:
            called_images = [
                folder for folder in best if is_called_images(folder.rpartition("/")[2])
            ]
            best = called_images or best
        if len(best) > 1:
            folders = [str(self.root / folder) for folder in sorted(best)]
            raise PackError(
                f"the annotations in {readable(str(self.root / near))} may belong to the images in "
                f"{first_paths(folders)}. --image-root says where the images are"
            )
        return best[0] if best else None

    def in_folder(self, name: str, folder: str) -> str | None:
        """The picture of a name in a folder; None if there is none. ValueError: several fit."""
        paths = [path for path in self.of_name(name) if _folder_of(path) == folder]
        return self._only(paths, name)

    def _only(self, paths: Sequence[str], written: str) -> str | None:
        """The only path, or the one that is written in the same way."""
        candidates = list(paths)
        if len(candidates) > 1:
            name = split_written_path(written)[-1]
            exact = [path for path in paths if path.rpartition("/")[2] == name]
            candidates = exact or candidates
        if len(candidates) > 1:
            raise ValueError(
                f"{readable(written)} may be {first_paths(sorted(candidates))}; --image-root says "
                "where the images are"
            )
        return candidates[0] if candidates else None

    def end_of(self, written_paths: Sequence[str]) -> int:
        """How many folders at the start of all written paths are to be left out."""
        parts = [split_written_path(path) for path in written_paths if path]
        parts = [names for names in parts if names]
        shared_count = count_shared(names[:-1] for names in parts)
        for dropped_count in range(shared_count + 1):
            if any(self._ending_with(names[dropped_count:]) for names in parts):
                return dropped_count
        return max((len(names) - 1 for names in parts), default=0)

    def find_by_end(self, written: str, dropped_count: int, near: str) -> str | None:
        """The picture of a written path without some folders at its start; None if there is none.

        ValueError: several fit.
        """
        parts = split_written_path(written)
        candidates = self._ending_with(parts[min(dropped_count, len(parts) - 1) :])
        candidates = [
            path
            for path in candidates
            if not _is_of_other_split(_folder_of(path), near)
        ]
        return self._only(_nearest(candidates, near), written)

    def _ending_with(self, parts: Sequence[str]) -> list[str]:
        """The pictures whose paths end with these names; the last one may lack its ending."""
        if not parts or ".." in parts:
            return []
        folders = [fold_name(part) for part in parts[:-1]]
        paths = []
        for path in self.of_name(parts[-1]):
            folders_of_path = [fold_name(part) for part in path.split("/")[:-1]]
            if folders == folders_of_path[len(folders_of_path) - len(folders) :]:
                paths.append(path)
        return paths


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _is_of_other(folder: str, near: str) -> bool:
    """Whether a folder belongs to another split than `near`, or to another camera, as image_3."""
    if _is_of_other_split(folder, near):
        return True
    numbers = [_FINAL_NUMBER.search(path) for path in (folder, near)]
    are_numbered = numbers[0] is not None and numbers[1] is not None
    return (
        are_numbered
        and _folder_of(folder) == _folder_of(near)
        and numbers[0][0] != numbers[1][0]  # type: ignore[index]
    )


def _is_of_other_split(folder: str, near: str) -> bool:
    split = _split_in(near)
    other_split = _split_in(folder)
    return bool(split and other_split) and split != other_split


def _split_in(path: str) -> str:
    """The split that the last folder or name in a path is called after; "" if none is."""
    for name in reversed(path.split("/")):
        split = meaning_of_split(name)
        if split:
            return split
    return ""


def _nearest(paths: Sequence[str], near: str) -> list[str]:
    """The paths that are most like the place of the annotations."""
    if not paths:
        return []
    likeness = {path: _likeness(path, near) for path in paths}
    most = max(likeness.values())
    return [path for path in paths if likeness[path] == most]


def _likeness(path: str, near: str) -> tuple[int, int]:
    """How many folders two paths share: at their start, and anywhere."""
    parts = path.split("/")
    near_parts = near.split("/")
    return count_shared([parts, near_parts]), len(set(parts) & set(near_parts))
