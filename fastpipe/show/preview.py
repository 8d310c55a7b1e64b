"""A loader -> a sheet of some photos, their crops, and the images that the model sees."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.loading.loader import Loader, make_transfer
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

VARIANTS = 8
SIZE = 160
MOST_ROWS = 100
_SQUARES = 20  # of the checkerboard behind alpha, on the longer side
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
    own code. Only the normalising by mean= and std= is undone, and alpha is drawn over a checkerboard. Yellow is the
    crop of epoch 0. With soft labels, a caption names the classes with the largest shares. The loader's own iteration
    does not change.

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
    from fastpipe.show.marks import marks_of_row, of_samples, visible, with_marks
    from fastpipe.show.sheet import contact_sheet, fitted, with_boxes, write_png

    data = loader.dataset
    recipe = loader.recipe
    if recipe.crop.rows > 1:
        raise ConfigError(
            f"preview: it draws one crop of each photo, but {type(recipe.crop).__name__} has {recipe.crop.rows}; pass "
            "a loader with another crop="
        )
    ids = _some_samples(recipe, whole("rows", rows, least=1, most=MOST_ROWS))
    # A column for each epoch, or for each view.
    seen = [each for epoch in range(1 if recipe.more else VARIANTS) for each in seen_by(loader, ids, epoch)]
    pixels = [_pixels(each.images, augment) for each, augment in zip(seen, cycle(loader.augments), strict=False)]
    names = [f"{'view' if recipe.more else 'epoch'} {number}" for number in range(len(seen))]
    plan = seen[0].plan
    fields = visible(data, loader.maker.fields.names if loader.maker.fields else ())
    cells: list[NDArray[np.uint8]] = []
    captions: list[str] = []
    notes: list[list[str]] = []
    for row, (marks, lines) in enumerate(of_samples(data, plan, fields)):
        record = plan.records[row]
        photo = _photo(loader, plan, row)
        boxes = np.stack([each.plan.crops.boxes[row] for each in seen]) * (photo.shape[1] / record["width"])
        cells += [fitted(with_marks(photo, marks), SIZE), fitted(with_boxes(photo, boxes), SIZE)]
        for each, images in zip(seen, pixels, strict=True):
            moved = marks_of_row(each.fields, row, fields, each.plan.crops.size)
            cells.append(fitted(with_marks(_shrunk(images[row]), moved), SIZE))
        captions += [
            loader.classes[record["label"]] if record["label"] >= 0 else "",
            f"{record['width']} x {record['height']}",
        ]
        captions += [_caption(name, each.labels[row], data.classes) for name, each in zip(names, seen, strict=True)]
        notes.append(lines)
    write_png(Path(out), contact_sheet(np.stack(cells), captions, columns=2 + len(seen), notes=notes))
    return Preview(Path(os.path.abspath(out)), len(ids))


def _some_samples(recipe: Recipe, rows: int) -> NDArray[np.int64]:
    """The ids of so many samples of those that epochs have, ascending, or of as many as there are."""
    rng, count = np.random.default_rng(recipe.seed), len(recipe.content)
    if not recipe.picks:
        return np.sort(rng.choice(count, min(rows, count), replace=False)).astype(np.int64)
    plan = EpochPlan(recipe, 0)
    rows_of_epoch = [taken.take(0, min(recipe.rows(0), _MOST_DRAWS)).ids for taken in plan.orders.values()]
    found = np.unique(np.concatenate(rows_of_epoch))
    return np.sort(rng.choice(found, min(rows, len(found)), replace=False))


class Seen(NamedTuple):
    """Some samples in one view, on the CPU, as the training loop gets them."""

    plan: BatchPlan
    images: torch.Tensor
    labels: torch.Tensor
    fields: dict[str, Any]  # values by name; none if the loop gets (images, labels)


def seen_by(loader: Loader, ids: NDArray[np.int64], epoch: int) -> list[Seen]:
    """Decodes samples, (n,) ids, at full size and takes them through a loader's device and augmentation: each view."""
    # Memory and figures of its own, and no thread but those of the engine.
    slots = [(SlotRing((0,), 0, loader.stream.slot, loader.maker.form.dtype), True) for _ in loader.augments]
    maker = replace(loader.maker, views=slots, stats=Stats(), replace_bad=False, prepare=None)
    of = EpochPlan(loader.recipe, epoch)
    made = maker.end(maker.begin(of.of(ids), of, 0))
    transfer = make_transfer(maker, loader.stream, loader.augments, loader.recipe)
    staged = transfer.begin(made)
    batch = transfer.hand_over(staged)
    fields, found = made.fields, []
    for view, (plan, images) in enumerate(zip(made.plan.views, staged.images, strict=True)):
        values = {}
        for key, name in fields.names.items() if fields is not None else ():
            by_view = bool(made.plan.more) and fields is not None and fields.by_view(name)
            values[name] = _on_cpu(batch[key][view] if by_view else batch[key])
        found.append(Seen(replace(plan, more=()), images.cpu(), staged.labels.cpu(), values))
    return found


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cpu(each) for each in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _photo(loader: Loader, plan: BatchPlan, row: int) -> NDArray[np.uint8]:
    """A whole photo in the loader's channels, shrunk or enlarged to fit a cell, as it is drawn: (h, w, 3)."""
    record = plan.records[row]
    width, height = int(record["width"]), int(record["height"])
    size = _size_in_cell(height, width)
    image = np.empty((1, *size, loader.maker.form.channels), dtype=np.uint8)
    box = np.array([[0, 0, width, height]])
    crops = Crops(box.astype(np.float64), box.astype(np.int32), size)
    whole_photo = replace(plan.part(row, row + 1), crops=crops, flips=np.zeros(1, dtype=np.bool_))
    for _, reason in loader.maker.engine.decode(whole_photo, image):
        raise loader.maker.index.sample_error(int(whole_photo.samples[0]), reason)
    return _drawable(image[0])


def _pixels(images: torch.Tensor, augment: Augment | None) -> NDArray[np.uint8]:
    """What the training loop gets -> (n, height, width, 3) uint8, with the normalising undone."""
    if images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise ConfigError(
            f"preview: the augmentation returned shape {tuple(images.shape)}; expected images (N, channels, height, "
            "width) of 1, 3 or 4 channels, because only images can be drawn"
        )
    if images.dtype != torch.uint8:
        images = images.float() / 65535 if images.dtype == torch.uint16 else images.float()
        if augment is not None:
            mean, std = (images.new_tensor(each).view(-1, 1, 1) for each in augment.moments(images.shape[1]))
            images = images * std + mean
        images = images.clamp(0, 1).mul(255).round().to(torch.uint8)
    return _drawable(images.permute(0, 2, 3, 1).numpy())


def _drawable(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(..., height, width, channels) as it is drawn, (..., height, width, 3); alpha shows a checkerboard."""
    *_, height, width, channels = images.shape
    if channels < 4:
        return np.broadcast_to(images, (*images.shape[:-1], 3)).copy()
    down, across = np.indices((height, width)) // -(-max(height, width) // _SQUARES)
    board, alpha = np.where((down + across) % 2, 255.0, 200.0)[..., None], images[..., 3:] / 255
    return np.rint(images[..., :3] * alpha + board * (1 - alpha)).astype(np.uint8)


def _size_in_cell(height: int, width: int) -> tuple[int, int]:
    scale = SIZE / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def _shrunk(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """No larger than a cell: the mean of each pixel's area."""
    height, width, _ = image.shape
    if max(height, width) <= SIZE:
        return image
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    size = _size_in_cell(height, width)
    small = torch.nn.functional.interpolate(pixels, size, mode="area")[0].round().to(torch.uint8)
    return np.asarray(small.permute(1, 2, 0).numpy())


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
