"""The commands of `fastpipe` -> a Markdown section for each, with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import typer

from fastpipe.tools.cli.commands import app

COMMANDS_HERE = "<!-- the commands -->"


def describe_commands() -> str:
    root = typer.main.get_command(app)
    return "\n".join(line for line in _describe_group(root, "fastpipe"))


def _describe_group(group: click.Group, path: str) -> Iterator[str]:
    context = typer.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from _describe_group(command, f"{path} {name}")
        else:
            yield from _describe_command(command, f"{path} {name}")


def _describe_command(command: click.Command, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## {path}\n"
    yield f"```text\n{path} {usage}\n```\n"
    yield _as_markdown(inspect.cleandoc(command.help or "")) + "\n"
    if command.epilog:
        yield f"```sh\n{command.epilog}\n```\n"
    panels: dict[str, list[click.Parameter]] = {}
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        panel = getattr(parameter, "rich_help_panel", None) or _default_panel(parameter)
        panels.setdefault(panel, []).append(parameter)
    for panel, parameters in panels.items():
        yield f"**{panel}**\n"
        yield from (_describe_parameter(parameter, context) for parameter in parameters)


def _default_panel(parameter: click.Parameter) -> str:
    return "Arguments" if _is_argument(parameter) else "Options"


def _is_argument(parameter: click.Parameter) -> bool:
    # typer has a copy of click, so its classes are others.
    return parameter.param_type_name == "argument"


def _describe_parameter(parameter: click.Parameter, context: click.Context) -> str:
    record = parameter.get_help_record(context)
    if record is None:
        return ""
    names, text = record
    if _is_argument(parameter):
        names = parameter.metavar or str(parameter.name).upper()
    words = " ".join(text.split())
    return f"`{names}`\n: {_escape(words)}\n"


def _as_markdown(text: str) -> str:
    """Paragraphs; those after a line with \\b keep their lines, so they become code."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append("```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```")
        else:
            paragraphs.append(_escape(paragraph))
    return "\n\n".join(paragraphs)


def _escape(text: str) -> str:
    """Leaves names in backticks alone; elsewhere a star or a bracket means itself."""
    pieces = text.split("`")
    for place in range(0, len(pieces), 2):
        for sign in "*_<>[]":
            pieces[place] = pieces[place].replace(sign, "\\" + sign)
    return "`".join(pieces)
