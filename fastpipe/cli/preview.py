"""`fastpipe preview`: a dataset and an augmentation -> a sheet of the images that the model sees."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from fastpipe.cli.console import Dataset, check_new, err, exit_codes, out
from fastpipe.cli.options import takes
from fastpipe.cli.tables import count
from fastpipe.errors import ConfigError, whole

# By the names of Augment's constructors.
_PRESETS = {"none": "imagenet"} | {
    name: name for name in ("simclr", "randaugment", "trivial_augment")
}


@takes()
def preview(
    data: Dataset,
    augment: str = "none",
    out_file: Path = Path("preview.png"),
    overwrite: bool = False,
    rows: int = 6,
    size: int = 160,
    seed: int = 0,
    shown_fields: str | None = None,
) -> None:
    """Draw the images that the model sees: photos, their random crops, and their augmentation in eight epochs.

    Each row shows a photo with its crops (yellow: the crop of epoch 0), and its augmented images in epochs 0 to 7.
    Fields are drawn on the photo and on the crops. fastpipe.preview(loader) draws the same for your own loader.

    Args:
        augment ([none|simclr|randaugment|trivial_augment|FILE.py:NAME]): a preset of fastpipe.Augment; none: only crop
            and flip. Or a function in a file of yours that returns the loader's augment=, for example a list of
            kornia's modules.
        out_file (PNG): file for the sheet.
        overwrite: replace the file if it exists.
        rows: number of photos.
        size: size of the crops in pixels, as in training.
        seed: seed of the loader; also selects the photos.
        shown_fields (NAME,...): fields to show: boxes, masks and points are drawn, texts and numbers stand below. Or
            none; None: all that the augmentation allows.
    """
    from fastpipe.loading.factory import loader
    from fastpipe.plan.placed import Points
    from fastpipe.samples.opening import open
    from fastpipe.show.preview import MOST_ROWS, VARIANTS
    from fastpipe.show.preview import preview as draw

    with exit_codes():
        whole("--rows", rows, least=1, most=MOST_ROWS)
        whole("--seed", seed, least=0, most=2**64 - 1)
        check_new(out_file, overwrite=overwrite)
        whole("--size", size, least=1, most=2**15)
        made: Any = _augmentation(augment)
        dataset = open(data)
        names, left_out = _fields(dataset, shown_fields, made)
        # A point keeps its colour.
        chosen = [
            Points(name, flip_pairs=[]) if dataset.fields[name].kind == "keypoints" else name
            for name in names
        ]
        more: dict[str, Any] = {"fields": ["image", "label", *chosen]} if names else {}
        with loader(
            dataset, min(rows, len(dataset)), size=size, seed=seed, exact=True, augment=made, **more
        ) as photos:
            shown = draw(photos, out_file, rows=rows, overwrite=True).photos
        out.print(f"{count(shown, 'photo')} drawn to {out_file}, each with {VARIANTS} variants")
        if left_out:
            err.print(
                f"fastpipe: without {', '.join(left_out)}: the augmentation may move pixels, or mixes images"
            )


def _fields(data: Any, asked: str | None, augmentation: Any) -> tuple[list[str], list[str]]:
    """The fields to show, and those that cannot be shown with this augmentation."""
    from fastpipe.augment import as_augment
    from fastpipe.samples.fields import SPATIAL
    from fastpipe.show.marks import VISIBLE, visible

    if asked is None:
        names = list(visible(data, tuple(data.fields)))
        augment = as_augment(augmentation)
        still = set(SPATIAL) if augment.moving_parts or augment.mixers else set()
        if not augment.moving_parts:
            still -= augment.pasted
        hidden = [name for name in names if data.fields[name].kind in still]
        return [name for name in names if name not in hidden], hidden
    names = [] if asked == "none" else [name.strip() for name in asked.split(",")]
    for name in names:
        if name not in visible(data, (name,)):
            kinds = (
                f"it is of kind {data.fields[name].kind}"
                if name in data.fields
                else "there is none of this name"
            )
            raise ConfigError(
                f"--fields: expected fields of {data.path} of the kinds {', '.join(VISIBLE)}, got {name!r}: {kinds}. "
                f"Pass {','.join(visible(data, tuple(data.fields))) or 'none'}"
            )
    return names, []


def _augmentation(asked: str) -> object:
    """A preset, or what a function in a file of the user returns: the file runs as if imported from its folder."""
    from fastpipe.augment import Augment

    if asked in _PRESETS:
        return getattr(Augment, _PRESETS[asked])()
    if ":" not in asked:
        raise ConfigError(
            f"--augment: expected {', '.join(_PRESETS)} or FILE.py:NAME, got {asked!r}"
        )
    file, _, name = asked.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py":
        raise ConfigError(
            f"--augment: expected FILE.py:NAME, for example my_augment.py:build, got {asked!r}"
        )
    if not path.is_file():
        raise ConfigError(
            f"--augment: there is no file {file}; give the path from the current folder"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # as of each FILE.py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            raise ConfigError(
                f"--augment: {file} has no {name!r}; define a function {name}() that returns it"
            )
        found = getattr(module, name)
        # A module of torch can be called too, but it is the augmentation itself.
        return found() if callable(found) and not hasattr(found, "forward") else found
    except ConfigError:
        raise
    except Exception as problem:
        raise ConfigError(
            f"--augment: {asked} raised {type(problem).__name__}: {problem}; correct it there"
        ) from problem
    finally:
        sys.path.remove(str(path.resolve().parent))
