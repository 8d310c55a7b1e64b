"""Samples that no cache keeps: each is in memory once, as long as it is needed, and its place is used again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from remote.range_server import RangeServer

from fastpipe.packing.job import pack
from fastpipe.packing.options import PackOptions
from fastpipe.remote.reader import Reader
from fastpipe.remote.ring import Ring, room_of

Loaders = Callable[..., Any]
PAGE = 4096


def test_small_samples_beside_large_ones(tmp_path: Path, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that are fetched by one request have others' samples between them: those of the first batch."""
    rng = np.random.default_rng(5)
    for number in range(1200):
        (tmp_path / "source" / "a").mkdir(parents=True, exist_ok=True)
        side = int(rng.choice([8, 24, 60, 90]))
        picture = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        picture.save(tmp_path / "source" / "a" / f"{number}.jpg", quality=95, subsampling=0)
    pack(tmp_path / "source", tmp_path / "packed", PackOptions(workers=1, shard_size=2_000_000))
    wrong: list[Any] = []
    again = Reader.again
    monkeypatch.setattr(Reader, "again", lambda self, samples: (wrong.extend(samples), again(self, samples)))
    with (
        RangeServer(tmp_path / "packed") as server,
        open_remote(server.url, cache_limit=0, size=32) as loader,
    ):
        for _ in range(2):
            assert sum(len(batch[1]) for batch in loader) >= 1152
    assert not wrong


def test_places() -> None:
    """Of all that is in the ring at a time, nothing has lost a byte; what is given back is used again."""
    rng = np.random.default_rng(7)
    ring = Ring()
    inside: dict[int, bytes] = {}
    taken = 0
    for step in range(3000):
        if len(inside) > 40:
            place = list(inside)[int(rng.integers(len(inside)))]
            data = inside.pop(place)
            assert ring.read(place, len(data)) == data
            ring.give_back(place, len(data))
        data = bytes([step % 251]) * int(rng.integers(1, 300_000))
        place = ring.take(len(data))
        ring.write(place, data)
        inside[place] = data
        taken += len(data)
    spans = sorted((place, place + len(data)) for place, data in inside.items())
    assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
    most = 41 * 300_000
    assert taken > 30 * most
    assert ring.memory_bytes < 3 * most


def test_room() -> None:
    for size in (1, PAGE - 1, PAGE, PAGE + 1, 100_000, 1 << 20, (8 << 20) + 1):
        assert 0 <= room_of(size) - size < PAGE + size / 16
        assert room_of(size) % PAGE == 0
    assert len({room_of(size) for size in range(1, 1 << 20, 999)}) < 120


def test_memory_goes_back() -> None:
    ring = Ring()
    places = [ring.take(1 << 20) for _ in range(32)]
    for place in places:
        ring.write(place, b"x" * (1 << 20))
    assert ring.memory_bytes == 32 << 20
    for place in places[:15]:
        ring.give_back(place, 1 << 20)
    assert ring.memory_bytes == 32 << 20  # as much may come again
    for place in places[15:]:
        ring.give_back(place, 1 << 20)
    assert ring.memory_bytes <= 4 << 20
    again = ring.take(1 << 20)
    ring.write(again, b"y")
    assert ring.read(again, 1) == b"y"
    assert again < 32 << 20
