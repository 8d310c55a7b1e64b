"""Files beside images that are called like them, such as 7.txt or 7.npy of 7.jpg -> fields.

A user says by --field which files they are: the column is the ending, so `--field caption=txt` reads
the captions that diffusion trainers keep beside their images.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fastpipe.dataset.format.fields import FILE_KINDS
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, format_count, readable
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.files import SourcePath, open_binary
from fastpipe.sources.folders import points_file
from fastpipe.sources.listing import Assumption, Listing, Source, SourceField
from fastpipe.sources.member_fields import kind_of_member
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

# A file of text or JSON beside an image has so many bytes at most; it is read while listing.
_MAX_TEXT_BYTES = 1 << 20
_READ_KINDS = ("text", "json", points_file.KIND)
# A list of pictures has several files.
_KINDS = ("text", "json", *(kind for kind in FILE_KINDS if kind != "images"))


class SidecarFields(NamedTuple):
    """The fields, and the files that have their values.

    Attributes:
        fields: with the endings as columns.
        paths: of each field, image -> file. Both are relative to the source.
    """

    fields: list[SourceField]
    paths: list[Mapping[str, str]]


def take_sidecars(
    root: SourcePath, sources: list[Source], columns: Sequence[FieldColumn]
) -> SidecarFields:
    """Finds the files of fields, and removes them from the sources, in place.

    Args:
        root: of the sources.
        sources: all files.
        columns: the fields that the user asks for.

    Raises:
        PackError: a field is of a kind that no file can have, or no image has a file of it.
    """
    paths = {source.path for source in sources}
    fields = []
    paths_by_field: list[Mapping[str, str]] = []
    for column in columns:
        field = _field_of(column)
        files = _files_beside(paths, f".{field.column}")
        if not files:
            # Of "txt:words", "words" is no kind, and has stayed a part of the column.
            ending = field.column.rpartition(":")[0]
            if _files_beside(paths, f".{ending}"):
                column.check_kind([ending])
            raise PackError(
                f"{column}: no image in {readable(str(root))} has a file of the same name with the "
                f"ending .{field.column} beside it; expected, for an image a.jpg, a.{field.column}"
            )
        fields.append(field)
        paths_by_field.append(files)

    sidecars: set[str] = set()
    for paths_of_field in paths_by_field:
        sidecars.update(paths_of_field.values())
    sources[:] = [source for source in sources if source.path not in sidecars]
    return SidecarFields(fields, paths_by_field)


def _field_of(column: FieldColumn) -> SourceField:
    ending = column.column.lstrip("*.")
    kind = column.kind or kind_of_member(ending)
    is_of_points = ending.lower() == points_file.ENDING
    if is_of_points and column.kind is None:
        kind = points_file.KIND
    can_have_kind = kind in _KINDS or (kind == points_file.KIND and is_of_points)
    if not can_have_kind:
        raise PackError(
            f"{column}: the column is the ending of files beside images; expected one of the kinds "
            f"{', '.join(_KINDS)} behind it, such as --field {column.name}={ending}:text. Files "
            f"that end in .{points_file.ENDING} give {points_file.KIND}"
        )
    return SourceField(column.name, kind, column=ending)


def _files_beside(paths: set[str], ending: str) -> dict[str, str]:
    """Image -> the file beside it: a.jpg -> a.txt, or a.jpg.txt."""
    files = {}
    for path in paths:
        # The files of a field may be pictures themselves.
        if not is_picture(path) or path.endswith(ending):
            continue
        stem = path.rpartition(".")[0]
        for candidate in (stem + ending, path + ending):
            if candidate in paths:
                files[path] = candidate
                break
    return files


def list_with_sidecars(listing: Listing, sidecars: SidecarFields) -> Listing:
    """A listing of images -> the same with the values of fields.

    Args:
        listing: of class folders, without the files of the fields.
        sidecars: of `take_sidecars`.
    """
    rows = _rows(listing, sidecars)
    listed = list_rows(
        listing.root, rows, sidecars.fields, classes=listing.classes or None
    )
    assumed = [*listing.assumed, *listed.assumed, *_assume_missing(listing, sidecars)]
    for field in sidecars.fields:
        if field.kind == points_file.KIND:
            text = (
                f"{field.name}: .{field.column} files count pixels from 1, so the points are 1 "
                "less than in the files"
            )
            assumed.append(Assumption(text))
    return replace(listed, stray=listing.stray, assumed=tuple(assumed))


def _rows(listing: Listing, sidecars: SidecarFields) -> Iterator[Row]:
    for source in listing.sources:
        values: dict[str, Any] = {}
        problem = source.problem
        for field, files in zip(sidecars.fields, sidecars.paths, strict=True):
            file = files.get(source.path)
            if file is None:
                continue
            values[field.name] = file
            if field.kind in _READ_KINDS:
                try:
                    values[field.name] = _read_text(listing.root / file, field.kind)
                except (OSError, ValueError, RecursionError) as error:
                    problem = problem or f"{readable(file)}: {error}"
        yield Row(source.path, values, problem, source.path, source.label)


def _read_text(path: SourcePath, kind: str) -> Any:
    """The text of a file, without white space around it; or what its JSON or its points say.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read, or is none.
    """
    with open_binary(path) as file:
        data = file.read(_MAX_TEXT_BYTES + 1)
    if len(data) > _MAX_TEXT_BYTES:
        raise ValueError(f"expected at most {_MAX_TEXT_BYTES:,} bytes of {kind}")
    text = data.decode("utf-8-sig")
    if kind == "json":
        return json.loads(text)
    if kind == points_file.KIND:
        return points_file.parse_points(text)
    return text.strip()


def _assume_missing(listing: Listing, sidecars: SidecarFields) -> Iterator[Assumption]:
    """Says of how many images a file is missing."""
    for field, files in zip(sidecars.fields, sidecars.paths, strict=True):
        missing = [
            source.path
            for source in listing.sources
            if is_picture(source.path) and source.path not in files
        ]
        if missing:
            yield Assumption(
                f"{field.name}: none for {format_count(len(missing), 'image')} without a file that "
                f"ends in .{field.column} beside it, such as {readable(missing[0])}"
            )
