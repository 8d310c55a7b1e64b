"""Short names of numpy's array types, for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Uint8s = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Records = NDArray[np.void]  # of a structured dtype, such as the records of an index
