"""The labels of all samples as an array that is not changed, with advice for who tries."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray


class Targets(np.ndarray[Any, np.dtype[np.int64]]):
    """`data.targets`: a read-only array; writing to it says how a dataset gets other labels.

    Parts and copies that may be written are as any array.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.writeable:
            _refuse()
        super().__setitem__(key, value)

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        """A calculation gives a plain array: its numbers are no labels."""
        plain: NDArray[Any] = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:
        # As a plain array, which needs no fastpipe where it is read.
        return np.asarray(self).__reduce__()


def _refuse() -> NoReturn:
    raise ValueError(
        "data.targets is read-only: change a copy, labels = data.targets.copy(), and make a dataset "
        "with it: data = data.with_labels(labels)"
    )
