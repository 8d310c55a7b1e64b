"""Sources of annotation tools, for the tests of `tests/sources/people`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastpipe
from fastpipe.packing.job.summary import Summary

Objects = list[tuple[str, list[float]]]


def objects(packed: Path) -> dict[str, Objects]:
    """Key -> the class and box of each object."""
    data = fastpipe.open(packed)
    names = data.fields["boxes"].names
    by_key = {}
    for sample in data.with_fields(("key", "boxes")):  # type: ignore[attr-defined]
        pairs = zip(sample["boxes_labels"].tolist(), sample["boxes"].tolist(), strict=True)
        by_key[sample["key"]] = [
            (names[label], [round(side, 2) for side in box]) for label, box in pairs
        ]
    return by_key


def packed_objects(
    source: Path, packed: Path, **options: Any
) -> tuple[dict[str, Objects], Summary]:
    """Packs a source of which no image may be rejected."""
    summary = fastpipe.pack(source, packed, overwrite=True, **options)
    assert not summary.tally.rejected
    return objects(packed), summary
