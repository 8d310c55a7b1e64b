"""timm's `create_dataset`: a root and a split -> a dataset whose classes have timm's numbers.

Note [classes as in timm]
timm numbers class folders in natural order without case: 1, 2, 10, ant, Bee. A checkpoint knows
these numbers and no names. So classes that are not packed have timm's numbers here. A packed
dataset has its own: where they differ from timm's, `create_dataset` refuses it until `class_map`,
or the `classes_from` of its pack, has said which are meant. timm numbers the classes of each split
by itself. Here a split beside one for training has the numbers of that one, by name: a class that
is missing in ROOT/val would shift those behind it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.description import is_dataset
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.opening import as_dataset
from fastpipe.errors import ConfigError
from fastpipe.sources.classes_from import class_names
from fastpipe.sources.kinds import class_folders
from fastpipe.sources.options import SourceOptions

_TRAIN_SPLITS = ("train", "training")
_VALIDATION_SPLITS = ("val", "valid", "validation", "eval", "evaluation")
# Arguments of timm's other datasets.
_UNSUPPORTED = ("repeats", "input_key", "target_key")


def create_dataset(
    name: str = "",
    root: Any = None,
    split: str = "validation",
    search_split: bool = True,
    class_map: Any = None,
    **options: Any,
) -> Dataset:
    """Opens the dataset of a split.

    It is ROOT/SPLIT, or ROOT/val for "validation" and the like, if it exists; else ROOT. Classes of
    folders have timm's numbers; those of another split have the numbers of ROOT/train, if there is
    one.

    Args:
        name: "" or "fastpipe". timm's other datasets have to be packed first.
        root: a folder with a packed dataset for each split; or a URL or what else `fastpipe.open`
            takes, as it is.
        split: "train", "training", "val", "valid", "validation", "eval", "evaluation" or another
            folder's name.
        search_split: whether to look for folders of splits in root.
        class_map: names of the classes by number: a text file with a name on each line, or a dict
            of name -> number, as in timm; or what else `classes_from` of `fastpipe.open` takes,
            such as the training's dataset. As in timm, samples of other classes are left out. None
            or "": see above.
        options: timm's others, such as batch_size and seed, which have no effect on a packed
            dataset.

    Raises:
        ConfigError: another kind of dataset, one of repeats, input_key and target_key, or a packed
            dataset whose classes have other numbers than in timm.
        DatasetError: there is no dataset.
    """
    if name not in ("", "folder", "fastpipe") or root is None:
        raise ConfigError(
            f'fastpipe.timm.create_dataset: expected name="" and root=FOLDER, got {name!r} and '
            f"{root!r}"
        )
    unsupported = {
        option: options[option] for option in _UNSUPPORTED if options.get(option)
    }
    if unsupported:
        raise ConfigError(
            f"fastpipe.timm.create_dataset cannot do {unsupported}; choose samples with "
            "fastpipe.open(...)"
        )
    if "[" in split:
        raise ConfigError(
            f"split={split!r}: choose samples with fastpipe.open(...).select(...), without [...]"
        )
    place = root
    if search_split and isinstance(root, (str, os.PathLike)):
        place = _find_split(root, split)
    data = as_dataset(place)
    if class_map:
        return _with_class_map(data, class_map, root)
    if isinstance(root, Dataset):
        return data
    data = _with_timm_classes(data)
    if place is root or not data.classes:
        return data
    training = _find_training(root)
    if training is None or training == place:
        return data
    return data.with_classes(_training_classes(training))


def _find_split(root: str | os.PathLike[str], split: str) -> Any:
    """The folder of a split in ROOT, under this or another name of it; else ROOT."""
    names = [split]
    for synonyms in (_TRAIN_SPLITS, _VALIDATION_SPLITS):
        if split in synonyms:
            names += synonyms
    return _first_folder(root, names) or root


def _find_training(root: Any) -> str | None:
    """The folder of the split for training in ROOT, if there is one."""
    if not isinstance(root, (str, os.PathLike)):
        return None
    return _first_folder(root, _TRAIN_SPLITS)


def _first_folder(root: str | os.PathLike[str], names: Iterable[str]) -> str | None:
    """The first of these folders that ROOT has."""
    for name in names:
        folder = os.path.join(root, name)
        if os.path.exists(folder):
            return folder
    return None


def _training_classes(folder: str) -> list[str]:
    """The classes of the split for training, in the order of their numbers."""
    folders = None
    if os.path.isdir(folder) and not is_dataset(Path(folder)):
        folders = class_folders(Path(folder), SourceOptions())
    if folders is None:
        return _with_timm_classes(as_dataset(folder)).classes
    # Opening the folder would look at every image. The names of its class folders are enough here.
    # timm sees no empty folder.
    names = []
    for name in folders.classes:
        if _has_files(os.path.join(folder, name)):
            names.append(name)
    return sorted(names, key=_sort_key)


def _has_files(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _with_class_map(data: Dataset, class_map: Any, root: Any) -> Dataset:
    """The samples of the classes of a class_map, with its numbers."""
    if isinstance(class_map, Mapping):
        names = sorted(class_map, key=class_map.__getitem__)
        numbers = [class_map[name] for name in names]
        if numbers != list(range(len(names))):
            raise ConfigError(
                f"class_map: expected the numbers 0 to {len(names) - 1:,}, each once, got "
                f"{class_map!r:.200}"
            )
    else:
        names = _read_class_map(class_map, root)
    used = []  # the classes that have samples
    for name, num_samples in zip(data.classes, data.class_counts, strict=True):
        if num_samples:
            used.append(name)
    wanted = set(names)
    known = [name for name in used if name in wanted]
    # If no class is known, with_classes raises the error that says so.
    if known and len(known) < len(used):
        data = data.only(known)
    return data.with_classes(names)


def _read_class_map(class_map: Any, root: Any) -> list[str]:
    """The classes that a file, a dataset or a source names, by number."""
    if isinstance(class_map, (str, os.PathLike)):
        # As in timm, the file may also lie in ROOT.
        if isinstance(root, (str, os.PathLike)) and not os.path.exists(class_map):
            file_in_root = os.path.join(root, class_map)
            if os.path.exists(file_in_root):
                class_map = file_in_root
        if os.path.isdir(class_map):
            data = as_dataset(class_map)
            if not data.index.packed:
                data = _with_timm_classes(data)
            return data.classes
    return list(class_names(class_map).labels)


def _with_timm_classes(data: Dataset) -> Dataset:
    """Gives classes that are not packed timm's numbers; checks those that are packed.

    A packed dataset is returned as it is. See Note [classes as in timm].

    Raises:
        ConfigError: the classes of a packed dataset have other numbers than in timm, and its pack
            got no `classes_from`; or timm would take other folders as the classes.
    """
    index = data.stored[0].index
    if index.has_deeper_folders:
        raise ConfigError(
            f"{data.path} has folders in its class folders: timm takes the innermost folder of an "
            "image as its class, and fastpipe the outermost. To train on the outermost: "
            f"root=fastpipe.open({str(data.path)!r})"
        )
    counts = dict(zip(data.classes, data.class_counts, strict=True))
    # Samples of tars may have numbers and no names. Then classes are called after their numbers,
    # and sorting such names would change nothing.
    numbers = [str(number) for number in range(len(counts))]
    is_numbered = data.classes == numbers
    if is_numbered and (index.is_in_tars or not counts):
        return data
    # timm lists images and not folders, so it sees no empty class folder.
    sorted_classes = sorted(counts, key=_sort_key)
    timm_classes = [name for name in sorted_classes if counts[name]]
    if not isinstance(index, PackedIndex):
        return data.with_classes(timm_classes)

    first_pack = index.info["packs"][0]
    has_given_names = "classes_from" in first_pack["options"]["source"]
    for number, name in enumerate(timm_classes):
        if data.class_to_idx[name] == number or has_given_names:
            continue
        raise ConfigError(
            f"{data.path} numbers its classes otherwise than timm, in natural order without case: "
            f"{name!r} is {data.class_to_idx[name]} here, and {number} in timm and its "
            "checkpoints. To keep the numbers of the dataset, with which a model was trained here, "
            f"pass class_map={str(data.path)!r} (--class-map); for timm's, class_map=FILE with a "
            "name on each line in timm's order, or pack it with --classes-from FILE"
        )
    return data


def _sort_key(name: str) -> tuple[list[Any], str]:
    """timm's natural order of names, without case: "2" comes before "10"."""
    # Every second part is a number.
    parts: list[Any] = re.split(r"(\d+)", name.lower())
    parts[1::2] = [int(number) for number in parts[1::2]]
    return parts, name
