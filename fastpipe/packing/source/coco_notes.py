"""COCO's files -> their images, each with its annotations; the annotations wait in `Notes`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import MOST_CLASSES
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.json_arrays import entries
from fastpipe.packing.source.listing import Notes

_MOST_ENTRIES = 1000


class Image(NamedTuple):
    """An image of COCO's.

    Attributes:
        number: its place in the list of images.
        path: its file_name, as it stands there.
        size: width and height; None: the file does not have them.
        problem: why it cannot be packed; None: nothing is known.
    """

    number: int
    path: Any
    size: tuple[int, int] | None
    problem: str | None


class Annotation(NamedTuple):
    """An annotation of COCO's, with its name for messages."""

    name: str
    entry: dict[str, Any]


def is_object(entry: Mapping[str, Any]) -> bool:
    """Whether an annotation is of an object, and not only a caption of the image."""
    return "caption" not in entry or "bbox" in entry


class Annotated:
    """The images and annotations of files about the same images.

    Iterate over it for each image with its annotations.

    Attributes:
        paths: the files.
        images: in the order of the first file, then those that come in later ones.
        categories: id -> name.
        points: names of the keypoints.
        entries: names of what annotations have.
        several_captions: an image has more than one.
        lost: annotations of no image: number in its file, number of the file, image_id.
    """

    def __init__(self, paths: Sequence[SourcePath], wanted: Collection[str]) -> None:
        self.paths = paths
        self._wanted = frozenset(wanted) | {"id", "caption", "bbox"}
        self.images: list[Image] = []
        self.categories: dict[int, str] = {}
        self.points: tuple[str, ...] = ()
        self.entries: set[str] = set()
        self.several_captions = False
        self.lost: list[tuple[int, int, Any]] = []
        self._notes = Notes()
        self._numbers: dict[int, int] = {}  # id of an image -> place in `images`
        self._image_ids = array("q")  # of each annotation
        self._files = array("B")
        self._places = array("q")  # number in its file
        self._offsets = array("q", [0])
        self._captions: list[int] = []

    def read(self, file: int) -> None:
        """Takes in one of the files."""
        path = self.paths[file]
        before = set(self._numbers)
        for name, number, entry in entries(path):
            if name in ("images", "annotations", "categories") and not isinstance(entry, dict):
                raise PackError(f"{readable(str(path))}: expected objects in {name}, got {entry!r:.60} ({number:,})")
            if name == "images":
                self._add_image(path, number, entry, before)
            elif name == "annotations":
                self._add_annotation(file, number, entry)
            elif name == "categories":
                self._add_category(path, entry)

    def finish(self) -> None:
        """After the last file: finds the image of each annotation."""
        self._notes.flush()
        known = np.array(sorted(self._numbers), dtype=np.int64)
        places = np.array([self._numbers[number] for number in known.tolist()], dtype=np.int64)
        wanted = np.frombuffer(self._image_ids, dtype=np.int64) if self._image_ids else np.empty(0, np.int64)
        at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        there = known[at] == wanted if len(known) else np.zeros(len(wanted), dtype=bool)
        for lost in np.flatnonzero(~there).tolist():
            self.lost.append((self._places[lost], self._files[lost], self._image_ids[lost]))
        of = np.where(there, places[at] if len(known) else 0, len(self.images))
        self._order: NDArray[np.int64] = np.argsort(of, kind="stable")
        self._starts = np.searchsorted(of[self._order], np.arange(len(self.images) + 1))
        captions = of[np.array(self._captions, dtype=np.int64)]
        self.several_captions = bool(
            len(captions) and np.bincount(captions[captions < len(self.images)], minlength=1).max() > 1
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the categories, by id; "" where there is no such id."""
        return tuple(self.categories.get(number, "") for number in range(max(self.categories, default=-1) + 1))

    def __iter__(self) -> Iterator[tuple[Image, list[Annotation]]]:
        for place, image in enumerate(self.images):
            numbers = self._order[self._starts[place] : self._starts[place + 1]].tolist()
            yield image, self._joined(numbers)

    def _joined(self, numbers: Sequence[int]) -> list[Annotation]:
        """The annotations of an image. Those of several files with one id are one; captions have ids of their own."""
        found: list[Annotation] = []
        known: dict[Any, tuple[int, int]] = {}  # id -> place in `found`, and file
        for number in numbers:
            offset, file = self._offsets[number], self._files[number]
            entry = json.loads(self._notes.read(offset, self._offsets[number + 1] - offset))
            name = entry.get("id") if type(entry.get("id")) is int and is_object(entry) else None
            if name in known and known[name][1] != file:
                found[known[name][0]].entry.update(entry)
                continue
            if name is not None:
                known.setdefault(name, (len(found), file))
            found.append(Annotation(f"annotation {entry.get('id', self._places[number])!r:.40}", entry))
        return found

    def _add_image(self, path: SourcePath, number: int, entry: dict[str, Any], before: set[int]) -> None:
        name = entry.get("id")
        if type(name) is not int or not -(2**63) <= name < 2**63:
            raise PackError(
                f"{readable(str(path))}: expected a whole number as the id of image {number:,}, got {name!r:.60}"
            )
        file_name, size = entry.get("file_name"), (entry.get("width"), entry.get("height"))
        problem = None
        known = self._numbers.get(name)
        if known is not None:
            other = self.images[known].path
            if name not in before:
                raise PackError(
                    f"{readable(str(path))}: two images have the id {name}: {other!r:.200} and {file_name!r:.200}"
                )
            if other != file_name:
                raise PackError(
                    f"{readable(str(path))}: image {name} is {file_name!r:.200}, but {other!r:.200} in "
                    f"{readable(str(self.paths[0]))}; the files must be about the same images"
                )
            return
        if size not in ((None, None), (0, 0)) and not all(type(side) is int and side > 0 for side in size):
            problem = f"expected a width and a height, got {size[0]!r:.40} and {size[1]!r:.40}"
        self._numbers[name] = len(self.images)
        given = size if problem is None and size[0] else None
        self.images.append(Image(number, file_name, given, problem))  # type: ignore[arg-type]

    def _add_annotation(self, file: int, number: int, entry: dict[str, Any]) -> None:
        image = entry.pop("image_id", None)
        if type(image) is not int or not -(2**63) <= image < 2**63:
            self.lost.append((number, file, f"{image!r:.60}"))
            return
        if len(self.entries) < _MOST_ENTRIES:
            self.entries.update(entry)
        if "caption" in entry:
            self._captions.append(len(self._files))
        self._image_ids.append(image)
        self._files.append(file)
        self._places.append(number)
        kept = {name: value for name, value in entry.items() if name in self._wanted}
        note = json.dumps(kept, separators=(",", ":")).encode()
        self._notes.add(note)
        self._offsets.append(self._offsets[-1] + len(note))

    def _add_category(self, path: SourcePath, entry: dict[str, Any]) -> None:
        number, name, points = entry.get("id"), entry.get("name"), entry.get("keypoints")
        if type(number) is not int or not 0 <= number < MOST_CLASSES or not isinstance(name, str):
            raise PackError(
                f"{readable(str(path))}: expected categories with an id of 0 to {MOST_CLASSES - 1:,} and a name, got "
                f"{number!r:.40} and {name!r:.60}"
            )
        if self.categories.setdefault(number, name) != name:
            raise PackError(
                f"{readable(str(path))}: category {number} is {name!r:.60}, and {self.categories[number]!r:.60}"
            )
        if points is None:
            return
        if not isinstance(points, list) or not all(isinstance(point, str) for point in points):
            raise PackError(
                f"{readable(str(path))}: category {number}: expected names of keypoints, got {points!r:.60}"
            )
        if self.points and self.points != tuple(points):
            raise PackError(
                f"{readable(str(path))}: the categories have different keypoints; expected the same for all: a field "
                "of keypoints has one number of points"
            )
        self.points = tuple(points)


def read_annotations(paths: Sequence[SourcePath], wanted: Collection[str]) -> Annotated:
    """Reads COCO's files about the same images.

    Raises:
        PackError: a file is damaged, or two do not agree.
    """
    found = Annotated(paths, wanted)
    for file in range(len(paths)):
        found.read(file)
    found.finish()
    if not found.images:
        raise PackError(f'{readable(str(paths[0]))} has no images; expected COCO\'s "images" and "annotations"')
    return found
