"""index.npy and dataset.json of a dataset -> an error if they are not of one pack.

Tools that compare sizes alone, such as rsync --size-only, leave the index.npy of an older pack beside
a new dataset.json: it has as many bytes for as many samples. Then labels would be those of other
images. A loader compares them when it is made, and single samples before the first one is read. Of a
dataset by URL, index.npy is compared when it is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastpipe.dataset.format.description import file_hash
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.errors import DatasetError

# Hashing so much takes 20 ms if the file is in memory. A loader of more samples begins without it.
_MOST_BYTES = 128 << 20


def check_one_pack(indexes: Iterable[Index]) -> None:
    """Raises DatasetError if an index.npy is not the one that its dataset.json describes."""
    for index in indexes:
        if index.packed and not isinstance(index.path, Url):
            _check_index(index)


def _check_index(index: Index) -> None:
    for file, expected, advice in index.list_hashed_files([]):
        if file.name != INDEX_FILE:
            continue
        try:
            if os.path.getsize(file) > _MOST_BYTES:
                return
            actual = file_hash(file)
        except OSError:
            return  # reading the first records says why
        if actual == expected:
            return
        # Somebody may have packed into the folder since it was opened.
        index.refuse_replaced()
        raise DatasetError(
            f"{file} and {DATASET_FILE} do not belong together, or {INDEX_FILE} is damaged: expected "
            f"XXH3-64 {expected}, as {DATASET_FILE} has it, got {actual}. Images would get wrong labels: "
            f"copy all files of the dataset again (rsync without --size-only), or {advice}"
        )
