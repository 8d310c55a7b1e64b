"""`fastpipe.Writer`: samples that a program adds one by one -> a packed dataset."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import xxhash

from fastpipe.checks import choice
from fastpipe.errors import ConfigError, PackError
from fastpipe.format.fields import KINDS, check_name
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.job.destination import destination_of, disk_errors, opened, plan_run
from fastpipe.packing.job.threads import Summary
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.pipeline.converting import RUN_BYTES, RUN_FILES, Outcome, convert_sample, outcomes
from fastpipe.packing.pipeline.given import Given, given
from fastpipe.packing.shard.entry import Entries, Entry, Tally, entry_name
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.make import Finishing, Making, ShardMaker
from fastpipe.packing.shard.options import OPTIONS, PackOptions, pack_options
from fastpipe.packing.shard.publish import publish_dataset
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.listing import SourceField

_MADE_BY = "fastpipe.Writer"
_OF_A_SOURCE = {"format", "image_column", "label_column", "image_root", "split"}
_ENTRY = re.compile(r"shard-(\d{6,})-(\d+)-([0-9a-f]{32})\.done")
_NO_KEYS = "0" * 32
_OPTIONS = OPTIONS - {"seed", "shuffle"}


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
        **options: those of `fastpipe.pack`, without `seed`, `shuffle`, `on_progress` and those that say how a source is
            read.

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
        **options: Any,
    ) -> None:
        if without := options.keys() & {"seed", "shuffle"}:
            raise ConfigError(
                f"{min(without)}: a Writer keeps the order in which samples are added; shuffle them before"
            )
        if without := options.keys() & _OF_A_SOURCE:
            raise ConfigError(f"{min(without)}: a Writer has no source to read; this is an option of fastpipe.pack")
        if unknown := options.keys() - _OPTIONS:
            expected = ", ".join(sorted(_OPTIONS))
            raise ConfigError(f"{min(unknown)}: a Writer has no such option; expected one of {expected}")
        self._kinds = _checked_kinds(fields or {})
        self._classes = None if classes is None else _checked_classes(classes)
        self._names = list(self._classes or ())
        self._options: PackOptions = pack_options(**options, shuffle=False)
        self._destination = destination_of(dst)
        self._series: _Series | None = None

    def __enter__(self) -> Writer:
        if hasattr(self, "summary"):
            raise ConfigError("this Writer has written its dataset; make another one")
        self._started = time.monotonic()
        fields = tuple(SourceField(name, kind) for name, kind in self._kinds.items())
        classes = None if self._classes is None else self._names
        self._facts = Facts(_MADE_BY, classes, taken_ns=time.time_ns(), fields=fields, made_by=_MADE_BY)
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(opened(self._destination, self._options))
            if journal.description() is not None and not self._options.overwrite:
                raise PackError(
                    f"{self._destination} holds a dataset; choose another folder, or pass overwrite=True to replace "
                    "the dataset"
                )
            plan_run(journal, self._facts, self._options, classes=classes)
            if self._options.overwrite:
                journal.clean(())
            self._series = stack.enter_context(_Series(journal, self._options, self._kinds))
            self._open = stack.pop_all()
        self._resumed, self._skipped = len(self._series.entries), self._series.resumed_samples
        workers = self._options.workers or granted_cpus()
        self._ahead: Ahead[list[Given], list[Outcome]] = Ahead(self._convert, workers)
        self._run: list[Given] = []
        self._position = 0  # of the next sample that is added
        self._failed: BaseException | None = None
        return self

    def add(self, /, image: object, label: int | str | None = None, key: str | None = None, **fields: object) -> None:
        """Adds a sample. It is converted in the background; what is wrong with it is listed in rejected.jsonl.

        Args:
            image: a path, the bytes of an image file, a PIL image, or (H, W, 3) uint8 RGB. JPEGs that come as a path
                or bytes keep their exact pixels.
            label: a position in the list of classes, or a class name; None: the sample has no label.
            key: names the sample, in the dataset and in messages; with keys an interrupted program can continue.
            **fields: the values of its fields; None, or no value: the sample has none.

        Raises:
            ConfigError: a field is not one of the Writer's, or the Writer is not open.
            PackError: the disk refuses; or, with on_error="fail", an earlier sample cannot be packed; or the samples
                are not those of the interrupted run. After it no sample can be added, and no dataset appears.
        """
        if self._series is None:
            raise ConfigError("add samples inside the with block: with fastpipe.Writer(...) as writer: writer.add(...)")
        strange = fields.keys() - self._kinds.keys()
        if strange:
            expected = ", ".join(self._kinds) or "none"
            raise ConfigError(f"{min(strange)}: expected only the fields that the Writer was made with ({expected})")
        if key is not None and not isinstance(key, str):
            raise ConfigError(f"key: expected a text (str), got {type(key).__name__}")
        self._check_complete()
        position = self._position
        identity = None if key is None else f"{key!r} {label}"
        if position < self._skipped:
            with self._remembered():
                self._series.identity.take(identity)
            self._position += 1
            return
        name = key if key is not None else _name_of(image, position)
        sample = given(name, identity, image, label, fields, self._kinds, self._classes)
        self._run.append(sample)
        self._position += 1
        if len(self._run) == RUN_FILES or sum(each.size_bytes for each in self._run) >= RUN_BYTES:
            self._hand_over()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        series, self._series = self._series, None
        assert series is not None  # it was entered
        try:
            if kind is not None:
                self._open.__exit__(kind, problem, traceback)  # an upload under way is given up
                return
            with self._open:
                self._series = series
                self._finish(series)
        finally:
            self._series = None
            self._ahead.close()

    def _finish(self, series: _Series) -> None:
        """Publishes the dataset."""
        self._check_complete()
        if self._position < self._skipped:
            raise PackError(
                f"{self._position:,} samples were added; expected the {self._skipped:,} that are in finished shards of "
                "the unfinished dataset in this folder, and more. Add the same samples again, or pass overwrite=True "
                "to begin anew"
            )
        self._hand_over()
        self._write(self._ahead.rest())
        tally = series.finish()
        if not tally.packed_bytes:
            first = tally.rejected[:1]
            reason = f"; the first: {first[0][0]}: {first[0][1]}" if first else ""
            raise PackError(f"none of the {self._position} samples could be packed{reason}")
        identity = series.identity.digest()
        facts = replace(self._facts, files=self._position, content=identity, state=identity)
        store = series.journal.store
        pieces = [entry for entry in series.entries if entry.tars]
        with disk_errors(self._destination):
            series.journal.make_way()
            series.journal.clean(pieces)
            info = publish_dataset(store, pieces, facts, tally, self._options.shaping(self._kinds))
            series.journal.clear()
        files, seconds = self._position - self._skipped, time.monotonic() - self._started
        self.summary = Summary(info, tally, files, seconds, [], {}, self._resumed, uploaded_bytes=store.uploaded_bytes)

    def _hand_over(self) -> None:
        run, self._run = self._run, []
        if run:
            with self._remembered():
                self._write(self._ahead.put(run))

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        """Notes an error: samples are missing after it, also if the program catches it."""
        try:
            yield
        except BaseException as problem:
            self._failed = problem
            raise

    def _check_complete(self) -> None:
        """Raises PackError if samples are missing."""
        if self._failed is not None:
            raise PackError(
                "an earlier add has failed, so samples are missing and no dataset is written: "
                f"{str(self._failed) or type(self._failed).__name__}"
            ) from self._failed

    def _write(self, done: Iterator[tuple[list[Given], list[Outcome]]]) -> None:
        assert self._series is not None  # it was entered
        for run, found in done:
            for sample, outcome in zip(run, found, strict=False):  # shorter where the pack must stop
                if isinstance(outcome, PackError):
                    raise outcome
                with disk_errors(self._destination):
                    self._series.add(sample, outcome)

    def _convert(self, run: list[Given]) -> list[Outcome]:
        return outcomes(self._convert_one, run, self._ahead.stopped)

    def _convert_one(self, sample: Given) -> Outcome:
        of = self._options.encode, self._kinds, self._names
        return convert_sample(sample, sample.name, sample.read_image, lambda _: sample.read_values(self._kinds), *of)


class _Series:
    """The shards of a Writer: each is filled up to the size asked for, since nobody knows what comes after it.

    Args:
        journal: of the destination, locked.
        options: of the Writer.
        kinds: name -> kind of its fields.

    Attributes:
        journal: as given.
        entries: of the finished shards.
        resumed_samples: that were added for those of an earlier run.
        identity: of the samples so far.
    """

    def __init__(self, journal: Journal, options: PackOptions, kinds: Mapping[str, str]) -> None:
        self.journal, self._options, self._kinds = journal, options, kinds
        self.entries: list[Entry] = []
        expected: dict[int, str] = {}
        names = sorted(name for name in journal.store.sizes(WORK_FOLDER) if _ENTRY.fullmatch(name))
        for name, entry in zip(names, journal.finished(names), strict=True):
            number, samples, digest = _ENTRY.fullmatch(name).groups()  # type: ignore[union-attr]  # it has matched
            if int(number) != len(self.entries) or entry is None or digest == _NO_KEYS:
                break
            self.entries.append(entry)
            expected[int(samples)] = digest
        self.resumed_samples = max(expected, default=0)
        self.identity = _Identity(expected)
        self._maker: ShardMaker | None = None
        self._finishing = Finishing(journal.store)
        self._number, self._agreed = len(self.entries), self.entries[-1].agreed if self.entries else {}

    def __enter__(self) -> _Series:
        return self

    def __exit__(self, *problem: Any) -> None:
        if self._maker is not None:
            self._maker.discard()
        self._finishing.__exit__(*problem)

    def add(self, sample: Given, outcome: Packed | str) -> None:
        """Adds what became of a sample."""
        if self._maker is None:
            self._maker = self._new()
        of = sample.name, sample.label, sample.size_bytes, outcome
        if not self._maker.add(*of, self._options.shard_size):
            self._end()
            self._maker = self._new()
            self._maker.add(*of, self._options.shard_size)
        self.identity.take(sample.identity)

    def finish(self) -> Tally:
        """Ends the last shard; what became of all samples."""
        if self._maker is not None:
            self._end()
        self.entries += self._finishing.rest()
        return Entries(self.entries).tally

    def _new(self) -> ShardMaker:
        how = Making(
            self.journal.store,
            self._options.shard_size,
            stride=1,
            kinds=self._kinds,
            agreed=self._agreed,
            fail_fast=self._options.fail_fast,
            make_way=self.journal.make_way,
        )
        return ShardMaker(how, self._number, "")

    def _end(self) -> None:
        """The entry names the samples up to the end of its shard. Without keys it fits no later run."""
        assert self._maker is not None  # there is a shard
        count, digest = self.identity.count, self.identity.resumable() or _NO_KEYS
        maker, self._maker = self._maker, None
        maker.name = entry_name(self._number, f"{count}-{digest}")
        self._number, self._agreed = self._number + 1, maker.agreed
        self.entries += self._finishing.put(maker)


class _Identity:
    """The keys and labels of the samples so far, in order. Note [resuming a Writer]

    Args:
        expected: for each shard of an earlier run, how many samples were added up to its end, and their digest.

    Attributes:
        count: of the samples.
    """

    def __init__(self, expected: Mapping[int, str]) -> None:
        self._expected = expected
        self._digest = xxhash.xxh3_128()
        self._has_keys = True
        self.count = 0

    def take(self, identity: str | None) -> None:
        """Adds a sample; None: it has no key.

        Raises:
            PackError: the samples so far are not those of the earlier run.
        """
        self._has_keys &= identity is not None
        self._digest.update(f"{identity}\n".encode(errors="surrogatepass"))
        self.count += 1
        if self.resumable() != self._expected.get(self.count, self.resumable()):
            raise PackError(
                f"the first {self.count:,} samples differ from those of the unfinished dataset in this folder: "
                "expected the same keys and labels in the same order. Add the same samples again, or pass "
                "overwrite=True to begin anew"
            )

    def resumable(self) -> str:
        """Names the samples so far; "" if some of them have no key."""
        return self.digest() if self._has_keys else ""

    def digest(self) -> str:
        """Names the samples so far."""
        return self._digest.hexdigest()


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
    names = list(classes) if ordered else []
    if not ordered or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ConfigError(f"classes: expected a list of names, each once, got {classes!r}")
    for name in names:
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            raise ConfigError(f"classes: expected names that can be UTF-8, got {name!r}") from None
    return {name: label for label, name in enumerate(names)}


def _name_of(image: object, position: int) -> str:
    """What a sample without a key is called: its path, or its number."""
    return os.fsdecode(image) if isinstance(image, (str, os.PathLike)) else f"#{position}"
