"""Names of folders, tars and files -> the splits of a dataset that they are called after.

Note [splits of a root]
Folders are splits where all of them are called like splits, or where two of them are called like
two different splits: no list of classes has both "train" and "test". One such folder beside others
is a class, as "train" is in COCO, and the user gets an assumption that says so. Folders that differ in
the word of a split alone, as cars_train and cars_test, are splits if the user asks for one of them. A split is a source
of its own, but a class has the same number in all splits. Folders that are called like parts, as
fold_0 and fold_1, are splits only if the user asks for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, did_you_mean, first_names, readable
from fastpipe.sources.files import Names, SourcePath, names_in

# A word in a name -> the split that it means.
_SPLIT_OF_WORD = {
    "train": "train",
    "training": "train",
    "trainval": "trainval",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "dev",
    "eval": "eval",
    "evaluation": "eval",
}
# The longest first, so that "training" is not read as "train" with something behind it.
_WORD = "|".join(sorted(_SPLIT_OF_WORD, key=len, reverse=True))
_THING = "images?|imgs?|photos?|pictures?|data|dataset|set|split"
# The whole name: train, Val, test2017, seg_train, training_set, test_images.
_SPLIT_FOLDER = re.compile(
    rf"(?:(?:{_THING}|seg)[-_ ])?({_WORD})(?:[-_ ]?(?:{_THING}))?(?:[-_ ]?\d{{1,4}})?",
    re.IGNORECASE,
)
_PART_WORD = (
    "folds?|parts?|batch|batches|chunks?|shards?|splits?|subsets?|sets?|folders?|dirs?|archives?|"
    "disks?|volumes?|vols?|images?|imgs?|pics?|pictures?|photos?|frames?|data|videos?|clips?|seqs?|"
    "sequences?|scenes?|sessions?|cameras?|cams?|patients?|subjects?|cases?|scans?|study|studies"
)
# fold1, part_a, cv_fold_0, images_001, batch-3-of-10
_PART_FOLDER = re.compile(
    rf"((?:.*[-_ ])?(?:{_PART_WORD}))(?:[-_ .]?\d+(?:[-_]?of[-_]?\d+)?|[-_ ][a-z])",
    re.IGNORECASE,
)
# A folder in a split that may have all of its class folders.
_IMAGES = re.compile(r"(?:jpeg)?(?:images?|imgs?)", re.IGNORECASE)
# A capital letter begins a word.
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MAX_SHOWN = 5
# A folder may have millions of names. This many are enough to see what it holds.
FEW = 1000


class SplitChoiceError(PackError):
    """A user named no split of a source with several, or one that it does not have.

    Attributes:
        split_names: the names of the splits.
    """

    def __init__(self, message: str, splits: Iterable[str]) -> None:
        self.split_names = tuple(splits)
        super().__init__(message, option="split")


class SplitsError(SplitChoiceError):
    """A source has several splits and the user named none, or named one that it does not have.

    Attributes:
        root: the source.
        requested: the split that the user named; None if the user named none.
        splits: the splits of the source, with their folders where they have folders.
    """

    def __init__(
        self,
        root: SourcePath,
        requested: str | None,
        splits: Mapping[str, SourcePath | None],
        more: str,
    ) -> None:
        self.root = root
        self.requested = requested
        self.splits = dict(splits)
        problem = "has no folders of splits; leave it out"
        if splits:
            problem = describe_splits(sorted(splits), requested) + more
        super().__init__(f"{readable(str(root))} {problem}", splits)


def describe_splits(
    splits: Sequence[str], requested: str | None, place: str = ""
) -> str:
    """What a source has, for an error with option="split": Python and commands show it as theirs.

    Args:
        splits: the names of all splits, at least one.
        requested: the one that the user named, which is none of them; None: the user named none.
        place: where the splits stand, such as "in column 'set'".
    """
    where = f" {place}" if place else ""
    text = f"has the splits {', '.join(map(readable, splits))}{where}"
    if requested is None:
        return f"{text}; pass one of them"
    hint = did_you_mean(requested, splits) or "; pass one of them"
    return f"{text}, got {readable(requested)!r}{hint}"


def split_of_name(name: str) -> str | None:
    """The split that a folder is called after, as "train", "val" or "test"; or None."""
    match = _SPLIT_FOLDER.fullmatch(name)
    if match is None:
        return None
    return _SPLIT_OF_WORD[match[1].lower()]


def split_in_path(path: str, words: Container[str] = _SPLIT_OF_WORD) -> str:
    """The last word of a path that names a split, as in imagenet-train-000017.tar; "" if none does.

    The word is as in the path, in small letters: "validation" stays "validation".
    """
    for word in reversed(re.split(r"[^a-z0-9]+", path.lower())):
        if word in words:
            return word
    return ""


def meaning_of_split(name: str) -> str:
    """The split that the name of a folder or of a file means, as "val" for "validation"; or ""."""
    word = split_of_name(name) or split_in_path(name)
    return _SPLIT_OF_WORD.get(word, "")


def is_for_evaluation(name: str) -> bool:
    """Whether a folder or a dataset of this name holds the split that a model is evaluated on."""
    return meaning_of_split(name) in ("val", "test", "dev", "eval")


def find_training(images: Path) -> Path | None:
    """The folder of training beside the split that images lie in; None if there is none.

    It is sought beside the nearest folder that is called like another split: beside val of
    val/images. `images`: a folder, absolute.
    """
    for folder in (images, *images.parents):
        split = split_of_name(folder.name)
        if split is None:
            continue
        if split == "train":
            return None
        try:
            names = names_in(folder.parent, FEW).folders
        except PackError:
            return None  # a folder above may be closed to the user
        for name in names:
            if split_of_name(name) == "train":
                return folder.parent / name
        return None
    return None


def find_split_names(
    folders: Sequence[str], requested: str | None = None
) -> dict[str, str]:
    """Folder -> the split that it is called after; empty if the folders are classes.

    See Note [splits of a root]. Parts of a dataset stand for themselves.

    Args:
        folders: the names of all folders.
        requested: the split that the user names.
    """
    if requested in folders and are_called_like_parts(folders):
        return {name: name for name in folders}

    split_of_folder: dict[str, str] = {}
    for name in folders:
        split = split_of_name(name)
        if split is not None:
            split_of_folder[name] = split
    are_all_splits = len(split_of_folder) == len(folders)
    are_different = len(set(split_of_folder.values())) > 1
    is_one_requested = (
        requested is not None and find_split(requested, split_of_folder) is not None
    )
    if are_all_splits or are_different or is_one_requested:
        return split_of_folder
    if requested is not None and not split_of_folder:
        for parts in find_split_parts(folders):
            if find_split(requested, parts.values()) is not None:
                return {folder: split for split, folder in parts.items()}
    return {}


def find_split_parts(folders: Iterable[str]) -> list[dict[str, str]]:
    """Split -> folder, of folders that differ in the word of a split alone.

    cars_train and cars_test are such folders, and VisDrone2019-DET-train and VisDrone2019-DET-val.
    """
    # Rest of the name -> split -> folder.
    by_rest: dict[tuple[str, ...], dict[str, str]] = {}
    for folder in folders:
        words = words_in(folder)
        for index, word in enumerate(words):
            split = split_of_name(word)
            if split is not None and len(words) > 1:
                rest = (*words[:index], *words[index + 1 :])
                by_rest.setdefault(rest, {})[split] = folder
    return [parts for parts in by_rest.values() if len(parts) > 1]


def words_in(name: str) -> list[str]:
    """The words in the name of a folder, in small letters: "trainA" is two, and "GroundTruth"."""
    return [word.lower() for word in _NAME_WORD.findall(name)]


def count_shared(paths: Iterable[Sequence[str]]) -> int:
    """How many folders at their start all paths share; a path is the names of its folders."""
    folders = [tuple(names) for names in paths]
    if not folders:
        return 0
    # All paths share the folders that the first and the last one, in sorted order, share.
    count = 0
    for first, last in zip(min(folders), max(folders), strict=False):
        if first != last:
            break
        count += 1
    return count


def are_called_like_parts(folders: Sequence[str]) -> bool:
    """Whether all folders have the same name, one for a part of a dataset, and a number each."""
    names = set()
    for folder in folders:
        match = _PART_FOLDER.fullmatch(folder)
        if match is None:
            return False
        names.add(match[1].lower())
    return len(names) == 1


def split_folders(
    root: SourcePath, names: Names, requested: str | None = None
) -> dict[str, SourcePath]:
    """Name -> folder of the splits of a root; empty if its folders are no splits.

    See Note [splits of a root].
    """
    folders: dict[str, SourcePath] = {}
    for name in find_split_names(names.folders, requested):
        folders[name] = _without_wrapper(root / name)
    return folders


def _without_wrapper(folder: SourcePath) -> SourcePath:
    """train/train in place of train, if nothing else is in it: zip files are made like this.

    The same holds for Final_Training/Images of GTSRB, which has class folders.
    """
    names = names_in(folder, FEW)
    if names.files or len(names.folders) != 1:
        return folder
    inner = names.folders[0]
    is_same_name = inner.lower() == folder.name.lower()
    if is_same_name or _is_wrapper_of_classes(folder / inner):
        return folder / inner
    return folder


def _is_wrapper_of_classes(folder: SourcePath) -> bool:
    """Whether a folder is called images, and has several folders with pictures."""
    if not _IMAGES.fullmatch(folder.name):
        return False
    names = names_in(folder, FEW)
    if len(names.folders) < 2 or any(map(is_picture, names.files)):
        return False
    files = names_in(folder / names.folders[0], FEW).files
    return any(map(is_picture, files))


def split_tars(tars: Iterable[str]) -> dict[str, list[str]]:
    """Split -> its tars, by their names; "" has those that name no split.

    Empty if the names do not tell two splits apart.
    """
    by_split: dict[str, list[str]] = {}
    for tar in tars:
        split = split_in_path(PurePosixPath(tar).stem)
        by_split.setdefault(split, []).append(tar)
    if len(by_split.keys() - {""}) < 2:
        return {}
    return by_split


def find_split(requested: str, splits: Iterable[str]) -> str | None:
    """The split that the user asks for: the one of this name, or the only one that means the same.

    "val" fits "Valid" and "birds_val". None if no split fits, or several.
    """
    names = list(splits)
    if requested in names:
        return requested

    candidates = [name for name in names if name.lower() == requested.lower()]
    meaning = split_of_name(requested)
    if not candidates and meaning is not None:
        candidates = [name for name in names if split_of_name(name) == meaning]
    if not candidates and meaning is not None:
        candidates = [name for name in names if meaning_of_split(name) == meaning]
    # Of several that mean the same, only the user can choose.
    if len(candidates) != 1:
        return None
    return candidates[0]


def training_or_first(splits: Iterable[str]) -> str:
    """The split of training, or the first one if none or several are. There is one at least."""
    names = list(splits)
    return find_split("train", names) or names[0]


def choose_split(
    root: SourcePath,
    requested: str | None,
    splits: Mapping[str, SourcePath | None],
    more: str = "",
) -> str:
    """The split that the user asks for, or the only one.

    Args:
        root: the source.
        requested: the split that the user names; None: the user names none.
        splits: the splits of the source. The folder of each is for the error: None where it is no
            source by itself.
        more: the end of the message where the user has to name another one.

    Raises:
        SplitsError: there is no such split, or the user has to name one.
    """
    if requested is None and len(splits) == 1:
        return next(iter(splits))
    chosen = None
    if requested is not None:
        chosen = find_split(requested, splits)
    if chosen is None:
        raise SplitsError(root, requested, splits, more)
    return chosen


def first_paths(names: Iterable[str]) -> str:
    """The first few names, for a message."""
    return first_names([readable(name) for name in names], _MAX_SHOWN)
