"""A loader -> a sheet of some photos, their crops, and the images that the model sees."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.checks import flag, whole
from fastpipe.engine.engine import Engine
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.loading.loader import Loader, Look, Seen
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.epoch import EpochPlan

VARIANTS = 8
SIZE = 160
MOST_ROWS = 100
_MOST_DRAWS = 10_000  # of an epoch with weights that are looked at


class Preview(NamedTuple):
    """A sheet that was drawn: the PNG, and how many photos it shows. A notebook shows it where it ends a cell."""

    path: Path
    photos: int

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


def preview(
    loader: Loader, out: str | os.PathLike[str] = "preview.png", *, rows: int = 6, overwrite: bool = False
) -> Preview:
    """Draws one row a photo: the photo, the crops on it, and each crop as the training loop gets it.

    Crops, mirroring and augmentation are those of the photos in epochs 0 to 7 of this loader, made on its device by its
    own code. Only the normalising by mean= and std= is undone. Yellow is the crop of epoch 0. With soft labels, a
    caption names the classes with the largest shares. The loader's own iteration does not change.

    If the loader has fields, boxes with their labels, masks and points are drawn on the photo, and on each crop as the
    training loop gets them. Equal labels and ids have equal colours. Texts and numbers stand below the row, cut to fit.

    With several views, a row has each view of epoch 0 in place of the epochs. Yellow is the crop of the first view.

    Args:
        loader: made by fastpipe.loader, with any augment= and fields=.
        out: the PNG.
        rows: number of photos, from 1 to 100. The loader's seed selects them.
        overwrite: replace the PNG if it exists.

    Returns:
        The sheet, which a notebook shows: its `path`, and `photos`, which is `rows`, or as many as there are.

    Raises:
        ConfigError: an argument is wrong, the PNG exists, or the augmentation returns no images.
        SampleError: a photo cannot be decoded.
        DatasetError: a field cannot be read.
    """
    if not isinstance(loader, Loader):
        raise ConfigError(
            f"preview: expected a loader, got {type(loader).__name__}; make one with fastpipe.loader(data, augment=...)"
        )
    if not flag("overwrite", overwrite) and os.path.lexists(out):
        raise ConfigError(f"preview: {os.fspath(out)} exists; pass overwrite=True to replace it, or another name")
    from fastpipe.show.field_marks import marks_of_row, of_samples, visible
    from fastpipe.show.marks import with_marks
    from fastpipe.show.sheet import contact_sheet, fitted, with_boxes, write_png

    look, data = loader.look, loader.dataset
    if look.recipe.crop.rows > 1:
        raise ConfigError(
            f"preview: it draws one crop of each photo, but {type(look.recipe.crop).__name__} has "
            f"{look.recipe.crop.rows}; pass a loader with another crop="
        )
    ids = _some_samples(look, whole("rows", rows, least=1, most=MOST_ROWS))
    seen = [look.at(ids, epoch) for epoch in range(1 if look.recipe.more else VARIANTS)]
    variants = list(_variants(seen, look.augments))
    plan = variants[0].plan
    fields = visible(data, look.maker.fields.names if look.maker.fields else ())
    cells: list[NDArray[np.uint8]] = []
    captions: list[str] = []
    notes: list[list[str]] = []
    for row, (marks, lines) in enumerate(of_samples(data, plan, fields)):
        record = plan.records[row]
        photo = _photo(look, plan, row)
        boxes = np.stack([each.plan.crops.boxes[row] for each in variants]) * (photo.shape[1] / record["width"])
        cells += [fitted(with_marks(photo, marks), SIZE), fitted(with_boxes(photo, boxes), SIZE)]
        for each in variants:
            moved = marks_of_row(each.fields, row, fields, each.plan.crops.size)
            cells.append(fitted(with_marks(_shrunk(each.pixels[row]), moved), SIZE))
        captions += [
            loader.classes[record["label"]] if record["label"] >= 0 else "",
            f"{record['width']} x {record['height']}",
        ]
        captions += [_caption(each.name, each.labels[row], loader.classes) for each in variants]
        notes.append(lines)
    write_png(Path(out), contact_sheet(np.stack(cells), captions, columns=2 + len(variants), notes=notes))
    return Preview(Path(os.path.abspath(out)), len(ids))


def _some_samples(look: Look, rows: int) -> NDArray[np.int64]:
    """The ids of so many samples of those that epochs have, ascending, or of as many as there are."""
    recipe = look.recipe
    rng, count = np.random.default_rng(recipe.seed), len(recipe.content)
    if not recipe.picks:
        return np.sort(rng.choice(count, min(rows, count), replace=False)).astype(np.int64)
    plan = EpochPlan(recipe, 0)
    rows_of_epoch = [taken.take(0, min(recipe.rows(0), _MOST_DRAWS)).ids for _, taken in plan.orders.values()]
    found = np.unique(np.concatenate(rows_of_epoch))
    return np.sort(rng.choice(found, min(rows, len(found)), replace=False))


class _Variant(NamedTuple):
    """A column of the sheet.

    Attributes:
        name: its caption.
        plan: of its rows.
        pixels: (n, height, width, 3) uint8.
        labels: as the training loop gets them.
        fields: values by key.
    """

    name: str
    plan: BatchPlan
    pixels: NDArray[np.uint8]
    labels: torch.Tensor
    fields: dict[str, Any]


def _variants(seen: Sequence[Seen], augments: Sequence[Augment | None]) -> Iterator[_Variant]:
    """A column for each epoch, or for each view."""
    for epoch, each in enumerate(seen):
        for view, (plan, images) in enumerate(zip(each.plan.views, each.views, strict=True)):
            name = f"view {view}" if each.plan.more else f"epoch {epoch}"
            yield _Variant(name, plan, _pixels(images, augments[view]), each.labels, each.fields[view])


def _photo(look: Look, plan: BatchPlan, row: int) -> NDArray[np.uint8]:
    """A whole photo, shrunk or enlarged to fit a cell: (h, w, 3)."""
    record = plan.records[row]
    width, height = int(record["width"]), int(record["height"])
    scale = SIZE / max(width, height)
    image = np.empty((1, max(1, round(height * scale)), max(1, round(width * scale)), 3), dtype=np.uint8)
    box = np.array([[0, 0, width, height]])
    one = slice(row, row + 1)
    whole_photo = replace(
        plan,
        samples=plan.samples[one],
        records=plan.records[one],
        crops=Crops(box.astype(np.float64), box.astype(np.int32), (image.shape[1], image.shape[2])),
        flips=np.zeros(1, dtype=np.bool_),
        valid=plan.valid[one],
        names=plan.names[one],
        more=(),
    )
    _decode(look.maker.engine, look.maker.index, whole_photo, image)
    return image.reshape(image.shape[1:])


def _decode(engine: Engine, index: Index, plan: BatchPlan, images: NDArray[np.uint8]) -> None:
    for row, reason in engine.decode(plan, images):
        raise index.sample_error(int(plan.samples[row]), reason)


def _pixels(images: torch.Tensor, augment: Augment | None) -> NDArray[np.uint8]:
    """What the training loop gets -> (n, height, width, 3) uint8, with the normalising undone."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ConfigError(
            f"preview: the augmentation returned shape {tuple(images.shape)}; expected images (N, 3, height, width), "
            "because only images can be drawn"
        )
    if images.dtype != torch.uint8:
        mean, std = augment.moments if augment is not None else (None, None)
        images = images.float()
        if mean is not None and std is not None:
            images = images * images.new_tensor(std).view(3, 1, 1) + images.new_tensor(mean).view(3, 1, 1)
        images = images.clamp(0, 1).mul(255).round().to(torch.uint8)
    pixels: NDArray[np.uint8] = images.permute(0, 2, 3, 1).numpy()
    return pixels


def _shrunk(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """No larger than a cell: the mean of each pixel's area."""
    height, width, _ = image.shape
    scale = SIZE / max(width, height)
    if scale >= 1:
        return image
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    size = max(1, round(height * scale)), max(1, round(width * scale))
    small = torch.nn.functional.interpolate(pixels, size, mode="area")[0].round().to(torch.uint8)
    result: NDArray[np.uint8] = small.permute(1, 2, 0).numpy()
    return result


def _caption(name: str, label: torch.Tensor, classes: list[str]) -> str:
    """Which column it is, and with soft labels the two largest shares."""
    if label.ndim == 0:
        return name
    shares: list[Any] = label.topk(min(2, len(label))).values.tolist()
    names = label.topk(len(shares)).indices.tolist()
    parts = [
        f"{classes[name] if name < len(classes) else name} {share:.2f}"
        for name, share in zip(names, shares, strict=True)
        if share > 0.005
    ]
    return f"{name.split()[-1]}: {', '.join(parts)}"
