"""All commands -> the `fastpipe` command. A command imports what needs torch when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

import fastpipe
from fastpipe.cli import bench, cache, demo, doctor, growing, inspect, pack, preview, verify
from fastpipe.cli.console import out

app = typer.Typer(
    help="An input pipeline for training image models with PyTorch: pack photos once, load them fast.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
for _command in (
    pack.pack,
    growing.add,
    growing.remove,
    growing.log,
    bench.bench,
    inspect.inspect,
    verify.verify,
    pack.unpack,
    preview.preview,
    doctor.doctor,
    demo.demo,
):
    app.command()(_command)
app.add_typer(cache.app, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"fastpipe {fastpipe.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass
