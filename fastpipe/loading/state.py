"""The position of a loader -> a small dictionary for JSON, and back."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.dataset.format.index import Index
from fastpipe.distribution import UPGRADE
from fastpipe.errors import ConfigError, format_count, whole
from fastpipe.loading.other_numbers import describe_other_numbers
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.epoch_batches import num_batches
from fastpipe.plan.patches import Patches
from fastpipe.plan.picks import Listed
from fastpipe.plan.recipe import Recipe, Size

if TYPE_CHECKING:  # the commands that show a dataset need no torch
    from fastpipe.dataset.dataset import Dataset

# Whoever changes the order of samples, or the content of a state, raises it. docs/stability.md
# promises that releases with the same first number keep it.
STATE_VERSION = 1
# Keys in "order", which is a text, that only messages need: the stored datasets, and the classes
# with the numbers that training has them by.
_STORED = "stored"
_CLASSES = "class_names"
# A state keeps the names of so many classes, so that it stays small.
_MAX_CLASSES = 100
_MAX_SHOWN_CLASSES = 2
# A key in "order" of batches with a budget: the number of ranks, which may change.
RANKS = "ranks"

# Facts of an order whose name is not an option's -> the options that decide them.
_OPTIONS = {
    "sequences": " (partition=)",
    "mixture": " (the weights of fastpipe.mix)",
    "weights": " (a hash of them: pass those of that epoch, to fastpipe.Weighted or before to "
    "loader.set_weights)",
    "numbers": " (a hash of the numbers that the sampler gave for that epoch)",
    "with_labels": " (a hash of the labels of with_labels)",
}


@dataclass
class Position:
    """A place in a loader's epochs."""

    epoch: int = 0
    batches: int = 0  # number of its batches that have been handed out


def make_state(
    position: Position, recipe: Recipe, size: Size | None, data: Dataset
) -> dict[str, Any]:
    """Makes a state; `size` is that of images if it was set while training ran.

    All states have the same keys and no dictionary inside, which torch.distributed.checkpoint would
    take apart.
    """
    stored = [_Stored.of(dataset.index) for dataset in data.stored]
    order = {
        **_order(recipe, position.epoch),
        _STORED: stored,
        _CLASSES: data.classes[:_MAX_CLASSES],
    }
    return {
        "version": STATE_VERSION,
        **_identity(data),
        "order": json.dumps(order),
        "epoch": position.epoch,
        "batches": position.batches,
        "size": None if size is None else list(size),
    }


def epoch_facts(recipe: Recipe, epoch: int, data: Dataset) -> dict[str, Any]:
    """What decides which samples are in which global batch of an epoch, for JSON."""
    return {**_identity(data), **_order(recipe, epoch)}


def _identity(data: Dataset) -> dict[str, Any]:
    versions = [stored.index.version for stored in data.stored]
    return {"dataset": data.index.content, "dataset_versions": versions}


def parse_order(state: Any, data: Dataset) -> dict[str, Any]:
    """Reads a state's order of samples. Raises ConfigError if the state is of another dataset."""
    hint = ""
    if isinstance(state, (str, os.PathLike)):
        hint = "; pass what the file has: torch.load(path)['loader']"
    not_a_state = ConfigError(
        f"load_state_dict: expected a dictionary from state_dict(), got {reprlib.repr(state)}{hint}"
    )
    if not isinstance(state, Mapping):
        raise not_a_state
    if "version" not in state:
        _refuse_checkpoint(state)
        raise not_a_state
    _check_version(state["version"])
    if not {"epoch", "batches", "size"} <= state.keys():  # they are read later
        raise not_a_state
    try:
        dataset = state["dataset"]
        order = dict(json.loads(state["order"]))
        versions = list(state["dataset_versions"])
    except (KeyError, TypeError, ValueError):
        raise not_a_state from None

    stored = order.pop(_STORED, None)
    saved_classes = order.pop(_CLASSES, None)
    if dataset != data.index.content:
        other_numbers = ""
        if isinstance(saved_classes, list):
            names = [str(name) for name in saved_classes]
            other_numbers = describe_other_numbers(names, data.classes)
        raise ConfigError(
            f"load_state_dict: {_describe_other_dataset(stored, versions, data)}, or start without "
            f"the state. {other_numbers}{_how_to_go_on(state)}"
        )
    return order


def _refuse_checkpoint(checkpoint: Mapping[Any, Any]) -> None:
    """Raises ConfigError if one of the entries of a checkpoint is the state of a loader."""
    for name, entry in checkpoint.items():
        if isinstance(entry, Mapping) and {"version", "epoch", "order"} <= entry.keys():
            raise ConfigError(
                f"load_state_dict: expected a dictionary from state_dict(), got one with {name!r}, "
                f"which has it: pass checkpoint[{name!r}]"
            )


def _check_version(version: object) -> None:
    """Raises ConfigError if a state has another version than this fastpipe saves."""
    if version == STATE_VERSION:
        return
    problem = f"load_state_dict: the state has version {version!r}, this fastpipe reads {STATE_VERSION}"
    if isinstance(version, int) and version > STATE_VERSION:
        raise ConfigError(f"{problem}. A newer fastpipe saved it. Upgrade: {UPGRADE}")
    raise ConfigError(
        f"{problem}. Samples came in another order then: finish the epoch with the release of "
        "fastpipe that saved it, or start without the state"
    )


def _parse_epoch(state: Mapping[str, Any]) -> int:
    return whole("load_state_dict: epoch", state["epoch"], least=0, most=2**63 - 1)


def _describe_change(name: str, before: object, after: object) -> str:
    if name == "samples":
        old = _describe_selection(before)
        new = _describe_selection(after)
        if old == new:
            new = "other ones"
        return f"it was saved with {old}, and this loader reads {new}"
    if name == "global_batch_size":
        return f"batch_size, times the number of ranks, was {before} and is now {after}"
    return f"{name} was {before!r} and is now {after!r}{_OPTIONS.get(name, '')}"


def _describe_selection(selection: object) -> str:
    """The samples that select, only, take and fold leave: "COUNT HASH", or None for all of them."""
    if selection is None:
        return "all samples of the dataset"
    count = str(selection).partition(" ")[0]
    if not count.isdecimal():
        return f"a selection {selection!r}"  # no state that fastpipe saved
    return f"a selection of {format_count(int(count), 'sample')}"


def parse_position(
    state: Mapping[str, Any], order: Mapping[str, Any], recipe: Recipe
) -> Position:
    """Reads a state's position. Raises ConfigError if the recipe has another order of samples."""
    epoch = _parse_epoch(state)
    # The state's order has gone through JSON, which makes lists of tuples. So the current one goes
    # through JSON, too, before they are compared.
    encoded = json.dumps(_order(recipe, epoch))
    current = json.loads(encoded)
    changes = []
    for name in {**current, **order}:
        before = order.get(name)
        after = current.get(name)
        if before != after and name != RANKS:
            changes.append(_describe_change(name, before, after))
    if changes:
        raise ConfigError(
            "load_state_dict: the state does not fit this loader: "
            f"{', '.join(changes)}. {_same_batch_size(order, current, recipe)}, or start without the "
            f"state. {_how_to_go_on(state)}"
        )
    # A state may also be saved after the last batch.
    batches = _parse_batches(state, order, recipe)
    most = num_batches(recipe, epoch)
    batches = whole("load_state_dict: batches", batches, least=0, most=most)
    return Position(epoch, batches)


def _same_batch_size(
    before: Mapping[str, Any], now: Mapping[str, Any], recipe: Recipe
) -> str:
    """How to open the loader, so that it has the order of a state."""
    name = "global_batch_size"
    world_size = recipe.ranks.world_size
    total = before.get(name)
    differs = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    is_size_alone = {*differs} - {RANKS} == {name}
    if not is_size_alone or not isinstance(total, int) or total % world_size:
        return "Open the loader with the same options"
    ranks = format_count(world_size, "rank")
    return f"On {ranks} open the loader with batch_size={total // world_size}"


def _parse_batches(
    state: Mapping[str, Any], order: Mapping[str, Any], recipe: Recipe
) -> Any:
    """How many batches of a state's epoch each rank of the recipe has had."""
    batches = state["batches"]
    if recipe.crop.budget is None:
        return batches
    # With a budget, each rank takes whole batches of the row of all batches.
    world_size = recipe.ranks.world_size
    batches = whole("load_state_dict: batches", batches, least=0, most=2**63 - 1)
    saved_ranks = whole("load_state_dict: ranks", order[RANKS], least=1, most=2**20)
    all_batches = batches * saved_ranks
    if all_batches % world_size:
        raise ConfigError(
            f"load_state_dict: the state was saved after {all_batches} batches of {saved_ranks} "
            f"ranks, and {world_size} ranks cannot have had as many. Resume on {saved_ranks} ranks, "
            f"or on a number of ranks that divides {all_batches}. {_how_to_go_on(state)}"
        )
    return all_batches // world_size


def _order(recipe: Recipe, epoch: int) -> dict[str, Any]:
    """The options that decide which samples are in which global batch."""
    order: dict[str, Any] = {
        "seed": recipe.seed,
        "shuffle": recipe.shuffle,
        "drop_last": recipe.drop_last,
        "global_batch_size": recipe.batch_size * recipe.ranks.world_size,
        "sequences": recipe.sequences,
    }
    if recipe.crop.budget is not None:
        # Batches are the same for any number of ranks, which the position depends on.
        order["global_batch_size"] = None
        order["most_samples"] = recipe.batch_size
        order[RANKS] = recipe.ranks.world_size
    if isinstance(recipe.crop, Buckets):
        order["buckets"] = recipe.crop.identity
    if isinstance(recipe.crop, Patches) and recipe.crop.tokens is not None:
        order["patches"] = recipe.crop.identity
    if recipe.epoch_size is not None:
        order["epoch_size"] = recipe.epoch_size
    # What the dataset and the sampler add: samples that were chosen, mixture, weights, repeats.
    order |= recipe.content.identity
    order |= recipe.sampling
    numbers = []
    for pick in recipe.picks:
        if isinstance(pick, Listed):
            numbers.append(pick.digest(epoch))
    if numbers:
        order["numbers"] = numbers
    return order


class _Stored(NamedTuple):
    """What a state keeps of a stored dataset, for the message if another one is open."""

    lineage: str  # as of Index
    samples: int
    classes: int
    first_classes: Sequence[str]

    @classmethod
    def of(cls, index: Index) -> _Stored:
        first_classes = index.classes[:_MAX_SHOWN_CLASSES]
        return cls(index.lineage, len(index), len(index.classes), first_classes)

    def __str__(self) -> str:
        samples = format_count(self.samples, "sample")
        if not self.classes:
            return samples
        names = ", ".join(repr(name[:20]) for name in self.first_classes)
        if self.classes > len(self.first_classes):
            names += ", ..."
        return f"{samples} of {format_count(self.classes, 'class')}: {names}"


def _how_to_go_on(state: Mapping[str, Any]) -> str:
    epoch = _parse_epoch(state)
    return (
        f"To train on with the dataset and the options of now: loader.set_epoch({epoch}) begins "
        f"epoch {epoch} from its start, and loader.set_epoch({epoch + 1}) the next one"
    )


def _describe_other_dataset(stored: Any, versions: list[int], data: Dataset) -> str:
    """How the dataset of a state differs from the open one: another one, or another version."""
    indexes = [dataset.index for dataset in data.stored]
    state_datasets = _read_stored(stored)
    if state_datasets is None:
        return (
            "the state was saved with another dataset than "
            f"{indexes[0].path}. Open the dataset of the state"
        )
    # A mixture or a concatenation consists of several stored datasets.
    if not len(state_datasets) == len(versions) == len(indexes):
        return (
            f"the state was saved with {format_count(len(state_datasets), 'stored dataset')}, and this loader "
            f"reads {len(indexes)}. Open the dataset of the state"
        )
    # All versions of a dataset have the same lineage.
    for index, state_dataset in zip(indexes, state_datasets, strict=True):
        if state_dataset.lineage != index.lineage:
            return (
                f"the state was saved with another dataset ({state_dataset}); this loader reads "
                f"{index.path} ({_Stored.of(index)}). Open the dataset of the state"
            )

    differences = []
    options = []
    for index, version in zip(indexes, versions, strict=True):
        if index.version == version:
            continue
        differences.append(
            f"the state was saved with version {version} of {index.path}, and this loader reads "
            f"version {index.version}"
        )
        options.append(f"fastpipe.open({str(index.path)!r}, version={version})")
    if not differences:
        index, before = _find_changed(indexes, state_datasets)
        return (
            f"the files of {index.path} have changed since the state was saved, or it is "
            f"another dataset: {before} before, {_Stored.of(index)} now. Open the dataset of the "
            "state"
        )
    return (
        f"{' and '.join(differences)}. Pass {', '.join(options)} to the loader in place of the "
        "path"
    )


def _read_stored(stored: Any) -> list[_Stored] | None:
    try:
        return [_Stored(*values) for values in stored]
    except TypeError:  # somebody has edited the state
        return None


def _find_changed(
    indexes: Sequence[Index], state_datasets: Sequence[_Stored]
) -> tuple[Index, _Stored]:
    """The stored dataset that has most likely changed though lineage and version are the same.

    Returns:
        Its index, and what the state says of it.
    """
    pairs = list(zip(indexes, state_datasets, strict=True))
    for index, before in pairs:
        if str(_Stored.of(index)) != str(before):
            return index, before
    # As many samples and classes as before. Folders that are not packed have no lineage and no
    # versions, so it may be another one.
    for index, before in pairs:
        if not index.lineage:
            return index, before
    return pairs[0]
