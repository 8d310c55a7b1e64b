"""A draw -> what a user does with it, compared with the model and with itself."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import kornia.augmentation
import numpy as np
import torch
from PIL import Image
from support.walk.batch_model import BatchModel
from support.walk.comparing import compare_augmented, compare_rows, compare_views
from support.walk.composed import Composed, Refused, composed
from support.walk.drawing import Draw
from support.walk.model import Wrong, expect
from support.walk.refusals import refusals
from support.walk.taking import Taken, epochs_of, some, taken

import fastpipe


def names(folder: Path, url: str = "") -> dict[str, Any]:
    """What the texts of a draw are made of."""
    return {
        "fastpipe": fastpipe, "np": np, "torch": torch, "K": kornia.augmentation, "Image": Image,
        "at": lambda path: str(folder / path), "url": lambda path: f"{url}/{path}", "cache": folder / "cache",
    }  # fmt: skip


def evaluated(text: str, known: dict[str, Any]) -> Any:
    """Of a draw's text, which is this folder's own."""
    return eval(text, dict(known))  # noqa: S307


def _nodes(world: int, parts: int) -> AbstractContextManager[Any]:
    """Each rank is on a machine of its own, where the parts of the dataset allow that; else all are on one."""
    local = 1 if parts % world == 0 else world
    return mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": str(local)})


def walked(seed: int, draws: Iterable[Draw], folder: Path, url: str = "") -> Counter[str]:
    """How these draws ended; the first that is not as the docs say is an error, with a program that does it again."""
    ends: Counter[str] = Counter()
    for draw in draws:
        try:
            ends[Walk(draw, folder, url).do()] += 1
        except Exception as error:
            what = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            program = (
                f"# draw {draw.number} of seed {seed}\n{draw.call()}  # {draw.deed} {draw.how}"
            )
            raise AssertionError(f"{what}\n{program}") from error
    return ends


class Walk:
    """One draw, done."""

    def __init__(self, draw: Draw, folder: Path, url: str = "") -> None:
        self.draw = draw
        self.names = names(folder, url)
        self.data: Any = None
        self.samples: Composed
        self.options: dict[str, Any] = {}

    def do(self) -> str:
        """How it ended.

        Raises:
            Wrong: not as the docs say.
        """
        try:
            self._evaluate_draw()
            loader = self.open()
        except fastpipe.ConfigError as error:
            return self._refused(error)
        except fastpipe.DatasetError as error:
            return self._bad_data(error)
        with loader:
            self.samples = composed(self.draw, self._evaluate)
            self.model = BatchModel(self.draw, self.options, self.samples)
            broken = refusals(self.model)
            if self.options.get("fields") is not None:  # what the comparing needs, too
                given = list(self.options["fields"])
                needed = ["id", "valid", "epoch"]
                if self.model.patches:
                    needed.append("grids")
                given += [name for name in needed if name not in given]
                self.options["fields"] = tuple(given)
            expect(not broken, "a loader takes what the docs refuse:", broken)
            self._look_at_dataset()
        try:
            getattr(self, f"_{self.draw.deed}")()
        except fastpipe.DatasetError as error:
            return self._bad_data(error)
        return "done"

    def _look_at_dataset(self) -> None:
        """Its labels and its columns are those of the sources."""
        dataset, rows, labels = (
            self.dataset,
            self.samples.rows,
            [row.label for row in self.samples.rows],
        )
        expect(dataset.targets.tolist() == labels, "targets", dataset.targets, "not", labels)
        counts = [labels.count(label) for label in range(len(dataset.classes))]
        expect(dataset.class_counts == counts, "class_counts", dataset.class_counts, "not", counts)
        sizes = [*zip(dataset["width"][:].tolist(), dataset["height"][:].tolist(), strict=True)]
        expect(
            sizes == [self.draw.parts[row.part].sizes[row.number] for row in rows], "sizes", sizes
        )
        labelled = any(
            step.method == "with_labels"
            for step in itertools.chain(*self.draw.steps, self.draw.after)
        )
        mode = "" if self.draw.join is None else self.draw.join[2]
        if labelled or mode == "'own'":
            return
        for row in rows:
            known = self.draw.parts[row.part]
            label = known.labels[row.number]
            prefix = f"{row.part}/" if mode == "'offset'" else ""
            expect(
                row.name == (None if label < 0 else f"{prefix}{known.names[label]}"),
                "class",
                row.name,
            )

    def broken(self) -> set[str]:
        """What the docs refuse of the draw: words of which an error has one."""
        try:
            samples = composed(self.draw, self._evaluate)
        except Refused as refused:
            return set(map(str, refused.args))
        if not self.options:
            self._evaluate_draw()
        return refusals(BatchModel(self.draw, self.options, samples))

    def _evaluate_draw(self) -> None:
        self.data = self.names["data"] = evaluated(self.draw.data, self.names)
        self.options = {
            name: evaluated(text, self.names) for name, text in self.draw.options.items()
        }
        self.options.setdefault("batch_size", 4)

    def _evaluate(self, text: str) -> Any:
        return evaluated(text, self.names)

    @property
    def paths(self) -> list[str]:
        """Where the sources are, without damage."""
        return [self._evaluate(f"at({part.sound!r})") for part in self.draw.parts]

    @property
    def dataset(self) -> fastpipe.Dataset:
        return self.data if isinstance(self.data, fastpipe.Dataset) else fastpipe.open(self.data)

    def open(self, **over: Any) -> fastpipe.Loader:
        options = {**self.options, **over}
        return fastpipe.loader(self.data, **options)

    def _refused(self, error: Exception) -> str:
        broken = self.broken()
        expect(broken, "a ConfigError that the docs do not announce:", error)
        expect(
            any(word in str(error) for word in broken),
            "an error about something else than",
            broken,
            ":",
            error,
        )
        return "refused"

    def _bad_data(self, error: Exception) -> str:
        if isinstance(error, fastpipe.SampleError) and any(
            part.damaged for part in self.draw.parts
        ):
            return "bad sample"
        pixels = max(wide * high for part in self.draw.parts for wide, high in part.sizes)
        most = min(
            (int(each["max_pixels"]) for each in self.draw.opening if "max_pixels" in each),
            default=1 << 60,
        )
        if pixels > most:
            return "too many pixels"
        raise error

    # Deeds

    def _number(self, name: str, below: int) -> int:
        return self.draw.how[name] % below if below > 0 else 0

    @property
    def size_now(self) -> Callable[[int], Any]:
        size = self.options.get("size")
        return size if callable(size) else lambda epoch: None

    def _reference(self, count: int, first: int = 0) -> list[list[Taken]]:
        """Some epochs, each batch compared with the model."""
        with self.open() as loader:
            if first:
                loader.set_epoch(first)
            self.model.check_length(len(loader))
            found = []
            for number in range(first, first + count):
                expect(
                    loader.remaining == len(loader),
                    "remaining",
                    loader.remaining,
                    "of",
                    len(loader),
                )
                epoch = []
                whole = len(loader)
                for done, batch in enumerate(loader):
                    epoch.append(taken(batch))
                    left = whole - done - 1
                    expect(loader.remaining == left, "remaining", loader.remaining, "not", left)
                    self.model.check_batch(epoch[-1], loader, number, self.size_now(number))
                found.append(epoch)
            rows = sum(sum(batch.valid) for epoch in found for batch in epoch)
            stats = loader.stats()
            expect(
                stats.samples == rows or self.model.replaced,
                "stats counts",
                stats.samples,
                "samples of",
                rows,
            )
        ids = [
            [[n for n, ok in zip(b.ids, b.valid, strict=True) if ok] for b in epoch]
            for epoch in found
        ]
        self.model.check_order(ids, first)
        return found

    def _epochs(self) -> None:
        first = self._number("b", 4) if self._number("c", 3) == 0 else 0
        found = self._reference(1 + self._number("a", 3), first)
        compare_rows(self, found[0], first)
        if self.model.plain and not self.model.replaced:
            compare_views(self, found[0], first)
            compare_augmented(self, found[0], first)

    def _again(self) -> None:
        """Other threads, other prefetching: the same bytes."""
        found = self._reference(1 + self._number("a", 2))
        with self.open(
            num_workers=1 + self._number("b", 4), prefetch_factor=1 + self._number("c", 5)
        ) as loader:
            self._same(found, epochs_of(loader, len(found)), "with other threads")

    def _same(self, one: list[list[Taken]], other: list[list[Taken]], when: str) -> None:
        expect([len(epoch) for epoch in one] == [len(epoch) for epoch in other], "batches", when)
        for epoch, again in zip(one, other, strict=True):
            for place, (a, b) in enumerate(zip(epoch, again, strict=True)):
                expect(a.ids == b.ids, "ids differ", when, "in batch", place, a.ids, b.ids)
                expect(a.whole() == b.whole(), "bytes differ", when, "in batch", place)

    def _resume(self) -> None:
        """Left in the middle, in a loader with other threads; maybe twice."""
        found = self._reference(2, first := self._number("d", 3))
        place = self._number("a", len(found[0]) + 1)
        with self.open() as loader:
            loader.set_epoch(first)
            iterator = iter(loader)
            some(iterator, place)
            state = json.loads(json.dumps(loader.state_dict()))
        with self.open(
            num_workers=1 + self._number("b", 3), prefetch_factor=1 + self._number("c", 4)
        ) as loader:
            loader.load_state_dict(state)
            if self._number("c", 2):
                loader.set_epoch(first)
            left = len(found[0]) - place
            expect(
                loader.remaining == left or not place, "remaining", loader.remaining, "not", left
            )
            got = epochs_of(loader, 2)
            self._same([found[0][place:], found[1]], got, f"after a resume at batch {place}")

    def _ranks(self) -> None:
        """The union over the ranks is the epoch of one loader; a state goes from one world to another."""
        world = (1, 2, 3, 4, 8)[self._number("a", 5)]
        if self.model.budget:
            self._ranks_of_budget(world)
            return
        batch = 1 + self._number("b", 4)
        self.options["batch_size"] = batch * world
        self.model = whole = BatchModel(self.draw, self.options, self.samples)
        if refusals(whole):
            return
        found = self._reference(1)[0]
        length = whole.length
        of_world = {**self.options, "batch_size": batch, "world_size": world}
        self.model = BatchModel(self.draw, of_world, self.samples, world)
        ranks = []
        with _nodes(world, self.model.parts):
            for rank in range(world):
                with self.open(batch_size=batch, rank=rank, world_size=world) as loader:
                    self.model._length = length
                    expect(
                        len(loader) == len(found),
                        "a rank has",
                        len(loader),
                        "batches,",
                        len(found),
                        "without ranks",
                    )
                    ranks.append(epochs_of(loader, 1)[0])
                    for each in ranks[-1]:
                        self.model.check_batch(each, loader, 0, self.size_now(0))
        self._union(ranks, found, f"on {world} ranks")
        place = self._number("c", len(found) + 1)
        with self.open(batch_size=batch, rank=world - 1, world_size=world) as loader:
            some(iter(loader), place)
            state = json.loads(json.dumps(loader.state_dict()))
        with self.open() as loader:
            loader.load_state_dict(state)
            self._same(
                [found[place:]], epochs_of(loader, 1), f"resumed from {world} ranks at {place}"
            )
        others = [each for each in (2, 3, 4, 8) if each != world and batch * world % each == 0]
        if others and place < len(found):
            other = others[self._number("d", len(others))]
            rest = []
            with _nodes(other, self.model.parts):
                for rank in range(other):
                    with self.open(
                        batch_size=batch * world // other, rank=rank, world_size=other
                    ) as loader:
                        loader.load_state_dict(state)
                        rest.append(epochs_of(loader, 1)[0])
            self._union(rest, found[place:], f"on {other} ranks, resumed from {world} at {place}")

    def _ranks_of_budget(self, world: int) -> None:
        """Ranks take the batches of one loader in turn; a state goes from one world to another."""
        found = self._reference(1)[0]
        with self.open(rank=0, world_size=world) as loader:
            steps = len(loader)
        if self.model.drop_last:
            expect(steps == len(found) // world, "steps", steps, "of", len(found), "batches")
        else:
            expect(steps == -(-len(found) // world), "steps", steps, "of", len(found), "batches")

        def check(world: int, first: int, state: Any = None) -> None:
            for rank in range(world):
                with self.open(rank=rank, world_size=world) as loader:
                    if state is not None:
                        loader.load_state_dict(state)
                    (epoch,) = epochs_of(loader, 1)
                for step, batch in enumerate(epoch):
                    number = first + step * world + rank
                    if number < len(found):
                        self._same([[found[number]]], [[batch]], f"on {world} ranks")
                    else:
                        expect(not any(batch.valid), "a repeated batch counts")

        check(world, 0)
        place = self._number("c", steps + 1)
        if place == steps:
            return
        with self.open(rank=world - 1, world_size=world) as loader:
            some(iter(loader), place)
            state = json.loads(json.dumps(loader.state_dict()))
        others = [each for each in (1, 2, 3, 4) if place * world % each == 0]
        other = others[self._number("d", len(others))]
        with self.open(rank=0, world_size=other) as loader:
            left = len(loader) - place * world // other
        if left > 0:
            check(other, place * world, state)

    def _union(self, ranks: list[list[Taken]], found: list[Taken], when: str) -> None:
        """The global batches of ranks are those of one loader."""
        mixes = any(word in self.draw.options.get("augment", "") for word in ("mixup", "cutmix"))
        expect(
            {len(each) for each in ranks} == {len(found)},
            "batches",
            when,
            [len(each) for each in ranks],
        )
        for step, wanted in enumerate(found):
            parts = [rank[step] for rank in ranks]
            expect(
                len({len(each) for each in parts}) == 1,
                "ranks have rows",
                [len(each) for each in parts],
            )
            repeated = {n for each in parts for n in each.ids} - {n for n, _ in wanted.rows()}
            by_sample = self.model["partition"] == "sample"
            expect(not repeated or not by_sample, "rows that do not count are of others", repeated)
            expect(sum(sum(each.valid) for each in parts) == sum(wanted.valid), "rows that count")
            got = sorted(row for each in parts for row in each.rows())
            numbers = [n for n, _ in got]
            expect(
                numbers == sorted(n for n, _ in wanted.rows()),
                "ids of global batch",
                step,
                "differ",
                when,
            )
            if not mixes:
                expect(got == sorted(wanted.rows()), "rows of global batch", step, "differ", when)

    def _set_size(self) -> None:
        """In the middle of an epoch: it counts from the next one, and in a state."""
        size = ((5, 9), 7, (3, 3))[self._number("a", 3)]
        with self.open() as loader:
            iterator = iter(loader)
            first = some(iterator, 1)
            try:
                loader.set_size(size)
            except fastpipe.ConfigError as error:
                free = self.options.get("size_choices") is None and not (
                    self.model.buckets
                    or self.model.native
                    or self.model.patches
                    or self.model.per_part
                )
                views = self.options.get("views")
                sized = isinstance(views, (list, tuple)) and all(
                    view.size is not None for view in views
                )
                expect(not free or callable(self.options.get("size")) or sized, "set_size:", error)
                return
            first += some(iterator, 1 << 30)
            for batch in first:
                self.model.check_batch(batch, loader, 0, self.size_now(0))
            second = epochs_of(loader, 1)[0]
            for batch in second:
                self.model.check_batch(batch, loader, 1, size)
            place = self._number("b", len(second) + 1)
            some(iter(loader), place)
            state = json.loads(json.dumps(loader.state_dict()))
        with self.open(size=size) as loader:
            loader.set_epoch(1)
            self._same([second], epochs_of(loader, 1), "after set_size")
            third = epochs_of(loader, 1)[0]
        with self.open() as loader:
            loader.load_state_dict(state)
            self._same([third[place:]], epochs_of(loader, 1), "after set_size and a resume")

    def _set_weights(self) -> None:
        """In the middle of an epoch: they count from the next one, as if the loader had them from the start."""
        new = 1.0 + np.arange(len(self.samples)) % 3
        with self.open() as loader:
            iterator = iter(loader)
            first = some(iterator, 1)
            try:
                loader.set_weights(new)
            except fastpipe.ConfigError as error:
                expect(self.model.weighted is None, "set_weights:", error)
                return
            expect(self.model.weighted is not None, "a loader without weights takes some")
            first += some(iterator, 1 << 30)
            second = epochs_of(loader, 1)
        replacement = self.model.weighted.replacement
        sampler: Any = fastpipe.Weighted(new, replacement=replacement)
        sampler = (
            fastpipe.Repeated(self.model.repeats, sampler) if self.model.repeats > 1 else sampler
        )
        self._same([first], self._reference(1), "while weights are set")
        with self.open(sampler=sampler) as loader:
            loader.set_epoch(1)
            self._same(second, epochs_of(loader, 1), "after set_weights")
