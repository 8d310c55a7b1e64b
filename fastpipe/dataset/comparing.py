"""A comparison of numbers with a text -> an error that says how classes are chosen by name.

numpy says that no number equals a text. So `data.select(lambda c: c["label"] == "cat")` would choose
no sample, and nobody would see why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError

_COMPARISONS = (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
)


class Labels(np.ndarray[Any, np.dtype[np.int64]]):
    """Labels for a function that chooses samples: an array that is not compared with texts.

    A check of the mask that the function returns would be too late: a mask without True says
    nothing of its cause. Only labels are of this class, for only they have names that users know.
    Other columns stay plain arrays.
    """

    def __eq__(self, other: object) -> Any:
        refuse_text("label", self, other)
        return super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        refuse_text("label", self, other)
        return super().__ne__(other)

    # As any array's: a class with an __eq__ of its own would be hashable otherwise.
    __hash__ = None

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        """A calculation with labels gives a plain array: its numbers are no labels."""
        plain: NDArray[Any] = np.asarray(array)
        return plain[()] if return_scalar else plain


def refuse_text_in(ufunc: Any, name: str, values: Any, other: object) -> None:
    """Raises ConfigError if a calculation of numpy compares a column of numbers with texts."""
    if ufunc in _COMPARISONS:
        refuse_text(name, values, other)


def refuse_text(name: str, values: Any, other: object) -> None:
    """Raises ConfigError if `values`, of the column `name`, are numbers, and `other` is text."""
    if not _is_text(other) or values.dtype.kind not in "biuf":
        return
    shown = repr(other) if isinstance(other, str) else "texts"
    got = f"the column {name!r} has numbers ({values.dtype}), and is compared with {shown}"
    if name != "label":
        raise ConfigError(f"{got}; compare it with numbers")
    example = repr(other) if isinstance(other, str) else "'cat'"
    raise ConfigError(
        f"{got}. A label is the number of a class. To choose the samples of a class: "
        f"data.only([{example}]). For its number: data.class_to_idx[{example}]"
    )


def _is_text(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and isinstance(value[0], str)
    # Of a column the dtype is known without reading it.
    dtype = getattr(value, "dtype", None)
    return isinstance(value, str) or getattr(dtype, "kind", "") == "U"
