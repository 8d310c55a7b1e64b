"""Values that are too large, or announce more than they hold: named reasons, and bounded memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sources.hostile_tar import assert_refused, write_hostile_tar
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ImageError
from fastpipe.packing.fields.mask import mask_of_png
from fastpipe.sources.picture.png import encode_png


def test_a_text_of_2_gb_and_bombs_are_refused_without_being_held(tmp_path: Path) -> None:
    write_hostile_tar(tmp_path / "a.tar", inflated_bytes=50 << 20)
    tracemalloc.start()
    summary = fastpipe.pack(tmp_path / "a.tar", tmp_path / "packed", workers=1)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20_000_000
    assert_refused(
        [f"{path} {reason}" for path, reason in summary.tally.rejected], tmp_path / "packed"
    )


def test_a_value_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpipe.packing.fields.values.MAX_VALUE_BYTES", 100)
    with fastpipe.Writer(tmp_path / "packed", {"a": "text", "b": "json", "c": "bytes"}) as writer:
        writer.add(jpeg_bytes(), a="x" * 100, b="x" * 98, c=b"x" * 100)
        writer.add(jpeg_bytes(), a="ä" * 51)
        writer.add(jpeg_bytes(), b="x" * 99)
        writer.add(jpeg_bytes(), c=b"x" * 101)
    assert len(PackedIndex(tmp_path / "packed")) == 1
    assert [reason.split(":")[0] for _, reason in writer.summary.tally.rejected] == [
        "field a",
        "field b",
        "field c",
    ]


@given(st.integers(0, 10**9), st.binary(max_size=4))
def test_a_damaged_mask_is_refused_or_has_the_same_ids(place: int, patch: bytes) -> None:
    ids = np.random.default_rng(0).integers(0, 256, (9, 11), dtype=np.uint8)
    data = bytearray(encode_png(ids, filters=False))
    at = place % len(data)
    data[at : at + len(patch)] = patch
    with contextlib.suppress(ImageError):
        np.testing.assert_array_equal(mask_of_png(bytes(data)), ids)


@given(st.integers(0, 200))
def test_a_truncated_mask_is_refused(length: int) -> None:
    data = encode_png(
        np.random.default_rng(0).integers(0, 256, (9, 11), dtype=np.uint8), filters=False
    )
    with pytest.raises(ImageError):
        mask_of_png(data[: min(length, len(data) - 1)])
