"""A draw's options -> what its epochs hold, as the docs say it: computed without fastpipe's planning."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch.utils.data
from support.walk.composed import Composed
from support.walk.drawing import Draw

import fastpipe

DEFAULTS: dict[str, Any] = {
    "size": 224, "train": True, "seed": 0, "on_error": "raise", "world_size": 1, "partition": "sample",
    "channels": "rgb", "dtype": torch.uint8,
}  # fmt: skip
RANDOM = (fastpipe.RandomResizedCrop, fastpipe.RandomCrop)
PLACED = ("boxes", "keypoints", "mask", "image", "map")
MOVING = ("RandomAffine", "RandomHorizontalFlip", "randaugment", "trivial_augment")


class Wrong(AssertionError):  # noqa: N818 (no mistake of the program)
    """What a loader did is not what the docs say."""


def expect(holds: object, *words: object) -> None:
    if not holds:
        raise Wrong(" ".join(str(word) for word in words))


def names_of(fields: Any) -> list[Any]:
    """Of fields with and without options."""
    return [getattr(each, "name", each) for each in fields or ()]


class Model:
    """What the docs say of a draw.

    Args:
        options: the draw's, evaluated.
        data: its samples.
        world_size: of how many ranks batches are merged.

    Attributes:
        inner: the sampler, or that in fastpipe.Repeated.
        repeats: how often in a row a sample comes.
        listed: a sampler that names the samples of each epoch.
        ordered: the sampler gives their order.
    """

    def __init__(
        self, draw: Draw, options: dict[str, Any], data: Composed, world_size: int = 1
    ) -> None:
        self._length: int | None = None
        self.draw = draw
        self.options = options
        self.data = data
        self.inner, self.repeats = options.get("sampler"), 1
        while isinstance(self.inner, fastpipe.Repeated):
            self.inner, self.repeats = self.inner.sampler, self.repeats * int(self.inner.times)
        own = (fastpipe.Weighted, fastpipe.PerClass, fastpipe.Sequential)
        self.weighted = self.inner if isinstance(self.inner, fastpipe.Weighted) else None
        self.per_class = self.inner if isinstance(self.inner, fastpipe.PerClass) else None
        self.listed = self.inner is not None and not isinstance(self.inner, own)
        self.ordered = self.listed or isinstance(
            self.inner, (fastpipe.PerClass, fastpipe.Sequential)
        )
        self.train = bool(self["train"])
        self.shuffle = (
            self.train if self["shuffle"] is None else self["shuffle"]
        ) and not self.ordered
        self.drop_last = self.train if self["drop_last"] is None else self["drop_last"]
        self.crop = self["crop"] or (
            fastpipe.RandomResizedCrop() if self.train else fastpipe.CenterCrop()
        )
        # A row is one of the boxes of a sample.
        self.per_box = isinstance(self.crop, fastpipe.CropAt)
        # A row is a part of an image: one of its boxes, or a patch of a grid.
        self.per_part = self.per_box or isinstance(self.crop, fastpipe.Grid)
        self.with_images = self["fields"] is None or "image" in self["fields"]
        self.native = isinstance(self["size"], fastpipe.Native)
        self.patches = isinstance(self["size"], fastpipe.Patches)
        # Batches have as many samples as fit.
        self.budget = getattr(self["size"], "budget", None) is not None
        own_sizes = self.native or self.patches
        hflip = self.train and not own_sizes if self["hflip"] is None else self["hflip"]
        self.hflip = 0.5 if hflip is True else float(hflip)
        views = self["views"] if isinstance(self["views"], (list, tuple)) else []
        flips = [self.hflip if view.hflip is None else float(view.hflip) for view in views] or [
            self.hflip
        ]
        self.mirrors = max(flips) > 0 or isinstance(self.crop, fastpipe.TenCrop)
        self.batch = int(self["batch_size"])
        given = [each for each in self["fields"] or () if isinstance(each, fastpipe.Boxes)]
        self.boxes = given[0] if given else fastpipe.Boxes("boxes")
        self.rows = self.batch * world_size
        self.buckets = self["size"] == "bucket" or isinstance(self["size"], fastpipe.Buckets)
        self.covered = isinstance(self["size"], fastpipe.Buckets) and self["size"].covers
        self.padded = self.buckets and not self.covered
        self.parts = self["partition"] if isinstance(self["partition"], int) else 1
        self.weights = self._weights()

    @property
    def names(self) -> list[Any]:
        """Of the fields that are asked for."""
        return names_of(self["fields"])

    def __getitem__(self, name: str) -> Any:
        return self.options.get(name, DEFAULTS.get(name))

    # Which samples

    def _weights(self) -> list[float] | None:
        """Of each sample; those of a share add up to 1."""
        if self.weighted is None:
            return None
        given, rows = self.weighted.weights, self.data.rows
        if isinstance(given, dict):
            if self.by_class:
                found = [
                    float(given.get(row.name, 1.0)) if row.name is not None else 0.0 for row in rows
                ]
            else:
                found = [
                    float(next((w for key, w in given.items() if key.endswith(k)), 1.0))
                    for k in self.keys
                ]
        else:
            found = [float(each) for each in given]
        totals = [
            sum(found[each] for each in self.data.ids(share))
            for share in range(len(self.data.weights))
        ]
        return [
            weight / totals[share] if totals[share] else 0.0
            for weight, share in zip(found, map(self.data.share, rows), strict=True)
        ]

    @property
    def by_class(self) -> bool:
        """Whether weights are of classes."""
        given = None if self.weighted is None else self.weighted.weights
        return isinstance(given, dict) and any(name in self.data.classes for name in given)

    @property
    def keys(self) -> list[str]:
        """Of all samples."""
        return [self.draw.parts[row.part].keys[row.number] for row in self.data.rows]

    @property
    def count(self) -> int:
        return len(self.data)

    def box_labels(self, number: int) -> list[int]:
        """The label of each box of a sample."""
        row = self.data.rows[number]
        known = self.draw.parts[row.part].box_labels
        return known[row.number] if known else []

    @property
    def rows_of_parts(self) -> list[int]:
        """The sample of each box or patch, in the order of the dataset."""
        if self.per_box:
            return [number for number in range(self.count) for _ in self.box_labels(number)]
        return [n for n in range(self.count) for _ in range(self.patch_count(n))]

    def patch_count(self, number: int) -> int:
        """Patches of a grid in a sample: from its left top on by steps, and one more at the end."""
        row = self.data.rows[number]
        wide, high = self.draw.parts[row.part].sizes[row.number]
        patch_high, patch_wide = pair(self["size"])
        down, right = (patch_high, patch_wide)
        if self.crop.stride is not None:
            down, right = pair(self.crop.stride)
        rows = len(range(0, max(high - patch_high, 0), down)) + 1
        columns = len(range(0, max(wide - patch_wide, 0), right)) + 1
        return rows * columns

    def numbers(self, epoch: int) -> tuple[list[int], bool]:
        """What a sampler names, and whether the docs say in which order."""
        if isinstance(self.inner, torch.utils.data.Sampler):
            step = 2 if isinstance(self.inner, torch.utils.data.SubsetRandomSampler) else 1
            return [*range(0, self.count, step)], False
        given = self.inner(epoch) if callable(self.inner) else self.inner
        return [int(each) for each in given], True

    @property
    def size_of_epoch(self) -> int:
        """Rows, of all ranks, before full batches are cut from it."""
        wanted = self["epoch_size"]
        if self.per_part:
            return len(self.rows_of_parts)
        if self.listed:
            return len(self.numbers(0)[0]) * self.repeats
        if self.per_class is not None:
            return max(
                (self.count if wanted is None else int(wanted)) // self.rows * self.rows, self.rows
            )
        if not self.draw.mixed:
            return self.count if wanted is None else int(wanted)
        if isinstance(wanted, (int, np.integer)):
            return int(wanted)
        sizes = [
            len(self.data.ids(place)) * self.repeats for place in range(len(self.data.weights))
        ]
        ends = [
            float(size / share) + 1e-9 for size, share in zip(sizes, self.data.weights, strict=True)
        ]
        return int((max if wanted == "largest" else min)(ends))

    def check_length(self, length: int) -> None:
        """Of a loader. Where a dataset of a mixture ends, a batch may have a row more or less of it than its share."""
        if self.budget:
            self._length = length
            return
        slack = 0
        if self.draw.mixed and isinstance(self["epoch_size"], (str, type(None))):
            slack = 2 * int(1 / (min(self.data.weights) * self.rows)) + 2
        expect(abs(length - self.length) <= slack, "len is", length, "not", self.length)
        self._length = length

    @property
    def length(self) -> int:
        if self._length is not None:
            return self._length
        if self.draw.mixed:
            return max(1, self.size_of_epoch // self.rows)
        return (
            self.size_of_epoch // self.rows
            if self.drop_last
            else -(-self.size_of_epoch // self.rows)
        )

    @property
    def plain(self) -> bool:
        """Whether an epoch has each sample once, so that its draws are named by the sample."""
        alone = self.inner is None or isinstance(self.inner, fastpipe.Sequential)
        whole = self.repeats == 1 and self["epoch_size"] is None and not self.per_part
        return not self.draw.mixed and alone and whole

    @property
    def replaced(self) -> bool:
        return any(row.number in self.draw.parts[row.part].damaged for row in self.data.rows)

    # Epochs

    def check_order(self, epochs: list[list[list[int]]], first: int = 0) -> None:
        """Numbers of the valid rows of each global batch of some epochs, one behind the other."""
        for epoch in epochs if not self.budget else ():
            expect(
                len(epoch) == self.length, "an epoch has", len(epoch), "batches, not", self.length
            )
            rows = sum(map(len, epoch))
            full = self.length * self.rows
            wanted = full if self.drop_last or self.draw.mixed else self.size_of_epoch
            expect(rows == wanted, "an epoch has", rows, "rows that count, not", wanted)
            for batch in epoch[:-1]:
                expect(
                    len(batch) == self.rows,
                    "a batch before the last has",
                    len(batch),
                    "rows of",
                    self.rows,
                )
        got = [[n for batch in epoch for n in batch] for epoch in epochs]
        for epoch in got if self.budget and not self.draw.mixed else ():
            expect(len(epoch) == self.size_of_epoch, "rows", len(epoch), "of", self.size_of_epoch)
        if self.replaced:
            return
        outside = [n for epoch in got for n in epoch if not 0 <= n < self.count]
        expect(not outside, "ids that are no places in the dataset:", outside)
        if self.per_part:
            self._check_parts_of_epochs(got)
        elif self.listed:
            self._check_listed(got, first)
        elif self.per_class is not None:
            self._check_classes(epochs)
        elif self.draw.mixed:
            if not self.budget:
                self._check_mixture(epochs, first)
        elif self.weights is not None:
            for epoch in got:
                self._check_weighted(epoch)
        else:
            self._check_passes(got, first)

    def _check_passes(self, got: list[list[int]], first: int) -> None:
        """Orders one behind the other, each sample `repeats` times in a row."""
        again, size = self.repeats, self.size_of_epoch
        one_pass = self.count * again
        if not self.shuffle and not self.buckets and not self.budget and self.parts == 1:
            line = [n for n in range(self.count) for _ in range(again)]
            for number, epoch in enumerate(got, start=first):
                start = number * size if not self.plain else 0
                wanted = [line[(start + place) % one_pass] for place in range(len(epoch))]
                expect(epoch == wanted, "without shuffle, ids are", epoch, "not", wanted)
            return
        counts = Counter(n for epoch in got for n in epoch)
        start, stop = first * size, (first + len(got)) * size
        left_out = stop - start - counts.total()
        least = again * (stop // one_pass + -start // one_pass)
        most = again * (-(-stop // one_pass) - start // one_pass)
        missing = 0
        for n in range(self.count):
            expect(
                counts[n] <= most,
                "sample",
                n,
                "comes",
                counts[n],
                "times in",
                len(got),
                "epochs, at most",
                most,
            )
            missing += max(0, least - counts[n])
        expect(
            missing <= left_out,
            missing,
            "times a sample is missing,",
            left_out,
            "rows were left out",
        )
        shuffled = self.shuffle and self.plain and not self.buckets and not self.budget
        if shuffled and len(got) > 1 and self.count >= 12 and self.rows < self.count:
            expect(got[0] != got[1], "two epochs have the same order")

    def _check_parts_of_epochs(self, got: list[list[int]]) -> None:
        """Each part comes once in an epoch."""
        line = self.rows_of_parts
        for epoch in got:
            if not self.shuffle:
                expect(epoch == line[: len(epoch)], "parts are of", epoch, "not", line)
            more = Counter(epoch) - Counter(line)
            expect(not more, "samples have more rows than parts", more)

    def _check_weighted(self, epoch: list[int]) -> None:
        assert self.weights is not None
        assert self.weighted is not None
        counts, size, again = Counter(epoch), self.size_of_epoch, self.repeats
        left_out = size - len(epoch)
        if not self.weighted.replacement:
            often = max(counts.values())
            expect(often <= again, "without replacement a sample comes", often, "times")
        missing = 0
        for n, weight in enumerate(self.weights):
            due = weight * size / again
            expect(weight or not counts[n], "sample", n, "of weight 0 is drawn")
            if self.weighted.replacement:
                most = (int(due) + 2) * again + (again - 1)
                expect(
                    counts[n] <= most,
                    "sample",
                    n,
                    "is due",
                    due * again,
                    "times and comes",
                    counts[n],
                )
                missing += max(0, (int(due) - 1) * again - (again - 1) - counts[n])
        expect(missing <= left_out, missing, "draws are missing", left_out)

    def _check_listed(self, got: list[list[int]], first: int) -> None:
        for number, epoch in enumerate(got, start=first):
            numbers, ordered = self.numbers(number)
            wanted = [n for n in numbers for _ in range(self.repeats)]
            if ordered and not self.buckets and not self.budget:
                expect(
                    epoch == wanted[: len(epoch)],
                    "the sampler names",
                    wanted,
                    "and the epoch has",
                    epoch,
                )
            more = Counter(epoch) - Counter(wanted)
            expect(not more, "samples that the sampler does not name", more)

    def _check_classes(self, epochs: list[list[list[int]]]) -> None:
        """P classes in each global batch, and K samples of each, as far as a class has so many."""
        assert self.per_class is not None
        samples, sizes = int(self.per_class.samples), Counter(row.name for row in self.data.rows)
        for batch in (batch for epoch in epochs for batch in epoch):
            names = Counter(self.data.rows[n].name for n in batch)
            each = samples * self.repeats
            expect(
                None not in names and set(names.values()) == {each},
                "a batch has",
                names,
                "not",
                each,
                "of each",
            )
            expect(len(names) == self.rows // each, "a batch of", len(names), "classes")
            for name in names:
                own = Counter(n for n in batch if self.data.rows[n].name == name)
                expect(len(own) == min(samples, sizes[name]), "of", name, "a batch has", own)

    def _check_mixture(self, epochs: list[list[list[int]]], first: int) -> None:
        for place, share in enumerate(self.data.weights):
            ids = self.data.ids(place)
            low, high = ids[0], ids[-1] + 1
            drawn = 0
            counts: Counter[int] = Counter()
            for done, batch in enumerate((batch for epoch in epochs for batch in epoch), start=1):
                own = [n for n in batch if low <= n < high]
                counts.update(own)
                drawn += len(own)
                exact = share * self.rows
                near = (
                    int(exact) - self.parts < len(own) < -int(-exact // 1) + self.parts
                )  # each part's is rounded
                expect(near, "a batch has", len(own), "rows of a dataset due", float(exact))
                if not first:
                    slack = 1 + (len(self.data.weights) > 2) + len(epochs)
                    due = float(exact * done)
                    expect(
                        abs(drawn - due) < slack, "after", done, "batches", drawn, "rows, due", due
                    )
            self._check_share(ids, counts, drawn, first)

    def _check_share(self, ids: list[int], counts: Counter[int], drawn: int, first: int) -> None:
        """How often the samples of a share come."""
        one_pass = len(ids) * self.repeats
        passes = drawn // one_pass + 2
        for n in ids:
            if self.weights is not None:
                due = self.weights[n] * drawn
                most, least = due + (passes + 1) * self.repeats, 0
                expect(self.weights[n] or not counts[n], "sample", n, "of weight 0 is drawn")
            elif not first:
                most, least = -(-drawn // one_pass) * self.repeats, drawn // one_pass * self.repeats
            else:
                continue
            expect(
                least <= counts[n] <= most,
                "sample",
                n,
                "comes",
                counts[n],
                "times, not",
                least,
                "to",
                most,
            )


def pair(size: Any) -> tuple[int, int]:
    if isinstance(size, (int, np.integer)):
        return int(size), int(size)
    return int(size[0]), int(size[1])
