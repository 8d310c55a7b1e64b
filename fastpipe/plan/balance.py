"""A dataset -> weights of its classes, with which each class comes equally often."""

from __future__ import annotations

from fastpipe.errors import ConfigError
from fastpipe.format.index import Index


def balanced(index: Index) -> dict[str, float]:
    """Weights with which all classes of a dataset come equally often: `fastpipe.loader(data, weights=balanced(index))`.

    Args:
        index: of `fastpipe.open(data)`, or `loader.dataset`.

    Returns:
        1 / number of samples, by class name; 0 for a class without samples.

    Raises:
        ConfigError: it is no index, or the dataset has no classes.
    """
    if not isinstance(index, Index):
        raise ConfigError(f"balanced: expected a dataset from fastpipe.open(FOLDER), got {index!r}")
    if not index.classes:
        raise ConfigError(f"balanced: {index.path} has no classes; pass a weight for each sample as weights=")
    return {name: 1 / count if count else 0.0 for name, count in zip(index.classes, index.class_counts, strict=True)}
