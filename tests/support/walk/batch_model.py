"""A draw's options -> what one batch holds, as the docs say it: shapes, labels, values of fields."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from support.walk.drawing import fields_of
from support.walk.model import MOVING, Model, expect, pair
from support.walk.taking import OFFSETS, Taken

import fastpipe


class BatchModel(Model):
    """What the docs say of a draw's epochs and of their batches."""

    def check_batch(
        self, batch: Taken, loader: fastpipe.Loader, epoch: int, size: Any = None
    ) -> None:
        fields = self["fields"]
        rows = len(batch)
        expect(batch.epoch == epoch, "the batch is of epoch", batch.epoch, "not", epoch)
        expect(rows <= self.batch, "a batch of", rows, "rows")
        if fields is not None:
            keys = [key for key in batch.values if not key.endswith((*OFFSETS, "_labels"))]
            expect(keys == self.names, "keys", list(batch.values), "for fields", fields)
        for view, images in enumerate(batch.images):
            if self.native:
                self._check_native(batch, images)
                continue
            if self.patches:
                self._check_patches(batch, images)
                continue
            crop, wanted = self.view(view, size)
            many = () if crop is None or crop.rows == 1 else (crop.rows,)
            shape = (rows, *many, {"gray": 1, "rgb": 3, "rgba": 4}[self["channels"]])
            expect(
                tuple(images.shape[: len(shape)]) == shape,
                "shape of images is",
                tuple(images.shape),
            )
            if wanted is not None:
                expect(
                    tuple(images.shape[-2:]) in wanted,
                    "images have",
                    tuple(images.shape[-2:]),
                    "not",
                    wanted,
                )
            if not isinstance(self["views"], (list, tuple)):
                dtypes = (
                    {self["dtype"]} if self["augment"] is None else {torch.float32, torch.bfloat16}
                )
                expect(images.dtype in dtypes, "dtype", images.dtype)
                expect(bool(torch.isfinite(images.float()).all()), "numbers that are not finite")
            if not many and rows and images.numel():
                expect(
                    images.is_contiguous(memory_format=torch.channels_last),
                    "not channels_last",
                    images.stride(),
                )
        if self.padded:
            self._check_padding(batch)
        self._check_labels(batch, loader)
        self._check_values(batch)

    def _check_native(self, batch: Taken, images: list[torch.Tensor]) -> None:
        channels = {"gray": 1, "rgb": 3, "rgba": 4}[self["channels"]]
        expect(len(images) == len(batch), len(images), "images of", len(batch), "samples")
        sizes = batch.values.get("image_size", [None] * len(images))
        for image, size in zip(images, sizes, strict=True):
            high, wide = image.shape[1:]
            expect(image.shape[0] == channels, "channels", image.shape)
            multiple = self["size"].multiple
            expect(high % multiple == wide % multiple == 0, "image has", high, wide)
            expect(
                size is None or size.tolist() == [high, wide], "image_size", size, "of", image.shape
            )
            expect(image.dtype == self["dtype"], "dtype", image.dtype)

    def _check_patches(self, batch: Taken, images: Any) -> None:
        size = self["size"]
        channels = {"gray": 1, "rgb": 3, "rgba": 4}[self["channels"]]
        numbers = channels * size.patch_size**2 * size.frames
        expect(len(images) == len(batch), len(images), "images of", len(batch), "samples")
        tokens = 0
        for patches, grid in zip(images, batch.values.get("grids", images), strict=True):
            expect(patches.shape[1] == numbers, "patches of", patches.shape[1], "numbers")
            tokens += len(patches) // size.merge**2
            expect(len(patches) <= size.max_tokens * size.merge**2, len(patches), "patches")
            if len(batch.values):
                expect(size.form == "padded" or int(grid.prod()) == len(patches), "grids", grid)
        expect(size.tokens is None or tokens <= size.tokens, tokens, "tokens in a batch")

    def view(self, number: int, size: Any) -> tuple[Any, set[tuple[int, int]] | None]:
        """Crop and sizes that a view may have."""
        crop, own = self.crop, None
        if isinstance(self["views"], (list, tuple)):
            views = [view for view in self["views"] for _ in range(view.count)]
            crop, own = views[number].crop or crop, views[number].size
        if self.buckets:
            return crop, set(getattr(self["size"], "listed_sizes", ())) or None
        if own is not None:
            return crop, {pair(own)}
        if size is not None:
            return crop, {pair(size)}
        if self["size_choices"] is not None:
            return crop, {pair(each) for each in self["size_choices"]}
        return crop, {pair(self["size"])}

    def _check_padding(self, batch: Taken) -> None:
        sizes = batch.values.get("image_size")
        masks = batch.values.get("pixel_mask")
        if sizes is None:
            return
        expect(
            sizes.dtype == torch.int64 and sizes.shape == (len(batch), 2),
            "image_size",
            sizes.shape,
            sizes.dtype,
        )
        if masks is None or any(word in self.draw.call() for word in ("mixup", "cutmix", *MOVING)):
            return
        for mask in masks if isinstance(masks, list) else [masks]:
            for (high, wide), shown in zip(sizes.tolist(), mask, strict=True):
                whole = bool(shown[:high, :wide].all()) and int(shown.sum()) == high * wide
                expect(whole, "pixel_mask is not image_size")

    def _check_labels(self, batch: Taken, loader: fastpipe.Loader) -> None:
        labels = batch.labels
        if labels is None:
            return
        names = loader.classes
        if labels.dtype == torch.float32:
            expect(
                labels.shape == (len(batch), len(names)) or labels.ndim == 2,
                "soft labels",
                labels.shape,
            )
            expect(
                bool(((labels.sum(1) - 1).abs() < 1e-4).all()),
                "soft labels add up to",
                labels.sum(1),
            )
            return
        expect(
            labels.dtype == torch.int64 and labels.shape == (len(batch),),
            "labels",
            labels.dtype,
            labels.shape,
        )
        if self.per_box:
            self._check_labels_of_boxes(batch, loader)
            return
        if self.per_part and "patch" in batch.values:
            counts = [self.patch_count(number) for number in batch.ids]
            expect(batch.values["patch"][:, 1].tolist() == counts, "patches", counts)
        expect(list(names) == self.data.classes, "classes", names, "not", self.data.classes)
        wanted = [self.data.rows[number].label for number in batch.ids]
        expect(labels.tolist() == wanted, "labels", labels, "not", wanted)

    def _check_labels_of_boxes(self, batch: Taken, loader: fastpipe.Loader) -> None:
        """The data's boxes have labels without names."""
        assert batch.labels is not None
        expect(loader.classes == [], "classes", loader.classes)
        patches = batch.values.get("patch")
        for place, number in enumerate(batch.ids):
            wanted = self.box_labels(number)
            if patches is not None:
                box, count = patches[place].tolist()
                expect(count == len(wanted), "sample", number, "has", count, "boxes")
                wanted = wanted[box : box + 1]
            label = int(batch.labels[place])
            expect(label in wanted, "label", label, "of sample", number, "not of", wanted)

    def _check_values(self, batch: Taken) -> None:
        for key, value in batch.values.items():
            if key == "id":
                expect(
                    value.dtype == torch.int64 and value.tolist() == batch.ids,
                    "id is not batch.ids",
                )
            elif key == "valid":
                expect(
                    value.dtype == torch.bool and value.tolist() == batch.valid,
                    "valid is not batch.valid",
                )
            elif key == "epoch":
                expect(value == batch.epoch, "epoch is", value)
            elif key == "source":
                expect(
                    value.tolist() == [self.data.rows[n].part for n in batch.ids], "source", value
                )
            elif key == "key":
                for number, one in zip(batch.ids, value, strict=True):
                    expect(one.endswith(self.keys[number]), "key", one, "of sample", number)
            elif key == "extra":
                wanted = [self.data.rows[n].extra for n in batch.ids]
                expect(value.tolist() == wanted, "column", value, "not", wanted)
        for name in fields_of(self.draw).keys() & batch.values.keys():
            for place, number in enumerate(batch.ids):
                row = self.data.rows[number]
                known = self.draw.parts[row.part]
                if name not in known.values:
                    continue
                got, wanted = batch.values[name][place], known.values[name][row.number]
                if name == "embedding":
                    same = np.array_equal(got.numpy(), np.asarray(wanted, dtype=np.float32))
                elif name in ("latent", "tokens"):
                    same = torch.equal(got, torch.from_numpy(wanted))
                elif name == "tags":
                    same = {each for each, on in enumerate(got.tolist()) if on} == {
                        int(tag[4:]) for tag in wanted
                    }
                else:
                    same = (int(got) if name == "score" else got) == wanted
                expect(same, "field", name, "of sample", number, "is", got, "not", wanted)
        for name in [
            each
            for each, kind in fields_of(self.draw).items()
            if kind == "boxes" and each in batch.values
        ]:
            self._check_boxes(batch, name)

    def _check_boxes(self, batch: Taken, name: str) -> None:
        several = len(batch.images) > 1
        for place, (view, images) in itertools.product(range(len(batch)), enumerate(batch.images)):
            fields = batch.fields(place)
            mine = [
                fields[key][view] if several else fields[key] for key in (name, f"{name}_labels")
            ]
            crops = isinstance(images, torch.Tensor) and images.ndim == 5
            rows = zip(*mine, strict=True) if crops else [mine]
            for boxes, labels in rows:
                size = images[place].shape[-2:]
                if self.patches:
                    size = (batch.values["grids"][place] * self["size"].patch_size).tolist()
                self._check_some(boxes, labels, size)

    def _check_some(self, boxes: torch.Tensor, labels: torch.Tensor, size: Any) -> None:
        high, wide = size
        expect(
            boxes.dtype == torch.float32 and boxes.shape[1:] == (4,),
            "boxes",
            boxes.shape,
            boxes.dtype,
        )
        expect(
            labels.dtype == torch.int64 and labels.shape == (len(boxes),),
            "labels of boxes",
            labels.shape,
        )
        if len(boxes):
            inside = (
                (boxes >= 0).all()
                and (boxes[:, 0::2] <= wide).all()
                and (boxes[:, 1::2] <= high).all()
            )
            expect(inside, "boxes outside", boxes)
            sides = boxes[:, 2:] - boxes[:, :2]
            least = float(self.boxes.min_size) - 1e-3
            expect((sides >= least).all(), "boxes smaller than", self.boxes.min_size, boxes)
            expect(
                (sides.prod(1) >= float(self.boxes.min_area) - 1e-2).all(),
                "boxes of less area",
                boxes,
            )
