"""The parameters of a Python function, with its docstring's words -> options of a command, which say the same."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any

import typer

from fastpipe.packing.shard.options import CHOICES, DEFAULT_SHARD_BYTES

# How a parameter is called on a command line, if it is not --NAME, and more that only a terminal needs.
_FLAGS = {"fields": "--field", "shuffle": "--no-shuffle", "executor": "--on"}
_MORE: dict[str, dict[str, Any]] = {
    "image_column": {"metavar": "COLUMN"},
    "label_column": {"metavar": "COLUMN"},
    "fields": {
        "metavar": "NAME=COLUMN",
        "help": "Store a column as a field; may be repeated. NAME=COLUMN:KIND also says the kind of the field.",
    },
    "image_root": {"metavar": "FOLDER"},
    "split": {"metavar": "NAME"},
    "max_size": {"metavar": "PX"},
    "tile": {"metavar": "PX"},
    "shard_size": {"metavar": "SIZE", "show_default": f"{DEFAULT_SHARD_BYTES // 10**6}MB"},
    "spool": {"metavar": "DIR"},
    "address": {"metavar": "ADDRESS"},
}


def declared(function: Callable[..., Any], names: Iterable[str]) -> list[inspect.Parameter]:
    """These parameters of a function as typer takes them: those without a default are arguments."""
    parameters, words = inspect.signature(function).parameters, _docstring(function)
    return [_for_typer(parameters[name], words.get(name, "")) for name in names]


def takes(parameters: Iterable[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command gets what a user says for these parameters in its **options; its own come behind them."""

    def made(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        named = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.kind is not each.VAR_KEYWORD]
        signature = inspect.Signature([*parameters, *named])

        @functools.wraps(command)
        def run(**given: Any) -> None:
            if "shuffle" in given:
                given["shuffle"] = not given["shuffle"]
            command(**{name: _plain(value) for name, value in given.items()})

        run.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    return made


def _for_typer(parameter: inspect.Parameter, words: str) -> inspect.Parameter:
    name, default = parameter.name, parameter.default
    if default is parameter.empty:
        kind: Any = str
        how: Any = typer.Argument(metavar=name.upper(), help=_sentence(words))
    else:
        kind = _kind(parameter)
        words, _, otherwise = words.removeprefix("False: ").partition("; None: ")
        shown = _for_terminal(otherwise).rstrip(".") or True
        how = typer.Option(_flag(name), **{"help": _sentence(words), "show_default": shown, **_MORE.get(name, {})})
        if kind is bool:
            default = False  # a flag is there or is not
    return inspect.Parameter(name, parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how])


def _kind(parameter: inspect.Parameter) -> Any:
    """The type of an option's value for typer."""
    name, default = parameter.name, parameter.default
    if name in CHOICES:
        return Enum(name, {each.upper(): each for each in CHOICES[name]})
    if name == "fields":
        return list[str] | None
    if isinstance(default, bool):
        return bool
    kind = int if parameter.annotation in ("int", "int | None") else str
    return kind | None if default is None else kind


def _plain(value: object) -> object:
    """A user's word as Python takes it; an option that may be repeated and is not there is None."""
    return value.value if isinstance(value, Enum) else None if value == [] else value


def _docstring(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each parameter, in one line; nothing with python -OO."""
    found = re.search(r"^Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(function) or "", re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", found[1] if found else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _for_terminal(text: str) -> str:
    """Python's words as those of a command line: `max_size` is --max-size, `dst` is DST, "fail" is fail."""
    text = re.sub(r"`(src|dst)`", lambda found: found[1].upper(), text)
    text = re.sub(r"`(\w+)`", lambda found: _flag(found[1]), text)
    return re.sub(r'"(\w+)"', r"\1", text)


def _sentence(text: str) -> str:
    text = _for_terminal(text)
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _flag(name: str) -> str:
    return _FLAGS.get(name) or "--" + name.replace("_", "-")
