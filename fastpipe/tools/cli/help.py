"""A command -> its --help: options in groups, lines that break at words, examples at the end."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from fastpipe.errors import did_you_mean, nearest_name
from fastpipe.tools.cli.console import option_names

# typer puts a default that is text of ours into brackets: [default: (the only one)].
_DEFAULT_IN_WORDS = re.compile(r"\[default: \((.*)\)\]$", re.DOTALL)
# The message of click or typer about a value that is none of an option's words. Newer versions of
# typer put pydantic's words before it.
_NOT_ONE_OF = re.compile(r"(?:Value error, )?'(.*)' is not one of ('.*')\.", re.DOTALL)

# Names that users try -> the command that does it.
_OTHER_NAMES = {
    "diagnose": "fastpipe doctor --train-script 'python train.py'",
    "check": "fastpipe verify DATA, or fastpipe doctor DATA",
    "info": "fastpipe inspect DATA",
    "show": "fastpipe inspect DATA, or fastpipe preview DATA",
    "ls": "fastpipe inspect DATA, or fastpipe cache ls",
    "versions": "fastpipe log DATA",
    "repair": "fastpipe verify DATA --repair SRC",
    "convert": "fastpipe pack SRC DST",
    "extract": "fastpipe unpack DATA DST",
}

# Options of other programs -> the option that does the same.
_SAME_OPTIONS = {
    "--resize": "--max-size",
    "--size": "--max-size",
    "--image-size": "--max-size",
    "--max-resolution": "--max-size",
}


def _with_similar_word(message: str) -> str:
    """A message of click or typer; if a value is none of an option's words, with the similar one."""
    match = _NOT_ONE_OF.fullmatch(message)
    if match is None:
        return message
    value, shown_words = match.groups()
    words = shown_words.strip("'").split("', '")
    return f"{value!r} is not one of {shown_words}{did_you_mean(value, words)}"


class Commands(TyperGroup):
    """The list of commands, which knows some other names of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _OTHER_NAMES and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Run: {_OTHER_NAMES[args[0]]}")
        return super().resolve_command(ctx, args)


class PlainCommand(TyperCommand):
    """A command whose --help lists options by their `rich_help_panel`, as plain text.

    typer draws these groups with rich: in frames and columns that leave little room for the text on
    80 columns, and at the cost of an import that takes longer than --help itself.

    The epilog has one example on each line.
    """

    def invoke(self, ctx: Any) -> Any:
        option_names.set(
            {parameter.name: parameter.opts[0] for parameter in self.get_params(ctx)}
        )
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        # Too many arguments are refused here, and not by click, which would list all of them.
        ctx.allow_extra_args = True
        try:
            extra = super().parse_args(ctx, args)
            if extra:
                names = "argument" if len(extra) == 1 else f"{len(extra):,} arguments"
                ctx.fail(
                    f"Got {names} too many, {extra[0]!r}. The shell makes many arguments of a pattern "
                    "such as photos/*/*.jpg: pass the folder"
                )
            return extra
        except Exception as error:
            # The error of an unknown option. Its class is click's or, in other versions of typer,
            # typer's own. Both propose all names that look a little like it.
            if hasattr(error, "possibilities") and hasattr(error, "option_name"):
                meant = self._meant_option(ctx, str(error.option_name))
                hint = "" if meant is None else f"; did you mean {meant}?"
                error.possibilities = None
                error.message = f"No such option: {error.option_name}{hint}"  # type: ignore[attr-defined]
            elif hasattr(error, "message"):
                error.message = _with_similar_word(str(error.message))
            raise

    def _meant_option(self, ctx: Any, typed: str) -> str | None:
        """The option that a user means by a name that the command does not have; None: no idea."""
        names = []
        for parameter in self.get_params(ctx):
            for name in parameter.opts:
                if name.startswith("--"):
                    names.append(name)
        same = _SAME_OPTIONS.get(typed)
        if same in names:
            return same
        # As typed, as the end of what was typed (--num-workers), or the most similar one.
        letters = typed.replace("-", "").replace("_", "")
        for name in names:
            if name.replace("-", "") == letters:
                return name
        ends = []
        for name in names:
            if letters.endswith(name.replace("-", "")):
                ends.append(name)
        if ends:
            return max(ends, key=len)
        return nearest_name(typed, names)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # typer writes [OPTIONS] {SRC}; other tools write SRC, and the examples have options last.
        pieces = []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar)
                pieces.append(name if parameter.required else f"[{name}]")
        return [*pieces, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        ungrouped: list[tuple[str, str]] = []
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                # typer's own record also has the type and [required], which the usage line shows.
                groups["Arguments"].append((str(parameter.metavar), parameter.help))
                continue
            names, text = parameter.get_help_record(ctx)
            record = (names, _DEFAULT_IN_WORDS.sub(r"[default: \1]", text))
            group = getattr(parameter, "rich_help_panel", None)
            if group is None:
                ungrouped.append(record)
            else:
                groups.setdefault(group, []).append(record)
        groups["Options"] = ungrouped
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Examples"):
            for example in str(self.epilog).splitlines():
                formatter.write(f"  {example}\n")
