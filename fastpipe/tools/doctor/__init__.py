"""This machine, and a packed dataset -> a list of checks: the result, a verdict, and what to do."""

from __future__ import annotations

from fastpipe.dataset.format.folder import Place
from fastpipe.tools.doctor.check import Check, Verdict
from fastpipe.tools.doctor.dataset_checks import check_dataset
from fastpipe.tools.doctor.libraries import check_libraries
from fastpipe.tools.doctor.system import check_system

__all__ = ["Check", "Verdict", "examine"]


def examine(data: Place | None = None) -> list[Check]:
    """Looks at the machine and, if one is given, at a dataset. Changes nothing.

    Raises:
        DatasetError: `data` holds no finished dataset.
    """
    checks = [*check_system(), *check_libraries()]
    if data is not None:
        checks += check_dataset(data)
    return checks
