"""What a user sees while typing: completion, the last line of a notebook's cell, type checkers."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

import fastpipe
from fastpipe.dataset.format.fields import Field
from fastpipe.packing.growth.grow import Grown


def test_completion_shows_the_public_names_of_the_package() -> None:
    assert dir(fastpipe) == fastpipe.__all__


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_completion_shows_no_internals(flat: Path) -> None:
    data = fastpipe.open(flat)
    names = public(data)
    assert {"classes", "select", "with_transform", "fold", "fields"} <= names
    assert not {"by_id", "content", "index", "stored", "column"} & names

    with fastpipe.loader(data, 8) as loader:
        names = public(loader)
    assert {"stats", "state_dict", "set_epoch", "dataset", "close", "view_seeds"} <= names
    assert not {"maker", "recipe", "stream", "collate_fn", "worker_init_fn"} & names

    names = public(fastpipe.Augment())
    assert {"mean", "std", "simclr", "forward", "plan", "carry_out"} <= names
    assert not {"mixers", "in_pairs", "move_places", "label_options"} & names


def test_what_completion_hides_exists(flat: Path) -> None:
    """A renamed attribute would be shown again."""
    things: dict[str, object] = {"device.augment.module": fastpipe.Augment()}
    things["dataset.dataset"] = fastpipe.open(flat)
    with fastpipe.loader(flat, 8) as loader:
        things["loading.loader"] = loader
        for module, thing in things.items():
            hidden = importlib.import_module(f"fastpipe.{module}")._NOT_PUBLIC
            # dir() has properties that raise; hasattr() has the submodules of a torch module.
            known = {name for name in hidden if hasattr(thing, name)}
            assert hidden - known - set(object.__dir__(thing)) == set(), module


def test_an_unknown_attribute_is_not_answered_with_an_internal_one(flat: Path) -> None:
    data = fastpipe.open(flat)
    with pytest.raises(AttributeError, match=r"has no 'stord'$"):
        data.stord  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'classes'"):
        data.clases  # noqa: B018


def test_a_field_and_the_result_of_add_are_shown_in_one_line() -> None:
    field = Field(
        "boxes", "boxes", names=tuple(map(str, range(100))), files={"boxes.npy": "0" * 16}
    )
    assert repr(field) == "Field('boxes', 'boxes', names=('0', '1', '2', '3', '4', '5', ...))"
    grown = Grown({"shards": [{"name": "shard"}] * 100}, added=3)
    assert "shard" not in repr(grown)
    assert "added=3" in repr(grown)


def test_the_arguments_of_loader_are_those_in_its_signature(flat: Path) -> None:
    """So a type checker finds a misspelt one; at run time the message names the right one."""
    parameters = inspect.signature(fastpipe.loader).parameters
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    with pytest.raises(TypeError, match=r"'batchsize'; did you mean batch_size=\?"):
        fastpipe.loader(flat, batchsize=8)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"pass the others by name, such as size=224"):
        fastpipe.loader(flat, 8, 224)  # type: ignore[misc]
