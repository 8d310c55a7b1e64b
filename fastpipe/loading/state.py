"""The position of a loader -> a small dictionary for JSON, and back; an error if it belongs to another loader."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.errors import ConfigError, whole
from fastpipe.format.index import Index
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe, Size, partition_of

if TYPE_CHECKING:  # the commands that show a dataset need no torch
    from fastpipe.samples.dataset import Dataset

STATE_VERSION = 3
_STORED = "stored"  # in "order", which is a text: what the state's datasets were, for messages

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
    stored = [_Stored.of(each.index) for each in data.stored]
    return {
        "version": STATE_VERSION,
        **_identity(data),
        "order": json.dumps({**_order(recipe, position.epoch), _STORED: stored}),
        "epoch": position.epoch,
        "batches": position.batches,
        "size": None if size is None else list(size),  # of images, if it was set while training ran
    }


def facts_of(recipe: Recipe, epoch: int, data: Dataset) -> dict[str, Any]:
    """What decides which samples are in which global batch of an epoch, as JSON can hold it."""
    return {**_identity(data), **_order(recipe, epoch)}


def _identity(data: Dataset) -> dict[str, Any]:
    return {
        "dataset": data.index.content,
        "dataset_versions": [each.index.version for each in data.stored],
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
    stored = order.pop(_STORED, None)
    if dataset != data.index.content:
        raise ConfigError(
            f"load_state_dict: the state belongs to dataset {dataset!r}, but this loader reads dataset "
            f"{data.index.content!r}. {_which(stored, versions, data)}, or start without the state. {_go_on(state)}"
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
            f"same options, or start without the state. {_go_on(state)}"
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


class _Stored(NamedTuple):
    """What a state says of a stored dataset, for the message if another one is there."""

    lineage: str  # as of Index
    samples: int
    classes: int
    first_classes: Sequence[str]

    @classmethod
    def of(cls, index: Index) -> _Stored:
        return cls(index.lineage, len(index), len(index.classes), index.classes[:2])

    def __str__(self) -> str:
        if not self.classes:
            return f"{self.samples:,} samples"
        names = ", ".join(repr(name[:20]) for name in self.first_classes)
        return f"{self.samples:,} samples of {self.classes:,} classes ({names}{', ...' if self.classes > 2 else ''})"


def _go_on(state: Mapping[str, Any]) -> str:
    """How to train on with what is there now."""
    epoch = whole("load_state_dict: epoch", state["epoch"], least=0, most=2**63 - 1)
    return (
        f"To train on with the dataset and the options of now: loader.set_epoch({epoch}) begins epoch {epoch} from its "
        f"start, and loader.set_epoch({epoch + 1}) the next one"
    )


def _which(stored: Any, versions: list[int], data: Dataset) -> str:
    """What the dataset of the state is to the one that is there: a version of it, or another one."""
    indexes = [each.index for each in data.stored]
    try:
        there = [_Stored(*each) for each in stored]
    except TypeError:  # an earlier fastpipe has saved the state
        return "Open the dataset of the state"
    if not len(there) == len(versions) == len(indexes):
        return f"It is of {len(there)} stored datasets, and these are {len(indexes)}. Open the dataset of the state"
    for index, then in zip(indexes, there, strict=True):
        if then.lineage != index.lineage:
            return (
                f"It is another dataset, not a version of {index.path}: {then} there, {_Stored.of(index)} here. Open "
                "the dataset of the state"
            )
    pairs = zip(indexes, versions, strict=True)
    grown = [(index, version) for index, version in pairs if index.version != version]
    if not grown:
        return (
            f"The files of {indexes[0].path} have changed since, or it is another dataset: {there[0]} there, "
            f"{_Stored.of(indexes[0])} here. Open the dataset of the state"
        )
    words = " and ".join(
        f"{index.path} has version {index.version} here, and had {version} there" for index, version in grown
    )
    opens = ", ".join(f"fastpipe.open({str(index.path)!r}, version={version})" for index, version in grown)
    return f"{words}. Pass {opens} to the loader in place of the path"
