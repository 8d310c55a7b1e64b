"""Tests of fastpipe.loader(verify=True): changed bytes are bad samples, also where they still decode."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import xxhash
from conftest import packed_jpeg

import fastpipe
from fastpipe import Index, SampleError

Copy = Callable[[Path], Path]


def flip_unseen(dataset: Path, sample: int) -> None:
    """Changes the last bit of the last step in the first quantisation table: the JPEG decodes to other pixels."""
    shard, _, offset = Index(dataset).where(sample)
    at = offset + packed_jpeg(Index(dataset), sample).index(b"\xff\xdb") + 5
    with open(shard, "r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1]))


def epoch(dataset: Path, **options: object) -> torch.Tensor:
    with fastpipe.loader(dataset, 8, size=16, train=False, num_workers=2, **options) as loader:  # type: ignore[arg-type]
        return torch.cat([images for images, _ in loader])


def test_a_changed_bit_that_decodes_is_found_only_with_verify(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    expected = f"{Index(dataset).records['xxh3_64'][13]:016x}"
    flip_unseen(dataset, 13)
    found = xxhash.xxh3_64_hexdigest(packed_jpeg(Index(dataset), 13))
    changed = epoch(dataset)
    assert not torch.equal(changed[13], epoch(textured)[13])
    with pytest.raises(SampleError) as caught:
        epoch(dataset, verify=True)
    assert caught.value.sample == 13
    reason = f"the bytes have changed since they were packed: expected XXH3-64 {expected}, got {found}"
    assert caught.value.reason == reason
    assert re.search(r"on_error='replace'", str(caught.value))


def test_a_changed_sample_is_replaced_where_that_is_wanted(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    flip_unseen(dataset, 13)
    with fastpipe.loader(dataset, 8, size=16, train=False, num_workers=2, verify=True, on_error="replace") as loader:
        images = torch.cat([images for images, _ in loader])
        assert loader.stats().replaced == 1
    clean = epoch(textured)
    same = [torch.equal(one, other) for one, other in zip(images, clean, strict=True)]
    assert same == [number != 13 for number in range(23)]
    assert any(torch.equal(images[13], other) for other in clean)


def test_whole_samples_give_the_same_bytes(large: Path, textured: Path, many_shards: Path) -> None:
    for dataset in (large, textured, many_shards):
        assert torch.equal(epoch(dataset, verify=True), epoch(dataset))
