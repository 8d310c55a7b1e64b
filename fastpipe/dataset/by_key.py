"""A user's {key: value} -> the values of all samples, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.choosing import find_keys
from fastpipe.errors import ConfigError, format_count

_MAX_NAMED = 3  # keys in a message


def values_by_key(
    data: BaseDataset, method: str, given: Mapping[Any, Any], missing_advice: str
) -> list[Any]:
    """The value of each sample.

    Args:
        data: the samples.
        method: begins the message of an error.
        given: a value for the key of each sample.
        missing_advice: what to do about a sample without a value.

    Raises:
        ConfigError: it has no value for a sample, or a key that is that of no sample.
    """
    keys = list(given)
    for key in keys:
        if not isinstance(key, str):
            example = data.column("key")[0]
            raise ConfigError(
                f"{method}: expected {{key: value}} with the keys of data['key'], such as "
                f"{example!r}, got {key!r}; or a list of values in the order of the samples"
            )
    others = (
        ". Leave out the keys that are not in this dataset: "
        "{key: values[key] for key in data['key']}"
    )
    ids = np.empty(0, dtype=np.int64)
    if keys:
        ids = find_keys(data.content, keys, method, others)
    is_given = np.zeros(len(data), dtype=np.bool_)
    is_given[ids] = True
    missing = np.flatnonzero(~is_given)
    if len(missing):
        names = data.column("key")[missing[: _MAX_NAMED + 1]].tolist()
        shown = ", ".join(repr(name) for name in names[:_MAX_NAMED])
        verb = "has" if len(missing) == 1 else "have"
        raise ConfigError(
            f"{method}: {format_count(len(missing), 'sample')} of {len(data):,} {verb} no value: "
            f"{shown}{', ...' if len(missing) > _MAX_NAMED else ''}. {missing_advice}"
        )
    values = list(given.values())
    positions = np.empty(len(data), dtype=np.int64)
    positions[ids] = np.arange(len(ids))
    return [values[position] for position in positions.tolist()]
