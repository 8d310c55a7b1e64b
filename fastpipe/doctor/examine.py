"""A dataset's folder or URL, or none -> all checks, in the order of the table."""

from __future__ import annotations

from fastpipe.doctor import dataset_checks, libraries, system
from fastpipe.doctor.check import Check
from fastpipe.format.folder import Place


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
