"""The field with the number of text tokens of each sample, for fastpipe.Patches(text_tokens=)."""

from __future__ import annotations

import numpy as np

from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import ConfigError
from fastpipe.plan.content import ColumnReader


def open_text_tokens(dataset: Dataset, name: str) -> ColumnReader:
    """Opens the field. Raises ConfigError if it has no whole number for each sample."""
    dataset.column(name)  # raises if there is none
    column = dataset.open_column(name)
    first = np.asarray(column.take(np.zeros(1, dtype=np.int64)))
    if first.dtype.kind not in "iu" or first.ndim != 1:
        raise ConfigError(
            f"Patches(text_tokens={name!r}): expected a field with the number of text tokens of each "
            f"sample, got values such as {first[0].tolist()!r}. Count them with the model's tokenizer, and "
            "add them: data.with_column('text_tokens', counts)"
        )
    return column
