"""COCO's files -> their images, each with its annotations; the annotations wait in `Notes`."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import MOST_CLASSES
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.json_arrays import entries
from fastpipe.packing.source.listing import Notes
from fastpipe.packing.source.rows import Row, row_name

_MOST_ENTRIES = 1000


class Annotation(NamedTuple):
    """An annotation of COCO's, with its name for messages."""

    name: str
    entry: dict[str, Any]


def is_object(entry: Mapping[str, Any]) -> bool:
    """Whether an annotation is of an object, and not only a caption of the image."""
    return "caption" not in entry or "bbox" in entry


class Annotated:
    """The images and annotations of files about the same images; iterate over it for each image with its annotations.

    Attributes:
        paths: the files.
        images: their rows without values, in the order of the first file, then those that come in later ones.
        categories: id -> name.
        points: names of the keypoints.
        entries: names of what annotations have.
        lost: annotations of no image: number in its file, number of the file, image_id.

    Raises:
        PackError: a file is damaged, or two do not agree.
    """

    def __init__(self, paths: Sequence[SourcePath], wanted: Collection[str]) -> None:
        self.paths = paths
        self.images: list[Row] = []
        self.categories: dict[int, str] = {}
        self.points: tuple[str, ...] = ()
        self.entries: set[str] = set()
        self.lost: list[tuple[int, int, Any]] = []
        self._wanted = frozenset(wanted) | {"id", "caption", "bbox"}
        self._numbers: dict[int, int] = {}  # id of an image -> place in `images`
        self._notes = Notes()
        self._noted: dict[int, array[int]] = {}  # id of an image -> offset and size of each of its annotations
        self._captions = Counter[int]()
        for number in range(len(paths)):
            self._read(number)
        self._notes.flush()
        if not self.images:
            raise self._wrong(0, 'it has no images; expected COCO\'s "images" and "annotations"')
        for image in self._noted.keys() - self._numbers.keys():
            self.lost += ((place, file, image) for place, file, _ in self._notes_of(image))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the categories, by id; "" where there is no such id."""
        return tuple(self.categories.get(number, "") for number in range(max(self.categories, default=-1) + 1))

    def category(self, entry: Mapping[str, Any]) -> int:
        """The category of an annotation.

        Raises:
            ImageError: it has none.
        """
        number = entry.get("category_id")
        if type(number) is not int or number not in self.categories:
            raise ImageError(f"expected a category_id of the categories, got {number!r:.60}")
        return number

    @property
    def several_captions(self) -> bool:
        """Whether an image has more than one."""
        return any(self._captions[image] > 1 for image in self._numbers)

    def __iter__(self) -> Iterator[tuple[Row, list[Annotation]]]:
        for name, place in self._numbers.items():
            yield self.images[place], self._joined(name)

    def _notes_of(self, image: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Number in its file, number of the file, and entries, of each annotation of an image."""
        places = self._noted.get(image, ())
        for offset, size in zip(places[::2], places[1::2], strict=True):
            yield json.loads(self._notes.read(offset, size))

    def _joined(self, image: int) -> list[Annotation]:
        """The annotations of an image. Those of several files with one id are one; captions have ids of their own."""
        found: list[Annotation] = []
        known: dict[int, tuple[int, int]] = {}  # id -> place in `found`, and file
        for place, file, entry in self._notes_of(image):
            name = entry.get("id", place)
            if type(entry.get("id")) is int and is_object(entry):
                at, first = known.setdefault(name, (len(found), file))
                if first != file:
                    found[at].entry.update(entry)
                    continue
            found.append(Annotation(f"annotation {name!r:.40}", entry))
        return found

    def _wrong(self, file: int, what: str) -> PackError:
        return PackError(f"{readable(str(self.paths[file]))}: {what}")

    def _read(self, file: int) -> None:
        """Takes in one of the files."""
        before = set(self._numbers)
        for name, number, entry in entries(self.paths[file]):
            if name in ("images", "annotations", "categories") and not isinstance(entry, dict):
                raise self._wrong(file, f"expected objects in {name}, got {entry!r:.60} ({number:,})")
            if name == "images":
                self._add_image(file, number, entry, before)
            elif name == "annotations":
                self._add_annotation(file, number, entry)
            elif name == "categories":
                self._add_category(file, entry)

    def _add_image(self, file: int, number: int, entry: dict[str, Any], before: set[int]) -> None:
        name, path, size = entry.get("id"), entry.get("file_name"), (entry.get("width"), entry.get("height"))
        problem = None
        if size not in ((None, None), (0, 0)) and not all(type(side) is int and side > 0 for side in size):
            problem = f"expected a width and a height, got {size[0]!r:.40} and {size[1]!r:.40}"
        if not isinstance(path, str):
            path, problem = "", f"expected a file_name, got {path!r:.60}"
        if not _is_id(name):
            raise self._wrong(file, f"expected a whole number as the id of image {number:,}, got {name!r:.60}")
        if name in self._numbers:
            other = self.images[self._numbers[name]].path
            if name not in before:
                raise self._wrong(file, f"two images have the id {name}: {other!r:.200} and {path!r:.200}")
            if other != path:
                raise self._wrong(
                    file,
                    f"image {name} is {path!r:.200}, but {other!r:.200} in {readable(str(self.paths[0]))}; the files "
                    "must be about the same images",
                )
            return
        self._numbers[name] = len(self.images)
        where = row_name(f"{self.paths[0].name}/images", number)
        given: Any = size if problem is None and size[0] else None
        self.images.append(Row(path, problem=problem, where=where, size=given))

    def _add_annotation(self, file: int, number: int, entry: dict[str, Any]) -> None:
        image = entry.pop("image_id", None)
        if not _is_id(image):
            self.lost.append((number, file, f"{image!r:.60}"))
            return
        if len(self.entries) < _MOST_ENTRIES:
            self.entries.update(entry)
        if "caption" in entry:
            self._captions[image] += 1
        kept = {name: value for name, value in entry.items() if name in self._wanted}
        note = json.dumps([number, file, kept], separators=(",", ":")).encode()
        self._noted.setdefault(image, array("q")).extend((self._notes.add(note), len(note)))

    def _add_category(self, file: int, entry: dict[str, Any]) -> None:
        number, name, points = entry.get("id"), entry.get("name"), entry.get("keypoints")
        if type(number) is not int or not 0 <= number < MOST_CLASSES or not isinstance(name, str):
            raise self._wrong(
                file,
                f"expected categories with an id of 0 to {MOST_CLASSES - 1:,} and a name, got {number!r:.40} and "
                f"{name!r:.60}",
            )
        if self.categories.setdefault(number, name) != name:
            raise self._wrong(file, f"category {number} is {name!r:.60}, and {self.categories[number]!r:.60}")
        if points is None:
            return
        if not isinstance(points, list) or not all(isinstance(point, str) for point in points):
            raise self._wrong(file, f"category {number}: expected names of keypoints, got {points!r:.60}")
        if self.points and self.points != tuple(points):
            raise self._wrong(
                file,
                "the categories have different keypoints; expected the same for all: a field of keypoints has one "
                "number of points",
            )
        self.points = tuple(points)


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and -(2**63) <= value < 2**63
