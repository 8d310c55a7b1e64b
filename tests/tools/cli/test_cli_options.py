"""The command line has the options of the Python functions, with the same defaults, and passes them on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, get_args, get_type_hints

import pytest
import typer.main
from support.checkout import ROOT
from support.programs.cli_run import fp, succeeded

import fastpipe
from fastpipe.errors import size_bytes
from fastpipe.packing.api import ADD_OPTIONS
from fastpipe.packing.shard.options import CHOICES
from fastpipe.tools.cli import growing
from fastpipe.tools.cli import pack as pack_command
from fastpipe.tools.cli import verify as verify_command
from fastpipe.tools.cli.commands import app
from fastpipe.tools.verify.verification import verify

# Parameters whose values a command line cannot say, or that only a program needs.
PYTHON_ONLY = {"storage_options", "read_timeout", "on_progress"}
# Of the command line alone.
CLI_ONLY = {"as_json"}
COMMANDS = (
    *("pack", "add", "remove", "log", "bench", "inspect", "verify", "unpack", "preview", "docs"),
    *("doctor", "demo"),
)
GROUPS = ("Source", "Labels and fields", "Images", "Output", "Work", "Options")


def parameters_of(command: str) -> dict[str, Any]:
    """The parameters of a command as click knows them, by the name in Python."""
    group: Any = typer.main.get_command(app)
    return {parameter.name: parameter for parameter in group.commands[command].params}


def python_defaults(command: str) -> dict[str, Any]:
    """The parameters of the Python function that are options of its command -> their defaults."""
    functions: dict[str, Callable[..., Any]] = {
        "pack": fastpipe.pack,
        "add": fastpipe.add,
        "remove": fastpipe.remove,
        "verify": verify,
    }
    signature = inspect.signature(functions[command]).parameters
    defaults = {name: parameter.default for name, parameter in signature.items()}
    if command == "add":
        # `fastpipe.add` has the rest of its options as those of `fastpipe.pack`.
        del defaults["options"]
        pack_defaults = python_defaults("pack")
        defaults |= {name: pack_defaults[name] for name in set(ADD_OPTIONS) - PYTHON_ONLY}
    if command == "verify":
        del defaults["path"]  # DATA
    return {name: default for name, default in defaults.items() if name not in PYTHON_ONLY}


@pytest.mark.parametrize("command", ["pack", "add", "remove", "verify"])
def test_a_command_has_the_options_of_its_function(command: str) -> None:
    expected = python_defaults(command)
    parameters = parameters_of(command)
    others = {"verify": {"data", "repair", "image_root"}}.get(command, set())
    renamed = {"no_shuffle": "shuffle"}
    assert {renamed.get(name, name) for name in parameters} == expected.keys() | CLI_ONLY | others
    for name, default in expected.items():
        if name == "shuffle":
            assert (default, parameters["no_shuffle"].default) == (True, False)
        elif default is inspect.Parameter.empty:
            assert parameters[name].required, name
        elif name == "shard_size":
            assert size_bytes(name, parameters[name].default) == default
        else:
            assert parameters[name].default == default, name


@pytest.mark.parametrize("function", [pack_command.pack, growing.add, verify_command.verify])
def test_the_words_to_choose_from_are_those_of_the_function(function: Callable[..., None]) -> None:
    compared = 0
    for name, hint in get_type_hints(function).items():
        kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
        for kind in kinds:
            if issubclass(kind, StrEnum):
                assert tuple(kind) == CHOICES[name], name
                compared += 1
    assert compared == sum(name in CHOICES for name in inspect.signature(function).parameters)


def another_value(parameter: Any) -> tuple[list[str], Any]:
    """Words that give a parameter a value, and the value that the function gets."""
    kind = next(
        kind
        for kind in (*get_args(parameter), parameter)
        if isinstance(kind, type) and kind is not type(None)
    )
    if issubclass(kind, StrEnum):
        return [list(kind)[-1].value], list(kind)[-1]
    return (["7"], 7) if kind is int else (["text"], "text")


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [("pack", pack_command, "run_pack"), ("add", growing, "run_add")],
)
def test_each_option_reaches_the_function(
    monkeypatch: pytest.MonkeyPatch, command: str, module: Any, function: str
) -> None:
    calls: list[dict[str, Any]] = []

    def record(src: str, dst: str, **given: Any) -> None:
        calls.append({"src": src, "dst": dst, **given})
        raise KeyboardInterrupt

    monkeypatch.setattr(module, function, record)
    hints = get_type_hints(getattr(module, command))
    words = [command, "source", "destination"]
    expected: dict[str, Any] = {"src": "source", "dst": "destination"}
    for name, parameter in parameters_of(command).items():
        if name in expected or name in CLI_ONLY:
            continue
        words.append(parameter.opts[0])
        if parameter.is_flag:
            expected[name] = True
        elif parameter.multiple:
            words += ["a=b", parameter.opts[0], "c=d"]
            expected[name] = ["a=b", "c=d"]
        else:
            values, expected[name] = another_value(hints[name])
            words += values
    if expected.pop("no_shuffle", False):
        expected["shuffle"] = False
    assert fp(*words).exit_code == 130
    del calls[0]["on_progress"]
    assert calls == [expected]


def options_in(command: str) -> set[str]:
    """The options that --help lists."""
    return set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", succeeded(command, "--help"), re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_only_options_that_are_there(command: str) -> None:
    text = succeeded(command, "--help")
    text = text.replace("--lr", "")  # an option of the training command in doctor's example
    assert set(re.findall(r"--[a-z][a-z-]*", text)) == options_in(command)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_plain_and_fits(
    monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = succeeded(command, "-h")
    assert text == succeeded(command, "--help")
    assert text.isascii()
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= columns
    # typer would write [OPTIONS] first, braces around arguments, and defaults in words in brackets.
    assert re.fullmatch(rf"Usage: .*{command}( [A-Z]+| \[[A-Z]+\])* \[OPTIONS\]", lines[0])
    assert "[default: (" not in " ".join(text.split())
    assert "-h, --help" in text
    examples = lines[lines.index("Examples:") + 1 :]
    assert examples
    assert all(line.startswith(f"  fastpipe {command}") for line in examples)


def test_options_of_pack_stand_in_groups() -> None:
    text = succeeded("pack", "--help")
    positions = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert positions == sorted(positions)
    words = " ".join(text.split())
    assert "--workers N The number of threads. [default: the CPUs granted to this process]" in words
    assert "--max-scans N Reject progressive JPEGs with more scans. [default: 256]" in words
    assert "--on-error <report|fail> If a file cannot be packed: report lists it" in words


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for group in ((), ("cache",)):
        text = succeeded(*group, "--help")
        assert "..." not in text.replace("[ARGS]...", "")
    assert set(COMMANDS) <= set(re.findall(r"^  ([a-z]+)  ", succeeded("--help"), re.MULTILINE))


def test_tables_of_options_in_the_docs_name_only_options_that_are_there() -> None:
    for page, command, known in (
        ("packing.md", "pack", "--max-scans"),
        ("verifying.md", "verify", "--quick"),
    ):
        text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
        (table,) = re.findall(r"\| option \| effect \|\n((?:\|.*\n)+)", text)
        names = set(re.findall(r"--[a-z][a-z-]*", table))
        assert names <= options_in(command)
        assert known in names


def test_every_option_of_pack_is_explained_in_python() -> None:
    for name in inspect.signature(fastpipe.pack).parameters:
        assert re.search(rf"^        {name}: ", fastpipe.pack.__doc__ or "", re.MULTILINE), name
