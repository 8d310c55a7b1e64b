"""A command -> its --help: options in groups, lines that break at words, examples at the end."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class PlainCommand(TyperCommand):
    """A command whose --help lists options by their `rich_help_panel`, as plain text.

    typer draws these groups with rich: in frames and columns that leave little room for the text on
    80 columns, and at the cost of an import that takes longer than --help itself.

    The epilog has one example on each line.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # typer writes {SRC}; other tools write SRC.
        pieces = ["[OPTIONS]"]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar)
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        ungrouped: list[tuple[str, str]] = []
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                # typer's own record also has the type and [required], which the usage line shows.
                groups["Arguments"].append((str(parameter.metavar), parameter.help))
                continue
            record = parameter.get_help_record(ctx)
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
