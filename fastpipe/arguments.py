"""Arguments that a public function does not have -> an error that names the one to pass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from fastpipe.errors import ConfigError, nearest_name

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def by_single_name(by_names: Mapping[str, str]) -> dict[str, str]:
    """Texts by one name or by several, as "transform transforms" -> the text of each single name.

    {name} in a text becomes the name.
    """
    texts = {}
    for names, text in by_names.items():
        for name in names.split():
            texts[name] = text.replace("{name}", name)
    return texts


def refuse(
    function: str,
    names: Iterable[str],
    known: Collection[str],
    instead: Mapping[str, str] | None = None,
) -> None:
    """Raises for the first name: ConfigError if `instead` says what to write, else TypeError.

    Args:
        function: as the user calls it, such as "fastpipe.loader".
        names: arguments that the function does not have.
        known: the arguments that it has.
        instead: names of arguments elsewhere -> what to write in this function.
    """
    for name in names:
        if instead and name in instead:
            raise ConfigError(f"{function}() has no argument {name}: {instead[name]}")
        near = nearest_name(name, known)
        hint = f"; it has {', '.join(known)}"
        if near is not None:
            hint = f"; did you mean {near}=?"
        raise TypeError(f"{function}() got an unexpected argument {name!r}{hint}")


def refusing_unknown(
    name: str, instead: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function answers an argument that it does not have with the one to pass.

    A type checker sees the arguments of the function itself, and no other ones. The function has
    no positional-only arguments, and no **kwargs.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = dict(inspect.signature(function).parameters)
        # A method gets its object as the first argument, which no message counts or shows.
        self_parameter = parameters.pop("self", None)
        num_self = 0 if self_parameter is None else 1
        kinds = [parameter.kind for parameter in parameters.values()]
        most_positional = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        takes_any_number = inspect.Parameter.VAR_POSITIONAL in kinds

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = [key for key in kwargs if key not in parameters]
            refuse(name, unknown, parameters, instead)
            num_passed = len(args) - num_self
            if num_passed > most_positional and not takes_any_number:
                _refuse_position(
                    name, list(parameters), most_positional, args[num_self:]
                )
            return function(*args, **kwargs)

        return checked

    return decorate


def refusing_unknown_fields(name: str) -> Callable[[C], C]:
    """The same decorator for a dataclass, whose __init__ nobody writes."""

    def decorate(cls: C) -> C:
        cls.__init__ = refusing_unknown(name)(cls.__init__)  # type: ignore[misc]
        return cls

    return decorate


def _refuse_position(
    function: str, known: list[str], most: int, passed: tuple[Any, ...]
) -> None:
    by_name = ""
    if len(known) > most:
        by_name = f"; pass the others by name, such as {known[most]}={passed[most]!r}"
    raise TypeError(
        f"{function}() takes {most} arguments by position, got {len(passed)}{by_name}"
    )
