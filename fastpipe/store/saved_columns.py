"""The columns that `save_columns` wrote beside a packed dataset <-> files in DST/columns, also behind a
URL.

`fastpipe docs format` specifies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError
from fastpipe.store.store import Store

_FOLDER = "columns"
# The saved column that takes the place of the dataset's labels.
LABEL = "label"


class SavedFile(NamedTuple):
    """The .npy file of a column. Behind a URL it may be large, and is fetched when it is needed."""

    dataset: PackedIndex
    # The name below the dataset.
    name: str
    # Its XXH3-64.
    hash_text: str

    def fetched(self) -> Path:
        return self.dataset.file_beside(self.name, self.hash_text)


class SavedColumns(NamedTuple):
    """What the list of a version's saved columns says.

    Attributes:
        files: the file of each column, by name.
        classes: the names of all classes, if there is a column of labels; else None.
        left_behind: columns of earlier versions that this one lacks, each with its version.
    """

    files: dict[str, SavedFile]
    classes: list[str] | None
    left_behind: dict[str, int]

    def open(self, name: str, num_samples: int) -> NDArray[Any]:
        """(num_samples, ...) the mapped rows of a column. DatasetError: it cannot be read."""
        file = self.files[name].fetched()
        try:
            rows: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as problem:
            raise DatasetError(
                f"{file}: the column {name!r} cannot be read ({problem}). Save it again with "
                "save_columns"
            ) from problem
        num_rows = len(rows) if rows.ndim else 0
        if num_rows != num_samples:
            raise DatasetError(
                f"{file}: the column {name!r} has {num_rows:,} rows; expected {num_samples:,}, one "
                "for each sample. Save it again with save_columns"
            )
        return rows


def list_place(index: PackedIndex) -> Place:
    """The file that lists a version's columns, for messages."""
    return index.path / _list_name(index.fingerprint)


def read_saved(index: PackedIndex) -> SavedColumns | None:
    """The saved columns of a version; None: it has none.

    DatasetError: the list cannot be read.
    """
    # The list may hold anything, so every error of reading it becomes one that says what to do.
    try:
        content = index.find_beside(_list_name(index.fingerprint))
        if content is None or _is_web_page(content):
            return None
        saved: dict[str, Any] = json.loads(content)
        files = {}
        for name, entry in saved["columns"].items():
            # The file's name alone: a list must not lead to another folder.
            file_name = Path(entry["file"]).name
            files[name] = SavedFile(index, f"{_FOLDER}/{file_name}", entry["xxh3_64"])
        classes = saved["classes"]
        left_behind = dict(saved.get("left_behind", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, DatasetError):
            raise
        raise unreadable_list(index, problem) from problem
    return SavedColumns(files, classes, left_behind)


def _is_web_page(content: bytes) -> bool:
    """Whether a web server sent a page, as some do for a file that does not exist."""
    return content.lstrip().startswith(b"<")


def unreadable_list(index: PackedIndex, problem: Exception) -> DatasetError:
    return DatasetError(
        f"{list_place(index)} lists columns that cannot be read ({problem}); save them again with "
        "save_columns, or remove that file"
    )


class _Hasher:
    """A file of which only the XXH3-64 is kept."""

    def __init__(self) -> None:
        self.digest = xxhash.xxh3_64()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return len(data)


def write_column(store: Store, name: str, rows: NDArray[Any]) -> dict[str, str]:
    """Writes a column, whole or not at all. Returns its entry of the list."""
    hasher = _Hasher()
    np.lib.format.write_array(hasher, rows, allow_pickle=False)
    digest = hasher.digest.hexdigest()
    # With its hash in the name, a file does not take the place of one that an older list names.
    file_name = f"{name}-{digest}.npy"
    with store.open_atomic(f"{_FOLDER}/{file_name}") as file:
        np.lib.format.write_array(file, rows, allow_pickle=False)
    return {"file": file_name, "xxh3_64": digest}


def write_list(
    store: Store,
    fingerprint: str,
    entries: Mapping[str, Mapping[str, str]],
    classes: Sequence[str] | None,
    left_behind: Mapping[str, int] | None = None,
) -> None:
    """Writes the list of the columns of a version.

    It comes after the columns. So a reader, or a program that is killed, sees the old columns or
    the new ones.

    Args:
        store: the dataset's folder or bucket.
        fingerprint: of the version.
        entries: of the columns, by name, as `write_column` returns them.
        classes: see SavedColumns.
        left_behind: see SavedColumns.
    """
    content: dict[str, Any] = {"columns": entries, "classes": classes}
    if left_behind:
        content["left_behind"] = left_behind
    text = json.dumps(content, indent=1)
    with store.open_atomic(_list_name(fingerprint)) as file:
        file.write(text.encode())


def _list_name(fingerprint: str) -> str:
    return f"{_FOLDER}/{fingerprint}.json"
