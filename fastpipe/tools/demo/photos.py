"""Turns a seed and a count into a folder of photo-like JPEGs in ten classes, and its ground truth.

Every photo is a pure function of (seed, index, label), so any number of workers writes the same
bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fastpipe.errors import ConfigError
from fastpipe.sources.files import DEMO_MANIFEST, DEMO_UNFINISHED
from fastpipe.tools.demo.render import make_photo
from fastpipe.tools.demo.shapes import CLASSES
from fastpipe.tools.demo.truth import FIRST_CATEGORY, encode_coco, make_annotation

MANIFEST = DEMO_MANIFEST
"""The file, beside the class folders, that says which photos a finished folder holds.

`fastpipe pack` passes over it.
"""
COCO_FILE = "photos.json"
"""The boxes, masks and captions in a folder of ground truth."""

# Raise it when the same (seed, index, label) gives another photo than before.
_GENERATOR = 3


def write_photos(
    folder: Path,
    count: int,
    *,
    seed: int = 0,
    workers: int = 1,
    truth: Path | None = None,
    scale: float = 1.0,
) -> int:
    """Write an image folder, FOLDER/CLASS/NNNNN.jpg; photo i has class i mod 10 and the number i.

    The ground truth is a folder, too: TRUTH/CLASS/NNNNN.png is the mask of a photo's object, whose
    value there is the class + 1, TRUTH/CLASS/NNNNN.txt is its caption, and TRUTH/photos.json has
    boxes, masks and captions in COCO's format.

    Photos that an earlier, perhaps interrupted, call with the same seed wrote are kept, so a second
    call does no work and a call with a larger count adds to the folder. A file appears under its
    name only when it is complete. While it runs, OpenCV's own threads are held at one for the whole
    process.

    Args:
        folder: where to write; new, empty, or written by this function.
        count: number of photos in all, 1 or more.
        seed: seed of the dataset, 0 or more.
        workers: number of threads, 1 or more; it does not change what is written.
        truth: where to write the ground truth: another folder, for which the same holds; None:
            nowhere.
        scale: of every photo's width and height. A folder does not say with which scale it was
            begun: pass the same.

    Returns:
        Number of photos written by this call.

    Raises:
        ConfigError: an argument is out of its range, or the folder holds other files or other
            photos.
    """
    if count < 1 or seed < 0 or workers < 1:
        raise ConfigError(
            "expected count >= 1, seed >= 0 and workers >= 1, "
            f"got count {count}, seed {seed} and workers {workers}"
        )
    folder = Path(folder)
    _claim(folder, count, seed)
    if truth is not None:
        _claim(truth, count, seed)
    # A photo is made again if only its mask or its caption is missing.
    missing: list[int] = []
    missing_jpeg_count = 0
    for index in range(count):
        paths = _list_paths(folder, truth, index)
        if not paths[0].exists():
            missing_jpeg_count += 1
        if not all(map(Path.exists, paths)):
            missing.append(index)
    _write_missing(folder, truth, missing, seed, workers, scale)
    _finish(folder, count, seed)
    if truth is not None and (truth / DEMO_UNFINISHED).exists():
        _write_coco(truth, count, seed)
        _finish(truth, count, seed)
    return missing_jpeg_count


def _finish(folder: Path, count: int, seed: int) -> None:
    _write_atomically(folder / MANIFEST, [_encode_manifest(count, seed)])
    # Only now: a folder that has it holds photos, but perhaps not all.
    (folder / DEMO_UNFINISHED).unlink(missing_ok=True)


def is_photo_folder(folder: Path) -> bool:
    """Whether `write_photos` made the folder, or began to."""
    return (folder / MANIFEST).exists() or (folder / DEMO_UNFINISHED).exists()


def _list_paths(folder: Path, truth: Path | None, index: int) -> list[Path]:
    """The file of a photo; with ground truth also those of its mask and its caption."""
    label = index % len(CLASSES)
    class_name = CLASSES[label]
    name = Path(class_name, f"{index:05d}.jpg")
    paths = [folder / name]
    if truth is not None:
        paths.append(truth / name.with_suffix(".png"))
        paths.append(truth / name.with_suffix(".txt"))
    return paths


def _write_missing(
    folder: Path,
    truth: Path | None,
    missing: list[int],
    seed: int,
    workers: int,
    scale: float,
) -> None:
    """Write photos in threads, each of which has OpenCV to itself."""

    def write(index: int) -> None:
        _write_photo(folder, truth, seed, index, scale)

    opencv_threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fastpipe-demo")
    try:
        for _ in pool.map(write, missing):
            pass  # raises the error of a photo
    finally:
        # Else an interrupt would wait for every photo.
        pool.shutdown(cancel_futures=True)
        cv2.setNumThreads(opencv_threads)


def _write_photo(
    folder: Path, truth: Path | None, seed: int, index: int, scale: float
) -> None:
    label = index % len(CLASSES)
    photo = make_photo(seed, index, label, scale)
    category = np.uint8(label + FIRST_CATEGORY)
    categories = photo.mask.astype(np.uint8) * category
    _, mask_png = cv2.imencode(".png", categories)
    contents = [photo.jpeg]
    if truth is not None:
        contents += [mask_png.tobytes(), photo.caption.encode()]
    paths = _list_paths(folder, truth, index)
    for path, content in zip(paths, contents, strict=True):
        if not path.exists():
            _write_atomically(path, [content])


def _write_coco(truth: Path, count: int, seed: int) -> None:
    """Write COCO's file from the masks and captions in the folder."""
    annotations = (_read_annotation(truth, index) for index in range(count))
    lines = encode_coco(_describe_folder(count, seed), annotations)
    _write_atomically(truth / COCO_FILE, map(str.encode, lines))


def _read_annotation(truth: Path, index: int) -> tuple[str, dict[str, Any]]:
    """The name of a photo in its folder, and its annotation."""
    name, mask_path, caption_path = _list_paths(Path(), truth, index)
    mask_png = np.fromfile(mask_path, np.uint8)
    categories = cv2.imdecode(mask_png, cv2.IMREAD_UNCHANGED)
    if categories is None or not categories.any():
        raise ConfigError(
            f"expected the mask of a demo photo in {mask_path}; delete {mask_path} and try again"
        )
    label = index % len(CLASSES)
    mask = categories != 0
    caption = caption_path.read_text()
    annotation = make_annotation(index, label, mask, caption)
    return name.as_posix(), annotation


def _write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """Write beside the final name first, so that a reader never meets half a file."""
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        file.writelines(pieces)
    os.replace(unfinished, path)


def _describe_folder(count: int, seed: int) -> dict[str, Any]:
    return {
        "made_by": "fastpipe demo",
        "generator": _GENERATOR,
        "seed": seed,
        "count": count,
    }


def _encode_manifest(count: int, seed: int) -> bytes:
    text = json.dumps(_describe_folder(count, seed), indent=2)
    return f"{text}\n".encode()


@dataclass(frozen=True)
class _Claim:
    """The photos that a folder holds or was to hold."""

    seed: int
    count: int


def _claim(folder: Path, count: int, seed: int) -> None:
    """Make the folder ours to write to, or refuse.

    Nothing that is already there is ever deleted or replaced.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        claim = _read_claim(folder)
        if claim is None:
            if any(folder.iterdir()):
                raise ConfigError(
                    f"expected {folder} to be empty or to hold demo photos, "
                    "but it holds other files; pass another folder"
                )
        elif claim.seed != seed or claim.count > count:
            raise ConfigError(
                f"asked for {count} demo photos of seed {seed}, but {folder} holds {claim.count} "
                f"of seed {claim.seed}; pass another folder or delete this one"
            )
        is_complete = (folder / MANIFEST).exists() and claim == _Claim(seed, count)
        if not is_complete:
            _write_atomically(folder / DEMO_UNFINISHED, [_encode_manifest(count, seed)])
        # Torchvision's ImageFolder refuses a class folder without photos
        for name in CLASSES[:count]:
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write demo photos to {folder}: {error}; pass a folder that you can write to"
        ) from error


def _read_claim(folder: Path) -> _Claim | None:
    """Read which photos a folder holds or was to hold; None for a folder that is not ours."""
    # If both files exist, the unfinished one is the later: photos were being added to the folder.
    path = folder / DEMO_UNFINISHED
    if not path.exists():
        path = folder / MANIFEST
    if not path.exists():
        return None
    text = path.read_text(errors="replace")
    fields = dict(re.findall(r'"(generator|seed|count)": (\d+)', text))
    if len(fields) < 3:
        raise ConfigError(f"{path} is not a list of demo photos; delete {folder}")
    if int(fields["generator"]) != _GENERATOR:
        raise ConfigError(
            f"expected demo photos of generator version {_GENERATOR}, but {folder} holds photos "
            f"of version {fields['generator']}; pass another folder or delete this one"
        )
    return _Claim(int(fields["seed"]), int(fields["count"]))
