"""`fastpipe preview`: a dataset and an augmentation -> a sheet of images as the model sees them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastpipe.errors import ConfigError, did_you_mean, format_count, whole
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import check_new, exit_codes, out, print_problem

if TYPE_CHECKING:
    from fastpipe.dataset.dataset import Dataset

# The values of --augment -> constructors of Augment.
_PRESETS = {
    "none": "imagenet",
    "simclr": "simclr",
    "randaugment": "randaugment",
    "trivial_augment": "trivial_augment",
}


def preview(
    data: options.Data,
    augment: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A preset of fastpipe.Augment: simclr, randaugment or trivial_augment; none: only "
            "crop and flip. Or FILE.py:NAME: a function in a file of yours that returns the "
            "loader's augment=, for example a list of kornia's modules.",
        ),
    ] = "none",
    out_file: Annotated[
        Path, typer.Option("--out", metavar="PNG", help="The file of the sheet.")
    ] = Path("preview.png"),
    overwrite: options.Overwrite = False,
    rows: Annotated[int, typer.Option(metavar="N", help="The number of images.")] = 6,
    size: Annotated[
        int,
        typer.Option(
            metavar="PX", help="The size of the crops in pixels, as in training."
        ),
    ] = 160,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="The loader's seed, which also selects the images."
        ),
    ] = 0,
    shown_fields: Annotated[
        str | None,
        typer.Option(
            "--fields",
            metavar="NAME,...",
            help="Fields to show, or none: boxes, masks and points are drawn, texts and numbers "
            "stand below.",
            show_default="all that the augmentation allows",
        ),
    ] = None,
) -> None:
    """Draw images as the model sees them, cropped and augmented.

    Each row shows an image with its crops (yellow: the crop of epoch 0), and its augmented images
    in epochs 0 to 7. Fields are drawn on the image and on the crops. fastpipe.preview(loader) draws
    the same for your own loader.
    """
    # These import torch, which takes seconds.
    from fastpipe.dataset.format.pixel_form import NO_FORM
    from fastpipe.dataset.opening import open
    from fastpipe.loading.factory import loader
    from fastpipe.loading.mirrored_sides import leave_points_unswapped
    from fastpipe.plan.maps import Maps
    from fastpipe.plan.placed import Points
    from fastpipe.tools.show.preview import MOST_ROWS, VARIANTS
    from fastpipe.tools.show.preview import preview as draw

    with exit_codes():
        whole("--rows", rows, least=1, most=MOST_ROWS)
        whole("--seed", seed, least=0, most=2**64 - 1)
        check_new(out_file, overwrite=overwrite)
        whole("--size", size, least=1, most=2**15)
        augmentation = _load_augmentation(augment)
        dataset = open(data)
        hidden: list[str] = []
        if shown_fields is None:
            names, hidden = _showable_fields(dataset, augmentation)
        else:
            names = _parse_fields(dataset, shown_fields)

        loader_fields: list[Any] = ["image", "label"]
        if NO_FORM in dataset.index.form_counts:
            has_image = dataset["width"] > 0
            if has_image.any():
                dataset = dataset.select(has_image)
            else:
                # No sample has an image: their lists of pictures are drawn.
                loader_fields = ["label"]
                augmentation = None
        for name in names:
            if dataset.fields[name].kind == "keypoints":
                # Without pairs to swap in mirrored images, a point keeps its colour.
                loader_fields.append(Points(name, flip_pairs=[]))
                leave_points_unswapped(dataset, name)
            elif dataset.fields[name].kind == "map":
                # Nor does a direction turn in a mirrored image.
                loader_fields.append(Maps(name, flip_signs=()))
            else:
                loader_fields.append(name)
        with loader(
            dataset,
            min(rows, len(dataset)),
            size=size,
            seed=seed,
            exact=True,
            augment=augmentation,
            fields=loader_fields if names else None,
        ) as photo_loader:
            num_photos = draw(photo_loader, out_file, rows=rows, overwrite=True).photos

        if "image" in loader_fields:
            out.print(
                f"{format_count(num_photos, 'image')} drawn to {out_file}, each with {VARIANTS} variants"
            )
        else:
            out.print(
                f"the images of {format_count(num_photos, 'sample')} drawn to {out_file}"
            )
        if hidden:
            print_problem(
                f"without {', '.join(hidden)}: the augmentation may move pixels, or mixes images"
            )


def _showable_fields(
    dataset: Dataset, augmentation: Any
) -> tuple[list[str], list[str]]:
    """The fields that can be shown with this augmentation, and those that cannot."""
    from fastpipe.dataset.format.fields import SPATIAL_KINDS
    from fastpipe.device.augment import as_augment
    from fastpipe.tools.show.marks import visible

    augment = as_augment(augmentation)
    # Kinds whose values would not lie where the augmented pixels are.
    misplaced: set[str] = set()
    if augment.moving_parts or augment.mixers:
        misplaced = set(SPATIAL_KINDS)
    if not augment.moving_parts:
        misplaced -= augment.pasted
    names = []
    hidden = []
    for name in visible(dataset, tuple(dataset.fields)):
        if dataset.fields[name].kind in misplaced:
            hidden.append(name)
        else:
            names.append(name)
    return names, hidden


def _parse_fields(dataset: Dataset, text: str) -> list[str]:
    """The fields of --fields, which must be of kinds that can be shown."""
    from fastpipe.tools.show.marks import VISIBLE, visible

    if text == "none":
        return []
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name in visible(dataset, (name,)):
            continue
        problem = "there is no field of this name"
        if name in dataset.fields:
            problem = f"it is of kind {dataset.fields[name].kind}"
        showable = ",".join(visible(dataset, tuple(dataset.fields))) or "none"
        raise ConfigError(
            f"--fields: expected fields of {dataset.path} of the kinds {', '.join(VISIBLE)}, got "
            f"{name!r}: {problem}. Pass --fields {showable}"
        )
    return names


def _load_augmentation(text: str) -> Any:
    """A preset, or the result of a function in a file of the user."""
    from fastpipe.device.augment import Augment

    if text in _PRESETS:
        return getattr(Augment, _PRESETS[text])()
    if ":" not in text:
        raise ConfigError(
            f"--augment: expected {', '.join(_PRESETS)} or FILE.py:NAME, got {text!r}"
            f"{did_you_mean(text, _PRESETS)}"
        )
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py":
        raise ConfigError(
            f"--augment: expected FILE.py:NAME, for example my_augment.py:build, got {text!r}"
        )
    if not path.is_file():
        raise ConfigError(
            f"--augment: there is no file {file}; give the path from the current folder"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # every FILE.py has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file can import modules that lie beside it.
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            raise ConfigError(
                f"--augment: {file} has no {name!r}; define a function {name}() that returns it"
            )
        value = getattr(module, name)
        # A module of torch can be called, too, but it is the augmentation itself.
        if callable(value) and not hasattr(value, "forward"):
            return value()
        return value
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"--augment: {text} raised {type(error).__name__}: {error}; correct it there"
        ) from error
    finally:
        sys.path.remove(folder)
