"""A dataset -> the rows that a loader hands out in batches of several sizes, on two ranks, and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

import fastpipe

SIZE = (32, 40)
LAYOUTS: dict[str, list[tuple[int, dict[str, Any]]]] = {
    "7": [(7, {})],
    "5": [(5, {})],
    "resumed": [(5, {"first": 2})],
    "2 ranks": [(5, {"rank": rank, "world_size": 2}) for rank in range(2)],
    "1": [(1, {"first": 15})],
}


def _batches(
    dataset: Path, batch_size: int, *, augment: Any = None, first: int = 0, **options: Any
) -> list[Tensor]:
    """The images of epoch 1, from batch `first` on; resumed there, if it is not the first."""
    made = fastpipe.loader(
        dataset,
        batch_size,
        size=SIZE,
        seed=5,
        num_workers=1,
        drop_last=False,
        augment=augment,
        **options,
    )
    with made as loader:
        loader.set_epoch(1)
        if first:
            state = loader.state_dict()
            loader.load_state_dict({**state, "batches": first})
        return [images.clone() for images, _ in loader]


def rows(dataset: Path, layout: str, augment: Any = None) -> list[Tensor]:
    """The images of a layout, in its order."""
    images = []
    for batch_size, options in LAYOUTS[layout]:
        for batch in _batches(dataset, batch_size, augment=augment, **options):
            images.extend(batch)
    return images


def samples_of_rows(dataset: Path) -> dict[str, list[bytes]]:
    """Which sample each row of a layout is of: its pixels without augmentation."""
    samples = {
        layout: [row.numpy().tobytes() for row in rows(dataset, layout)] for layout in LAYOUTS
    }
    # The second rank's last batch repeats samples.
    counts = {layout: len(pixels) for layout, pixels in samples.items()}
    assert counts == {"7": 23, "5": 23, "resumed": 13, "2 ranks": 24, "1": 8}
    assert all(set(pixels) <= set(samples["7"]) for pixels in samples.values())
    return samples


def assert_same_in_all_layouts(
    dataset: Path, samples: dict[str, list[bytes]], augment: Any
) -> None:
    """Each sample of the dataset becomes the same image in every layout."""
    seen: dict[bytes, Tensor] = {}
    for layout in LAYOUTS:
        for sample, row in zip(samples[layout], rows(dataset, layout, augment), strict=True):
            expected = seen.setdefault(sample, row)
            assert row.equal(expected), f"{layout}: another result"
    assert len(seen) == 23
