"""This machine, and a packed dataset -> a list of checks: the result, a verdict, and what to do."""

from __future__ import annotations

from fastpipe.doctor import dataset_checks, libraries, system
from fastpipe.doctor.check import Check, Verdict
from fastpipe.format.folder import Place

__all__ = ["Check", "Verdict", "examine"]


def examine(data: Place | None = None) -> list[Check]:
    """Looks at the machine and, if one is given, at a dataset. Changes nothing.

    Raises:
        DatasetError: `data` holds no finished dataset.
    """
    checks = [
        system.cpus(),
        system.memory(),
        system.swap(),
        system.killed_for_memory(),
        system.shared_memory(),
        system.open_files(),
        libraries.worker_processes(),
        libraries.threads(),
        libraries.threads_in_workers(),
        libraries.engine(),
        libraries.libjpeg(),
        libraries.gpu(),
    ]
    if data is not None:
        checks += dataset_checks.dataset(data)
    return checks
