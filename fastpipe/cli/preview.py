"""`fastpipe preview`: a dataset and an augmentation -> a sheet of the images that the model sees."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.checks import whole
from fastpipe.cli.console import Dataset, check_new, exit_codes, out
from fastpipe.cli.tables import count

_MOST_ROWS = 100


class Preset(StrEnum):
    """Presets of fastpipe.Augment, by the names of their constructors."""

    NONE = "none"
    SIMCLR = "simclr"
    RANDAUGMENT = "randaugment"
    TRIVIAL_AUGMENT = "trivial_augment"


def preview(
    data: Dataset,
    augment: Annotated[
        Preset, typer.Option(help="Preset of fastpipe.Augment; none: only crop and flip.")
    ] = Preset.NONE,
    out_file: Annotated[Path, typer.Option("--out", metavar="PNG", help="File for the sheet.")] = Path("preview.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    rows: Annotated[int, typer.Option(help="Number of photos.")] = 6,
    seed: Annotated[int, typer.Option(help="Seed of the loader; also selects the photos.")] = 0,
) -> None:
    """Draw the images that the model sees: photos, their random crops, and their augmentation in eight epochs.

    Each row shows a photo with its crops (yellow: the crop of epoch 0), and its augmented images in epochs 0 to 7.
    """
    from fastpipe.show.preview import VARIANTS, write_preview

    with exit_codes():
        whole("--rows", rows, least=1, most=_MOST_ROWS)
        whole("--seed", seed, least=0, most=2**64 - 1)
        check_new(out_file, overwrite=overwrite)
        shown = write_preview(data, out_file, preset=augment.value, rows=rows, seed=seed)
        out.print(f"{count(shown, 'photo')} drawn to {out_file}, each with {VARIANTS} variants")
