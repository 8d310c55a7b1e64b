"""A user's functions and modules -> warnings about random draws in them that no seed decides.

Batches follow from the seed and the epoch, so that another run, and a run that resumes, gets the
same ones. A module of augment= may draw from the global generators, which are seeded around it; a
generator of its own is not. A function of prepare= or size= may draw from neither, since it is
called in another thread, or once an epoch.

Note [draws in code]
Functions are read, and not tried: a call costs time, and may have effects. Their code names what it
draws from: global generators, and generators that are variables around it. Code that also names a
seed is taken to know what it does.
"""

from __future__ import annotations

import dis
import functools
import random
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fastpipe.device.augment import Augment
from fastpipe.device.augment.contents import parts_of
from fastpipe.device.augment.foreign import Foreign
from fastpipe.warnings_once import warn_once

# Code with one of these names sets a seed, or makes a generator with one.
_SEEDING = frozenset(
    [
        "Generator",
        "Random",
        "RandomState",
        "SeedSequence",
        "fork_rng",
        "manual_seed",
        "seed",
        "seeds",
        "set_random_seed",
        "set_state",
        "setstate",
    ]
)
_DRAWS_OF_TORCH = frozenset(
    [
        "bernoulli",
        "multinomial",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
    ]
)
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
# Instructions between a function and its call.
_NOT_SEEN = ("PRECALL", "CACHE", "PUSH_NULL", "COPY_FREE_VARS")
_MAX_DEPTH = 3  # functions that call functions


def warn_of_user_draws(
    prepare: Callable[..., Any] | None,
    size: object,
    augments: Sequence[Augment | None],
) -> None:
    """Names draws that follow neither from the seed nor from the epoch; each function once."""
    if prepare is not None:
        _warn_of_function(
            "prepare",
            prepare,
            'Draw from the entry "seeds", which has a seed for each sample: '
            'numpy.random.default_rng(entries["seeds"])',
        )
    if callable(size):
        _warn_of_function("size", size, "Draw from the epoch: random.Random(epoch)")
    for augment in augments:
        for operation in () if augment is None else augment.all_operations:
            if isinstance(operation, Foreign):
                _warn_of_module(operation.module)


def _warn_of_function(option: str, function: Callable[..., Any], advice: str) -> None:
    draw = next(_draws_of(function), None)
    if draw is None:
        return
    name = getattr(function, "__name__", type(function).__name__)
    _warn(
        f"{option}: {name} draws random numbers ({draw}), which neither seed= nor the epoch "
        f"decides, so runs are not reproducible, and resuming changes them. {advice}"
    )


def _warn_of_module(module: torch.nn.Module) -> None:
    attribute = next(_generators_of(module), None)
    if attribute is None:
        return
    _warn(
        f"augment: {type(module).__name__} draws from a generator of its own ({attribute}), which "
        "neither seed= nor the epoch decides: another run, and one that resumes, gets other images. "
        "Draw from the global generators, as torch.rand and numpy.random.rand do: they are seeded "
        "for each batch"
    )


def _warn(message: str) -> None:
    warn_once(message, message)


def _generators_of(module: torch.nn.Module) -> Iterator[str]:
    """Names the generators that a module holds, or uses, and never seeds."""
    for part in parts_of(module):
        held = []
        for name, value in getattr(part, "__dict__", {}).items():
            if _is_own_generator(value):
                held.append(f"{type(part).__name__}.{name}")
        is_code = callable(part) and not isinstance(part, type)
        if not held and not is_code:
            continue
        functions = list(_functions_of(part))
        if _any_seeds(functions):
            continue
        yield from held
        for function in functions:
            for draw, value in _values_in(function):
                if draw == _NEW_GENERATOR or _is_own_generator(value):
                    yield draw


# NumPy imports its generators when a program first names them, which takes 5 ms. So these are
# functions: most loaders have no function to read.


def _generator_kinds() -> tuple[type, ...]:
    return (
        np.random.Generator,
        np.random.RandomState,
        random.Random,
        torch.Generator,
    )


def _global_generators() -> tuple[object, ...]:
    """Methods of these are random.random, numpy.random.rand and so on."""
    return (
        getattr(random.random, "__self__", None),
        getattr(np.random.rand, "__self__", None),
        torch.default_generator,
    )


def _is_own_generator(value: object) -> bool:
    """Whether a value is a generator that is none of the global ones."""
    if not isinstance(value, _generator_kinds()):
        return False
    return all(value is not generator for generator in _global_generators())


def _any_seeds(functions: Sequence[types.FunctionType]) -> bool:
    """Whether one of some functions sets a seed, or reads the entry of seeds."""
    for function in functions:
        if any(map(_seeds, _codes_in(function.__code__))):
            return True
    return False


def _functions_of(part: object) -> Iterator[types.FunctionType]:
    """The functions that a call of an object may run, of the user's own code."""
    if isinstance(part, types.FunctionType):
        functions: list[object] = [part]
    elif isinstance(part, types.MethodType):
        functions = [part.__func__]
    else:
        functions = []
        for kind in type(part).__mro__:
            for name, value in vars(kind).items():
                if name != "__init__":
                    functions.append(value)
    for function in functions:
        if isinstance(function, types.FunctionType) and _is_of_user(function):
            yield function


def _is_of_user(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    package = function.__module__ or ""
    return "site-packages" not in file and package.partition(".")[0] not in (
        "fastpipe",
        "torch",
    )


def _draws_of(function: object, depth: int = _MAX_DEPTH) -> Iterator[str]:
    """Names the draws of a function, and of the functions that it calls; Note [draws in code]."""
    while isinstance(function, functools.partial):
        function = function.func
    functions = list(_functions_of(function))
    if _any_seeds(functions):
        return
    for called in functions:
        for name, value in _values_in(called):
            if _is_draw(name, value) or _is_own_generator(value):
                yield name
            elif isinstance(value, types.FunctionType) and depth:
                yield from _draws_of(value, depth - 1)


_NEW_GENERATOR = "numpy.random.default_rng()"


def _is_draw(name: str, value: object) -> bool:
    """Whether a value that a function uses draws from a global generator."""
    if name == _NEW_GENERATOR:
        return True
    last_name = name.rpartition(".")[2]
    if last_name in _SEEDING or last_name.startswith(("get", "default_rng")):
        return False
    is_method = isinstance(value, types.BuiltinMethodType | types.MethodType)
    if is_method and isinstance(value.__self__, _generator_kinds()):  # type: ignore[attr-defined]
        return True
    is_of_torch = vars(torch).get(last_name) is value
    return is_of_torch and last_name in _DRAWS_OF_TORCH


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of the functions that are written in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)


def _seeds(code: types.CodeType) -> bool:
    """Whether code sets a seed, or reads the entry of seeds."""
    names = {*code.co_names, *code.co_varnames}
    for constant in code.co_consts:
        if isinstance(constant, str):
            names.add(constant)
    if not _SEEDING.isdisjoint(names):
        return True
    return "default_rng" in names and not any(_makes_new_generator(code))


def _makes_new_generator(code: types.CodeType) -> Iterator[bool]:
    """True for each call of default_rng without a seed."""
    instructions = [
        step for step in dis.get_instructions(code) if step.opname not in _NOT_SEEN
    ]
    for step, following in pairwise(instructions):
        is_call = following.opname.startswith("CALL") and following.arg == 0
        if step.argval == "default_rng" and is_call:
            yield True


def _values_in(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """(name as it is written, value) of what a function takes from around it."""
    # Else a function that names np.random would find nothing there.
    import numpy.random  # noqa: F401

    closure = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    for code in _codes_in(function.__code__):
        for _ in _makes_new_generator(code):
            yield _NEW_GENERATOR, None
        name = ""
        value: object = None
        for step in dis.get_instructions(code):
            if step.opname in _NOT_SEEN:
                continue
            if step.opname in _LOADS:
                name = str(step.argval)
                value = _value_of(name, function, closure)
            elif step.opname in _ATTRIBUTES and isinstance(value, types.ModuleType):
                name = f"{name}.{step.argval}"
                # Not getattr, which may import what is in a module.
                value = vars(value).get(str(step.argval))
            else:
                value = None
                continue
            yield name, value


def _value_of(
    name: str, function: types.FunctionType, closure: dict[str, types.CellType]
) -> object:
    if name not in closure:
        return function.__globals__.get(name)
    try:
        return closure[name].cell_contents
    except ValueError:  # nothing has been assigned yet
        return None
