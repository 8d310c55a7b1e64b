"""A dataset -> the small page that a notebook shows of it, with pictures of its first samples."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape

import numpy as np

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.cropping import Cropping
from fastpipe.dataset.format.pixel_form import has_images
from fastpipe.engine.pictures import Pictures
from fastpipe.errors import SampleError, first_names
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crops import Resize
from fastpipe.sources.picture.jpeg import encode_jpeg

_MAX_CLASSES = 12
_MAX_PICTURES = 8
_HEIGHT = 96  # of a picture, in pixels
_MAX_WIDTH = 288
_ROW_STYLE = "display: flex; gap: 8px; margin-top: 8px; overflow-x: auto"


def page(data: BaseDataset) -> str:
    """HTML: the name, the numbers of samples, the classes, the fields, and the first pictures."""
    samples = f"{len(data):,} samples"
    if len(data) < len(data.index):
        samples += f" of {len(data.index):,}"
    path = escape(str(data.path))
    lines = [f"<b>{path}</b>: {samples}", _describe_classes(data)]
    if data.content.mixed:
        weights = " : ".join(f"{weight:g}" for weight in data.content.weights)
        lines.append(f"mixed {weights}")
    fields = []
    for name, field in data.fields.items():
        shown_name = escape(name)
        fields.append(f"{shown_name} ({field.kind})")
    if fields:
        lines.append(f"fields: {', '.join(fields)}")
    text = "<br>".join(lines)
    figures = "".join(_figures(data))
    return f"{text}<div style='{_ROW_STYLE}'>{figures}</div>"


def _describe_classes(data: BaseDataset) -> str:
    texts = []
    for name, count in zip(data.classes, data.class_counts, strict=True):
        texts.append(f"{escape(name)} ({count:,})")
    first_texts = first_names(texts, _MAX_CLASSES)
    return f"{len(texts):,} classes: {first_texts}"


def _figures(data: BaseDataset) -> Iterator[str]:
    """The first samples, each with the name of its class."""
    pictures = Pictures(data.index)
    count = min(_MAX_PICTURES, len(data))
    ids = np.arange(count, dtype=np.int64)
    numbers = data.content.numbers(ids)
    records = data.content.read(ids)
    # Of a dataset behind a URL, all of them are fetched at a time.
    with pictures.fetched(numbers):
        for position, record in enumerate(records):
            if not has_images(record):
                continue
            width = int(record["width"])
            height = int(record["height"])
            size = _shown_size(width, height)
            one = slice(position, position + 1)
            cropping = Cropping(Resize(), size, hflip=False, seed=0, exact=False)
            plan = cropping.plan(ids[one], numbers[one], records[one])
            image = _image(pictures, plan, size)
            label = int(record["label"])
            name = "no label"
            if label >= 0:
                name = data.classes[label]
            yield _figure(image, name, width=size[1])


def _shown_size(width: int, height: int) -> tuple[int, int]:
    """(height, width) of a picture on the page.

    All have one height; a very wide one is squeezed.
    """
    shown_width = _HEIGHT * width // max(height, 1)
    return _HEIGHT, min(max(shown_width, 1), _MAX_WIDTH)


def _figure(image: str, name: str, *, width: int) -> str:
    """The tag of a picture with its caption."""
    style = (
        f"margin: 0; width: {width}px; text-align: center; overflow: hidden; "
        "text-overflow: ellipsis; flex: none"
    )
    caption = f"<figcaption>{escape(name)}</figcaption>"
    return f"<figure style='{style}'>{image}{caption}</figure>"


def _image(pictures: Pictures, plan: BatchPlan, size: tuple[int, int]) -> str:
    """The tag of a picture, or of its error."""
    height, width = size
    shape = f'height="{height}" width="{width}"'
    try:
        row = pictures.rows(plan, size, exact=False)[0]
        jpeg = encode_jpeg(row, quality=85, sampling="444")
    except SampleError as problem:
        message = escape(str(problem))
        return f'<img {shape} alt="damaged" title="{message}">'
    data = base64.b64encode(jpeg).decode()
    return f'<img {shape} src="data:image/jpeg;base64,{data}">'
