"""Samples that no cache keeps: each is in memory once, as long as it is needed, and its place is used again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.remote.range_server import RangeServer

from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.store.remote.ring import Ring, RingParts, ShardPart, room_of
from fastpipe.store.remote.wants import Wants

Loaders = Callable[..., Any]
PAGE = 4096


def test_small_samples_beside_large_ones(
    tmp_path: Path, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges that are fetched by one request have others' samples between them: those of the first batch."""
    rng = np.random.default_rng(5)
    for number in range(600):
        (tmp_path / "source" / "a").mkdir(parents=True, exist_ok=True)
        side = int(rng.choice([8, 24, 60, 90]))
        picture = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        picture.save(tmp_path / "source" / "a" / f"{number}.jpg", quality=95, subsampling=0)
    pack(tmp_path / "source", tmp_path / "packed", PackOptions(workers=1, shard_size=1_000_000))
    wrong: list[Any] = []
    again = Wants.again
    monkeypatch.setattr(
        Wants, "again", lambda self, samples: (wrong.extend(samples), again(self, samples))
    )
    with (
        RangeServer(tmp_path / "packed") as server,
        open_remote(server.url, cache_limit=0, size=32) as loader,
    ):
        for _ in range(2):
            assert sum(len(batch[1]) for batch in loader) >= 592
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


def test_a_sample_goes_while_its_neighbours_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    parts = RingParts(ring, threading.RLock())
    part = ShardPart(0, 100, 400_100)
    data = np.random.default_rng(1).integers(0, 256, 400_000, dtype=np.uint8).tobytes()
    ends = [100, 150_100, 300_100, 310_100, 320_100]
    for sample, (start, stop) in enumerate(pairwise(ends)):
        parts.put(sample, part, start, stop).planned.add(sample)
    parts.put(
        9, part, 330_100, 400_100
    )  # between them is one that nobody wants; the plan does not want this one
    pieces = part.pieces
    assert [(piece.start, piece.stop) for piece in pieces] == [
        *pairwise(ends[:3]),
        (300_100, 320_100),
        (330_100, 400_100),
    ]
    parts.store(part, data)
    for piece in pieces:
        assert piece.ring_offset is not None
        assert (
            ring.read(piece.ring_offset, piece.stop - piece.start)
            == data[piece.start - 100 : piece.stop - 100]
        )
        assert parts.origin(piece.ring_offset + 7) == (0, piece.start + 7)
    assert not parts.use(np.array([0, 1, 2]))  # a batch later they go
    used = parts.use(np.array([], dtype=np.int64))
    parts.give_back({*used, pieces[3]}, pinned={pieces[1]})
    assert [piece.ring_offset is None for piece in pieces] == [
        True,
        False,
        False,
        True,
    ]  # 1 is read; 2 lies beside 3
    assert [parts.of(sample) is None for sample in (0, 1, 2, 3, 9)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    parts.next_plan({pieces[2]})
    assert [piece.ring_offset is None for piece in pieces] == [True, True, False, True]
    assert parts.of(3) is pieces[2]
    parts.give_back(pieces, pinned=set())
    assert [piece.ring_offset for piece in pieces] == [None] * 4
    assert part.dead
    late = ShardPart(0, 100, 150_100)
    parts.put(0, late, 100, 150_100)
    written = []

    def forgotten_while_it_is_written(place: int, _: object) -> None:
        written.append(place)
        parts.forget(late.pieces)

    monkeypatch.setattr(ring, "write", forgotten_while_it_is_written)
    parts.store(late, data)
    assert late.pieces[0].ring_offset is None
    assert [ring.take(150_000)] == written  # free again
