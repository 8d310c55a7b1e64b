"""All commands -> the `fastpipe` command. A command imports what needs torch when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

import fastpipe
from fastpipe.tools.cli import (
    bench,
    cache,
    demo,
    docs,
    doctor,
    growing,
    inspect,
    pack,
    preview,
    unpack,
    verify,
)
from fastpipe.tools.cli.console import out
from fastpipe.tools.cli.help import Commands, PlainCommand

app = typer.Typer(
    cls=Commands,
    help="An input pipeline for training image models with PyTorch: pack images once, load them "
    "fast.",
    epilog="fastpipe COMMAND --help shows the options of a command, and examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain text: see help.py.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)


def _add_command(function: Callable[..., Any], *examples: str) -> None:
    app.command(cls=PlainCommand, epilog="\n".join(examples))(function)


_add_command(
    pack.pack,
    "fastpipe pack photos data/train                  # photos/cat/1.jpg",
    "fastpipe pack photos data/train --max-size 500   # smaller images",
    "fastpipe pack coco data/val --split val2017      # with boxes",
    "fastpipe pack s3://bucket/photos s3://bucket/train",
    "fastpipe pack train.csv data/train --image-root photos --label-column species",
)
_add_command(
    growing.add,
    "fastpipe add photos data/train                     # only what is new",
    "fastpipe add photos/june data/train --by content   # no renamed copies",
)
_add_command(
    growing.remove,
    "fastpipe remove data/train --keys bad.txt",
    "fastpipe remove data/train --class blurred",
    "fastpipe remove data/train --where 'width < 64' --where 'class == cat'",
)
_add_command(growing.log, "fastpipe log data/train")
_add_command(
    bench.bench,
    "fastpipe bench data/train",
    "fastpipe bench data/train --against torch --workers 8",
)
_add_command(
    inspect.inspect,
    "fastpipe inspect data/train",
    "fastpipe inspect data/train --no-sheet --shuffle --batch-size 1024",
    "fastpipe inspect data/train --duplicates --against data/val",
)
_add_command(
    verify.verify,
    "fastpipe verify data/train",
    "fastpipe verify data/train --quick",
    "fastpipe verify data/train --repair photos",
)
_add_command(
    unpack.unpack,
    "fastpipe unpack data/train photos-again",
    "fastpipe unpack data/train shards --format webdataset",
)
_add_command(
    preview.preview,
    "fastpipe preview data/train --augment randaugment --size 224",
    "fastpipe preview data/train --augment my_augment.py:build --out sheet.png",
)
_add_command(
    doctor.doctor,
    "fastpipe doctor",
    "fastpipe doctor data/train",
    "fastpipe doctor --train-script 'python train.py --lr 1'",
)
_add_command(demo.demo, "fastpipe demo", "fastpipe demo try-it --photos 100")
_add_command(
    docs.docs, "fastpipe docs", "fastpipe docs tutorial", "fastpipe docs large-images"
)
app.add_typer(cache.app, name="cache")


def _print_version(value: bool) -> None:
    if value:
        out.print(f"fastpipe {fastpipe.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    pass
