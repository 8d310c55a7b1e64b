"""The position of a loader -> a small dictionary for JSON, and back; an error if it belongs to another loader."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastpipe.errors import ConfigError, whole
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe, Size, partition_of

if TYPE_CHECKING:  # the commands that show a dataset need no torch
    from fastpipe.samples.dataset import Dataset

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
    epoch: int = 0
    batches: int = 0  # of it that have been handed out


def state_of(position: Position, recipe: Recipe, size: Size | None, data: Dataset) -> dict[str, Any]:
    """What a checkpoint needs: always the same keys, and no dictionary, which torch.distributed would take apart."""
    return {
        "version": STATE_VERSION,
        "dataset": data.index.content,
        "dataset_versions": [each.index.version for each in data.stored],
        "order": json.dumps(_order(recipe, position.epoch)),
        "epoch": position.epoch,
        "batches": position.batches,
        "size": None if size is None else list(size),  # of images, if it was set while training ran
    }


def order_in(state: Any, data: Dataset) -> dict[str, Any]:
    """The order of the samples that a state is of; ConfigError if it is none, or that of another dataset."""
    foreign = ConfigError(f"load_state_dict: expected a dictionary from state_dict(), got {reprlib.repr(state)}")
    if not isinstance(state, Mapping) or "version" not in state:
        raise foreign
    if state["version"] != STATE_VERSION:
        raise ConfigError(
            f"load_state_dict: the state has version {state['version']!r}, this fastpipe reads {STATE_VERSION}; use "
            "the version of fastpipe that saved it"
        )
    try:
        dataset, order, versions = state["dataset"], dict(json.loads(state["order"])), list(state["dataset_versions"])
        _ = state["epoch"], state["batches"], state["size"]  # they are there
    except (KeyError, TypeError, ValueError):
        raise foreign from None
    if dataset != data.index.content:
        raise ConfigError(
            f"load_state_dict: the state belongs to dataset {dataset!r}, but this loader reads dataset "
            f"{data.index.content!r}; {_which(versions, data)}, or start without the state"
        )
    return order


def position_in(state: Mapping[str, Any], order: Mapping[str, Any], recipe: Recipe) -> Position:
    """Where a state of that order says that a loader stood; ConfigError if the recipe has another order."""
    epoch = whole("load_state_dict: epoch", state["epoch"], least=0, most=2**63 - 1)
    mine = json.loads(json.dumps(_order(recipe, epoch)))
    differing = [name for name in (*mine, *(order.keys() - mine.keys())) if order.get(name) != mine.get(name)]
    if differing:
        pairs = ", ".join(
            f"{name} was {order.get(name)!r} and is now {mine.get(name)!r}{_OPTIONS.get(name, '')}"
            for name in differing
        )
        raise ConfigError(
            f"load_state_dict: the state belongs to another order of the samples: {pairs}. Open the loader with the "
            "same options, or start without the state"
        )
    most = partition_of(recipe, epoch).batches
    return Position(epoch, whole("load_state_dict: batches", state["batches"], least=0, most=most))


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


def _which(versions: list[int], data: Dataset) -> str:
    indexes = [each.index for each in data.stored]
    pairs = zip(indexes, versions, strict=False)
    other = [(index, then) for index, then in pairs if index.version != then and index.version and then]
    if len(versions) != len(indexes) or not other:
        return "open the dataset of the state"
    words = " and ".join(
        f"{index.path} has version {index.version} here, and had {then} there" for index, then in other
    )
    opens = ", ".join(f"fastpipe.open({str(index.path)!r}, version={then})" for index, then in other)
    return f"{words}. Pass {opens} to the loader in place of the path"
