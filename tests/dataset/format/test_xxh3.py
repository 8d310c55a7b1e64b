"""Tests of the engine's XXH3-64 against the xxhash package, which is the reference implementation."""

from __future__ import annotations

import random

import pytest
import xxhash

from fastpipe import _engine


@pytest.mark.parametrize("scalar", [False, True])
def test_every_length_has_the_reference_hash(scalar: bool) -> None:
    data = random.Random(4).randbytes(1_100_000)
    # The algorithm changes its ways at 4, 9, 17, 129 and 241 bytes, and after each 64 and 1,024.
    for size in [*range(3000), 4096, 65_535, 65_537, 100_000, 1_000_001]:
        part = data[size % 7 : size % 7 + size]
        assert _engine.xxh3_64(part, scalar) == xxhash.xxh3_64_intdigest(part), size
    for part in (bytes(100_000), b"\xff" * 100_000):
        assert _engine.xxh3_64(part, scalar) == xxhash.xxh3_64_intdigest(part)
