"""Tars of other people for the tests of fastpipe.wds, and what a crop must be, by Pillow's pixels and one resize."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from PIL import Image
from support.sources.pack_sources import pillow as shown

from fastpipe import _engine
from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.draws import Stream, key, uniform

SIDE = 48  # pixels of a crop


@pytest.fixture(scope="module")
def collected() -> Iterator[None]:
    """webdataset leaves closing its files to the collector, which warns: it is called before the file's tests are over.

    These tests ignore the warning; tests of other files would fail from it.
    """
    yield
    gc.collect()


def image_bytes(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def written(folder: Path, samples: Iterable[dict[str, Any]], name: str = "000.tar") -> str:
    """A tar of these samples, with keys of their own or by number; its path."""
    path = str(folder / name)
    with webdataset.TarWriter(path) as writer:
        for number, sample in enumerate(samples):
            writer.write({"__key__": f"n{number:04d}", **sample})
    return path


def opened(*tars: str) -> Any:
    return webdataset.WebDataset(list(tars), shardshuffle=False, empty_check=False)


def expected(
    data: bytes, name: bytes, *, seed: int = 0, epoch: int = 0, flip: float = 0.5
) -> torch.Tensor:
    """The crop that a sample of this name gets in an epoch: planned as a batch's, cut out of the whole picture."""
    pixels = shown(data)
    height, width = pixels.shape[:2]
    sample = np.array([_engine.xxh3_64(name)], dtype=np.uint64).view(np.int64)
    crops = plan_crops(
        RandomResizedCrop(),
        (SIDE, SIDE),
        np.array([width]),
        np.array([height]),
        seed=seed,
        epoch=epoch,
        samples=sample,
    )
    mirrored = bool(uniform(key(seed, epoch, Stream.FLIP), sample)[0] < flip)
    box, bounds = tuple(crops.boxes[0].tolist()), tuple(crops.bounds[0].tolist())
    row = _engine.resize(np.ascontiguousarray(pixels), SIDE, SIDE, box, bounds, mirrored)
    return torch.from_numpy(row).permute(2, 0, 1)
