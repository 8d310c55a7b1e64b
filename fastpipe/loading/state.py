"""The position of a loader -> a small dictionary for JSON, and back; an error if it belongs to another loader."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastpipe.checks import whole
from fastpipe.errors import ConfigError
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe, Size, batches_per_epoch

STATE_VERSION = 3

# What no option is called like -> the options that decide it.
_OPTIONS = {
    "global_batch_size": " (batch_size= times world_size=)",
    "sequences": " (partition=)",
    "samples": " (a hash of the samples that select, only, take and fold leave)",
    "mixture": " (the weights of fastpipe.mix)",
    "weights": " (a hash of them: pass those of that epoch, to fastpipe.Weighted or before to loader.set_weights)",
    "numbers": " (a hash of the numbers that the sampler gave for that epoch)",
    "with_labels": " (a hash of the labels of with_labels)",
}


@dataclass
class Position:
    """A place in a loader's batches."""

    epoch: int = 0
    batches: int = 0  # of it that have been handed out


def state_of(position: Position, recipe: Recipe, size: Size | None, versions: Sequence[int]) -> dict[str, Any]:
    """What a checkpoint needs of a loader: always the same keys, and no value that is a dictionary. For
    torch.distributed.checkpoint takes dictionaries apart, and loads only the keys that the loader at hand has.

    `size`, (height, width), is that of images where it was set while training ran; `versions`: of each dataset, as
    `fastpipe log` counts them.
    """
    return {
        "version": STATE_VERSION,
        "dataset": recipe.content.index.content,
        "dataset_versions": list(versions),
        "order": json.dumps(_order(recipe, position.epoch)),
        "epoch": position.epoch,
        "batches": position.batches,
        "size": None if size is None else list(size),
    }


def position_in(state: Any, recipe: Recipe, opened: Sequence[tuple[object, int]]) -> Position:
    """Where a state says that a loader stood; ConfigError if it is none, or that of another dataset or order. `opened`
    has path and version of each dataset of the loader that is to go on.
    """
    fingerprint = recipe.content.index.content
    foreign = ConfigError(f"load_state_dict: expected a dictionary from state_dict(), got {reprlib.repr(state)}")
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
    epoch = whole("load_state_dict: epoch", epoch, least=0, most=2**63 - 1)
    mine = json.loads(json.dumps(_order(recipe, epoch)))
    differing = [name for name in (*mine, *(saved.keys() - mine.keys())) if saved.get(name) != mine.get(name)]
    if differing:
        pairs = ", ".join(
            f"{name} was {saved.get(name)!r} and is now {mine.get(name)!r}{_OPTIONS.get(name, '')}"
            for name in differing
        )
        raise ConfigError(
            f"load_state_dict: the state belongs to another order of the samples: {pairs}. Open the loader with the "
            "same options, or start without the state"
        )
    most = batches_per_epoch(recipe, epoch)
    return Position(epoch, whole("load_state_dict: batches", batches, least=0, most=most))


def _order(recipe: Recipe, epoch: int) -> dict[str, Any]:
    """The options that decide which samples are in which global batch."""
    listed = [pick.digest(epoch) for pick in recipe.picks if isinstance(pick, Listed)]
    return {
        "seed": recipe.seed,
        "shuffle": recipe.shuffle,
        "drop_last": recipe.drop_last,
        "global_batch_size": recipe.batch_size * recipe.ranks.world_size,
        "sequences": recipe.sequences,
        **({"buckets": recipe.crop.identity} if isinstance(recipe.crop, Buckets) else {}),
        **({"epoch_size": recipe.epoch_size} if recipe.epoch_size is not None else {}),
        **recipe.content.identity,
        **recipe.sampling,
        **({"numbers": listed} if listed else {}),
    }


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
