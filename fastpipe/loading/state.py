"""The position of a loader -> a small dictionary for JSON, and back; an error if it belongs to another loader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastpipe.checks import whole
from fastpipe.errors import ConfigError

STATE_VERSION = 3

# What no option is called like -> the options that decide it.
_OPTIONS = {
    "global_batch_size": " (batch_size= times world_size=)",
    "sequences": " (partition= and canonical_nodes=)",
    "samples": " (a hash of what samples=, classes=, limit= and kfold= leave)",
    "mixture": " (the datasets' weights)",
}


@dataclass
class Position:
    """A place in a loader's batches.

    Attributes:
        epoch: its number.
        batches: of it that have been handed out.
    """

    epoch: int = 0
    batches: int = 0


def state_of(
    position: Position,
    fingerprint: str,
    order: Mapping[str, Any],
    size: tuple[int, int] | None = None,
    versions: Sequence[int] = (),
) -> dict[str, Any]:
    """What a checkpoint needs of a loader: always the same keys, and no value that is a dictionary. For
    torch.distributed.checkpoint takes dictionaries apart, and loads only the keys that the loader at hand has.

    Args:
        position: where it stands.
        fingerprint: of the dataset.
        order: the options that decide which samples are in which batch.
        size: (height, width) of its images, if it was set while training ran.
        versions: of each dataset, as `fastpipe log` counts them.
    """
    return {
        "version": STATE_VERSION,
        "dataset": fingerprint,
        "dataset_versions": list(versions),
        "order": json.dumps(order),
        "epoch": position.epoch,
        "batches": position.batches,
        "size": None if size is None else list(size),
    }


def position_in(
    state: object,
    fingerprint: str,
    order: Mapping[str, Any],
    batches_per_epoch: int,
    opened: Sequence[tuple[object, int]] = (),
) -> Position:
    """Where a state says that a loader stood.

    Args:
        state: from `state_of`, perhaps by way of JSON.
        fingerprint, order: of the loader that is to go on.
        batches_per_epoch: of that loader.
        opened: path and version of each of its datasets.

    Raises:
        ConfigError: it is no state, or that of another dataset or order.
    """
    foreign = ConfigError(f"load_state_dict: expected a dictionary from state_dict(), got {_short(state)}")
    if not isinstance(state, Mapping) or "version" not in state:
        raise foreign
    if state["version"] != STATE_VERSION:
        raise ConfigError(
            f"load_state_dict: the state has version {state['version']!r}, this fastpipe reads {STATE_VERSION}; use "
            "the version of fastpipe that saved it"
        )
    try:
        dataset, saved = state["dataset"], dict(json.loads(state["order"]))
        versions = list(state["dataset_versions"])
        epoch, batches, _ = state["epoch"], state["batches"], state["size"]
    except (KeyError, TypeError, ValueError):
        raise foreign from None
    if dataset != fingerprint:
        raise ConfigError(
            f"load_state_dict: the state belongs to dataset {dataset!r}, but this loader reads dataset "
            f"{fingerprint!r}; {_which(versions, opened)}, or start without the state"
        )
    order = json.loads(json.dumps(order))
    differing = [name for name in (*order, *(saved.keys() - order.keys())) if saved.get(name) != order.get(name)]
    if differing:
        pairs = ", ".join(
            f"{name} was {saved.get(name)!r} and is now {order.get(name)!r}{_OPTIONS.get(name, '')}"
            for name in differing
        )
        raise ConfigError(
            f"load_state_dict: the state belongs to another order of the samples: {pairs}. Open the loader with the "
            "same options, or start without the state"
        )
    epoch = whole("load_state_dict: epoch", epoch, least=0, most=2**63 - 1)
    return Position(epoch, whole("load_state_dict: batches", batches, least=0, most=batches_per_epoch))


def _which(versions: list[int], opened: Sequence[tuple[object, int]]) -> str:
    """How to open the dataset of a state."""
    other = [
        (place, version, then)
        for (place, version), then in zip(opened, versions, strict=False)
        if version != then and version and then
    ]
    if len(versions) != len(opened) or not other:
        return "open the dataset of the state"
    words = " and ".join(f"{place} has version {version} here, and had {then} there" for place, version, then in other)
    opens = ", ".join(f"fastpipe.open({str(place)!r}, version={then})" for place, _, then in other)
    return f"{words}. Pass {opens} to the loader in place of the path"


def global_batch_size_in(state: Any, fingerprint: str) -> object:
    """That of a state of this dataset; None: it is none."""
    try:
        return json.loads(state["order"])["global_batch_size"] if state["dataset"] == fingerprint else None
    except (KeyError, TypeError, ValueError):
        return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
