"""What a user sees while typing: completion, the last line of a notebook's cell, type checkers."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkout import ROOT

import fastpipe
from fastpipe.dataset.format.fields import Field
from fastpipe.packing.growth.grow import Grown

PAGES = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
# The functions that create objects of a class: their parameters are attributes of it.
CREATED_BY: dict[str, tuple[Callable[..., Any], ...]] = {"Loader": (fastpipe.loader,)}
# Members that docs/reference/api shows with their own docstrings, and no page names otherwise.
MEMBERS_OF_API_PAGES = {
    "Dataset": {"transform", "version"},
    "Stats": {"as_dict", "since", "slowest"},
    "Writer": {"finished"},
}


def test_completion_shows_the_public_names_of_the_package() -> None:
    assert dir(fastpipe) == fastpipe.__all__


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def documented(kind: type) -> set[str]:
    """Names that the docs have of a class: parameters, entries of its docstring, `.name` in the pages."""
    names: set[str] = set(getattr(kind, "__dataclass_fields__", ()))
    for function in (kind, *CREATED_BY.get(kind.__name__, ())):
        names.update(inspect.signature(function).parameters)
    for base in kind.__mro__:
        if not base.__module__.startswith("fastpipe"):
            names.update(vars(base))
            names.update(vars(base).get("__annotations__", ()))
            continue
        text = inspect.getdoc(base) or ""
        for entry in re.findall(r"^ +([\w, ]+):", text, re.MULTILINE):
            names.update(entry.split(", "))
        names.update(re.findall(r"`(\w+)`", text))
    names.update(re.findall(r"\.(\w+)", PAGES))
    return names | MEMBERS_OF_API_PAGES.get(kind.__name__, set())


def public_classes() -> dict[str, type]:
    classes: dict[str, type] = {}
    for module in (fastpipe, fastpipe.wds, importlib.import_module("fastpipe.timm")):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                classes[name] = thing
    return classes


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_completion_of_a_class_shows_documented_names_alone(name: str) -> None:
    kind = public_classes()[name]
    assert public(kind) - documented(kind) == set()
    # rlcompleter goes through the classes of an object, base by base.
    for base in kind.__mro__:
        if base.__module__.startswith("fastpipe"):
            assert public(base) - documented(kind) == set(), base


def test_completion_of_an_object_shows_documented_names_alone(flat: Path) -> None:
    objects: list[object] = [fastpipe.open(flat), fastpipe.Augment(), fastpipe.wds.crop()]
    objects += [fastpipe.Patches(), fastpipe.wds.batch_crop()]
    objects += [fastpipe.RandomCrop(), fastpipe.Grid(), fastpipe.Buckets(), fastpipe.Native()]
    for thing in objects:
        kind = type(thing)
        of_modules = set(dir(torch.nn.Module())) if isinstance(thing, torch.nn.Module) else set()
        assert public(thing) - documented(kind) - of_modules == set(), kind
    with fastpipe.loader(flat, 8) as loader:
        assert public(loader) - documented(fastpipe.Loader) == set()
    crop = fastpipe.RandomResizedCrop()
    assert public(crop) == {"antialias", "interpolation", "mask_fill", "ratio", "scale"}


def test_completion_shows_what_people_need(flat: Path) -> None:
    data = fastpipe.open(flat)
    assert {"classes", "select", "with_transform", "fold", "fields"} <= public(data)
    with fastpipe.loader(data, 8) as loader:
        names = public(loader)
        batch = next(iter(loader))
    assert {"stats", "state_dict", "set_epoch", "dataset", "close", "view_seeds"} <= names
    assert {"mean", "std", "simclr", "forward", "plan", "carry_out"} <= public(fastpipe.Augment())
    assert public(batch) == {"images", "labels", "ids", "valid", "epoch", "count", "index"}
    assert not {"_ids", "_valid", "_asdict", "_fields", "_make"} & set(dir(batch))
    rebuilt = type(batch)(*batch)
    assert public(rebuilt) == {"images", "labels", "count", "index"}


def test_a_batch_of_buckets_shows_its_sizes(flat: Path) -> None:
    with fastpipe.loader(flat, 8, size="bucket") as loader:
        assert {"image_sizes", "pixel_mask"} <= public(next(iter(loader)))


def test_completion_of_modules_shows_the_public_names() -> None:
    for name in ("wds", "timm", "prometheus"):
        module = importlib.import_module(f"fastpipe.{name}")
        assert dir(module) == module.__all__


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_what_completion_hides_exists(name: str) -> None:
    """A renamed attribute would be shown again."""
    for base in public_classes()[name].__mro__:
        for hidden in vars(base).get("_NOT_PUBLIC", ()):
            is_set = f"self.{hidden} = " in inspect.getsource(base)  # by the constructor
            assert is_set or hidden in vars(base), base


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


def test_users_classes_may_have_abstract_bases() -> None:
    class Sized(fastpipe.Augment, Iterable[Any]):
        """A class as a project with interfaces of its own has it."""

    assert "moments" not in dir(Sized)
    assert issubclass(Sized, Iterable)
