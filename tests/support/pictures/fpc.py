"""KEY.fpc, read by docs/explanation/format.md alone: a second reader, in plain Python, for the tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_SMALL = [-8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8]
_MASK_BYTES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 8]
PADDING = 128


@cache
def zigzag() -> tuple[int, ...]:
    """Position in the zigzag -> position in the block, row by row (T.81, figure 5)."""
    cells = [(row, column) for row in range(8) for column in range(8)]
    cells.sort(key=lambda cell: (sum(cell), cell[1] if sum(cell) % 2 == 0 else cell[0]))
    return tuple(8 * row + column for row, column in cells)


@dataclass
class Component:
    identifier: int
    across: int
    down: int
    quant: int
    pair: int


@dataclass
class Fpc:
    """What a KEY.fpc says."""

    width: int
    height: int
    flags: int
    interval: int
    jfif: tuple[int, int, int, int]
    xxh3_64: int
    components: list[Component]
    steps: dict[int, list[int]]
    segments: list[tuple[int, bytes]]
    blocks: list[NDArray[np.int16]]  # of each component: (rows of blocks, blocks, 64), row by row


def read(data: bytes) -> Fpc:
    """Reads all of it; an assertion fails where a byte has no place."""
    magic, size, digest = struct.unpack_from("<4sIQ", data)
    assert magic == b"FPC\1"
    assert size == len(data)
    width, height, count, flags, interval = struct.unpack_from("<HHBBH", data, 16)
    jfif = struct.unpack_from("<BBHH", data, 24)
    tables, reserved, segments_at = struct.unpack_from("<BBI", data, 30)
    assert reserved == 0
    components = []
    for number in range(3):
        identifier, factors, quant, pair = data[36 + 4 * number : 40 + 4 * number]
        if number < count:
            components.append(Component(identifier, factors >> 4, factors & 15, quant, pair))
        else:
            assert (identifier, factors, quant, pair) == (0, 0, 0, 0)
    if count == 1:  # blocks of a scan of one component stand alone
        across, down = [1], [1]
    else:
        across, down = [one.across for one in components], [one.down for one in components]
    at = 48
    steps = {}
    for table in range(4):
        if tables >> table & 1:
            steps[table] = list(struct.unpack_from("<64H", data, at))
            at += 128
    mcu_width, mcu_height = 8 * max(across), 8 * max(down)
    rows = -(-height // mcu_height)
    places = struct.unpack_from(f"<{rows + 1}I", data, at)
    at += 4 * (rows + 1)
    assert places[0] == at
    shapes = [
        (-(-height * v // mcu_height), -(-width * h // mcu_width))
        for h, v in zip(across, down, strict=True)
    ]
    blocks = [np.zeros((*shape, 64), np.int16) for shape in shapes]
    for mcu_row in range(rows):
        assert at == places[mcu_row]
        for component, (shape, rows_of_mcu) in enumerate(zip(shapes, down, strict=True)):
            for row in range(mcu_row * rows_of_mcu, min((mcu_row + 1) * rows_of_mcu, shape[0])):
                at = _row(data, at, blocks[component][row])
    assert at == places[rows] == segments_at
    segments = []
    while at < len(data) - PADDING:
        marker, zero, length = struct.unpack_from("<BBH", data, at)
        assert zero == 0
        segments.append((marker, data[at + 4 : at + 4 + length]))
        at += 4 + length
    assert data[at:] == bytes(PADDING)
    return Fpc(width, height, flags, interval, jfif, digest, components, steps, segments, blocks)


def _row(data: bytes, at: int, out: NDArray[np.int16]) -> int:
    count = len(out)
    lengths = data[at : at + count]
    at += count
    kinds = [data[at + number // 2] >> (4 * (number % 2)) & 15 for number in range(count)]
    at += (count + 1) // 2
    low = np.frombuffer(data, np.int8, count, at).astype(int)
    at += count
    wide = [data[at + number // 8] >> (number % 8) & 1 for number in range(count)]
    at += (count + 7) // 8
    for number in range(count):
        if wide[number]:
            low[number] += 256 * int.from_bytes(data[at : at + 1], "little", signed=True)
            at += 1
    out[:, 0] = np.cumsum(low).astype(np.int16)
    for number in range(count):
        _block(data[at : at + lengths[number]], kinds[number], out[number])
        at += lengths[number]
    return at


def _block(data: bytes, kind: int, out: NDArray[np.int16]) -> None:
    mask_bytes = _MASK_BYTES[kind]
    exceptions = []
    if kind > 8:
        count = data[-1]
        end = len(data) - 1 - 2 * count
        exceptions = [(data[place], data[place + 1]) for place in range(end, len(data) - 1, 2)]
        data = data[:end]
    mask = int.from_bytes(data[:mask_bytes], "little")
    places = [zigzag()[number + 1] for number in range(63) if mask >> number & 1]
    values = data[mask_bytes:]
    bytes_each = 2 * len(values) - len(places)
    numbers = [one - 256 if one > 127 else one for one in values[:bytes_each]]
    for pair in values[bytes_each:]:
        numbers += [_SMALL[pair & 15], _SMALL[pair >> 4]]
    for place, number in zip(places, numbers, strict=True):
        out[place] = number
    for place, upper in exceptions:
        assert out[place] != 0 or place in places
        out[place] += 256 * (upper - 256 if upper > 127 else upper)
    # Values are stored short from the first on after which all fit, or from the one after it, so that they make pairs.
    longest = (
        max((number for number, place in enumerate(places) if abs(int(out[place])) > 8), default=-1)
        + 1
    )
    assert bytes_each == longest + (len(places) - longest) % 2
    assert exceptions == [] or all(abs(int(out[place])) > 127 for place, _ in exceptions)
