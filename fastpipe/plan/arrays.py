"""How a batch has the arrays of a field, and the memory that they go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import choice


@refusing_unknown_fields("fastpipe.Arrays")
@dataclass(frozen=True)
class Arrays:
    """A field of arrays, in `fields=` of fastpipe.loader.

    Its name alone means these defaults.

    Args:
        name: the field's name.
        form: how arrays come. "tensor": (N, *shape), if all arrays of the dataset have one shape.
            "list": one tensor for each sample. "flat": all arrays one behind the other, (all,
            *rest), and NAME_offsets (N + 1,) int64: sample i has
            `values[offsets[i]:offsets[i + 1]]`. "pad": (N, most, *rest), with zeros behind the
            values of a sample, and NAME_counts (N,) int64. For "flat" and "pad" only the lengths of
            the first axis may differ. "auto": "tensor" if that is possible, else "list".

    Example:
        >>> tokens = fastpipe.Arrays("tokens", form="pad")
        >>> loader = fastpipe.loader("data/latents", batch_size=4, size=32, fields=("image", tokens))
        >>> batch = next(iter(loader))
        >>> batch["tokens"].shape, batch["tokens_counts"].dtype
        (torch.Size([4, 3, 8]), torch.int64)
    """

    name: str
    _: KW_ONLY
    form: str = "auto"

    def __post_init__(self) -> None:
        choice("Arrays(form=)", self.form, ("auto", "tensor", "list", "flat", "pad"))


@dataclass(frozen=True)
class ArrayBatch:
    """The arrays of a batch, one for each sample, as the engine's threads copy them.

    Attributes:
        slot: (rows, bytes) uint8, of a SlotRing: the numbers of all arrays, one array behind the
            other, with zeros between them where they are padded.
        dtype: of the numbers, as torch names it.
        shape: of the tensor that has all numbers; None: the batch has a list of tensors.
        shapes: of each array, for that list.
        more: further entries of the batch, by the ending of their keys.
    """

    slot: NDArray[np.uint8]
    dtype: str
    shape: tuple[int, ...] | None = None
    shapes: Sequence[tuple[int, ...]] = ()
    more: Mapping[str, Int64s] = field(default_factory=dict)
