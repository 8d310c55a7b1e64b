"""The members of tars -> a listing as if the tars had been unpacked: images in class folders.

Note [a tar of a folder]
`tar cf photos.tar photos` puts the folder photos around the class folders. Only the tar's name
tells that photos is not a class: photos.tar, photos-000.tar and photos_1.tar are named after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.sidecar_files import (
    assume_masks_in_tar,
    leave_out_sidecar_files,
)
from fastpipe.sources.files import SourcePath, find_hidden_folder
from fastpipe.sources.folders.class_folders import assume_hidden_left_out
from fastpipe.sources.folders.doubtful_classes import (
    numbers_as_texts,
    parts_as_classes,
    split_as_class,
)
from fastpipe.sources.folders.folder_roles import is_called_image, is_called_target
from fastpipe.sources.folders.paired_folders import describe_pairs
from fastpipe.sources.folders.splits import (
    are_called_like_parts,
    choose_split,
    find_split_names,
    first_paths,
    split_of_name,
)
from fastpipe.sources.listing import Assumption, Listing, Source, replace_sources
from fastpipe.sources.tars.tar_members import (
    DUPLICATE_PATH,
    CheckedMember,
    is_label,
    member_source,
    path_in_source,
    rejected_source,
)
from fastpipe.sources.tars.tar_reader import TarFile

# Of a folder's path, this many names say all: a folder around, a split, and a class.
_MAX_FOLDER_NAMES = 3
# The names of this many images are compared. There may be millions.
_NUM_CHECKED = 1000
# Folders that lie in a tar are read as classes. Other roles of folders are read on a disk.
_UNPACK = "unpack the tar, and pack the folder that it holds"

Folder = tuple[str, ...]  # the first names of a folder's path


class TarFiles:
    """Collects all files of the tars of a source, and the folders that they lie in."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.folders: set[Folder] = set()

    def add_tar(
        self, tar: TarFile, archive: str, members: Iterable[CheckedMember]
    ) -> bool:
        """Adds the files of a tar. False: it stopped at a KEY.cls, as only a WebDataset has.

        `archive`: the path of the tar in the source, "" where it is the source.
        """
        paths = set[str]()
        last_folder = ""
        for member, path, problem in members:
            if problem is not None:
                self.sources.append(rejected_source(tar, archive, member, problem))
                continue
            folder = path
            if not member.is_folder:
                folder, _, _ = path.rpartition("/")
            # Members of one folder usually follow one another, so most need no work.
            if folder != last_folder:
                last_folder = folder
                if folder:  # "" is the tar's own folder
                    names = folder.split("/", _MAX_FOLDER_NAMES)
                    self.folders.add(tuple(names[:_MAX_FOLDER_NAMES]))
            if member.is_folder:
                continue
            if is_label(path):
                return False
            if path in paths:
                self.sources.append(
                    rejected_source(tar, archive, member, DUPLICATE_PATH)
                )
                continue
            paths.add(path)
            self.sources.append(member_source(tar, archive, member, path))
        return True


def list_folders(
    root: SourcePath,
    tars: Sequence[str],
    files: TarFiles,
    stray: list[str],
    split: str | None,
) -> Listing | None:
    """Lists the images in class folders, or in those of a split. None: no folder may be a class.

    Adds the files that lie beside the class folders to `stray`.
    """
    # Hidden folders are not classes, as in a folder on a disk.
    folders = {folder for folder in files.folders if not folder[0].startswith(".")}
    num_outer = _count_outer_folders(folders, tars)
    names = _names_at(folders, num_outer)
    if not names:
        return None

    splits = find_split_names(names, split)
    chosen = None
    if splits:
        chosen = choose_split(root, split, dict.fromkeys(splits))
        folders_of_splits = set[Folder]()
        for folder in folders:
            if len(folder) > num_outer and folder[num_outer] in splits:
                folders_of_splits.add(folder)
        num_outer += 1
        # All splits have the same classes.
        names = _names_at(folders_of_splits, num_outer)
    else:
        refuse_split(root, split)
    labels = {name: label for label, name in enumerate(names)}
    hidden_folders = set[str]()

    def relabel_source(source: Source) -> Source | None:
        """The source with its label, and its path without the folders around the classes."""
        if source.problem is not None:
            return source
        archive = source.archive or ""
        parts = source.path.removeprefix(path_in_source(archive, "")).split("/")
        if chosen is not None:
            # An image may lie beside the folder around the splits.
            if len(parts) < num_outer:
                stray.append(source.path)
                return None
            if parts[num_outer - 1] != chosen:
                return None
        parts = parts[num_outer:]
        path = path_in_source(archive, "/".join(parts))
        hidden_folder = find_hidden_folder(path)
        if hidden_folder and parts[0] in labels:
            hidden_folders.add(hidden_folder)
            return None
        if len(parts) > 1 and parts[0] in labels:
            return source._replace(path=path, label=labels[parts[0]])
        # An image that lies in a split itself has no class.
        if chosen is not None and len(parts) == 1:
            return source._replace(path=path, label=NO_LABEL)
        stray.append(source.path)
        return None

    replace_sources(files.sources, relabel_source)
    assumed = _find_assumptions(names, folders, num_outer)
    assumed += _assume_images_of_one_key(files.sources)
    assumed += assume_hidden_left_out(hidden_folders)
    assumed += _assume_no_roles(names) or _assume_no_pairs(files.sources, names)
    assumed += assume_masks_in_tar(files.sources)
    assumed += leave_out_sidecar_files(root, files.sources, names, are_classes=True)
    return Listing(root, names, files.sources, stray, assumed=tuple(assumed))


def _assume_images_of_one_key(sources: Sequence[Source]) -> list[Assumption]:
    """The assumption on two images that WebDataset's readers would put into one sample.

    They cut a member's name at its first dot: a/1.image.jpg and a/1.mask.png are one sample there.
    """
    first_of_key: dict[str, str] = {}
    for source in sources[:_NUM_CHECKED]:
        folder, _, name = source.path.rpartition("/")
        stem, _, ending = name.partition(".")
        first = first_of_key.setdefault(f"{folder}/{stem}", source.path)
        if first != source.path and "." in ending:
            first_ending = first.rpartition("/")[2].partition(".")[2]
            text = (
                f"images: {readable(first)} and {readable(source.path)} are samples of their own; "
                "in a WebDataset they are one sample"
            )
            return [Assumption(text, f"--image-column {first_ending}")]
    return []


def _assume_no_roles(folders: Sequence[str]) -> list[Assumption]:
    """Says that folders are taken as classes, though they are called like images and masks."""
    images = [name for name in folders if is_called_image(name)]
    targets = [name for name in folders if is_called_target(name)]
    if not images or not targets:
        return []
    text = (
        f"classes: the folders {first_paths(folders)}, though {readable(images[0])} and "
        f"{readable(targets[0])} look like folders of images and of their masks or targets; {_UNPACK}"
    )
    return [Assumption(text)]


def _assume_no_pairs(
    sources: Sequence[Source], classes: Sequence[str]
) -> list[Assumption]:
    """As `paired_folders.assume_no_pairs`; a tar has no option for it."""
    text = describe_pairs(sources, classes)
    if not text:
        return []
    return [Assumption(f"{text}; {_UNPACK}")]


def refuse_split(root: SourcePath, split: str | None) -> None:
    """Raises PackError where a user picks a split of tars that have none."""
    if split is not None:
        raise PackError(
            f"{readable(root)} has no splits: neither tars nor folders in them that are called "
            f"train, val, test or the like; leave it out; got {readable(split)!r}",
            option="split",
        )


def _count_outer_folders(folders: Collection[Folder], tars: Sequence[str]) -> int:
    """How many folders lie around the class folders. See Note [a tar of a folder]"""
    tops = {folder[0] for folder in folders}
    has_inner = any(len(folder) > 1 for folder in folders)
    if len(tops) != 1 or not has_inner:
        return 0
    top = re.escape(min(tops))
    pattern = re.compile(top + r"([-_.]?\d+)?\.tar", re.IGNORECASE)
    for tar in tars:
        if not pattern.fullmatch(PurePosixPath(tar).name):
            return 0
    return 1


def _names_at(folders: Collection[Folder], num_outer: int) -> list[str]:
    """The names of the folders that lie in `num_outer` others, sorted; without hidden ones."""
    names = set[str]()
    for folder in folders:
        if len(folder) > num_outer and not folder[num_outer].startswith("."):
            names.add(folder[num_outer])
    return sorted(names)


def _find_assumptions(
    names: Sequence[str], folders: Collection[Folder], num_outer: int
) -> list[Assumption]:
    """The assumptions on folders that are taken for classes.

    `num_outer`: how many folders lie around them.
    """
    assumed = list(numbers_as_texts(names))
    named_as_splits = [name for name in names if split_of_name(name) is not None]
    inner = _names_at(folders, num_outer + 1)
    if named_as_splits:
        assumed.insert(0, split_as_class(named_as_splits))
    elif are_called_like_parts(names):
        assumed.append(parts_as_classes(names, inner))
    elif len(names) == 1 and inner:
        assumed.append(
            Assumption(
                f"all images are of the class {readable(names[0])}, the only folder in the tar; if "
                f"the folders in it ({first_paths(inner)}) are the classes, make the tar in "
                "that folder"
            )
        )
    return assumed
