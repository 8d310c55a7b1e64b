"""A draw's options -> what its epochs hold, as the docs say it: computed without fastpipe's planning."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from walk.drawing import Draw

import fastpipe

DEFAULTS: dict[str, Any] = {
    "size": 224, "train": True, "seed": 0, "replacement": True, "repeats": 1, "on_error": "raise",
    "max_pixels": 178956970, "world_size": 1, "partition": "sample",
}  # fmt: skip
RANDOM = (fastpipe.RandomResizedCrop, fastpipe.RandomCrop)
PLACED = ("boxes", "keypoints", "mask", "image")


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
        data: the draw's, evaluated.
        world_size: of how many ranks batches are merged.
    """

    def __init__(self, draw: Draw, options: dict[str, Any], data: Any, world_size: int = 1) -> None:
        self._length: int | None = None
        self.draw = draw
        self.options = options
        self.data = data
        self.train = bool(self["train"])
        self.shuffle = self.train if self["shuffle"] is None else self["shuffle"]
        self.drop_last = self.train if self["drop_last"] is None else self["drop_last"]
        self.crop = self["crop"] or (fastpipe.RandomResizedCrop() if self.train else fastpipe.CenterCrop())
        self.hflip = float(self.train if self["hflip"] is None else self["hflip"])
        self.hflip = 0.5 if self["hflip"] is True or (self["hflip"] is None and self.train) else self.hflip
        views = self["views"] if isinstance(self["views"], (list, tuple)) else []
        flips = [self.hflip if view.hflip is None else float(view.hflip) for view in views] or [self.hflip]
        self.mirrors = max(flips) > 0 or isinstance(self.crop, fastpipe.TenCrop)
        self.batch = int(self["batch_size"])
        given = [each for each in self["fields"] or () if isinstance(each, fastpipe.Boxes)]
        self.boxes = given[0] if given else fastpipe.Boxes("boxes")
        self.rows = self.batch * world_size
        self.repeats = int(self["repeats"])
        self.buckets = self["size"] == "bucket" or isinstance(self["size"], fastpipe.Buckets)
        self.offsets = [0, *itertools.accumulate(len(part) for part in draw.parts)]
        self.chosen = [self._chosen(place) for place in range(len(draw.parts))]
        self.weights = self._weights()

    @property
    def names(self) -> list[Any]:
        """Of the fields that are asked for."""
        return names_of(self["fields"])

    def __getitem__(self, name: str) -> Any:
        return self.options.get(name, DEFAULTS.get(name))

    # Which samples

    def _chosen(self, place: int) -> list[int]:
        """Of one dataset: the numbers, in the order without shuffle."""
        known = self.draw.parts[place]
        numbers = list(range(len(known)))
        if (samples := self["samples"]) is not None:
            given = np.asarray(samples)
            numbers = np.flatnonzero(given).tolist() if given.dtype == bool else given.tolist()
        if (classes := self["classes"]) is not None:
            numbers = [
                each for each in numbers if known.labels[each] >= 0 and known.names[known.labels[each]] in classes
            ]
        if numbers and (self["limit"] is not None or self["kfold"] is not None):
            data = list(self.data)[place] if self.draw.mixed else self.data
            part = self.part(data, known.packed, self["limit"], self["kfold"])
            numbers = [each for each in numbers if each in part]
        return numbers

    def part(self, data: Any, packed: bool, limit: float | None, kfold: Any, train: bool | None = None) -> set[int]:
        """The samples that these two leave, by a loader with no other option."""
        data = str(data).replace("damaged/packed", "damaged/sound")
        with contextlib.suppress(fastpipe.ConfigError), fastpipe.loader(
            data, 16, size=4, num_workers=1, train=self.train if train is None else train, shuffle=False,
            drop_last=False, limit=limit, kfold=kfold, **self.remote(data),
        ) as loader:  # fmt: skip
            return {number for batch in loader for number in batch.ids.tolist()}
        return set()  # nothing is left

    def remote(self, data: Any) -> dict[str, Any]:
        """Where what is behind a URL is kept."""
        if "://" not in str(data):
            return {}
        return {name: self.options[name] for name in ("cache_dir", "read_timeout") if name in self.options}

    def _weights(self) -> dict[int, float] | None:
        """By number, of the chosen samples; they add up to 1."""
        weights = self["weights"]
        if weights is None:
            return None
        known = self.draw.parts[0]
        if isinstance(weights, dict):
            by = {
                n: weights.get(known.names[known.labels[n]], 1.0) if known.labels[n] >= 0 else 0.0
                for n in self.chosen[0]
            }
        else:
            by = {number: float(weights[number]) for number in self.chosen[0]}
        total = sum(by.values())
        return {number: weight / total if total else 0.0 for number, weight in by.items()}

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.chosen)

    @property
    def shares(self) -> list[Fraction]:
        given = [Fraction(weight) for weight in self.data.values()]
        return [each / sum(given) for each in given]

    @property
    def size_of_epoch(self) -> int:
        """Rows, of all ranks, before full batches are cut from it."""
        wanted = self["epoch_size"]
        if not self.draw.mixed:
            return self.count if wanted is None else int(wanted)
        if isinstance(wanted, (int, np.integer)):
            return int(wanted)
        ends = [
            float(len(numbers) * self.repeats / share) + 1e-9
            for numbers, share in zip(self.chosen, self.shares, strict=True)
            if share
        ]
        return int((max if wanted == "largest" else min)(ends))

    def check_length(self, length: int) -> None:
        """Of a loader. Where a dataset of a mixture ends, a batch may have a row more or less of it than its share."""
        ends = isinstance(self["epoch_size"], (str, type(None)))
        slack = max(2 * int(1 / (share * self.rows)) + 2 for share in self.shares) if self.draw.mixed and ends else 0
        expect(abs(length - self.length) <= slack, "len is", length, "not", self.length)
        self._length = length

    @property
    def length(self) -> int:
        if self._length is not None:
            return self._length
        if self.draw.mixed:
            return max(1, self.size_of_epoch // self.rows)
        return self.size_of_epoch // self.rows if self.drop_last else -(-self.size_of_epoch // self.rows)

    @property
    def plain(self) -> bool:
        """Whether an epoch has each sample once, so that its draws are named by the sample."""
        more = ("weights", "epoch_size")
        return not self.draw.mixed and self.repeats == 1 and all(self[name] is None for name in more)

    @property
    def replaced(self) -> bool:
        return any(
            number in part.damaged
            for part, numbers in zip(self.draw.parts, self.chosen, strict=True)
            for number in numbers
        )

    # Epochs

    def check_order(self, epochs: list[list[list[int]]], first: int = 0) -> None:
        """Numbers of the valid rows of each global batch of some epochs, one behind the other."""
        for epoch in epochs:
            expect(len(epoch) == self.length, "an epoch has", len(epoch), "batches, not", self.length)
            rows = sum(map(len, epoch))
            full = self.length * self.rows
            wanted = full if self.drop_last or self.draw.mixed else self.size_of_epoch
            expect(rows == wanted, "an epoch has", rows, "rows that count, not", wanted)
            for batch in epoch[:-1]:
                expect(len(batch) == self.rows, "a batch before the last has", len(batch), "rows of", self.rows)
        legal = {offset + n for offset, numbers in zip(self.offsets, self.chosen, strict=False) for n in numbers}
        got = [[n for batch in epoch for n in batch] for epoch in epochs]
        if self.replaced:
            return
        expect(
            all(n in legal for epoch in got for n in epoch),
            "ids that were not chosen:",
            *(n for e in got for n in e if n not in legal),
        )
        if self.weights is not None:
            for epoch in got:
                self._check_weighted(epoch)
        elif self.draw.mixed:
            self._check_mixture(epochs, first)
        else:
            self._check_passes(got, first)

    def _check_passes(self, got: list[list[int]], first: int) -> None:
        """Orders one behind the other, each sample `repeats` times in a row."""
        numbers, again, size = self.chosen[0], self.repeats, self.size_of_epoch
        one_pass = len(numbers) * again
        if not self.shuffle and not self.buckets and (self["canonical_nodes"] or 1) == 1:
            line = [n for n in numbers for _ in range(again)]
            for number, epoch in enumerate(got, start=first):
                start = number * size if not self.plain else 0
                wanted = [line[(start + place) % one_pass] for place in range(len(epoch))]
                expect(epoch == wanted, "without shuffle, ids are", epoch, "not", wanted)
            return
        left_out = 0
        counts: Counter[int] = Counter()
        start = first * size
        for epoch in got:
            counts.update(epoch)
            left_out += size - len(epoch)
        stop = start + len(got) * size
        least = [again * (stop // one_pass) - again * -(-start // one_pass)] * len(numbers)
        most = again * -(-stop // one_pass) - again * (start // one_pass)
        missing = 0
        for n, floor in zip(numbers, least, strict=True):
            expect(counts[n] <= most, "sample", n, "comes", counts[n], "times in", len(got), "epochs, at most", most)
            missing += max(0, floor - counts[n])
        expect(missing <= left_out, missing, "times a sample is missing,", left_out, "rows were left out")
        if (
            self.shuffle
            and self.plain
            and len(numbers) >= 12
            and self.rows < len(numbers)
            and len(got) > 1
            and not self.buckets
        ):
            expect(got[0] != got[1], "two epochs have the same order")

    def _check_weighted(self, epoch: list[int]) -> None:
        assert self.weights is not None
        counts, size, again = Counter(epoch), self.size_of_epoch, self.repeats
        left_out = size - len(epoch)
        if not self["replacement"]:
            most = again
            expect(max(counts.values()) <= most, "without replacement a sample comes", max(counts.values()), "times")
        missing = 0
        for n, weight in self.weights.items():
            due = weight * size / again
            expect(weight or not counts[n], "sample", n, "of weight 0 is drawn")
            if self["replacement"]:
                most = (int(due) + 2) * again + (again - 1)
                expect(counts[n] <= most, "sample", n, "is due", due * again, "times and comes", counts[n])
                missing += max(0, (int(due) - 1) * again - (again - 1) - counts[n])
        expect(missing <= left_out, missing, "draws are missing", left_out)

    def _check_mixture(self, epochs: list[list[list[int]]], first: int) -> None:
        for place, share in enumerate(self.shares):
            low, high = self.offsets[place], self.offsets[place + 1]
            drawn = 0
            counts: Counter[int] = Counter()
            for done, batch in enumerate((batch for epoch in epochs for batch in epoch), start=1):
                own = [n for n in batch if low <= n < high]
                counts.update(own)
                drawn += len(own)
                exact, nodes = share * self.rows, int(self["canonical_nodes"] or 1)  # each node's part is rounded
                expect(
                    int(exact) - nodes < len(own) < -int(-exact // 1) + nodes,
                    "a batch has",
                    len(own),
                    "rows of a dataset due",
                    float(exact),
                )
                if not first:
                    expect(
                        abs(drawn - exact * done) < 1 + (len(self.shares) > 2) + len(epochs),
                        "after",
                        done,
                        "batches",
                        drawn,
                        "rows, due",
                        float(exact * done),
                    )
            one_pass = len(self.chosen[place]) * self.repeats
            if not first and one_pass:
                most, least = -(-drawn // one_pass) * self.repeats, drawn // one_pass * self.repeats
                for n in self.chosen[place]:
                    expect(
                        least <= counts[low + n] <= most,
                        "sample",
                        low + n,
                        "comes",
                        counts[low + n],
                        "times, not",
                        least,
                        "to",
                        most,
                    )


def pair(size: Any) -> tuple[int, int]:
    if isinstance(size, (int, np.integer)):
        return int(size), int(size)
    return int(size[0]), int(size[1])
