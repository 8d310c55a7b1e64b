"""`fastpipe.Writer`: samples that a program adds one by one -> a packed dataset."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xxhash

from fastpipe.errors import ConfigError, PackError, choice
from fastpipe.format.fields import KINDS, check_name
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.packing.fields.placement import Frame
from fastpipe.packing.job.destination import destination_of, opened, plan_run
from fastpipe.packing.job.threads import Made, Summary, publish, tell_assumed
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.pipeline.converting import convert_sample
from fastpipe.packing.pipeline.given import Given, given
from fastpipe.packing.pipeline.keys import Keys
from fastpipe.packing.shard.journal import Entry, Journal, entry_name
from fastpipe.packing.shard.make import Finishing, Making, ShardMaker
from fastpipe.packing.shard.options import OPTIONS, PackOptions, pack_options
from fastpipe.packing.shard.plan import Outcome, Plan
from fastpipe.sources.classes_from import ClassesFrom, class_names
from fastpipe.sources.listing import STORED, Facts, SourceField
from fastpipe.sources.picture.convert import Packed

_MADE_BY = "fastpipe.Writer"
_ENTRY = re.compile(r"shard-(\d{6,})-((\d+)-([0-9a-f]{32}))\.done")
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # a part of a character, which is no byte of a file name
_NO_KEYS = "0" * 32
_OPTIONS = OPTIONS - {"seed", "shuffle"} | {"coordinates"}


class Writer:
    """Writes a dataset of samples that come from anywhere, in the order in which they are added.

        with fastpipe.Writer("data/train", fields={"caption": "text", "boxes": "boxes"}) as writer:
            for photo in photos:
                writer.add(photo.path, label=photo.label, key=photo.id, caption=photo.caption, boxes=photo.boxes)

    The dataset appears when the block ends without an exception. Memory does not grow with the samples. Add samples in
    random order if you can: a loader shuffles, but it mixes samples of one class less well that all stand together.

    Note [resuming a Writer]
    If the program is interrupted, finished shards are kept. Run the same program again: if all samples have a `key`,
    `add` skips the samples that are in finished shards. It compares keys and labels of the samples with those of the
    first run, so keys have to come in the same order, and the same key has to mean the same sample. Without keys, or
    with overwrite=True, the next run begins anew.

    Args:
        dst: a new or empty folder, or an unfinished dataset of the same Writer; or its URL (s3://, gs://, az://).
        fields: name -> kind of what samples carry besides image and label: "int", "floats", "classes", "text", "json",
            "bytes", "boxes", "keypoints", "mask" or "image". `docs/format.md` explains them.
        classes: names of all classes; a label is a name, or a position in this list. None: labels are numbers, and the
            classes are called after them.
        classes_from: in place of `classes`: what has the names, as `fastpipe.pack` takes it: a packed dataset, a source
            such as a folder of class folders, or a text file with a name on each line.
        **options: those of `fastpipe.pack`, without `seed`, `shuffle`, `on_progress` and those that say how a source is
            read, but with `coordinates`; None: boxes, points and masks are of images as stored.

    Attributes:
        summary: what was packed, when the block has ended.

    Raises:
        ConfigError: an argument is wrong.
        PackError: the folder holds something else, or the disk refuses.
    """

    summary: Summary

    def __init__(
        self,
        dst: str | os.PathLike[str],
        fields: Mapping[str, str] | None = None,
        *,
        classes: Sequence[str] | None = None,
        classes_from: ClassesFrom | None = None,
        **options: Any,
    ) -> None:
        if wrong := options.keys() - _OPTIONS:
            raise ConfigError(
                f"{min(wrong)}: a Writer has no such option; expected one of {', '.join(sorted(_OPTIONS))}. It has no "
                "source to read, and keeps the order in which samples are added: shuffle them before"
            )
        self._kinds = _checked_kinds(fields or {})
        self._options: PackOptions = pack_options(**options, shuffle=False)
        if classes_from is not None:
            if classes is not None:
                raise ConfigError("classes and classes_from both name the classes; leave out one of them")
            classes = class_names(classes_from, self._options.source.remote).labels
        self._classes = None if classes is None else _checked_classes(classes)
        self._names = list(self._classes or ())
        self._destination = destination_of(dst)
        self._series: _Series | None = None

    def __enter__(self) -> Writer:
        if hasattr(self, "summary"):
            raise ConfigError("this Writer has written its dataset; make another one")
        self._started = time.monotonic()
        fields = tuple(SourceField(name, kind) for name, kind in self._kinds.items())
        classes = None if self._classes is None else list(self._classes)
        self._facts = Facts(
            _MADE_BY, classes, taken_ns=time.time_ns(), fields=fields, coordinates=STORED, made_by=_MADE_BY
        )
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(opened(self._destination, self._options))
            plan_run(journal, self._facts, self._options)
            if self._options.overwrite:
                journal.clean(())
            series = self._series = _Series(journal, self._options, self._kinds)
            stack.enter_context(series.finishing)
            stack.callback(lambda: series.maker.discard())
            self._ahead = Ahead(self._convert, self._options.threads, lambda named: named[0].size_bytes)
            stack.callback(self._ahead.close)
            self._open = stack.pop_all()
        self._resumed = len(series.entries)
        self._keys = Keys()  # of the samples so far
        self._failed: BaseException | None = None
        return self

    def add(self, /, image: object, label: int | str | None = None, key: str | None = None, **fields: object) -> None:
        """Adds a sample. It is converted in the background; what is wrong with it is listed in rejected.jsonl.

        Args:
            image: a path, the bytes of an image file, a PIL image, or (H, W) or (H, W, C) of uint8 or uint16, C
                channels: gray; gray and alpha; RGB; RGB and alpha. It keeps its exact pixels, as with `pack`; a PIL
                image that a program has changed counts as one without loss.
            label: a position in the list of classes, or a class name; None: the sample has no label.
            key: names the sample, in the dataset and in messages; with keys an interrupted program can continue. None:
                the path of the image, with #2, #3, ... behind it if it comes again; or #N, the number of the sample.
            **fields: the values of its fields; None, or no value: the sample has none.

        Raises:
            ConfigError: a field is not one of the Writer's, an earlier sample has the key, or the Writer is not open.
            PackError: the disk refuses; or, with on_error="fail", an earlier sample cannot be packed; or the samples
                are not those of the interrupted run. After it no sample can be added, and no dataset appears.
        """
        series = self._series
        if series is None:
            raise ConfigError("add samples inside the with block: with fastpipe.Writer(...) as writer: writer.add(...)")
        strange = fields.keys() - self._kinds.keys()
        if strange:
            expected = ", ".join(self._kinds) or "none"
            raise ConfigError(f"{min(strange)}: expected only the fields that the Writer was made with ({expected})")
        if key is not None and not isinstance(key, str):
            raise ConfigError(f"key: expected a text (str), got {type(key).__name__}")
        self._check_complete()
        if key is not None and key in self._keys:
            raise ConfigError(
                f"key {key!r}: an earlier sample has it; expected each key once, for samples are chosen, added and "
                "removed by their keys"
            )
        unnamed = os.fsdecode(image) if isinstance(image, (str, os.PathLike)) else f"#{series.count}"
        name = self._keys.free(unnamed) if key is None else key
        sample = None  # it is in a finished shard
        if series.count >= series.resumed:
            sample = given(name, image, label, fields, self._kinds, self._classes)
        self._keys.add(name)
        try:
            up_to = series.name(None if key is None else f"{key!r} {label}")
            if sample is not None:
                self._write(series, self._ahead.put((sample, up_to)))
        except BaseException as problem:
            self._failed = problem  # samples are missing after it, also if the program catches it
            raise

    def __exit__(self, kind: type[BaseException] | None, *problem: Any) -> None:
        series, self._series = self._series, None
        if kind is not None or series is None:
            self._open.__exit__(kind, *problem)  # an upload under way is given up
            return
        with self._open:
            self._check_complete()
            if series.count < series.resumed:
                raise series.differs()
            self._write(series, self._ahead.rest())
            series.finish()
            identity = series.digest.hexdigest()
            facts = replace(self._facts, files=series.count, content=identity, state=identity)
            made = Made(None, series.entries, series.count - series.resumed, self._resumed)
            self.summary = publish(series.journal, facts, self._options, made, self._started)
            tell_assumed(_MADE_BY, self.summary.assumed)

    def _check_complete(self) -> None:
        if self._failed is not None:
            raise PackError(
                "an earlier add has failed, so samples are missing and no dataset is written: "
                f"{str(self._failed) or type(self._failed).__name__}"
            ) from self._failed

    def _write(self, series: _Series, done: Iterator[tuple[_Named, Outcome]]) -> None:
        for (sample, up_to), outcome in done:
            series.add(sample, up_to, outcome)

    def _convert(self, named: _Named) -> Outcome:
        sample, _ = named
        how = self._options.encode, self._kinds, self._names

        def values(_: Packed) -> tuple[Frame, Iterator[Any]]:
            return Frame(self._options.source.coordinates or STORED), sample.read_values(self._kinds)

        return convert_sample(sample, sample.name, sample.read_image, values, *how)


_Named = tuple[Given, str]  # a sample, and the name of all samples up to it


class _Series:
    """The shards of a Writer, each filled up to the size asked for; `resumed` samples are of an earlier run."""

    def __init__(self, journal: Journal, options: PackOptions, kinds: Mapping[str, str]) -> None:
        self.journal = journal
        self.entries: list[Entry] = []
        self._expected: dict[int, str] = {}
        names = sorted(name for name in journal.store.sizes(WORK_FOLDER) if _ENTRY.fullmatch(name))
        for name, entry in zip(names, journal.finished(names), strict=True):
            number, up_to, samples, digest = _ENTRY.fullmatch(name).groups()  # type: ignore[union-attr]  # it has matched
            if int(number) != len(self.entries) or entry is None or digest == _NO_KEYS:
                break
            self.entries.append(entry)
            self._expected[int(samples)] = up_to
        self.count, self.digest, self._has_keys = 0, xxhash.xxh3_128(), True
        self.resumed = max(self._expected, default=0)
        plan = Plan(1, self.entries[-1].agreed if self.entries else {})
        self._how = Making(journal.store, plan, options, kinds, journal.make_way)
        self._number, self._up_to = len(self.entries), ""
        self.maker = ShardMaker(self._how, self._number, "")
        self.finishing = Finishing(journal.store)

    def name(self, identity: str | None) -> str:
        """The name of all samples up to this one, for the entry of a shard that ends there. Note [resuming a Writer]

        `identity` is its key and label; None: it has no key, and the name fits no later run. PackError: the samples so
        far are not those of the earlier run.
        """
        self._has_keys &= identity is not None
        self.digest.update(f"{identity}\n".encode(errors="surrogatepass"))
        self.count += 1
        up_to = f"{self.count}-{self.digest.hexdigest() if self._has_keys else _NO_KEYS}"
        if self._expected.get(self.count, up_to) != up_to:
            raise self.differs()
        return up_to

    def differs(self) -> PackError:
        return PackError(
            f"the {self.count:,} samples that were added differ from the {self.resumed:,} in finished shards of the "
            "unfinished dataset in this folder: expected the same keys and labels in the same order. Add the same "
            "samples again, or pass overwrite=True to begin anew"
        )

    def add(self, sample: Given, up_to: str, outcome: Outcome) -> None:
        of = sample.name, sample.label, sample.size_bytes, outcome, self._how.options.shard_size
        if not self.maker.add(*of):
            self._end()
            self.maker.add(*of)
        self._up_to = up_to

    def finish(self) -> None:
        """Ends the last shard, if it has samples."""
        if self._up_to:
            self._end()
        self.entries += self.finishing.rest()

    def _end(self) -> None:
        maker, self._number = self.maker, self._number + 1
        maker.name = entry_name(self._number - 1, self._up_to)
        self._how = replace(self._how, plan=Plan(1, maker.agreed))
        self.maker, self._up_to = ShardMaker(self._how, self._number, ""), ""
        self.entries += self.finishing.put(maker)


def _checked_kinds(fields: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(fields, Mapping):
        raise ConfigError(f'fields: expected a dict of names and kinds, such as {{"caption": "text"}}, got {fields!r}')
    for name, kind in fields.items():
        try:
            check_name(name)
        except ValueError as problem:
            raise ConfigError(f"fields: {problem}") from None
        choice(f"fields: {name}", kind, KINDS)
    return dict(fields)


def _checked_classes(classes: Sequence[str]) -> dict[str, int]:
    ordered = isinstance(classes, Iterable) and not isinstance(classes, (str, set, frozenset))
    names = list(classes) if ordered else [None]
    known = {name: label for label, name in enumerate(names) if isinstance(name, str) and not _HALF.search(name)}
    if len(known) != len(names):
        raise ConfigError(f"classes: expected a list of names, each once, that can be UTF-8, got {classes!r}")
    return known
