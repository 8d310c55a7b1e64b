"""`fastpipe preview`: a dataset and an augmentation -> a sheet of the images that the model sees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastpipe.checks import whole
from fastpipe.cli.console import Dataset, check_new, exit_codes, out
from fastpipe.cli.tables import count
from fastpipe.errors import ConfigError

# By the names of Augment's constructors.
_PRESETS = {"none": "imagenet"} | {name: name for name in ("simclr", "randaugment", "trivial_augment")}


def preview(
    data: Dataset,
    augment: Annotated[
        str,
        typer.Option(
            metavar="[none|simclr|randaugment|trivial_augment|FILE.py:NAME]",
            help="A preset of fastpipe.Augment; none: only crop and flip. Or a function in a file of yours that "
            "returns the loader's augment=, for example a list of kornia's modules.",
        ),
    ] = "none",
    out_file: Annotated[Path, typer.Option("--out", metavar="PNG", help="File for the sheet.")] = Path("preview.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    rows: Annotated[int, typer.Option(help="Number of photos.")] = 6,
    size: Annotated[int, typer.Option(help="Size of the crops in pixels, as in training.")] = 160,
    seed: Annotated[int, typer.Option(help="Seed of the loader; also selects the photos.")] = 0,
) -> None:
    """Draw the images that the model sees: photos, their random crops, and their augmentation in eight epochs.

    Each row shows a photo with its crops (yellow: the crop of epoch 0), and its augmented images in epochs 0 to 7.
    fastpipe.preview(loader) draws the same for a loader in your program.
    """
    from fastpipe.loading.factory import loader
    from fastpipe.remote.anywhere import open_anywhere
    from fastpipe.show.preview import MOST_ROWS, VARIANTS
    from fastpipe.show.preview import preview as draw

    with exit_codes():
        whole("--rows", rows, least=1, most=MOST_ROWS)
        whole("--seed", seed, least=0, most=2**64 - 1)
        check_new(out_file, overwrite=overwrite)
        whole("--size", size, least=1, most=2**15)
        made: Any = _augmentation(augment)
        one = min(rows, len(open_anywhere(data)))
        with loader(data, one, size=size, seed=seed, exact=True, augment=made) as photos:
            shown = draw(photos, out_file, rows=rows)
        out.print(f"{count(shown, 'photo')} drawn to {out_file}, each with {VARIANTS} variants")


def _augmentation(name: str) -> object:
    from fastpipe.augment import Augment
    from fastpipe.cli.user_code import made_by

    if name in _PRESETS:
        return getattr(Augment, _PRESETS[name])()
    if ":" not in name:
        raise ConfigError(f"--augment: expected {', '.join(_PRESETS)} or FILE.py:NAME, got {name!r}")
    return made_by("--augment", name)
