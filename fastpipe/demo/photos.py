"""Turns a seed and a count into an image folder of photo-like JPEG files in ten classes, and into their ground truth.

Every photo is a pure function of (seed, index, label), so any number of workers writes the same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fastpipe.demo.render import make_photo
from fastpipe.demo.shapes import CLASSES
from fastpipe.demo.truth import FIRST_CATEGORY, annotation, coco_lines
from fastpipe.errors import ConfigError

MANIFEST = "photos.json"
"""Name of the file, beside the class folders, that says which photos a finished folder holds; of ground truth, it is
COCO's file."""

_UNFINISHED = "photos.json.unfinished"  # stands in for MANIFEST while photos are being written
_GENERATOR = 3  # raise when the same (seed, index, label) begins to give another photo


def write_photos(
    folder: Path, count: int, *, seed: int = 0, workers: int = 1, truth: Path | None = None, scale: float = 1.0
) -> int:
    """Write an image folder, FOLDER/CLASS/NNNNN.jpg; photo i has class i mod 10 and the number i.

    The ground truth is a folder, too: TRUTH/CLASS/NNNNN.png is the mask of a photo's object, whose value there is the
    class + 1, TRUTH/CLASS/NNNNN.txt is its caption, and TRUTH/photos.json has boxes, masks and captions in COCO's
    format.

    Photos that an earlier, perhaps interrupted, call with the same seed wrote are kept, so a second call does
    no work and a call with a larger count adds to the folder. A file appears under its name only when it is
    complete. While it runs, OpenCV's own threads are held at one for the whole process.

    Args:
        folder: where to write; new, empty, or written by this function.
        count: number of photos in all, 1 or more.
        seed: seed of the dataset, 0 or more.
        workers: number of threads, 1 or more; it does not change what is written.
        truth: where to write the ground truth: another folder, for which the same holds; None: nowhere.
        scale: of every photo's width and height. A folder does not say with which scale it was begun: pass the same.

    Returns:
        Number of photos written by this call.

    Raises:
        ConfigError: an argument is out of its range, or the folder holds other files or other photos.
    """
    if count < 1 or seed < 0 or workers < 1:
        raise ConfigError(
            f"expected count >= 1, seed >= 0 and workers >= 1, got count {count}, seed {seed} and workers {workers}"
        )
    folder = Path(folder)
    for claimed in [folder] if truth is None else [folder, truth]:
        _claim(claimed, count, seed)
    kept = [[path.exists() for path in _paths(folder, truth, index)] for index in range(count)]
    opencv_threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-demo")
    try:
        missing = [index for index, files in enumerate(kept) if not all(files)]
        for _ in pool.map(lambda index: _write_one(folder, truth, seed, index, scale), missing):
            pass
    finally:
        pool.shutdown(cancel_futures=True)  # else an interrupt would wait for every photo
        cv2.setNumThreads(opencv_threads)
    _write_atomically(folder / MANIFEST, [_manifest(count, seed)])
    (folder / _UNFINISHED).unlink(missing_ok=True)
    if truth is not None and (truth / _UNFINISHED).exists():
        _write_coco(truth, count, seed)
        (truth / _UNFINISHED).unlink()
    return sum(not files[0] for files in kept)


def is_photo_folder(folder: Path) -> bool:
    """Whether `write_photos` made the folder, or began to."""
    return (folder / MANIFEST).exists() or (folder / _UNFINISHED).exists()


def _paths(folder: Path, truth: Path | None, index: int) -> list[Path]:
    """The file of a photo, and where there is ground truth its mask's and its caption's."""
    name = Path(CLASSES[index % len(CLASSES)], f"{index:05d}.jpg")
    return [folder / name, *(() if truth is None else [truth / name.with_suffix(end) for end in (".png", ".txt")])]


def _write_one(folder: Path, truth: Path | None, seed: int, index: int, scale: float) -> None:
    label = index % len(CLASSES)
    photo = make_photo(seed, index, label, scale)
    _, mask = cv2.imencode(".png", photo.mask.astype(np.uint8) * np.uint8(label + FIRST_CATEGORY))
    contents = (photo.jpeg, mask.tobytes(), photo.caption.encode())
    for path, content in zip(_paths(folder, truth, index), contents, strict=False):
        if not path.exists():
            _write_atomically(path, [content])


def _write_coco(truth: Path, count: int, seed: int) -> None:
    """Write COCO's file from the masks and captions that are there."""

    def described(index: int) -> tuple[str, dict[str, Any]]:
        name, mask, caption = _paths(Path(), truth, index)
        ids = cv2.imdecode(np.fromfile(mask, np.uint8), cv2.IMREAD_UNCHANGED)
        if ids is None or not ids.any():
            raise ConfigError(f"expected the mask of a demo photo in {mask}; delete {mask} and try again")
        return name.as_posix(), annotation(index, index % len(CLASSES), ids != 0, caption.read_text())

    _write_atomically(truth / MANIFEST, map(str.encode, coco_lines(_info(count, seed), map(described, range(count)))))


def _write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """Write beside the final name first, so that a reader never meets half a file."""
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        file.writelines(pieces)
    os.replace(unfinished, path)


def _info(count: int, seed: int) -> dict[str, Any]:
    return {"made_by": "fastpipe demo", "generator": _GENERATOR, "seed": seed, "count": count}


def _manifest(count: int, seed: int) -> bytes:
    return (json.dumps(_info(count, seed), indent=2) + "\n").encode()


def _claim(folder: Path, count: int, seed: int) -> None:
    """Make the folder ours to write to, or refuse: nothing that is already there is ever deleted or replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = _read_claim(folder)
        if held is None and any(folder.iterdir()):
            raise ConfigError(
                f"expected {folder} to be empty or to hold demo photos, but it holds other files; pass another folder"
            )
        if held is not None and (held[0] != seed or held[1] > count):
            raise ConfigError(
                f"asked for {count} demo photos of seed {seed}, but {folder} holds {held[1]} "
                f"of seed {held[0]}; pass another folder or delete this one"
            )
        if not (folder / MANIFEST).exists() or held != (seed, count):
            _write_atomically(folder / _UNFINISHED, [_manifest(count, seed)])
        for name in CLASSES[:count]:  # torchvision's ImageFolder refuses a class folder without photos
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write demo photos to {folder}: {error}; pass a folder that you can write to"
        ) from error


def _read_claim(folder: Path) -> tuple[int, int] | None:
    """Read seed and count of the photos that a folder holds or was to hold; None for a folder not ours."""
    # Where both are there the unfinished one is the later: photos were being added to the folder.
    for path in filter(Path.exists, (folder / _UNFINISHED, folder / MANIFEST)):
        with path.open(errors="replace") as file:  # COCO's file begins with the same, and is long
            fields = dict(re.findall(r'"(generator|seed|count)": (\d+)', file.read(1000)))
        if len(fields) < 3:
            raise ConfigError(f"{path} is not a list of demo photos; delete {folder}")
        if int(fields["generator"]) != _GENERATOR:
            raise ConfigError(
                f"expected demo photos of generator version {_GENERATOR}, but {folder} holds photos of version "
                f"{fields['generator']}; pass another folder or delete this one"
            )
        return int(fields["seed"]), int(fields["count"])
    return None
