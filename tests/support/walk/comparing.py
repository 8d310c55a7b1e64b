"""An epoch's batches -> compared with single samples, a loader of one view, and a call of the augmentation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from support.batches.views import options_of
from support.walk.drawing import fields_of
from support.walk.model import RANDOM, expect, names_of
from support.walk.taking import BY_VIEW, Taken, as_bytes, epochs_of

import fastpipe

if TYPE_CHECKING:
    from support.walk.deeds import Walk


def compare_rows(walk: Walk, epoch: list[Taken], number: int) -> None:
    """Rows of the samples' crops by fastpipe.Dataset, which reads one after the other: of the data as it is composed,
    and, where no crop is random, of the source that the model says a sample is of.
    """
    model, draw = walk.model, walk.draw
    fixed = not isinstance(model.crop, RANDOM) and model.hflip in (0.0, 1.0)
    if (
        model.buckets
        or model.native
        or model.patches
        or model.replaced
        or not model.with_images
        or model["augment"] is not None
        or model["views"] is not None
        or model.crop.objects_field is not None
        or model.per_part
    ):
        return
    if model["size_choices"] is not None or not (fixed or model.plain):
        return
    size = walk.size_now(number) or walk.options.get("size", 224)
    kinds = fields_of(draw)
    wanted = [
        n
        for n in names_of(walk.options.get("fields"))
        if n in ("image", "label", "key") or n in kinds
    ]
    placed = float(model.boxes.min_size) == 1 and float(model.boxes.min_area) == 0
    skipped = ("boxes", "keypoints") if not placed else ("keypoints",)
    # Single samples have the pictures of a list whole.
    wanted = [n for n in wanted if kinds.get(n) not in (*skipped, "images")]

    def cropped(data: fastpipe.Dataset) -> fastpipe.Dataset:
        exact = bool(model["exact"])
        crops = data.cropped(model.crop, size, hflip=model.hflip, seed=model["seed"], exact=exact)
        return crops.with_pixels(model["channels"], model["dtype"])

    dataset = cropped(walk.dataset)
    dataset.set_epoch(number)
    sources = [cropped(fastpipe.open(path)) for path in walk.paths] if fixed else []
    if wanted:
        dataset = dataset.with_fields(wanted)
    some_rows = [(b, place) for b in epoch for place in range(len(b))]
    random.Random(draw.number).shuffle(some_rows)
    for batch, place in some_rows[:12]:
        single = dataset[batch.ids[place]]
        image = single["image"] if isinstance(single, dict) else single[0]
        same = torch.equal(torch.as_tensor(image), batch.images[0][place])
        expect(same, "the row of sample", batch.ids[place], "is not that of fastpipe.Dataset")
        if fixed:
            row = model.data.rows[batch.ids[place]]
            image, _ = sources[row.part][row.number]
            same = torch.equal(torch.as_tensor(image), batch.images[0][place])
            expect(
                same,
                "the row of sample",
                batch.ids[place],
                "is not that of sample",
                row.number,
                "of",
                row.part,
            )
        for name in wanted[1:] if isinstance(single, dict) else ():
            if name in ("image", "label"):
                continue
            got, other = batch.fields(place)[name], single[name]
            if isinstance(got, torch.Tensor):
                alike = torch.equal(
                    torch.as_tensor(other).as_subclass(torch.Tensor).reshape(got.shape), got
                )
            elif isinstance(got, list) and name in BY_VIEW:
                alike = all(
                    torch.equal(torch.as_tensor(b), a) for a, b in zip(got, other, strict=True)
                )
            else:
                alike = got == other
            expect(
                alike,
                "field",
                name,
                "of sample",
                batch.ids[place],
                got,
                "is not that of Dataset",
                other,
            )


def compare_views(walk: Walk, epoch: list[Taken], number: int) -> None:
    """Rows of one view by a loader that has it alone, with the view's seed."""
    views = walk.options.get("views")
    if views is None or not epoch or not walk.model.with_images:
        return
    number_of_view = walk.draw.number % len(epoch[0].images)
    own: dict[str, Any] = {}
    if isinstance(views, (list, tuple)):
        view = [view for view in views for _ in range(view.count)][number_of_view]
        own = options_of(view)
        if "size" in own:
            own["size_choices"] = None
    if "size_choices" in walk.options and "size" not in own:
        return  # by batch, and the batches of another seed are others
    if any(word in walk.draw.call() for word in ("mixup", "cutmix", "simclr")):
        return  # by batch, too
    with walk.open() as loader:
        seed = loader.view_seeds[number_of_view]
    with walk.open(views=None, seed=seed, **own) as loader:
        loader.set_epoch(number)
        alone = {
            n: (batch, row) for batch in epochs_of(loader, 1)[0] for row, n in enumerate(batch.ids)
        }
    for batch in epoch:
        for row, n in enumerate(batch.ids):
            if n not in alone:
                continue
            other, row_alone = alone[n]
            image, image_alone = batch.images[number_of_view][row], other.images[0][row_alone]
            if walk.model.covered and image.shape != image_alone.shape:
                continue  # between two sizes, a batch has the size of most of its images
            high, wide = (
                min(sides) for sides in zip(image.shape[-2:], image_alone.shape[-2:], strict=True)
            )  # buckets
            same = torch.equal(image[..., :high, :wide], image_alone[..., :high, :wide])
            expect(
                same,
                "view",
                number_of_view,
                "of sample",
                n,
                "is not that of a loader with it alone",
            )
            if walk.model.buckets:
                continue
            fields = batch.fields(row)
            for key, value in other.fields(row_alone).items():
                if key.removesuffix("_labels") in BY_VIEW:
                    same = as_bytes(fields[key][number_of_view]) == as_bytes(value)
                    expect(
                        same,
                        "field",
                        key,
                        "of view",
                        number_of_view,
                        "of sample",
                        n,
                        "is not that of it alone",
                    )


def compare_augmented(walk: Walk, epoch: list[Taken], number: int) -> None:
    """Batches by a loader without the augmentation, and a call of it."""
    augment = walk.options.get("augment")
    if (
        augment is None
        or walk.draw.join is not None
        or walk.options.get("views") is not None
        or not epoch
        or not walk.model.with_images
    ):
        return
    augment = augment if isinstance(augment, fastpipe.Augment) else fastpipe.Augment(augment)
    many = epoch[0].images[0].ndim == 5
    if many or augment.soft or augment.moves:
        return
    with walk.open(augment=None) as loader:
        loader.set_epoch(number)
        plain = epochs_of(loader, 1)[0]
    for place, (raw, batch) in enumerate(zip(plain, epoch, strict=True)):
        samples = np.array(
            [walk.model.data.rows[n].number for n in raw.ids]
        )  # in the source: it names their draws
        images = augment(
            raw.images[0], seed=walk.model["seed"], epoch=number, batch=place, samples=samples
        )
        near = torch.allclose(images.float(), batch.images[0].float(), atol=1e-5)
        expect(near, "batch", place, "is not what the augmentation makes of it")
