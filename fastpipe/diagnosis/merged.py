"""The observations of DataLoaders that one line made, again and again or in several processes -> one of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastpipe.diagnosis.observation import Observation

_ALIKE = ("made_at", "class", "dataset", "length", "batch_size", "num_workers", "method", "pin_memory")


def merged(found: Iterable[Observation]) -> list[Observation]:
    """Those that one process made at one line, one after the other, count as epochs of one."""
    by_line: dict[Any, list[Observation]] = {}
    for seen in found:
        by_line.setdefault((seen.facts["pid"], *alike(seen)), []).append(seen)
    return [_merged(several) for several in by_line.values()]


def alike(seen: Observation) -> tuple[Any, ...]:
    """What DataLoaders that one line made have in common; nothing, where the line is not known."""
    return tuple(seen.facts[name] for name in _ALIKE) if seen.made_at else (seen.key,)


def _merged(several: list[Observation]) -> Observation:
    whole, *others = several
    for number, seen in enumerate(others, 1):
        epochs, batches = len(whole.epochs), len(whole.batches)
        whole.epochs += [replace(epoch, made=number) for epoch in seen.epochs]
        whole.batches += [replace(batch, epoch=batch.epoch + epochs) for batch in seen.batches]
        whole.snapshots += [replace(snapshot, batch=snapshot.batch + batches) for snapshot in seen.snapshots]
        whole.workers += seen.workers
        whole.errors += seen.errors
        whole.holds = whole.holds or seen.holds
        whole.ended += seen.ended
        whole.others.append(seen.key)
    return whole
