"""Photos to add, and programs that add them at once, for the tests of datasets that grow."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from support.sources.pack_sources import jpeg_bytes

from fastpipe.errors import DatasetError, PackError


def photo(file: Path, seed: int) -> None:
    """A small JPEG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(jpeg_bytes((40, 30), seed=seed))


def photos(folder: Path, count: int, *, first: int = 0, classes: int = 3) -> Path:
    """So many photos, of different content, in class folders."""
    for number in range(first, first + count):
        photo(folder / f"c{number % classes}" / f"{number:05d}.jpg", number)
    return folder


def at_once(*works: Any) -> list[Any]:
    """Runs functions in threads that begin together; their results, or errors."""
    results: list[Any] = [None] * len(works)
    ready = threading.Barrier(len(works))

    def run(at: int) -> None:
        ready.wait()
        try:
            results[at] = works[at]()
        except (PackError, DatasetError) as problem:
            results[at] = problem

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
