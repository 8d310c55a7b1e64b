"""Paths of a table that lead to no file -> where the files are, if that is certain.

Note [images elsewhere]
A table keeps the paths of the machine that it was written on, or only the names of files that lie
in several folders. Other places are tried only where not one row has its file. First all paths lose
the same folders at their start: as few as possible, until files exist. Else files are looked for by
the ends of their paths in all folders below; two that fit are refused. The place is an assumption,
which the summary shows. A folder that the paths lose may be there, or one of nearly its name. Then
a file outside of it is another one: with bird/ there, birdx/1.jpg is a slip, and not dog/1.jpg.
Pictures in a folder that is called like masks are not the images, unless the table writes this
folder: Oxford's pets have trimaps/a.png for images/a.jpg.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_masks
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import files_below
from fastpipe.sources.folders.splits import (
    count_shared,
    first_paths,
    split_in_path,
    split_of_name,
)
from fastpipe.sources.listing import Assumption
from fastpipe.sources.tables.written_names import (
    WrittenNames,
    ends_with_id,
    split_joined_id,
)

_MAX_TRIED_PATHS = 100
# A share of fewer paths may be another class, and not some odd rows.
_MIN_COMMON_SHARE = 0.9
# Of the names of two folders, as difflib measures it: images and images_001 are less alike.
_MIN_SIMILARITY = 0.8


class FilePlaces(NamedTuple):
    """The places of the files that a table's paths mean."""

    assumption: Assumption
    prefix: str = ""  # left out at the start of all paths, with / between folders
    # Path in the table -> path of the file, if files were looked for.
    files: Mapping[str, str] = {}

    def path(self, written_path: str, *, is_image: bool) -> str:
        """The path of a file below the image root."""
        path = _with_slashes(written_path)
        if self.prefix and path.startswith(self.prefix):
            return path.removeprefix(self.prefix)
        # Only images were looked for. Files of other fields keep their paths.
        if not is_image:
            return written_path
        return self.files.get(written_path, written_path)


def find_places(root: Path, paths: Iterable[str], table: str) -> FilePlaces | None:
    """Looks for the files of paths; None if no file is found. `table`: the name of its file.

    PackError: two files fit one path.
    """
    # Written path -> the names of its folders and of its file.
    names_of: dict[str, list[str]] = {}
    for path in paths:
        names = split_written_path(path)
        # Kaggle's notebooks write ../input/NAME/a.jpg. What follows may lie here.
        while names and names[0] == "..":
            names.pop(0)
        # A path with ".." could lead out of the root.
        if names and ".." not in names:
            names_of[path] = names
    if not names_of:
        return None
    # A row of another machine must not change where the images of all others are.
    common = _without_odd_paths(names_of)
    shared_count = count_shared(names[:-1] for names in common.values())
    place = _find_prefix(root, common, shared_count)
    if place is None:
        place = _find_below(root, names_of, shared_count, table)
    return place


def _without_odd_paths(
    names_of: Mapping[str, Sequence[str]],
) -> Mapping[str, Sequence[str]]:
    """The paths that begin with the same folder, if these are nearly all; else all paths."""
    counts = Counter(names[0] for names in names_of.values() if len(names) > 1)
    if not counts:
        return names_of
    folder, count = counts.most_common(1)[0]
    if count < _MIN_COMMON_SHARE * len(names_of):
        return names_of
    return {path: names for path, names in names_of.items() if names[0] == folder}


def _with_slashes(path: str) -> str:
    return path.replace("\\", "/")


def _find_prefix(
    root: Path, names_of: Mapping[str, Sequence[str]], shared_count: int
) -> FilePlaces | None:
    """Tries to leave out some of the folders that all paths share."""
    written_names = WrittenNames(root)
    # Each number of folders costs a look at the disk for each path, so only some are tried.
    tried_paths = list(names_of)[:_MAX_TRIED_PATHS]
    for dropped_count in range(shared_count + 1):
        for written_path in tried_paths:
            end = "/".join(names_of[written_path][dropped_count:])
            file = written_names.find(end)
            if file is None or not (root / file).is_file():
                continue
            path = _with_slashes(written_path)
            prefix = path.removesuffix(end)
            # Without a prefix, or with doubled slashes in it, leaving it out changes nothing.
            if not prefix or prefix == path:
                return None
            assumption = Assumption(
                f"paths: {readable(prefix)} at their start is left out: {readable(written_path)} "
                f"is {readable(file)}"
            )
            return FilePlaces(assumption, prefix)
    return None


def _find_below(
    root: Path, names_of: Mapping[str, Sequence[str]], shared_count: int, table: str
) -> FilePlaces | None:
    """Looks for the files in all folders below the root, by the ends of their paths."""
    # Name of a file, with and without its ending -> paths of such files.
    files_of_name: dict[str, list[str]] = {}
    for file in files_below(root, hidden=False):
        name = file.rpartition("/")[2]
        if is_picture(name):
            files_of_name.setdefault(name, []).append(file)
            files_of_name.setdefault(os.path.splitext(name)[0], []).append(file)

    # From the whole paths down to those without any shared folder: longer ends are more certain.
    for dropped_count in range(shared_count + 1):
        candidates: dict[str, list[str]] = {}
        for path, names in names_of.items():
            files = _files_with_end(names[dropped_count:], files_of_name)
            if files:
                candidates[path] = files
        if candidates and dropped_count:
            # All paths share the folders that they lose.
            first_names = next(iter(names_of.values()))
            lost_folder = first_names[dropped_count - 1]
            candidates = _without_contradicted(candidates, lost_folder, files_of_name)
            if not candidates:
                return None
        if candidates:
            return _choose_files(root, candidates, table)
    return _find_by_joined_ids(root, names_of, files_of_name, table)


def _find_by_joined_ids(
    root: Path,
    names_of: Mapping[str, Sequence[str]],
    files_of_name: Mapping[str, Sequence[str]],
    table: str,
) -> FilePlaces | None:
    """Looks for the files of ids that join a folder and a name: 0-16 is video_0/16.jpg."""
    candidates: dict[str, list[str]] = {}
    for path, names in names_of.items():
        joined = split_joined_id(names[-1])
        if len(names) > 1 or joined is None:
            continue
        folder_id, picture = joined
        files = []
        for file in files_of_name.get(picture, ()):
            folder = os.path.basename(os.path.dirname(file))
            if ends_with_id(folder, folder_id) and not is_called_masks(folder):
                files.append(file)
        if files:
            candidates[path] = files
    # Numbers fit by chance, so nearly all ids must fit.
    if not candidates or len(candidates) < _MIN_COMMON_SHARE * len(names_of):
        return None
    places = _choose_files(root, candidates, table)
    path, file = next(iter(places.files.items()))
    text = f"{places.assumption.text}; {readable(path)} is {readable(file)}"
    return places._replace(assumption=Assumption(text))


def _without_contradicted(
    candidates: Mapping[str, list[str]],
    lost_folder: str,
    files_of_name: Mapping[str, Sequence[str]],
) -> dict[str, list[str]]:
    """The candidates without files that lie outside the folder that their paths lose.

    That is a folder of this name, or of nearly this name. Without any such folder all stay.
    """
    folders: set[str] = set()
    for files in files_of_name.values():
        for file in files:
            folders.update(file.split("/")[:-1])
    meant = set(get_close_matches(lost_folder, folders, cutoff=_MIN_SIMILARITY))
    if not meant:
        return dict(candidates)
    remaining = {}
    for path, files in candidates.items():
        inside = [file for file in files if not meant.isdisjoint(file.split("/")[:-1])]
        if inside:
            remaining[path] = inside
    return remaining


def _files_with_end(
    names: Sequence[str], files_of_name: Mapping[str, Sequence[str]]
) -> list[str]:
    """The files whose paths end with these names; the last name may lack the file's ending."""
    end = "/" + "/".join(names)
    files: list[str] = []
    for file in files_of_name.get(names[-1], ()):
        stem, _ = os.path.splitext(file)
        if f"/{file}".endswith(end) or f"/{stem}".endswith(end):
            files.append(file)
    return [file for file in files if _are_masks_written(file, names)]


def _are_masks_written(file: str, names: Sequence[str]) -> bool:
    """Whether all folders of a file that are called like masks are among these names."""
    folders = file.split("/")[:-1]
    return all(folder in names for folder in folders if is_called_masks(folder))


def _choose_files(
    root: Path, candidates: Mapping[str, Sequence[str]], table: str
) -> FilePlaces:
    """One file for each path.

    Of several files it is the only one in a folder of the split that the table is named after.
    """
    split = split_in_path(os.path.splitext(table)[0])
    chosen: dict[str, str] = {}
    for path, files in candidates.items():
        candidate_files = files
        if len(files) > 1:
            candidate_files = [file for file in files if _is_in_split(file, split)]
        if len(candidate_files) != 1:
            folder = root / _image_root(path, files[0])
            raise PackError(
                f"{readable(table)}: {readable(path)} may be {first_paths(files)}, which lie below "
                f"{_shown_folder(root)}. Write the path of one into the table, or say which folder "
                f"has the images, such as --image-root {readable(str(folder))}"
            )
        chosen[path] = candidate_files[0]

    folders = list(dict.fromkeys(map(os.path.dirname, chosen.values())))
    image_roots = {_image_root(path, file) for path, file in chosen.items()}
    option = ""
    if len(image_roots) == 1:
        option = f"--image-root {readable(str(root / image_roots.pop()))}"
    place = "in a subfolder" if len(folders) == 1 else "in subfolders"
    verb = "is" if len(chosen) == 1 else "are"
    text = (
        f"images: {len(chosen):,} {verb} {place} of {_shown_folder(root)}: "
        f"{first_paths(folders)}"
    )
    for path, file in chosen.items():
        # A folder of the table that is not that of the file has been left out.
        names = split_written_path(path)
        if len(names) > 1 and not f"/{file}".startswith("/" + "/".join(names[:-1])):
            text += f"; {readable(path)} is {readable(file)}"
            break
    return FilePlaces(Assumption(text, option), files=chosen)


def _image_root(path: str, file: str) -> str:
    """The folder above a file in which a table's path is found, without its first folders if need be.

    Of imgs/cat/1.jpg, which is both/train/cat/1.jpg, it is both/train.
    """
    written_folders = split_written_path(path)[:-1]
    folders = file.split("/")[:-1]
    while folders and written_folders and folders[-1] == written_folders[-1]:
        folders.pop()
        written_folders.pop()
    return "/".join(folders)


def _shown_folder(root: Path) -> str:
    """The name of a folder, also of "." and ".."."""
    return readable(os.path.basename(os.path.abspath(root)))


def _is_in_split(file: str, split: str | None) -> bool:
    """Whether a folder of a file's path is called like the split."""
    folders = file.split("/")[:-1]
    return split is not None and split in map(split_of_name, folders)
