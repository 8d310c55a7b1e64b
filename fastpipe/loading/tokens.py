"""What counts against the tokens of a batch: images, lists of pictures, texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import ConfigError
from fastpipe.loading.options import asks_for_images
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.patches import Patches
from fastpipe.plan.picture_lists import Images
from fastpipe.plan.recipe import Recipe


def count_tokens(
    recipe: Recipe, dataset: Dataset, patches: Patches, fields: object
) -> Recipe:
    """The recipe with all that counts against the tokens of its batches.

    `fields`: as the user passes them. Raises ConfigError if the field of text tokens is wrong.
    """
    text_tokens = None
    if patches.text_tokens is not None:
        text_tokens = _open_text_tokens(dataset, patches.text_tokens)
    lists = []
    for name in _names_of_lists(dataset, fields):
        lists.append(dataset.open_column(name))
    return replace(
        recipe,
        with_images=fields is None or asks_for_images(fields),
        picture_lists=tuple(lists),
        text_tokens=text_tokens,
    )


def _names_of_lists(dataset: Dataset, fields: object) -> list[str]:
    """The fields of lists of pictures that a user asks for, each once. Others are refused later."""
    requests = fields.values() if isinstance(fields, Mapping) else fields
    if not isinstance(requests, Iterable):
        return []
    names = {}
    for request in requests:
        name = request.name if isinstance(request, Images) else request
        field = dataset.fields.get(name) if isinstance(name, str) else None
        if field is not None and field.kind == "images":
            names[name] = True
    return list(names)


def _open_text_tokens(dataset: Dataset, name: str) -> ColumnReader:
    """Opens the field. Raises ConfigError if it has no whole number for each sample."""
    dataset.column(name)  # raises if there is none
    column = dataset.open_column(name)
    first = np.asarray(column.take(np.zeros(1, dtype=np.int64)))
    if first.dtype.kind not in "iu" or first.ndim != 1:
        raise ConfigError(
            f"Patches(text_tokens={name!r}): expected a field with the number of text tokens of each "
            f"sample, got values such as {first[0].tolist()!r}. Count them with the model's "
            "tokenizer, and add them: data.with_column('text_tokens', counts)"
        )
    return column
