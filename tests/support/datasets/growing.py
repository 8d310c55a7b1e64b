"""Photos to add, and programs that add them at once, for the tests of datasets that grow."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.errors import DatasetError, PackError
from fastpipe.packing.growth.grow import Grown


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


def add_twice_at_once(url: str, folder: Path, **how: Any) -> Any:
    """Two programs add 8 photos each to a dataset in a bucket; the one that is refused adds them again. The dataset."""
    sources = [photos(folder / f"more{number}", 8, first=100 * (number + 1)) for number in range(2)]

    def add(
        number: int,
    ) -> Grown:  # as two machines: each has a scratch folder, and so a lock, of its own
        return fastpipe.add(sources[number], url, spool=folder / f"spool{number}", workers=1, **how)

    results = at_once(lambda: add(0), lambda: add(1))
    refused = [number for number, result in enumerate(results) if not isinstance(result, Grown)]
    assert len(refused) < 2
    for number in refused:
        assert "in use: " in str(results[number]) or "meanwhile" in str(results[number])
        assert add(number).added == 8
    data = fastpipe.open(url, cache_dir=folder / "cache", **how)
    assert len(set(data["key"])) == len(data)
    return data
