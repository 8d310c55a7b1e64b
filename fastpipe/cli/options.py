"""The parameters of functions, with their docstrings' words -> arguments and options of a command."""

from __future__ import annotations

import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any, get_origin

import typer

from fastpipe.packing.shard.options import CHOICES, DEFAULT_SHARD_BYTES

# How a parameter is called on a command line, if it is not --NAME, and more that only a terminal needs.
_FLAGS = {"fields": "--field", "shuffle": "--no-shuffle", "executor": "--on", "classes": "--class"}
_FLAGS |= {"out_file": "--out", "compare_shuffle": "--shuffle", "shown_fields": "--fields"}
_METAVARS = {
    "image_column": "COLUMN",
    "label_column": "COLUMN",
    "image_root": "FOLDER",
    "split": "NAME",
}
_METAVARS |= {
    "classes_from": "NAMES",
    "separator": "TEXT",
    "encoding": "NAME",
    "background": "COLOR",
}
_METAVARS |= {"max_size": "PX", "tile": "PX", "spool": "DIR", "address": "ADDRESS"}
_MORE: dict[str, dict[str, Any]] = {
    "fields": {
        "metavar": "NAME=COLUMN",
        "help": "Store a column as a field; may be repeated. NAME=COLUMN:KIND also says the kind of the field.",
    },
    "shard_size": {"metavar": "SIZE", "show_default": f"{DEFAULT_SHARD_BYTES // 10**6}MB"},
}


def declared(function: Callable[..., Any], names: Iterable[str]) -> list[inspect.Parameter]:
    """These parameters of a Python function as typer takes them, in its words."""
    parameters, words = inspect.signature(function).parameters, _docstring(function)
    return [_for_typer(parameters[name], _kind(parameters[name]), *words[name]) for name in names]


def takes(
    parameters: Iterable[inspect.Parameter] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command gets what a user says for these parameters in its **options; its own come behind them.

    Its own have their words in its docstring, too, or are Annotated.
    """

    def made(command: Callable[..., None]) -> Callable[..., None]:
        words = _docstring(command)
        own = inspect.signature(command, eval_str=True).parameters.values()
        named = [
            _for_typer(each, each.annotation, *words[each.name])
            for each in own
            if each.kind != each.VAR_KEYWORD
        ]
        signature = inspect.Signature([*parameters, *named])

        @functools.wraps(command)
        def run(**given: Any) -> None:
            if "shuffle" in given:
                given["shuffle"] = not given["shuffle"]
            command(**{name: _plain(value) for name, value in given.items()})

        run.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__doc__ = (inspect.getdoc(command) or "").partition("\n\nArgs:\n")[0]
        return run

    return made


def _for_typer(
    parameter: inspect.Parameter, kind: Any, metavar: str, words: str
) -> inspect.Parameter:
    """As typer takes it: what has no default is an argument. `words` end in "; None: default" if that is to be said."""
    if get_origin(kind) is Annotated:
        return parameter.replace(kind=parameter.KEYWORD_ONLY)
    name, default = parameter.name, parameter.default
    words, _, otherwise = words.removeprefix("False: ").rstrip(".").partition("; None: ")
    words = f"{words[:1].upper()}{words[1:]}."
    if default is parameter.empty:
        how: Any = typer.Argument(metavar=name.upper(), help=words)
    else:
        said: dict[str, Any] = {"help": words, "metavar": metavar or _METAVARS.get(name)}
        how = typer.Option(
            _flag(name), **{**said, "show_default": otherwise or True, **_MORE.get(name, {})}
        )
        if kind is bool:
            default = False  # a flag is there or is not
    return inspect.Parameter(
        name, parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how]
    )


def _kind(parameter: inspect.Parameter) -> Any:
    """The type of what a user says for a parameter of a Python function, for typer."""
    name, default = parameter.name, parameter.default
    if name in CHOICES:
        word: Any = Enum(name, {each.upper(): each for each in CHOICES[name]})  # type: ignore[misc]  # made at run time
        return word | None if default is None else word
    if name == "fields":
        return list[str] | None
    if isinstance(default, bool):
        return bool
    kind = int if parameter.annotation in ("int", "int | None") else str
    return kind | None if default is None else kind


def _plain(value: object) -> object:
    """A user's word as Python takes it; an option that may be repeated and is not there is None."""
    return value.value if isinstance(value, Enum) else None if value == [] else value


def _docstring(function: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """What a docstring says of each parameter: in brackets, if anything, and in one line; nothing with python -OO."""
    found = re.search(
        r"^Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(function) or "", re.DOTALL | re.MULTILINE
    )
    entries = re.findall(
        r"^    (\w+)(?: \((.*?)\))?: (.*(?:\n     .*)*)", found[1] if found else "", re.MULTILINE
    )
    return defaultdict(
        lambda: ("", ""),
        {name: (bracket, _for_terminal(" ".join(text.split()))) for name, bracket, text in entries},
    )


def _for_terminal(text: str) -> str:
    """Python's words as those of a command line: `max_size` is --max-size, `dst` is DST, "fail" is fail."""
    text = re.sub(r"`(src|dst)`", lambda found: found[1].upper(), text)
    text = re.sub(r"`(\w+)`", lambda found: _flag(found[1]), text)
    return re.sub(r'(?<!\[)"(\w+)"', r"\1", text)


def _flag(name: str) -> str:
    return _FLAGS.get(name) or "--" + name.replace("_", "-")
