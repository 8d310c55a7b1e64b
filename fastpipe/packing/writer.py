"""`fastpipe.Writer`: samples that a program adds one by one -> a packed dataset.

Note [resuming a Writer]
Nobody knows which samples come after those of an interrupted run. So the name of a shard's entry
has a fingerprint of the keys and labels of all samples up to its end. The next run computes the
same of the samples that it gets, and skips them as long as each finished shard has its fingerprint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import xxhash

from fastpipe.arguments import by_single_name, refuse
from fastpipe.dataset.format.fields import KINDS, check_name, describe_kind
from fastpipe.dataset.format.layout import REJECTED_FILE, WORK_FOLDER
from fastpipe.errors import ConfigError, PackError, did_you_mean, format_count, readable
from fastpipe.packing.fields.placement import Frame
from fastpipe.packing.fields.values import is_zero_and_one
from fastpipe.packing.job.destination import begin_pack, destination_of, open_journal
from fastpipe.packing.job.log import log_assumed, log_rejected
from fastpipe.packing.job.summary import PackedShards, Summary, publish
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.packing.pipeline.converting import convert_sample
from fastpipe.packing.pipeline.given import (
    NO_IMAGE,
    Given,
    is_behind_last,
    parse_given,
)
from fastpipe.packing.pipeline.keys import Keys
from fastpipe.packing.pipeline.picture_values import AddedPictures
from fastpipe.packing.shard.entry import Entry, entry_name
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.make import PackContext, ShardFinisher, ShardMaker
from fastpipe.packing.shard.options import OPTIONS, PackOptions, pack_options
from fastpipe.packing.shard.plan import Outcome, Plan
from fastpipe.sources.classes_from import ClassesFrom, class_names, names_by_number
from fastpipe.sources.facts import Facts
from fastpipe.sources.listing import STORED, Assumption, SourceField
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.other_ranks import warn_of_replacing_ranks

_MADE_BY = "fastpipe.Writer"
_LOG = logging.getLogger("fastpipe.pack")
# The name of an entry: the number of the shard, and then the fingerprint of all samples up to its
# end, which is their number and a hash of their keys.
_ENTRY = re.compile(r"shard-(\d{6,})-((\d+)-([0-9a-f]{32}))\.done")
# A part of a character outside the basic plane. Others of these codes stand for bytes of a file
# name that are no UTF-8.
_HALF_CHARACTER = re.compile("[\ud800-\udc7f\udd00-\udfff]")
# Stands in place of the hash if a sample has no key.
_NO_KEYS = "0" * 32
_OPTIONS = OPTIONS - {"seed", "shuffle"} | {"coordinates"}
_ONE_PROCESS = (
    "Call add in the process of the with block, where several threads may call it: a pool returns the "
    "paths or arrays of the samples. Or let each process write a folder with a Writer of its own, all "
    "with the same classes=, and read them as one dataset: fastpipe.concat(FOLDER_0, FOLDER_1)"
)
_LEAST_LISTS = 2  # of classes, before the log says that they are all 0 and 1
_IN_ORDER = "a Writer keeps the order in which samples are added: shuffle them before"
_INSTEAD = {"seed": _IN_ORDER, "shuffle": _IN_ORDER}
# Methods that writers of other libraries have -> what to write instead.
_INSTEAD_OF_METHODS = by_single_name(
    {
        "write write_sample append put": "call writer.add(image, label=..., key=...)",
        "add_all extend write_many": "call writer.add(...) for each sample",
        "close finish finalize save commit flush": "the dataset is written when the block of "
        "`with fastpipe.Writer(...) as writer:` ends",
    }
)
# Endings of files of text. A value of kind "text" that names such a file is meant as its text.
_TEXT_FILES = (".txt", ".caption", ".json", ".md")


class _Pending(NamedTuple):
    """A sample that is being converted, and the fingerprint of all samples up to it."""

    sample: Given
    fingerprint: str


class Writer:
    """Writes a dataset of samples that come from anywhere, in the order in which they are added.

        with fastpipe.Writer("data/train", fields={"caption": "text", "boxes": "boxes"}) as writer:
            for photo in photos:
                fields = {"caption": photo.caption, "boxes": photo.boxes}
                writer.add(photo.path, label=photo.label, key=photo.id, **fields)

    The dataset appears when the block ends without an exception. Memory does not grow with the
    samples. Add samples in random order if you can: a loader shuffles, but it mixes samples of one
    class less well that all stand together.

    If the program is interrupted, finished shards are kept. Run the same program again: if all
    samples have a `key`, `add` skips the samples that are in finished shards. It compares keys and
    labels of the samples with those of the first run, so keys have to come in the same order, and
    the same key has to mean the same sample. Without keys, or with overwrite=True, the next run
    begins anew.

    Args:
        dst: a new or empty folder, or an unfinished dataset of the same Writer; or its URL (s3://,
            gs://, az://).
        fields: name -> kind of what samples carry besides image and label: "int", "floats",
            "classes", "text", "json", "bytes", "boxes", "keypoints", "mask", "image", "images",
            "array" or "map".
            `fastpipe docs fields` explains them.
        classes: names of all classes; a label is a name, or a position in this list. None: labels
            are numbers, and the classes are called after them.
        classes_from: in place of `classes`: what has the names, as `fastpipe.pack` takes it: a
            packed dataset, a source such as a folder of class folders, a text file with a name on
            each line, or a JSON file such as {"0": "cat"}.
        **options: those of `fastpipe.pack`, without `seed`, `shuffle`, `on_progress` and those that
            say how a source is read, but with `coordinates`; None: boxes, points and masks are of
            images as stored.

    Attributes:
        summary: what was packed, when the block has ended.

    Raises:
        ConfigError: an argument is wrong.
        PackError: the folder holds something else, or writing fails.

    Example:
        >>> with fastpipe.Writer("data/written", fields={"caption": "text"}, classes=["cat"]) as writer:
        ...     for number in range(3):
        ...         pixels = np.full((48, 64, 3), 80 * number, np.uint8)
        ...         writer.add(pixels, label="cat", key=f"{number}", caption="one colour")
        >>> len(fastpipe.open("data/written"))
        3
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
        unknown_names = sorted(options.keys() - _OPTIONS)
        unknown = {name: options[name] for name in unknown_names}
        known = ("dst", "fields", "classes", "classes_from", *sorted(_OPTIONS))
        refuse("fastpipe.Writer", unknown, known, _INSTEAD)
        self._kinds = _check_kinds(fields or {})
        self._options: PackOptions = pack_options(**options, shuffle=False)
        if classes_from is not None:
            if classes is not None:
                raise ConfigError(
                    "classes and classes_from both name the classes; leave out one of them"
                )
            classes = class_names(classes_from, self._options.source.remote).labels
        self._classes = None
        if classes is not None:
            self._classes = _label_classes(classes)
        self._names = list(self._classes or ())
        self._destination = destination_of(dst)
        # None: the `with` block has not begun, or has ended.
        self._series: _ShardSeries | None = None

    def __enter__(self) -> Writer:
        # Only a block that has ended sets the summary.
        if hasattr(self, "summary"):
            raise ConfigError("this Writer has written its dataset; make another one")
        self._started = time.monotonic()
        fields = tuple(SourceField(name, kind) for name, kind in self._kinds.items())
        classes = None if self._classes is None else self._names
        self._facts = Facts(
            _MADE_BY,
            classes,
            taken_ns=time.time_ns(),
            fields=fields,
            coordinates=STORED,
            made_by=_MADE_BY,
        )
        self._process = os.getpid()
        self._lock = threading.Lock()  # threads may add at the same time
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(
                open_journal(self._destination, self._options)
            )
            begin_pack(journal, self._facts, self._options)
            if self._options.overwrite:
                warn_of_replacing_ranks(self._destination)
                journal.forget_shards()
            series = _ShardSeries(journal, self._options, self._kinds)
            self._series = series
            stack.enter_context(series.finisher)
            stack.callback(series.discard)
            self._ahead = Ahead(
                self._convert,
                self._options.threads,
                lambda pending: pending.sample.total_bytes,
            )
            stack.callback(self._ahead.close)
            # If a line above raises, the stack closes what is open. Now `__exit__` does it.
            self._open = stack.pop_all()
        self._num_finished_shards = len(series.entries)
        self._log_resumed(series.num_resumed)
        self._keys = Keys()
        # By field of classes, as long as all of its lists are 0 and 1: how many there are.
        class_fields = [name for name, kind in self._kinds.items() if kind == "classes"]
        self._num_flag_lists = dict.fromkeys(class_fields, 0)
        # Fields of texts of which no value has come yet.
        self._unseen_texts = {
            name for name, kind in self._kinds.items() if kind == "text"
        }
        # Some label is the number behind the last class. Such samples are rejected.
        self._has_label_behind_last = False
        self._pictures = AddedPictures(self._kinds)
        self._failed: BaseException | None = None
        return self

    def _log_resumed(self, num_resumed: int) -> None:
        """Says that samples of an interrupted run stay, if there are any."""
        if not num_resumed:
            return
        samples = format_count(num_resumed, "sample")
        verb = "stays as it is" if num_resumed == 1 else "stay as they are"
        _LOG.warning(
            "%s: this Writer continues an interrupted run, of which %s %s. Their keys and labels are "
            "compared with those that are added now; images and fields are not. If these have "
            "changed, begin anew: overwrite=True",
            self._destination,
            samples,
            verb,
        )

    if not TYPE_CHECKING:  # type checkers would allow every name

        def __getattr__(self, name: str) -> NoReturn:
            advice = _INSTEAD_OF_METHODS.get(
                name, "samples are written by writer.add(...)"
            )
            raise AttributeError(
                f"a Writer has no {name!r}: {advice}", name=name, obj=self
            )

    def __getstate__(self) -> dict[str, Any]:
        if self._series is not None:
            raise ConfigError(
                "a Writer whose with block has begun cannot be copied or sent to another process. "
                f"{_ONE_PROCESS}"
            )
        return vars(self)

    def add(
        self,
        /,
        image: object = NO_IMAGE,
        label: int | str | None = None,
        key: str | None = None,
        **fields: object,
    ) -> None:
        """Adds a sample. It is converted in the background; a sample that cannot be packed is
        listed in rejected.jsonl. Threads may call it, and other processes may not.

        Args:
            image: a path, the bytes of an image file, a PIL image, or (H, W) or (H, W, C) of uint8
                or uint16, C channels: gray; gray and alpha; RGB; RGB and alpha. cv2.imread gives
                BGR: pass its path in place of it, or cv2.cvtColor(image, cv2.COLOR_BGR2RGB). It
                keeps its exact pixels, as with `pack`, except that a PIL image that was opened from
                a JPEG is encoded again: pass the path of the JPEG. A PIL image that a program has
                changed counts as one without loss. Left out: the sample has fields only, such as a
                list of images or an array.
            label: a position in the list of classes, or a class name; None: the sample has no
                label.
            key: names the sample, in the dataset and in messages; with keys an interrupted program
                can continue. None: the path of the image, with #2, #3, ... behind it if it comes
                again; or #N, the number of the sample.
            **fields: the values of its fields; None, or no value: the sample has none.

        Raises:
            ConfigError: a field is not one of the Writer's, an earlier sample has the key, the
                Writer is not open, or another process has opened it.
            PackError: writing fails; or, with on_error="fail", an earlier sample cannot be
                packed; or the samples are not those of the interrupted run. After it no sample can
                be added, and no dataset appears.

        Example:
            >>> with fastpipe.Writer("data/boxes", fields={"boxes": "boxes"}) as writer:
            ...     writer.add(
            ...         "photos/cat/0.jpg",
            ...         label=0,
            ...         key="cat/0.jpg",
            ...         boxes={"boxes": [[2, 3, 20, 30]], "labels": [1]},
            ...     )
        """
        series = self._series
        if series is None:
            raise ConfigError(
                "add samples inside the with block: with fastpipe.Writer(...) as writer: "
                "writer.add(...)"
            )
        if os.getpid() != self._process:
            # Its samples would be missing, or stand in the middle of the parent's in the same file.
            raise ConfigError(
                f"process {self._process} opened this Writer, but its forked child {os.getpid()} "
                f"adds to it, and the sample would be lost. {_ONE_PROCESS}"
            )
        self._check_arguments(key, fields)
        with self._lock:
            self._add(series, image, label, key, fields)

    def _add(
        self,
        series: _ShardSeries,
        image: object,
        label: int | str | None,
        key: str | None,
        fields: Mapping[str, object],
    ) -> None:
        self._check_complete()
        self._look_for_flags(fields)
        self._look_for_paths(fields)
        if self._classes is not None and is_behind_last(label, len(self._classes)):
            self._has_label_behind_last = True
        if key is not None and key in self._keys:
            raise ConfigError(
                f"key {key!r} of sample {series.count}: an earlier sample has it; expected each key "
                "once, for samples are chosen, added and removed by their keys. Pass another key, "
                "or leave key out: the path of the image, or the number of the sample, is then "
                "the key"
            )

        name = key
        if name is None:
            name = f"#{series.count}"
            if isinstance(image, (str, os.PathLike)):
                name = os.fsdecode(image)
            # Two samples may be of one path.
            name = self._keys.free(name)
        # An earlier run has packed the first samples: they are compared, and not converted again.
        is_in_finished_shard = series.count < series.num_resumed
        sample = None
        if not is_in_finished_shard:
            sample = parse_given(name, image, label, fields, self._kinds, self._classes)
            if sample.problem is None:
                self._pictures.show(sample.values)
        self._keys.add(name)
        try:
            identity = None
            if key is not None:
                identity = f"{key!r} {label}"
            fingerprint = series.count_sample(identity)
            if sample is not None:
                pending = _Pending(sample, fingerprint)
                # Earlier samples, whose conversion has ended, go into the shard.
                series.add_all(self._ahead.put(pending))
        except BaseException as problem:
            # A sample is missing now, even if the program catches the exception. So no dataset may
            # appear.
            self._failed = problem
            raise

    def __exit__(self, kind: type[BaseException] | None, *problem: Any) -> None:
        series = self._series
        self._series = None
        if os.getpid() != self._process:
            return  # a forked child leaves the block; the files are its parent's
        if kind is not None or series is None:
            # The exception makes the finisher give up an upload under way.
            self._open.__exit__(kind, *problem)
            return
        with self._open:
            self._check_complete()
            # An earlier run has packed more samples than this one has added.
            if series.count < series.num_resumed:
                raise series.other_samples_error()
            series.add_all(self._ahead.drain())
            series.finish()
            # There are no files, so keys and labels are both the content and the state.
            identity = series.digest.hexdigest()
            facts = replace(
                self._facts, files=series.count, content=identity, state=identity
            )
            num_new = series.count - series.num_resumed
            shards = PackedShards(
                plan=None,  # a program added the samples
                entries=series.entries,
                files=num_new,
                resumed=self._num_finished_shards,
            )
            try:
                self.summary = publish(
                    series.journal, facts, self._options, shards, self._started
                )
            except (OSError, PackError):
                # A Writer that has begun meanwhile may have removed shards: then that is the cause.
                series.journal.check_only_writer()
                raise
            assumed = [
                *self.summary.assumed,
                *self._assumed_of_turned(),
                *self._pictures.assumptions(),
            ]
            log_assumed(_MADE_BY, assumed)
            self._log_labels_from_1()
            self._log_flags()
            listed_in = f"{self._destination}/{REJECTED_FILE}"
            log_rejected(
                _MADE_BY, self.summary.tally.rejected, listed_in, noun="sample"
            )

    def _look_for_paths(self, fields: Mapping[str, object]) -> None:
        """Says if the first value of a field of texts is the path of a file of text."""
        for name in list(self._unseen_texts):
            value = fields.get(name)
            if not isinstance(value, str):
                continue
            self._unseen_texts.remove(name)
            if value.endswith(_TEXT_FILES) and os.path.isfile(value):
                _LOG.warning(
                    "%s: field %s: %r is stored as it is, and is the path of a file. For the text of "
                    "the file pass pathlib.Path(path).read_text()",
                    _MADE_BY,
                    name,
                    readable(value),
                )

    def _look_for_flags(self, fields: Mapping[str, object]) -> None:
        """Counts lists of classes that may be a zero or a one for each of two classes."""
        for name in list(self._num_flag_lists):
            value = fields.get(name)
            if value is None:
                continue
            if is_zero_and_one(value):
                self._num_flag_lists[name] += 1
            else:
                del self._num_flag_lists[name]

    def _log_flags(self) -> None:
        """Says if each list of a field of classes is 0 and 1: then each sample has both classes."""
        for name, count in self._num_flag_lists.items():
            if count >= _LEAST_LISTS:
                _LOG.warning(
                    "%s: field %s: every sample has the classes 0 and 1, for all of its %d lists are "
                    "[0, 1] or [1, 0]. A list has the numbers of a sample's classes, and not a zero or "
                    "a one for each class: pass [1] for [0, 1], and [0] for [1, 0]",
                    _MADE_BY,
                    name,
                    count,
                )

    def _log_labels_from_1(self) -> None:
        """Says if labels count from 1: then each sample has the class behind its own."""
        class_counts = self.summary.info["class_counts"]
        if len(class_counts) < 2 or class_counts[0]:
            return
        if self._classes is None and class_counts[1]:
            _LOG.warning(
                "%s: labels are 1 to %d and none is 0, so the class '0' of %d has no sample. If they "
                "count from 1, subtract 1; or pass the names of all classes: Writer(DST, classes=[...])",
                _MADE_BY,
                len(class_counts) - 1,
                len(class_counts),
            )
        if self._classes is None:
            return
        if self._has_label_behind_last:
            _LOG.warning(
                "%s: no sample has label 0, and some had %d, which is behind the last class: if the "
                "labels count from 1, all samples have a wrong class. Subtract 1",
                _MADE_BY,
                len(self._classes),
            )

    def _assumed_of_turned(self) -> list[Assumption]:
        """What is assumed about boxes and points of images that EXIF turns; Note [frames]."""
        if self._options.source.coordinates is not None:
            return []
        turned = int(self.summary.info["counts"]["exif_oriented"])
        names = [
            name for name, kind in self._kinds.items() if kind in ("boxes", "keypoints")
        ]
        if not turned or not names:
            return []
        return [
            Assumption(
                f"{', '.join(names)}: EXIF turns {format_count(turned, 'image')}, and their values are "
                "taken as those of the image as stored, as programs without EXIF read it. If they "
                "come from viewers or labelling tools, they are of the image as shown, and an option "
                "says so",
                'coordinates="shown"',
            )
        ]

    @property
    def finished(self) -> int:
        """Samples in the finished shards of an interrupted run, inside the `with` block.

        Of these, `add` compares key and label only, so their images and fields need not be made.

        Example:
            >>> keys = ["a", "b"]
            >>> with fastpipe.Writer("data/slow", fields={"text": "text"}) as writer:
            ...     for number, key in enumerate(keys):
            ...         text = "" if number < writer.finished else f"made of {key}, which takes long"
            ...         writer.add(key=key, text=text)
        """
        if self._series is None:
            return 0
        return self._series.num_resumed

    def _check_arguments(self, key: object, fields: Mapping[str, object]) -> None:
        unknown = fields.keys() - self._kinds.keys()
        if unknown:
            name = min(unknown)
            expected = ", ".join(self._kinds) or "none"
            raise ConfigError(
                f"{name}: expected one of the fields that the Writer was made with ({expected})"
                f"{did_you_mean(name, self._kinds)}; a new field needs its kind, such as "
                f"fastpipe.Writer(DST, fields={{{name!r}: 'text'}})"
            )
        if key is not None and not isinstance(key, str):
            raise ConfigError(f"key: expected a text (str), got {type(key).__name__}")

    def _check_complete(self) -> None:
        if self._failed is not None:
            raise PackError(
                "an earlier add has failed, so samples are missing and no dataset is written: "
                f"{str(self._failed) or type(self._failed).__name__}"
            ) from self._failed

    def _convert(self, pending: _Pending) -> Outcome:
        """Runs in a thread."""
        sample = pending.sample

        def read_values(_: Packed) -> tuple[Frame, Iterator[Any]]:
            frame = Frame(self._options.source.coordinates or STORED)
            return frame, sample.read_values(self._kinds)

        return convert_sample(
            sample,
            sample.name,
            sample.read_image,
            read_values,
            self._options.encode,
            self._kinds,
            self._names,
        )


class _ShardSeries:
    """The shards of a Writer, each filled up to --shard-size.

    Attributes:
        journal: of the pack.
        entries: of the finished shards.
        count: samples so far.
        num_resumed: samples in finished shards of an earlier run.
        digest: hash of the keys and labels so far.
        finisher: finishes full shards.
    """

    def __init__(
        self, journal: Journal, options: PackOptions, kinds: Mapping[str, str]
    ) -> None:
        self.journal = journal
        self.entries: list[Entry] = []
        # Number of samples at the end of a finished shard -> fingerprint of all samples up to it.
        self._expected_fingerprints: dict[int, str] = {}
        self._read_finished()
        self.num_resumed = max(self._expected_fingerprints, default=0)
        self.count = 0
        self.digest = xxhash.xxh3_128()
        self.finisher = ShardFinisher(journal.store)
        self._has_keys = True
        # Of the samples up to the last one in the current shard; "": it has none yet.
        self._fingerprint = ""
        self._number = len(self.entries)
        # A shard must agree with the values in the shards before.
        agreed = {}
        if self.entries:
            agreed = self.entries[-1].agreed
        self._context = PackContext(
            journal.store, Plan(1, agreed), options, kinds, journal.remove_old_dataset
        )
        self._maker = ShardMaker(self._context, self._number, "")

    def _read_finished(self) -> None:
        """Reads the finished shards of an earlier run. Note [resuming a Writer]"""
        matches = []
        for name in sorted(self.journal.store.sizes(WORK_FOLDER)):
            match = _ENTRY.fullmatch(name)
            if match is not None:
                matches.append(match)
        entry_names = [match[0] for match in matches]
        entries = self.journal.read_finished(entry_names)
        for match, entry in zip(matches, entries, strict=True):
            number, fingerprint, num_samples, digest = match.groups()
            # Shards behind one that is missing, or that has no keys, are made again.
            is_next = int(number) == len(self.entries)
            if not is_next or entry is None or digest == _NO_KEYS:
                break
            self.entries.append(entry)
            self._expected_fingerprints[int(num_samples)] = fingerprint

    def count_sample(self, identity: str | None) -> str:
        """Counts a sample, and returns the fingerprint of all samples up to it.

        The entry of a shard that ends with this sample has it in its name, so that a later run can
        compare its samples with those in the shard. See Note [resuming a Writer].

        Args:
            identity: key and label of the sample; None: it has no key. Then the fingerprint fits no
                later run.

        Raises:
            PackError: the samples so far are not those of the earlier run.
        """
        if identity is None:
            self._has_keys = False
        self.digest.update(f"{identity}\n".encode(errors="surrogatepass"))
        self.count += 1
        digest = _NO_KEYS
        if self._has_keys:
            digest = self.digest.hexdigest()
        fingerprint = f"{self.count}-{digest}"
        expected = self._expected_fingerprints.get(self.count, fingerprint)
        if fingerprint != expected:
            raise self.other_samples_error()
        return fingerprint

    def other_samples_error(self) -> PackError:
        return PackError(
            f"the {self.count:,} samples that were added differ from the {self.num_resumed:,} in "
            "finished shards of the unfinished dataset in this folder: expected the same keys and "
            "labels in the same order. Add the same samples again, or pass overwrite=True to begin "
            "anew"
        )

    def add_all(self, converted: Iterable[tuple[_Pending, Outcome]]) -> None:
        """Adds samples that are converted, in order."""
        for pending, outcome in converted:
            self._add(pending, outcome)

    def finish(self) -> None:
        """Finishes the last shard, if it has samples."""
        if self._fingerprint:
            self._end_shard()
        self.entries += self.finisher.wait()

    def discard(self) -> None:
        """Removes the files of the current shard."""
        self._maker.discard()

    def _add(self, pending: _Pending, outcome: Outcome) -> None:
        sample = pending.sample
        max_bytes = self._context.options.shard_size
        # A sample that does not fit into the shard begins the next one.
        if not self._maker.add(
            sample.name, sample.label, sample.size_bytes, outcome, max_bytes
        ):
            self._end_shard()
            self._maker.add(
                sample.name, sample.label, sample.size_bytes, outcome, max_bytes
            )
        self._fingerprint = pending.fingerprint

    def _end_shard(self) -> None:
        full_maker = self._maker
        full_maker.name = entry_name(self._number, self._fingerprint)
        # The next shard must have values that agree with those of this one.
        plan = Plan(1, full_maker.agreed)
        self._context = replace(self._context, plan=plan)
        self._number += 1
        self._fingerprint = ""
        self._maker = ShardMaker(self._context, self._number, "")
        self.entries += self.finisher.submit(full_maker)


def _check_kinds(fields: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(fields, Mapping):
        raise ConfigError(
            f'fields: expected a dict of names and kinds, such as {{"caption": "text"}}, got '
            f"{fields!r}"
        )
    for name, kind in fields.items():
        if name in ("image", "label"):
            raise ConfigError(
                f"fields: each sample has an image and a label already, which need no entry; leave "
                f"{name!r} out, and pass writer.add(image, label=...). A field has another name"
            )
        try:
            check_name(name)
        except ValueError as problem:
            raise ConfigError(f"fields: {problem}") from None
        if kind not in KINDS:
            raise ConfigError(
                f"got the kind {kind!r}; {describe_kind(kind)}",
                option=f"fields: {name}",
            )
    return dict(fields)


def _label_classes(classes: Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    """Class name -> label."""
    if isinstance(classes, Mapping):
        classes = names_by_number(classes, "classes")
    # A set has no order, and a text is a list of letters to Python.
    is_text_or_set = isinstance(classes, (str, set, frozenset))
    is_ordered = isinstance(classes, Iterable) and not is_text_or_set
    error = ConfigError(
        f"classes: expected a list of names, each once, that can be UTF-8, got {classes!r}"
    )
    if not is_ordered:
        raise error
    labels: dict[str, int] = {}
    for label, name in enumerate(classes):
        if not isinstance(name, str) or _HALF_CHARACTER.search(name):
            raise error
        if name in labels:
            raise error
        labels[name] = label
    return labels
