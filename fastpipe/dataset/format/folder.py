"""A user's name for a dataset -> its folder, or an error that says what to pass instead."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    LOCK_FILE,
    WORK_FOLDER,
)
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import ConfigError, did_you_mean_path, readable
from fastpipe.machine.environment import count_ranks
from fastpipe.machine.file_locks import holder_of_lock

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


def scheme_of(text: str) -> str:
    """The scheme of a URL, in small letters; "" if the text is not a URL."""
    match = _URL.match(text)
    if match is None or not match[2]:
        return ""
    return match[1].lower()


def is_damaged_url(path: Path) -> bool:
    """Whether a path was made of a URL: pathlib turns two slashes into one."""
    return _URL.match(str(path)) is not None


def check_local(option: str, path: object, noun: str) -> None:
    """Raises ConfigError if a path is a URL, which would make folders such as ./s3:/ here.

    `noun`: "folder" or "file".
    """
    if not isinstance(path, (str, os.PathLike)):
        return
    text = os.fsdecode(path)
    if _URL.match(text):
        url = _URL.sub(r"\1://", text, count=1)
        raise ConfigError(
            f"expected a {noun} of this machine, got the URL {readable(url)}; pass a path",
            option=option,
        )


class Url(str):
    """The place of a dataset that is on no disk of this machine. It joins names as a Path does."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        return scheme_of(self)

    @property
    def path(self) -> str:
        """The text behind the scheme: the bucket or server, and the folder in it."""
        return self[len(self.scheme) + len("://") :]

    @property
    def is_web(self) -> bool:
        """Whether it is a web server, which can neither list files nor store them."""
        return self.scheme in ("http", "https")

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self}/{name}")


Place = Path | Url


def dataset_folder(data: object) -> Path:
    """A user's dataset as a path, whether or not it exists. ConfigError: it is not a path."""
    if isinstance(data, (str, os.PathLike)):
        return Path(data)
    raise ConfigError(
        f"data: expected a path, a URL or a dataset of fastpipe.open, got "
        f"{_describe_wrong_data(data)}"
    )


def why_no_dataset(path: Path) -> str:
    """A message for a folder without dataset.json: what is wrong, and what to do."""
    if not path.exists():
        if is_damaged_url(path):
            hint = "; pathlib.Path damages URLs: pass the URL as a string"
        elif path.parts[:1] == ("~",):
            hint = f"; Python does not expand ~: pass {path.expanduser()}"
        elif re.search(r"[*?\[{]", str(path)):
            hint = "; pass the folder itself: it is one dataset, with all of its shards"
        else:
            hint = did_you_mean_path(path)
        if not hint:
            in_folder = ""
            if not path.is_absolute():
                in_folder = f" in {readable(os.getcwd())}"
            hint = (
                f"{in_folder}. Pass a folder that exists, or pack images into this one: fastpipe pack "
                f"SRC {path}{_describe_other_ranks()}"
            )
        return f"{path} does not exist{hint}"
    if not path.is_dir():
        if (path.parent / DATASET_FILE).exists():
            return f"{path} is a file of a dataset; pass its folder: {path.parent}"
        if is_picture(path.name):
            return f"{path} is one image; pass the folder of your images, such as {path.parent}"
        return (
            f"{path} is a file, not a dataset. Pass the folder of a dataset, or pack the file "
            f"first: fastpipe pack {path} DST"
        )
    if (path / WORK_FOLDER).exists():
        process = holder_of_lock(path / WORK_FOLDER / LOCK_FILE)
        if process == os.getpid():
            return (
                f"{path} is no dataset yet: this program is still writing it. Open it after the end of the "
                "with block of its fastpipe.Writer: the block writes the index when it ends"
            )
        if process is not None:
            return (
                f"{path} is no dataset yet: process {process} is packing into it. Wait until it ends"
                f"{_describe_other_ranks()}"
            )
        return (
            f"{path} holds an unfinished pack: {DATASET_FILE} is missing, because it is "
            "written last. Run the same `fastpipe pack` command, or the program with fastpipe.Writer, "
            "again; it continues where it stopped"
        )
    if any(path.glob("shard-*.tar")):
        return (
            f"{path} holds an unfinished pack or copy: there are shards, but {DATASET_FILE} is missing. "
            f"Copy all files of the dataset, also {DATASET_FILE} and {INDEX_FILE}, or pack the source "
            "into another folder"
        )
    return (
        f"{path} is not a packed dataset: it has no {DATASET_FILE}. "
        f"If it holds photos, pack them first: fastpipe pack {path} DST"
    )


def _describe_other_ranks() -> str:
    """What to do if another rank packs the dataset; "" if there is none."""
    if count_ranks() == 1:
        return ""
    return ". If another rank packs it, call torch.distributed.barrier() on all ranks before they open it"


def _describe_wrong_data(data: object) -> str:
    """An object that is not a path, and what to pass instead."""
    name = type(data).__name__
    # Classes of torch are known by their names, so that torch need not be imported.
    class_names = {base.__name__ for base in type(data).__mro__}
    if isinstance(data, (list, tuple, set)):
        return _describe_collection(data)
    if isinstance(data, Mapping):
        return f"a {name}. For a mixture pass fastpipe.mix({data!r})"
    if class_names & {"DataLoader", "Loader"}:
        return f"a {name}. That is already a loader: iterate over it"
    if type(data).__module__.startswith("fastpipe."):
        return f"{data!r}. It is open already: pass fastpipe.loader the dataset itself"
    if "Subset" in class_names:
        dataset = "fastpipe.open(FOLDER)"
        if type(getattr(data, "dataset", None)).__module__.startswith("fastpipe."):
            dataset = "subset.dataset"
        return (
            f"a torch {name}. Select the same samples from the fastpipe dataset: "
            f"{dataset}.select(subset.indices)"
        )
    if "ConcatDataset" in class_names and _is_ours(getattr(data, "datasets", ())):
        return f"a torch {name}. Pass fastpipe.concat(*dataset.datasets), of the same datasets"
    if "Dataset" in class_names:
        source = getattr(data, "root", "SRC")
        article = "an" if name[0] in "AEIOU" else "a"
        return (
            f"{article} {name}, a Dataset written in Python. If its images are files, pass their folder, "
            f"or pack them: fastpipe pack {source} DST. Then pass DST. Otherwise write its images "
            "once with fastpipe.Writer"
        )
    if hasattr(data, "shape"):
        return (
            f"an array of shape {tuple(data.shape)}. Write its images once with fastpipe.Writer, and "
            "pass that folder"
        )
    return f"{data!r:.200}"


def _is_ours(datasets: Iterable[object]) -> bool:
    """Whether all of some objects are datasets of fastpipe."""
    return all(type(data).__module__.startswith("fastpipe.") for data in datasets)


def _describe_collection(data: list[Any] | tuple[Any, ...] | set[Any]) -> str:
    """A list of images, or of datasets, and what to pass instead."""
    name = type(data).__name__
    path = next(iter(data), None)
    if isinstance(path, (list, tuple)) and path:  # pairs of a path and a label
        path = path[0]
    if isinstance(path, (str, os.PathLike)) and is_picture(str(path)):
        return (
            f"a {name} of {len(data)} image files, such as {str(path)!r}. Write them into a CSV "
            "file with the columns path and label, a row for each image, and pack it: fastpipe "
            "pack FILE.csv DST. Then pass DST. Or store the images with fastpipe.Writer"
        )
    of_fold = ""
    if isinstance(data, tuple) and len(data) == 2:
        of_fold = " data.fold gives two datasets: train, val = data.fold(...)."
    return (
        f"a {name} of {len(data)}.{of_fold} For all samples of several datasets pass "
        "fastpipe.concat(*data), for a part of each in every batch fastpipe.mix({data: weight}). "
        "Or pack the sources into one dataset: fastpipe pack"
    )
