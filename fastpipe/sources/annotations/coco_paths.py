"""The file_name of COCO's images, as tools write it -> their folder, and their paths below it.

Note [paths of COCO]
The specification has the name of a file. Tools write what they know: a path on the machine of the
annotator (Label Studio: ../../label-studio/data/media/upload/1/a.jpg), backslashes, escapes of
URLs. Where no folder has the first image by its whole path, the folder is looked for that has it by
the end of the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.coco_annotations import Annotations
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import SourcePath, names_in, state_or_problem
from fastpipe.sources.folders.splits import FEW, meaning_of_split, split_in_path
from fastpipe.sources.listing import Assumption
from fastpipe.sources.tables.row_paths import is_name
from fastpipe.sources.tables.written_names import WrittenNames

# So many folders beside annotations are searched for the first image.
_MAX_FOLDERS = 16


class ImageFolder(NamedTuple):
    """The folder that the paths of images are below, and what was assumed to find it."""

    root: SourcePath
    assumed: tuple[Assumption, ...] = ()


class _PathEnd(NamedTuple):
    """A folder that has the first image by the end of its path."""

    root: SourcePath
    clean: Callable[[str], str]  # makes a path with "/" of a written one
    dropped: list[str]  # the folders before that end

    def below_root(self, path: str) -> str:
        """The path of any image below the folder. One in other folders keeps only its name."""
        parts = self.clean(path).split("/")
        count = len(self.dropped)
        if parts[:count] == self.dropped:
            return "/".join(parts[count:])
        return parts[-1]


def find_image_folder(annotations: Annotations, split: str | None) -> ImageFolder:
    """The folder of the images: beside the annotations, or named after their split.

    Changes the paths of the images, where they are not found whole, to those below that folder.
    PackError: no folder, or several, have the first image.
    """
    candidates = _candidate_folders(annotations.paths[0], split)
    path = _first_path(annotations)
    roots = _folders_with(candidates, path)
    if len(roots) == 1:
        return ImageFolder(roots[0])

    # Images with a URL may have been downloaded into one folder, without that of the URL.
    if not roots and annotations.url_images:
        roots = _folders_with(candidates, _name_in(path))
        if len(roots) == 1:
            _drop_url_folders(annotations, roots[0])
            return ImageFolder(roots[0])
    elif not roots and path:
        ends = _find_by_end(path, candidates)
        if len(ends) == 1:
            return _use_path_end(annotations, ends[0])
        roots = [end.root for end in ends]
    if not roots and path and not annotations.url_images:
        # AP-10K has the images in the folder data beside that of the annotations.
        roots = _folders_with(_other_folders(annotations.paths[0], split), path)
        if len(roots) == 1:
            text = (
                f"images: those in {readable(str(roots[0]))}, which has the first one"
            )
            return ImageFolder(roots[0], (Assumption(text, "--image-root FOLDER"),))

    shown_roots = ", ".join(readable(str(root)) for root in roots or candidates)
    count = "several" if roots else "none"
    download = ""
    if annotations.url_images and not roots:
        download = (
            ". Images have a coco_url and no file_name: download them, into folders or one "
            "folder"
        )
    raise PackError(
        f"{readable(str(annotations.paths[0]))}: the first image, {path[:200]!r}, is in {count} of "
        f"{shown_roots}{download}. --image-root says where the images are"
    )


def use_image_root(annotations: Annotations, root: SourcePath) -> ImageFolder:
    """The folder that a user names. Changes the paths of the images to those below it."""
    if annotations.url_images:
        _drop_url_folders(annotations, root)
        return ImageFolder(root)
    path = _first_path(annotations)
    if path and not _has_file(root, path):
        ends = _find_by_end(path, [root])
        if ends:
            return _use_path_end(annotations, ends[0])
    return ImageFolder(root)


def find_way_below(
    root: SourcePath, paths: Sequence[str]
) -> Callable[[str], str] | None:
    """What makes the paths below a folder of those in a file; None if it has none of these images.

    `paths`: of some images, as the file has them.
    """
    for path in paths:
        ends = _find_by_end(path, [root])
        if ends:
            return ends[0].below_root
    return None


def _candidate_folders(file: SourcePath, split: str | None) -> list[SourcePath]:
    """The folders that may have the images of a file of annotations."""
    if not split:
        # instances_val2017, captions_val2017, person_keypoints_val2017
        task, _, split = Path(file.name).stem.partition("_")
        if task not in ("instances", "captions"):
            split = split.removeprefix("keypoints_")
    tops = [file.parent]
    if file.parent.name == "annotations":
        tops.append(file.parent.parent)
    # Objects365 has the images of zhiyuan_objv2_train.json in the folder train.
    splits = {split, split_in_path(Path(file.name).stem) or split}
    folders: list[SourcePath] = []
    for top in tops:
        folders += [top, top / "images"]
        for name in sorted(splits):
            folders += [top / name, top / "images" / name]
    # A dict in place of a set keeps the order.
    return list(dict.fromkeys(folders))


def _other_folders(file: SourcePath, split: str | None) -> list[SourcePath]:
    """The folders beside the annotations that are not called after another split."""
    top = file.parent
    if top.name == "annotations":
        top = top.parent
    if not isinstance(top, Path):
        return []
    meaning = meaning_of_split(split or file.name)
    folders: list[SourcePath] = []
    for name in names_in(top, FEW).folders[:_MAX_FOLDERS]:
        if meaning_of_split(name) in ("", meaning):
            folders.append(top / name)
    return folders


def _first_path(annotations: Annotations) -> str:
    """The path of the first image that has one; "": none has."""
    for image in annotations.images.values():
        if is_name(image.path):
            return image.path
    return ""


def _drop_url_folders(annotations: Annotations, root: SourcePath) -> None:
    """Images known by their URL may be downloaded into one folder, as the first one shows."""
    first_id = next(iter(annotations.url_images))
    path = annotations.images[first_id].path
    if _has_file(root, path) or not _has_file(root, _name_in(path)):
        return
    for image_id in annotations.url_images:
        image = annotations.images[image_id]
        annotations.images[image_id] = image._replace(path=_name_in(image.path))


def _find_by_end(path: str, roots: Sequence[SourcePath]) -> list[_PathEnd]:
    """The folders that have a file by the longest end of its path that any of them has."""
    # Each reads the names in a folder once, if a path is not found as it is written.
    written_names = [(root, WrittenNames(root)) for root in roots]
    for clean in (_with_slashes, _without_escapes):
        parts = clean(path).split("/")
        # From the whole path down to the name of the file.
        for dropped_count in range(len(parts)):
            # A path with ".." could leave the folder.
            if ".." in parts[dropped_count:]:
                continue
            end = "/".join(parts[dropped_count:])
            ends: list[_PathEnd] = []
            for root, names in written_names:
                if _has_file_as_written(root, names, end):
                    ends.append(_PathEnd(root, clean, parts[:dropped_count]))
            if ends:
                return ends
    return []


def _use_path_end(annotations: Annotations, end: _PathEnd) -> ImageFolder:
    """Gives the images their paths below the folder. PackError: two images have one path there."""
    written_paths: dict[str, str] = {}  # path below the folder -> as the file writes it
    for image_id, image in annotations.images.items():
        if not is_name(image.path):
            continue
        path = end.below_root(image.path)
        other = written_paths.setdefault(path, image.path)
        if other != image.path:
            raise PackError(
                f"{readable(str(annotations.paths[0]))}: {readable(other)[:200]} and "
                f"{readable(image.path)[:200]} end alike, and no folder has them by their whole "
                "paths. Write paths below one folder as file_name; --image-root names the folder"
            )
        annotations.images[image_id] = image._replace(path=path)

    # Slashes alone change no path, so there is nothing to tell the user.
    if not end.dropped and end.clean is _with_slashes:
        return ImageFolder(end.root)
    path, first = next(iter(written_paths.items()))
    assumed = Assumption(
        f"images are found by the end of their file_name: {readable(first)[:200]} is "
        f"{readable(path)} in {readable(str(end.root))}",
        "--image-root FOLDER",
    )
    return ImageFolder(end.root, (assumed,))


def _folders_with(folders: Sequence[SourcePath], path: str) -> list[SourcePath]:
    """The folders in which a file of this path exists."""
    return [folder for folder in folders if _has_file(folder, path)]


def _has_file(root: SourcePath, path: str) -> bool:
    # A text says why there is no such file.
    return bool(path) and not isinstance(state_or_problem(root, path), str)


def _has_file_as_written(root: SourcePath, names: WrittenNames, path: str) -> bool:
    """Whether a folder has a file, also where its name is written in another form."""
    if not path:
        return False
    if _has_file(root, path):
        return True
    try:
        return names.find(path) is not None
    except ValueError:  # several files fit
        return False


def _name_in(path: str) -> str:
    return path.rpartition("/")[2]


def _with_slashes(path: str) -> str:
    return "/".join(split_written_path(path))


def _without_escapes(path: str) -> str:
    return _with_slashes(unquote(path))
