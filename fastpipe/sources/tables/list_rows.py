"""Rows of a manifest, of annotations or of a table, one for each image -> a listing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import xxhash

from fastpipe.dataset.format.fields import ARRAY_KINDS, FILE_KINDS
from fastpipe.dataset.format.folder import scheme_of
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.open_file import FileState
from fastpipe.errors import PackError, did_you_mean_path, format_count, readable
from fastpipe.sources.annotations.placed import FilePlaces, find_places
from fastpipe.sources.files import (
    SourcePath,
    find_state,
    not_a_folder,
    state_or_problem,
)
from fastpipe.sources.listing import (
    NO_IMAGE_FILE,
    Assumption,
    Listing,
    Source,
    SourceField,
)
from fastpipe.sources.notes import Note, Notes
from fastpipe.sources.options import KEEP, SourceOptions
from fastpipe.sources.path_labels import (
    ClassOfPath,
    class_by_pattern,
    describe_unfit_path,
)
from fastpipe.sources.tables.row_labels import Labels
from fastpipe.sources.tables.row_paths import is_name, relative_path
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.shown_row import show_row
from fastpipe.sources.tables.unlisted import (
    Unlisted,
    assume_unlisted_dropped,
    find_images_without_row,
    without_rows_of_other_splits,
)
from fastpipe.sources.tables.written_names import WrittenNames

_NO_FILE = FileState(0, 0, 0)
_MAX_HINTS = 5
_MAX_REPEATED = 100_000  # images in several rows that are counted
# Rows are listed in batches: they hold their values, so few should wait; but the files behind a URL
# are looked up many at a time.
_LOCAL_BATCH = 64
_REMOTE_BATCH = 512
_WEB = ("http", "https")


def list_rows(
    image_root: SourcePath,
    rows: Iterable[Row],
    fields: Sequence[SourceField] = (),
    *,
    classes: Sequence[str] | None = None,
    beside: Iterable[str] = (),
    place: str = "the image root; --image-root says where the images are",
    assumed: Iterable[Assumption] = (),
    unlisted: Unlisted | None = None,
    table: str = "",
    options: SourceOptions | None = None,
    has_first_label: bool = False,
) -> Listing:
    """Lists the images of rows, in no order. An image of several rows is PATH, PATH#2, PATH#3.

    Args:
        image_root: the folder that paths are relative to.
        rows: one for each sample. With `table` they must be readable several times.
        fields: the fields of the samples.
        classes: names of the classes by number; None if the labels of the rows say them.
        beside: paths of files; those that no row names are stray.
        place: describes the image root in messages.
        assumed: assumptions that were made before.
        unlisted: what becomes of images without a row, beside images with one; None if nobody
            looks for them.
        table: the name of the file with the rows. If no row has its file, images are looked for
            elsewhere, see Note [images elsewhere]. "" if images are where rows say.
        options: the user's; they may say how rows have their labels.
        has_first_label: whether the user can pass --first-label for the source.

    Raises:
        PackError: the image root is not a folder, or the rows contradict each other.
    """
    for field in fields:
        if field.kind == "bytes":
            raise PackError(
                f"field {field.name}: column {field.column!r}: rows that name their images hold no "
                "bytes. Choose the columns to store with --field NAME=COLUMN; text or json can "
                "hold values of such a column"
            )
    if not image_root.is_dir():
        raise PackError(not_a_folder(image_root, f"expected {place}"))

    assumptions = list(assumed)
    options = options or SourceOptions()
    begin_list = partial(
        _RowLister,
        image_root,
        fields,
        place,
        classes,
        options,
        has_first_label=has_first_label,
    )
    lister = begin_list()
    lister.add_rows(rows)
    elsewhere = None
    # Where not a single file is in its place, the paths are meant from another folder.
    if table and not lister.has_files and isinstance(image_root, Path):
        elsewhere = find_places(image_root, _local_paths(rows, fields), table)
        if elsewhere is None:
            lister.check_lists_have_files(table)
        else:
            # The lister has a source with a problem for each row. Another one begins anew.
            lister = begin_list()
            lister.add_rows(_moved_rows(rows, elsewhere, fields))
            assumptions.append(elsewhere.assumption)
    assumptions += lister.assumed()

    if unlisted is not None:
        without_row = find_images_without_row(
            image_root, lister.names, lister.other_split_paths
        )
        if without_row:
            # Rows of other splits add no sources, only the paths of their images.
            other_rows = unlisted.rows_of_other_files()
            if other_rows is None:
                without_row = []
                other_rows = ()
            if elsewhere is not None:
                other_rows = _moved_rows(other_rows, elsewhere, fields)
            lister.add_rows(other_rows)
            without_row = without_rows_of_other_splits(
                without_row, lister.other_split_paths
            )
        if unlisted.choice == KEEP:
            values = unlisted.values
            lister.add_rows(Row(path, values, path=path) for path in without_row)
        elif unlisted.choice is None:
            assumptions += assume_unlisted_dropped(without_row)

    lister.notes.flush()
    stray = []
    for path in beside:
        if path not in lister.names and path not in lister.other_split_paths:
            stray.append(path)
    # Classes get their final numbers only here, as the last row may have another class.
    names = lister.labels.settle(lister.sources)
    assumptions += lister.labels.assumed(names)
    return Listing(
        image_root,
        names,
        lister.sources,
        sorted(stray),
        fields=tuple(fields),
        notes=lister.notes,
        assumed=tuple(assumptions),
        table=table,
        why_empty=lister.why_empty(table) if table else "",
    )


def _local_paths(rows: Iterable[Row], fields: Sequence[SourceField]) -> Iterator[str]:
    """The paths of images in rows, without web addresses and texts that no file can be called.

    The URL of an object is a path in its bucket, of which there may be a copy here: Vertex AI lists
    gs://bucket/img/a.jpg. A web address says less of the name of a file.

    Of rows without an image these are the paths in their fields.
    """
    names = _file_fields(fields)
    for row in rows:
        paths: Iterable[str] = [row.path]
        if not row.has_image:
            paths = _paths_of_fields(row, names)
        for path in paths:
            if is_name(path) and scheme_of(path) not in _WEB:
                yield path


def _file_fields(fields: Iterable[SourceField]) -> list[str]:
    """Names of the fields whose values may be paths."""
    return [field.name for field in fields if field.kind in FILE_KINDS]


def _paths_of_fields(row: Row, names: Iterable[str]) -> Iterator[str]:
    """The paths of files in the values of a row. `names`: of the fields that may have some."""
    for name in names:
        value = row.values.get(name)
        if _is_mask_of_segments(value):
            value = value["path"]
        elif _is_mask_of_objects(value):
            value = value["objects"]
        for path in value if isinstance(value, list) else [value]:
            if is_name(path):
                yield path


def _is_mask_of_segments(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value has the path of a mask, and the class of each segment in it."""
    return isinstance(value, dict) and {"path", "segments"} <= value.keys()


def _is_mask_of_objects(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value has the path of a mask for each object."""
    return isinstance(value, dict) and "objects" in value


def _moved_rows(
    rows: Iterable[Row], elsewhere: FilePlaces, fields: Sequence[SourceField]
) -> Iterator[Row]:
    """The rows with the paths at which their files are."""
    names = _file_fields(fields)
    for row in rows:
        values = dict(row.values)
        # In a row without an image, the pictures of its fields were looked for.
        is_image = not row.has_image
        for name in names:
            value = values.get(name)
            if isinstance(value, str):
                values[name] = elsewhere.path(value, is_image=is_image)
            elif isinstance(value, list) and all(isinstance(one, str) for one in value):
                values[name] = [elsewhere.path(one, is_image=is_image) for one in value]
        path = ""  # the row has a problem
        if row.path:
            path = elsewhere.path(row.path, is_image=True)
        yield row._replace(path=path, values=values)


class _MissingFileError(ValueError):
    """A file that a row names does not exist.

    Attributes:
        is_image: it is the image of the row, and not the file of a field.
        hint: the end of the message: a similar path; or "".
    """

    def __init__(self, problem: str, hint: str = "", *, is_image: bool = True) -> None:
        super().__init__(problem + hint)
        self.is_image = is_image
        self.hint = hint


class _RowLister:
    """Makes a source of each row: finds its files, numbers its label, and notes its values."""

    def __init__(
        self,
        root: SourcePath,
        fields: Sequence[SourceField],
        place: str,
        classes: Sequence[str] | None,
        options: SourceOptions,
        *,
        has_first_label: bool,
    ) -> None:
        self.sources: list[Source] = []
        self.names: dict[str, int] = {}  # path -> number of rows; 0 for files of fields
        self.other_split_paths: set[str] = set()
        self.notes = Notes()
        self.labels = Labels(
            classes, options.first_label or 0, has_first_label=has_first_label
        )
        self._label_pattern = options.label_pattern
        self._class_of: ClassOfPath = lambda _: None
        if options.label_pattern is not None:
            self._class_of = class_by_pattern(options.label_pattern)
        self.has_files = False  # the file of some row exists
        # Rows that cannot be packed as a file does not exist, and the problem of the first.
        self._num_without_file = 0
        self._first_problem = ""
        # Those of them whose image does not exist, and the first of them in words.
        self._num_missing = 0
        self._first_missing = ""
        self._root = root
        self._fields = fields
        self._file_fields = _file_fields(fields)
        self._no_file = f"no such file in {place}"
        self._no_url = f"a URL that is not in {place}"
        self._num_hints = 0
        self._written_names = WrittenNames(root)
        self._repeated: dict[str, None] = {}  # paths of images in several rows
        # The path in a row of the batch that is being added -> the state of its file, or why the
        # file cannot be read; None: it does not exist.
        self._states: dict[str, FileState | str | None] = {}
        # The path in a row -> the path of its file, if that is another one.
        self._actual_paths: dict[str, str] = {}

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Adds rows, a batch at a time."""
        remaining = iter(rows)
        batch_size = _REMOTE_BATCH
        if isinstance(self._root, Path):
            batch_size = _LOCAL_BATCH
        while batch := list(islice(remaining, batch_size)):
            self._find_files(batch)
            for row in batch:
                if row.is_of_another:
                    self._add_other_split(row)
                else:
                    self.sources.append(self._make_source(row))

    def check_lists_have_files(self, table: str) -> None:
        """Raises PackError if only rows without any picture can be packed."""
        if self._num_without_file in (0, len(self.sources)):
            return  # no row names a picture; or nothing can be packed, which is an error later on
        raise PackError(
            f"{readable(table)}: none of the images that its rows name exists in "
            f"{readable(self._root)}; the first: {self._first_problem}"
        )

    def why_empty(self, table: str) -> str:
        """Why nothing can be packed, if no row has its image; else ""."""
        if not self._num_missing or self._num_missing < len(self.sources):
            return ""
        table = readable(table)
        count = format_count(self._num_missing, "image")
        text = (
            f"none of the {count} in {table} exists; the first: {self._first_missing}"
        )
        if self._num_missing == 1:
            text = f"{self._first_missing}, and {table} has no other image"
        return (
            f"{text}. The paths of the table are relative to "
            f"{readable(self._root)}; --image-root says where the images are"
        )

    def assumed(self) -> tuple[Assumption, ...]:
        """The assumption that rows of one image are samples of their own; or none."""
        if not self._repeated:
            return ()
        count = len(self._repeated)
        images = "an image is"
        if count > 1:
            images = f"{count:,} images are"
        if count == _MAX_REPEATED:
            images = f"at least {images}"
        path = readable(next(iter(self._repeated)))
        text = f"rows: {images} in several rows, and each row is a sample: {path}, {path}#2"
        if self._have_other_labels():
            text += (
                ". For several labels of an image write one row, with its labels in one cell, "
                "such as cat;pet, and pass --field tags=COLUMN:classes --separator ';'"
            )
        return (Assumption(text),)

    def _have_other_labels(self) -> bool:
        """Whether the rows of one image have different labels."""
        first_labels: dict[str, int] = {}
        for source in self.sources:
            if source.problem is not None or source.file_path not in self._repeated:
                continue
            first_label = first_labels.setdefault(source.file_path, source.label)
            if source.label != first_label:
                return True
        return False

    def _add_other_split(self, row: Row) -> None:
        if is_name(row.path):
            self.other_split_paths.add(relative_path(row.path, self._root))
        try:
            label = row.label
            if self._label_pattern is not None:
                label = self._class_in(relative_path(row.path, self._root))
            self.labels.take(label, row.where)
        except ValueError:
            pass  # the row is rejected when its own split is packed

    def _find_files(self, rows: Iterable[Row]) -> None:
        """Looks up the files of a batch of rows."""
        wanted: dict[str, None] = {}  # in place of a set, as it keeps the order
        for row in rows:
            if row.is_of_another:
                continue
            for path in (row.path, *_paths_of_fields(row, self._file_fields)):
                if is_name(path):
                    wanted[relative_path(path, self._root)] = None

        paths = list(wanted)
        self._states = {}
        self._actual_paths = {}
        if isinstance(self._root, Path):
            for path in paths:
                state = find_state(self._root, path)
                self._states[path] = (
                    self._describe_absent_url(path) if state is None else state
                )
        else:
            for path, state in zip(paths, self._root.look_up(paths), strict=True):
                self._states[path] = state or self._describe_absent_url(path)

        for path in paths:
            if self._states[path] is None:
                self._find_written(path)

    def _describe_absent_url(self, path: str) -> str | None:
        """Why the file of a URL cannot be read; None: the path is no URL."""
        if scheme_of(path):
            return self._no_url
        return None

    def _find_written(self, path: str) -> None:
        """Looks for a file that a table writes differently. See Note [names as written]."""
        try:
            actual_path = self._written_names.find(path)
        except ValueError as error:  # several files fit
            self._states[path] = str(error)
            return
        if actual_path is not None:
            self._actual_paths[path] = actual_path
            self._states[path] = state_or_problem(self._root, actual_path)

    def _state(self, path: str) -> FileState:
        """The state of a file of the batch.

        Raises:
            ValueError: the file cannot be read; a _MissingFileError if it does not exist.
        """
        state = self._states[path]
        if state is None:
            raise _MissingFileError(self._no_file, self._similar_path(path))
        if isinstance(state, str):
            raise ValueError(state)
        return state

    def _similar_path(self, path: str) -> str:
        """The end of a message about a file that is not there: its path with a folder that is."""
        root = self._root
        # Each hint lists a folder, and the user reads the first ones.
        if not isinstance(root, Path) or self._num_hints == _MAX_HINTS:
            return ""
        if os.path.isdir(os.path.dirname(root / path)):
            return ""  # the name of the next image is always similar
        self._num_hints += 1
        return did_you_mean_path(root / path).replace(f"{readable(root)}/", "")

    def _make_source(self, row: Row) -> Source:
        """The source of a row. One that cannot be packed has the reason as its problem."""
        path = ""
        if is_name(row.path):
            path = relative_path(row.path, self._root)
        note = None
        fields_ctime_ns = 0
        try:
            if row.problem is not None:
                raise ValueError(row.problem)
            if not path and row.has_image:
                raise ValueError(
                    f"expected the path of an image, got {row.path[:60]!r}"
                )
            state = _NO_FILE
            if row.has_image:
                state = self._state(path)
                self.has_files = True
            written_label = row.label
            if self._label_pattern is not None:
                written_label = self._class_in(self._actual_paths.get(path, path))
            label = self.labels.take(written_label, row.where)
            if self._fields or row.size:
                note, fields_ctime_ns = self._write_note(row)
        except ValueError as error:
            problem = str(error)
            if path:
                problem += f" ({row.where})"
            if isinstance(error, _MissingFileError):
                self._note_missing(error, path, problem, row.where)
            if path in self._actual_paths:
                # The file has a row, if a bad one, so it is no image without a row.
                self.names.setdefault(self._actual_paths[path], 0)
            # A row without a path is called by its place in the table.
            name = self._unique_name(path or row.where)
            return Source(name, NO_LABEL, 0, 0, 0, problem)

        if not row.has_image:
            name = self._unique_name(row.name or row.where)
            size_bytes = self._size_of_files(row)
            if size_bytes:
                self.has_files = True
            return Source(
                name,
                label,
                size_bytes,
                0,
                fields_ctime_ns,
                file=NO_IMAGE_FILE,
                note=note,
            )
        path = self._actual_paths.get(path, path)
        name = self._unique_name(path)
        file = None
        if name != path:
            file = path
            if len(self._repeated) < _MAX_REPEATED:
                self._repeated[path] = None
        return Source(
            name,
            label,
            state.size_bytes,
            state.mtime_ns,
            max(state.ctime_ns, fields_ctime_ns),
            file=file,
            note=note,
        )

    def _note_missing(
        self, error: _MissingFileError, path: str, problem: str, row_name: str
    ) -> None:
        """Counts a row that names a file that does not exist. `path`: of its image."""
        self._num_without_file += 1
        self._first_problem = self._first_problem or problem
        if not error.is_image:
            return
        self._num_missing += 1
        if not self._first_missing:
            place = readable(self._root / path)
            self._first_missing = (
                f"{show_row(row_name)}: {place} does not exist{error.hint}"
            )

    def _size_of_files(self, row: Row) -> int:
        """The size of the files that the fields of a row name."""
        total = 0
        for path in _paths_of_fields(row, self._file_fields):
            total += self._state(relative_path(path, self._root)).size_bytes
        return total

    def _class_in(self, path: str) -> str:
        """The class in the path of an image. ValueError: it has none."""
        assert self._label_pattern is not None
        name = self._class_of(path.lstrip("/"))
        if name is None:
            raise ValueError(describe_unfit_path(self._label_pattern))
        return name

    def _unique_name(self, name: str) -> str:
        """The name itself, or with #2, #3, ... behind it if another sample has it already."""
        number = self.names.get(name, 0) + 1
        unique = name
        if number > 1:
            unique = f"{name}#{number}"
            while unique in self.names:  # a file may be called PATH#2
                number += 1
                unique = f"{name}#{number}"
        self.names[unique] = 1
        self.names[name] = number
        return unique

    def _write_note(self, row: Row) -> tuple[Note, int]:
        """Notes the values of a row; also returns the latest ctime of the files that they name.

        Raises:
            ValueError: JSON cannot hold a value, or the file of a field cannot be read.
        """
        values: dict[str, Any] = {}
        # Of the files that the value of a field names, by field.
        states: dict[str, list[FileState]] = {}
        for field in self._fields:
            value = row.values.get(field.name)
            if value is None:
                continue
            # A table may have the numbers of an array in place of a path.
            has_numbers = field.kind in ARRAY_KINDS and isinstance(value, list)
            is_path = not has_numbers and not isinstance(value, dict)
            if field.kind == "images":
                value, states[field.name] = self._describe_files(field.name, value)
            elif field.kind == "mask" and _is_mask_of_segments(value):
                entry, state = self._describe_file(field.name, value["path"])
                value = {"segments": value["segments"], **entry}
                states[field.name] = [state]
            elif field.kind == "mask" and _is_mask_of_objects(value):
                entries, states[field.name] = self._describe_files(
                    field.name, value["objects"]
                )
                value = {**value, "objects": entries}
            elif field.kind in FILE_KINDS and is_path:
                value, state = self._describe_file(field.name, value)
                states[field.name] = [state]
            values[field.name] = value

        mtimes = {}
        ctime_ns = 0
        for name, states_of_field in states.items():
            mtimes[name] = [state.mtime_ns for state in states_of_field]
            for state in states_of_field:
                ctime_ns = max(ctime_ns, state.ctime_ns)
        try:
            content = json.dumps([row.size, values]).encode()
            line = json.dumps([row.size, values, mtimes]).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"expected values that JSON can hold: {error}") from None
        note = Note(
            self.notes.add(line),
            len(line),
            # Without times: a copy of the source has the same content, and another state.
            xxhash.xxh3_64_intdigest(content),
            xxhash.xxh3_64_intdigest(line + repr(states).encode()),
        )
        return note, ctime_ns

    def _describe_files(
        self, field: str, value: object
    ) -> tuple[list[dict[str, Any]], list[FileState]]:
        """As `_describe_file`, for a list of paths; a single path is a list of one."""
        paths = value if isinstance(value, list) else [value]
        described = []
        states = []
        for path in paths:
            entry, state = self._describe_file(field, path)
            described.append(entry)
            states.append(state)
        return described, states

    def _describe_file(
        self, field: str, value: object
    ) -> tuple[dict[str, Any], FileState]:
        """The value that a note has for the path of a field's file, and the state of the file."""
        if not is_name(value):
            raise ValueError(
                f"field {field}: expected the path of a file, got {repr(value)[:60]}"
            )
        path = relative_path(value, self._root)
        try:
            state = self._state(path)
        except ValueError as error:
            problem = f"field {field}: {readable(path)}: {error}"
            if isinstance(error, _MissingFileError):
                raise _MissingFileError(problem, is_image=False) from None
            raise ValueError(problem) from None
        path = self._actual_paths.get(path, path)
        self.names.setdefault(path, 0)  # the file of a field is not stray
        return {"file": path, "size_bytes": state.size_bytes}, state
