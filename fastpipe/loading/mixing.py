"""Weights by dataset, as fastpipe.loader() takes them -> an index of all, and how they are mixed; or an error."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastpipe.checks import choice, real_number, whole
from fastpipe.errors import ConfigError
from fastpipe.format.folder import Url
from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.loading.choice import Choice
from fastpipe.plan.content import MOST_ROWS, Content
from fastpipe.plan.mixture import Mixture, rows_of_mixture
from fastpipe.plan.recipe import Recipe

_LABELS = ("union", "offset", "own")
_SIZES = ("smallest", "largest")
_MOST_TOTAL = 1e300


def weights_of(data: Mapping[Any, Any]) -> list[float]:
    """Checks the weights of a mixture.

    Raises:
        ConfigError: one is no number above 0, or there are no datasets.
    """
    found = []
    for name, given in data.items():
        if not isinstance(name, (str, os.PathLike, Index)):
            raise ConfigError(f"data: expected {{folder or URL: weight}}, got the folder {name!r}")
        weight = real_number(given)
        if weight is None or not 0 < weight < math.inf:
            raise ConfigError(f"data: expected a weight above 0 for {name}, got {given!r}")
        found.append(weight)
    if not found:
        raise ConfigError("data: expected {folder or URL: weight}, got no dataset")
    if not sum(found) < _MOST_TOTAL:
        raise ConfigError(
            f"data: expected weights with a sum below {_MOST_TOTAL:g}, got {sum(found):g}; divide them all by the "
            "largest one"
        )
    return found


def mixed_index(parts: Sequence[Index], labels: object) -> MixedIndex:
    """The datasets as one.

    Raises:
        ConfigError: the labels are none of union, offset and own, or two datasets do not go together.
    """
    index = MixedIndex(parts, choice("labels", "union" if labels is None else labels, _LABELS))
    if any(isinstance(part.path, Url) for part in parts):
        for part in parts:
            if not part.packed:
                raise ConfigError(f"data: {part.path} is not packed; pack it to mix it with a dataset behind a URL")
        from fastpipe.remote.dataset import reader_of

        index.reader_of = reader_of
    return index


def mixed_recipe(index: MixedIndex, recipe: Recipe, weights: list[float], chosen: Choice, *, train: bool) -> Recipe:
    """The recipe of a mixture.

    Args:
        index: of the datasets.
        recipe: of a loader of one of them, for whatever ranks.
        weights: of the datasets.
        chosen: by the user.
        train: as of content_of.

    Raises:
        ConfigError: an argument is wrong, or does not go with a mixture, or nothing is left of a dataset.
    """
    if chosen.samples is not None:
        raise ConfigError(
            "samples works with one dataset, not with a mixture; choose with classes=, limit= or kfold=, which apply "
            "to all datasets"
        )
    if chosen.weights is not None:
        raise ConfigError("weights works with one dataset, not with a mixture; weigh the datasets: {folder: weight}")
    if chosen.classes is not None and chosen.labels == "own":
        raise ConfigError(
            'classes names classes of all datasets, and with labels="own" they have none in common; use '
            'labels="union", or labels="offset", where they are called 0/cat and 1/cat'
        )
    size = chosen.epoch_size if chosen.epoch_size is not None else "smallest"
    if isinstance(size, str):
        choice("epoch_size", size, _SIZES)
    else:
        size = whole("epoch_size", size, least=1, most=MOST_ROWS)
    content = Content()
    inside = replace(chosen, epoch_size=None, labels=None)
    if not inside.everything:
        from fastpipe.loading.content_options import content_of  # most programs read everything

        content = content_of(index, inside, train=train, shuffle=recipe.shuffle)
    contents = [_of_part(index, content, number) for number in range(len(index.parts))]
    counts = [each.count(len(part)) for each, part in zip(contents, index.parts, strict=True)]
    for part, count in zip(index.parts, counts, strict=True):
        if not count:
            raise ConfigError(
                f"classes, limit and kfold leave 0 samples of {part.path}, and a mixture needs some; choose more of "
                "them, or leave this dataset out"
            )
    total = math.fsum(weights)
    if size == "largest":
        for part, weight, count in zip(index.parts, weights, counts, strict=True):
            if not count * content.repeats * total / weight <= MOST_ROWS:
                raise ConfigError(
                    f'epoch_size="largest": with {weight / total:g} of all weights, {part.path} comes to its end after '
                    f"more than {MOST_ROWS:,} rows; give it a larger weight, or pass a number as epoch_size"
                )
    rows = rows_of_mixture(weights, counts, content.repeats, size)
    shares = [round(weight / total, 12) for weight in weights]
    named = {"mixture": shares, "epoch_size": size, "labels": chosen.labels or "union"}
    identity = {**content.identity, **named}
    return replace(
        recipe,
        content=replace(content, identity=identity),
        mixture=Mixture(tuple(weights), tuple(contents), tuple(counts), rows),
    )


def _of_part(index: MixedIndex, content: Content, number: int) -> Content:
    """What is chosen of one dataset, in its own numbers."""
    if content.samples is None:
        return Content()
    start, end = index.starts[number : number + 2]
    mine = content.samples[(content.samples >= start) & (content.samples < end)]
    return Content(samples=mine - start)
