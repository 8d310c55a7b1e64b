"""A dataset -> the small page that a notebook shows of it, with pictures of its first samples."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from fastpipe.engine.pictures import Pictures
from fastpipe.errors import SampleError
from fastpipe.plan.crops import Resize
from fastpipe.samples.single import Cropping
from fastpipe.sources.picture.jpeg import encode_jpeg

if TYPE_CHECKING:
    from fastpipe.samples.data import Data

_CLASSES, _PICTURES = 12, 8
_HEIGHT, _WIDEST = 96, 288  # of a picture, in pixels


def page(data: Data) -> str:
    """HTML: the name, the numbers of samples, the classes, the fields, and the pictures as they are stored."""
    whole = f" of {len(data.index):,}" if len(data) < len(data.index) else ""
    counts = list(zip(data.classes, data.class_counts, strict=True))
    classes = ", ".join(f"{escape(name)} ({count:,})" for name, count in counts[:_CLASSES])
    classes += f" and {len(counts) - _CLASSES:,} more" if len(counts) > _CLASSES else ""
    fields = ", ".join(f"{escape(name)} ({field.kind})" for name, field in data.fields.items())
    lines = [f"<b>{escape(str(data.path))}</b>: {len(data):,} samples{whole}", f"{len(counts):,} classes: {classes}"]
    if data.content.mixed:
        lines.append(f"mixed {' : '.join(f'{weight:g}' for weight in data.content.weights)}")
    if fields:
        lines.append(f"fields: {fields}")
    row = "display: flex; gap: 8px; margin-top: 8px; overflow-x: auto"
    return f"{'<br>'.join(lines)}<div style='{row}'>{''.join(_pictures(data))}</div>"


def _pictures(data: Data) -> Iterator[str]:
    pictures, ids = Pictures(data.index), np.arange(min(_PICTURES, len(data)), dtype=np.int64)
    numbers = data.content.numbers(ids)
    records = data.content.read(ids)
    with pictures.fetched(numbers):
        for at, label in enumerate(records["label"].tolist()):
            width = _HEIGHT * int(records["width"][at]) // max(int(records["height"][at]), 1)
            size, one = (_HEIGHT, min(max(width, 1), _WIDEST)), slice(at, at + 1)
            shape = f'height="{size[0]}" width="{size[1]}"'
            try:
                cropping = Cropping(Resize(), size, hflip=False, seed=0, exact=False)
                plan = cropping.plan(ids[one], numbers[one], records[one])
                jpeg = encode_jpeg(pictures.rows(plan, size, exact=False)[0], quality=85, sampling="444")
                shown = f'<img {shape} src="data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}">'
            except SampleError as problem:
                shown = f'<img {shape} alt="damaged" title="{escape(str(problem))}">'
            name = data.classes[label] if label >= 0 else "no label"
            narrow = f"margin: 0; width: {size[1]}px; text-align: center; overflow: hidden; text-overflow: ellipsis"
            yield f"<figure style='{narrow}; flex: none'>{shown}<figcaption>{escape(name)}</figcaption></figure>"
