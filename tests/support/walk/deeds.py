"""A draw -> what a user does with it, compared with the model and with itself."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


def names(folder: Path, url: str) -> dict[str, Any]:
    """What the texts of a draw are made of."""
    return {
        "fastpipe": fastpipe, "np": np, "torch": torch, "K": kornia.augmentation, "Image": Image,
        "at": lambda path: str(folder / path), "url": lambda path: f"{url}/{path}", "cache": folder / "cache",
    }  # fmt: skip


def evaluated(text: str, known: dict[str, Any]) -> Any:
    """Of a draw's text, which is this folder's own."""
    return eval(text, dict(known))  # noqa: S307


@contextlib.contextmanager
def _nodes(world: int, parts: int) -> Iterator[None]:
    """Each rank is on a machine of its own, where the parts of the dataset allow that; else all are on one."""
    before = os.environ.pop("LOCAL_WORLD_SIZE", None)
    if parts % world == 0:
        os.environ["LOCAL_WORLD_SIZE"] = "1"
    try:
        yield
    finally:
        os.environ.pop("LOCAL_WORLD_SIZE", None)
        if before is not None:
            os.environ["LOCAL_WORLD_SIZE"] = before


class Walk:
    """One draw, done."""

    def __init__(self, draw: Draw, folder: Path, url: str, counts: Counter[str]) -> None:
        self.draw = draw
        self.names = names(folder, url)
        self.counts = counts
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
        except fastpipe.FastpipeError as error:
            return self._bad_data(error)
        with loader:
            expect(not self.draw.wrong, "a loader takes", {name: self.draw.options[name] for name in self.draw.wrong})
            self.samples = composed(self.draw, self._evaluate)
            self.model = BatchModel(self.draw, self.options, self.samples)
            broken = refusals(self.model)
            if self.options.get("fields") is not None:  # what the comparing needs, too
                given = list(self.options["fields"])
                given += [name for name in ("id", "valid", "epoch") if name not in given]
                self.options["fields"] = tuple(given)
            expect(self.draw.unsure or not broken, "a loader takes what the docs refuse:", broken)
        try:
            getattr(self, f"_{self.draw.deed}")()
        except fastpipe.ConfigError as error:
            if not self.draw.unsure and not callable(self.options.get("size")):
                raise
            self.draw.unsure.add("size")
            return self._refused(error)
        except fastpipe.FastpipeError as error:
            return self._bad_data(error)
        self.counts[f"deed {self.draw.deed}"] += 1
        return "done"

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
        self.options = {name: evaluated(text, self.names) for name, text in self.draw.options.items()}
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
        text = str(error)
        passed = {word for word in re.findall(r"[a-z_A-Z]+", self.draw.call()) if word not in ("fastpipe", "at", "a")}
        expect(any(name in text for name in passed) or "Augment" in text, "a ConfigError that names no option:", text)
        if self.draw.wrong or self.draw.unsure:
            return "refused: wrong"
        broken = self.broken()
        expect(broken, "a ConfigError that the docs do not announce:", text)
        expect(any(word in text for word in broken), "a ConfigError about something else than", broken, ":", text)
        return "refused: together"

    def _bad_data(self, error: Exception) -> str:
        if self.draw.wrong:
            return "refused: wrong"
        damaged = any(part.damaged for part in self.draw.parts)
        if isinstance(error, fastpipe.SampleError) and damaged:
            return "bad sample"
        pixels = max(wide * high for part in self.draw.parts for wide, high in part.sizes)
        most = min((int(each["max_pixels"]) for each in self.draw.opening if "max_pixels" in each), default=1 << 60)
        if isinstance(error, fastpipe.DatasetError) and pixels > most:
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
                expect(loader.remaining == len(loader), "remaining", loader.remaining, "of", len(loader))
                epoch = []
                for done, batch in enumerate(loader, start=1):
                    epoch.append(taken(batch))
                    expect(
                        loader.remaining == len(loader) - done or done == len(loader),
                        "remaining",
                        loader.remaining,
                        "after",
                        done,
                    )
                    self.model.check_batch(epoch[-1], loader, number, self.size_now(number))
                found.append(epoch)
                self.counts["epochs"] += 1
            rows = sum(sum(batch.valid) for epoch in found for batch in epoch)
            stats = loader.stats()
            expect(stats.samples == rows or self.model.replaced, "stats counts", stats.samples, "samples of", rows)
        ids = [[[n for n, ok in zip(b.ids, b.valid, strict=True) if ok] for b in epoch] for epoch in found]
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
        with self.open(num_workers=1 + self._number("b", 4), prefetch_factor=1 + self._number("c", 5)) as loader:
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
            if self._number("b", 4) == 0:
                list(itertools.islice(iterator, 0))  # has made batches in advance
            state = json.loads(json.dumps(loader.state_dict()))
        with self.open(num_workers=1 + self._number("b", 3), prefetch_factor=1 + self._number("c", 4)) as loader:
            loader.load_state_dict(state)
            if self._number("c", 2):
                loader.set_epoch(first)
            left = len(found[0]) - place
            expect(loader.remaining == left or not place, "remaining", loader.remaining, "not", left)
            got = epochs_of(loader, 2)
            self._same([found[0][place:], found[1]], got, f"after a resume at batch {place}")
            self.counts["epochs"] += 2
        self.counts["resumes"] += 1

    def _ranks(self) -> None:
        """The union over the ranks is the epoch of one loader; a state goes from one world to another."""
        world = (1, 2, 3, 4, 8)[self._number("a", 5)]
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
                        len(loader) == len(found), "a rank has", len(loader), "batches,", len(found), "without ranks"
                    )
                    ranks.append(epochs_of(loader, 1)[0])
                    for each in ranks[-1]:
                        self.model.check_batch(each, loader, 0, self.size_now(0))
        self._union(ranks, found, f"on {world} ranks")
        self.counts["ranks"] += 1
        place = self._number("c", len(found) + 1)
        with self.open(batch_size=batch, rank=world - 1, world_size=world) as loader:
            some(iter(loader), place)
            state = json.loads(json.dumps(loader.state_dict()))
        with self.open() as loader:
            loader.load_state_dict(state)
            self._same([found[place:]], epochs_of(loader, 1), f"resumed from {world} ranks at {place}")
        others = [each for each in (2, 3, 4, 8) if each != world and batch * world % each == 0]
        if others and place < len(found):
            other = others[self._number("d", len(others))]
            rest = []
            with _nodes(other, self.model.parts):
                for rank in range(other):
                    with self.open(batch_size=batch * world // other, rank=rank, world_size=other) as loader:
                        loader.load_state_dict(state)
                        rest.append(epochs_of(loader, 1)[0])
            self._union(rest, found[place:], f"on {other} ranks, resumed from {world} at {place}")
        self.counts["resumes over ranks"] += 1

    def _union(self, ranks: list[list[Taken]], found: list[Taken], when: str) -> None:
        """The global batches of ranks are those of one loader."""
        mixes = any(word in self.draw.options.get("augment", "") for word in ("mixup", "cutmix"))
        expect({len(each) for each in ranks} == {len(found)}, "batches", when, [len(each) for each in ranks])
        for step, wanted in enumerate(found):
            parts = [rank[step] for rank in ranks]
            expect(len({len(each) for each in parts}) == 1, "ranks have rows", [len(each) for each in parts])
            repeated = {n for each in parts for n in each.ids} - {n for n, _ in wanted.rows()}
            by_sample = self.model["partition"] == "sample"
            expect(not repeated or not by_sample, "rows that do not count are of others", repeated)
            expect(sum(sum(each.valid) for each in parts) == sum(wanted.valid), "rows that count")
            got = sorted(row for each in parts for row in each.rows())
            numbers = [n for n, _ in got]
            expect(numbers == sorted(n for n, _ in wanted.rows()), "ids of global batch", step, "differ", when)
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
                free = self.options.get("size_choices") is None and not self.model.buckets
                views = self.options.get("views")
                sized = isinstance(views, (list, tuple)) and all(view.size is not None for view in views)
                expect(not free or callable(self.options.get("size")) or sized or self.draw.unsure, "set_size:", error)
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
            third_rest = None
        with self.open() as loader:
            loader.set_size(size)
            loader.set_epoch(2)
            third_rest = epochs_of(loader, 1)[0][place:]
        with self.open() as loader:
            loader.load_state_dict(state)
            self._same([third_rest], epochs_of(loader, 1), "after set_size and a resume")

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
        sampler = fastpipe.Repeated(self.model.repeats, sampler) if self.model.repeats > 1 else sampler
        self._same([first], self._reference(1), "while weights are set")
        with self.open(sampler=sampler) as loader:
            loader.set_epoch(1)
            self._same(second, epochs_of(loader, 1), "after set_weights")

    def _close(self) -> None:
        """In the middle: what the loop has stays, and the loader says that it is closed."""
        loader = self.open()
        iterator = iter(loader)
        batches = some(iterator, 1 + self._number("a", 2))
        before = [batch.whole() for batch in batches]
        loader.close()
        loader.close()
        expect([batch.whole() for batch in batches] == before, "batches changed with close")
        for step in (lambda: next(iterator), lambda: next(iter(loader))):
            try:
                step()
            except (fastpipe.EngineError, StopIteration) as error:
                expect(
                    not isinstance(error, StopIteration) or len(batches) == self.model.length,
                    "a short epoch after close",
                )
            else:
                raise Wrong("a closed loader gives a batch")

    def _two(self) -> None:
        """Side by side; and one iteration left for the next."""
        found = self._reference(2)
        with self.open() as one, self.open() as other:
            a, b = [], []
            for x, y in zip(one, other, strict=True):
                a.append(taken(x))
                b.append(taken(y))
            self._same([found[0], found[0]], [a, b], "beside another loader")
        loader = self.open()
        for _ in loader:
            break
        self._same([found[1]], epochs_of(loader, 1), "after an epoch that was left")
        del loader
        gc.collect()

    def _part(self) -> None:
        """Of states that are not this loader's, and of parts of the data."""
        with self.open() as loader:
            state = loader.state_dict()
            changed = ({"epoch": -1}, {"batches": 10**9}, {"version": 99}, {"dataset": "0"}, {"order": "{}"})
            for wrong in ({}, [], "state", None, *({**state, **each} for each in changed)):
                try:
                    loader.load_state_dict(wrong)  # type: ignore[arg-type]
                except fastpipe.ConfigError:
                    continue
                raise Wrong(f"load_state_dict takes {wrong}")
            for epoch in (-1, 1.5, "x", None, True):
                try:
                    loader.set_epoch(epoch)  # type: ignore[arg-type]
                except fastpipe.ConfigError:
                    continue
                raise Wrong(f"set_epoch takes {epoch!r}")
        for path, known in zip(self.paths, self.draw.parts, strict=True):
            data = fastpipe.open(path)
            if len(data) <= 20:
                continue
            few, more = (set(data.take(fraction)["key"][:]) for fraction in (0.5, 0.8))
            expect(few <= more, "take(0.5) is no part of take(0.8)")
            rest, part = data.fold(0, of=8)
            expect(len(part) < len(rest), "fold(0, of=8) gives the eighth first")
            halves = [data.fold(fold, of=2) for fold in range(2)]
            for rest, part in halves:
                expect({*rest["key"][:]} | {*part["key"][:]} == {*data["key"][:]}, "a fold and its rest")
                expect(len(rest) + len(part) == len(known), "a fold and its rest have", len(rest), len(part))
            expect({*halves[0][1]["key"][:]} == {*halves[1][0]["key"][:]}, "the two folds")
            self.counts["folds"] += 2
