"""The folders, or the tars, of a source -> the splits of a dataset that they are; one list of classes for all of them.

Note [splits of a root]
Folders are splits where all of them are called so, or where two are called like two different splits: no list of
classes has both "train" and "test". One such folder beside others is a class, as "train" is in COCO, and this is told.
A split is a source of its own, but a class has the same number in all splits. Folders that are called like parts, as
fold_0 and fold_1, are splits where a user asks for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import Names, SourcePath, names_in
from fastpipe.sources.listing import Assumption

_WORDS = {
    "train": "train",
    "training": "train",
    "trainval": "trainval",
    "test": "test",
    "testing": "test",
}
_WORDS |= {
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "dev",
    "eval": "eval",
    "evaluation": "eval",
}
_THINGS = "images?|imgs?|photos?|pictures?|data|dataset|set|split"
# The whole name: train, Val, test2017, seg_train, training_set, test_images.
_FOLDER = re.compile(
    rf"(?:(?:{_THINGS}|seg)[-_ ])?({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?:[-_ ]?(?:{_THINGS}))?"
    r"(?:[-_ ]?\d{1,4})?",
    re.IGNORECASE,
)
_PART_WORDS = (
    "folds?|parts?|batch|batches|chunks?|shards?|splits?|subsets?|sets?|folders?|dirs?|archives?|disks?|volumes?|vols?|"
    "images?|imgs?|pics?|pictures?|photos?|frames?|data|videos?|clips?|seqs?|sequences?|scenes?|sessions?|cameras?|"
    "cams?|patients?|subjects?|cases?|scans?|study|studies"
)
# fold1, part_a, cv_fold_0, images_001, batch-3-of-10
_PART = re.compile(
    rf"((?:.*[-_ ])?(?:{_PART_WORDS}))(?:[-_ .]?\d+(?:[-_]?of[-_]?\d+)?|[-_ ][a-z])", re.IGNORECASE
)
_MOST_NAMED = 5
FEW = 1000  # names of a folder that tell what it holds; there may be millions


class SplitsError(PackError):
    """A source has several splits, or not the one that a user asks for."""

    def __init__(
        self,
        root: SourcePath,
        asked: str | None,
        splits: Mapping[str, SourcePath | None],
        more: str,
    ) -> None:
        self.root, self.asked, self.splits = root, asked, dict(splits)
        names = ", ".join(map(readable, sorted(splits)))
        option = "" if asked is None else f"--split {asked}: "
        super().__init__(
            f"{option}{readable(str(root))} has the splits {names}: --split picks one{more}"
        )


def split_word(name: str) -> str | None:
    """The split that a folder of this name is, as "train", "val" or "test"; None: it is called like none."""
    match = _FOLDER.fullmatch(name)
    return None if match is None else _WORDS[match[1].lower()]


def split_in_path(path: str, words: Container[str] = _WORDS) -> str:
    """The last word in a file's path that is a split's, as in imagenet-train-000017.tar; "": there is none."""
    found = [word for word in re.split(r"[^a-z0-9]+", path.lower()) if word in words]
    return found[-1] if found else ""


def called_like_splits(folders: Sequence[str], asked: str | None = None) -> dict[str, str]:
    """Folder -> its word, where folders are splits; none where they are classes. See Note [splits of a root]"""
    if asked in folders and are_called_like_parts(folders):
        return {name: name for name in folders}
    words = {name: word for name in folders if (word := split_word(name)) is not None}
    are_all = len(words) == len(folders)
    is_asked_for = asked is not None and fitting(asked, words) is not None
    return words if words and (are_all or len({*words.values()}) > 1 or is_asked_for) else {}


def count_shared(paths: Iterable[Sequence[str]]) -> int:
    """How many folders at their start all paths share; a path is the names of its folders."""
    folders = [tuple(names) for names in paths]
    if not folders:
        return 0
    first, last = min(folders), max(folders)  # what these two share all others do, too
    count = 0
    while count < min(len(first), len(last)) and first[count] == last[count]:
        count += 1
    return count


def are_called_like_parts(folders: Sequence[str]) -> bool:
    """Whether all folders have one name, which a part of a dataset may have, and a number each."""
    matches = [_PART.fullmatch(name) for name in folders]
    names = {match[1].lower() for match in matches if match is not None}
    return len(names) == 1 and None not in matches


def split_folders(
    root: SourcePath, names: Names, asked: str | None = None
) -> dict[str, SourcePath]:
    """Name -> folder of the splits; none where the folders are none. See Note [splits of a root]"""
    return {name: _inner(root / name) for name in called_like_splits(names.folders, asked)}


def _inner(folder: SourcePath) -> SourcePath:
    """The folder in it that is called like it, if there is nothing else, as zip files have them; else itself."""
    names = names_in(folder, FEW)
    if (
        len(names.folders) == 1
        and not names.files
        and names.folders[0].lower() == folder.name.lower()
    ):
        return folder / names.folders[0]
    return folder


def split_tars(tars: Iterable[str]) -> dict[str, list[str]]:
    """Split -> its tars, by their names; "" has those that say none. None at all where there are no two splits."""
    found: dict[str, list[str]] = {}
    for tar in tars:
        found.setdefault(split_in_path(PurePosixPath(tar).stem), []).append(tar)
    return found if len(found.keys() - {""}) > 1 else {}


def fitting(asked: str, splits: Iterable[str]) -> str | None:
    """The split that a user asks for: of this name, or the only one that has the same meaning, as "val" for "Valid"."""
    names = list(splits)
    if asked in names:
        return asked
    word = split_word(asked)
    same = [name for name in names if name.lower() == asked.lower()]
    same = same or [name for name in names if word is not None and split_word(name) == word]
    return same[0] if len(same) == 1 else None


def chosen_split(
    root: SourcePath, asked: str | None, splits: Mapping[str, SourcePath | None], more: str = ""
) -> str:
    """The split that a user asks for, or the only one there is. SplitsError: there is neither."""
    if asked is None and len(splits) == 1:
        return next(iter(splits))
    found = None if asked is None else fitting(asked, splits)
    if found is None:
        raise SplitsError(root, asked, splits, more)
    return found


def classes_of_all(splits: Sequence[Sequence[str]]) -> list[str]:
    """The classes of all splits, from those of each: sorted names. Numbers that are their own names stay."""
    longest = max(splits, key=len)
    if all(list(classes) == [str(number) for number in range(len(classes))] for classes in splits):
        return list(longest)
    if all(classes in ([], longest) for classes in map(list, splits)):
        return list(longest)
    return sorted({name for classes in splits for name in classes})


def only_outside_training(splits: Mapping[str, Sequence[str]]) -> Iterator[Assumption]:
    """Told of classes that other splits have and the training split lacks: their numbers are among its own."""
    train = {
        each for name, classes in splits.items() if _word_of(name) == "train" for each in classes
    }
    for name, classes in splits.items():
        new = [] if _word_of(name) == "train" else sorted({*classes} - train)
        if train and new:
            yield Assumption(
                f"classes: those of all splits; {readable(name)} has {some(new)}, which the training split lacks",
                "--classes-from FILE",
            )


def _word_of(name: str) -> str:
    """The split that a folder or a file is called after."""
    found = split_word(name) or split_in_path(name)
    return _WORDS.get(found, found)


def some(names: Iterable[str]) -> str:
    """A few names, for a message."""
    shown = [readable(name) for name in names]
    return ", ".join(shown[:_MOST_NAMED]) + (
        f" and {len(shown) - _MOST_NAMED:,} more" * (len(shown) > _MOST_NAMED)
    )
