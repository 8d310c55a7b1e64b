"""An evaluation whose samples come in another order than the dataset's -> a warning, if it matters.

A sum over all batches does not depend on the order. A comparison with a column of the dataset does.
So the warning needs both: such an evaluation, and a program that reads a column.
"""

from __future__ import annotations

from fastpipe.warnings_once import warn_once

_read: set[str] = (
    set()
)  # fingerprints of datasets of which the program has read a column
_evaluated: dict[
    str, str
] = {}  # fingerprint -> the dataset's place, after such an evaluation


def note_column_read(fingerprint: str) -> None:
    """The program reads the values of all samples, in the order of the dataset."""
    _read.add(fingerprint)
    if fingerprint in _evaluated:
        _warn(fingerprint)


def note_evaluation(fingerprint: str, place: str) -> None:
    """An evaluation has given the samples in another order, and nobody has asked which."""
    _evaluated[fingerprint] = place
    if fingerprint in _read:
        _warn(fingerprint)


def _warn(fingerprint: str) -> None:
    warn_once(
        f"other order {fingerprint}",
        f"batches of {_evaluated[fingerprint]} have images of similar shape, so its samples come "
        "in another order than in the dataset, of which a column was read. To compare results "
        "with data.targets or another column, or to save them, take the number of each row: "
        'batch.ids; with fields= "id" or "key"',
    )
