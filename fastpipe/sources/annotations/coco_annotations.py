"""Files of COCO about the same images -> images, categories, and the annotations of each image.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from fastpipe.dataset.format.layout import MAX_CLASSES
from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.coco_boxes import BoxCheck, BoxCounts
from fastpipe.sources.annotations.coco_shapes import find_box_around
from fastpipe.sources.annotations.detections import box_corners
from fastpipe.sources.annotations.like_coco import (
    describe_category_entry,
    describe_image_entry,
    describe_lists,
)
from fastpipe.sources.annotations.numbered_names import list_numbered_names
from fastpipe.sources.annotations.tools.annotated_image import parse_numbers
from fastpipe.sources.files import SourcePath
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.notes import Notes
from fastpipe.sources.tables.column_kinds import check_boxes
from fastpipe.sources.tables.rows import Row, row_name

# The form of bbox in COCO's own files.
_BOX_FORMAT = "xywh"
# An image, an annotation or a category, as the file has it.
Entry: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str

IMAGE_ID = "image_id"
# Names of entries are collected for messages. A file with ids as names would fill the memory.
_MAX_ENTRY_NAMES = 1000
_ALWAYS_KEPT = ("id", "caption", "bbox")
# json.dumps would make an encoder for each of millions of annotations.
_encode_note = json.JSONEncoder(separators=(",", ":")).encode
# An annotation of a whole image in COCO's panoptic format has these.
_PANOPTIC_ENTRIES = ("file_name", "segments_info")


class InvalidId(NamedTuple):
    """An image_id of an annotation that is neither a number nor a text."""

    shown: str


class Annotation(NamedTuple):
    name: str  # for messages: "annotation 17"
    entry: Entry


def parse_id(value: object) -> Id | None:
    """An id in one form: 7, 7.0 and "7" are the same, as tools write them. None: not an id."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,17}", value):
        return int(value)
    return value if isinstance(value, str) else None


# Entries of annotations that are a number, or a list of numbers.
_NUMBERS_OF_OBJECTS = ("bbox", "area", "keypoints")
# Entries of annotations that say where an object is, or what the whole image shows in words.
_PLACES = ("bbox", "segmentation", "keypoints", "caption")


def is_object(entry: Entry) -> bool:
    """Whether an annotation is about an object, and not only a caption of the image."""
    return "caption" not in entry or "bbox" in entry


class Annotations:
    """The images, categories and annotations of several files about the same images.

    A file may have millions of annotations, so they wait in a temporary file (`Notes`). Memory has
    the offset and size of each.
    """

    def __init__(
        self,
        paths: Sequence[SourcePath],
        columns: Collection[str],
        *,
        drops_bad_objects: bool = False,
        box_format: str | None = None,
    ) -> None:
        """Reads the files.

        Args:
            paths: the files.
            columns: the entries of annotations that are kept.
            drops_bad_objects: images are packed without the objects whose box or category cannot be
                read.
            box_format: of bbox, one of BOX_FORMATS, as the user says it; None: xywh, and boxes that
                look otherwise are refused.
        """
        self.paths = paths
        self._box_format = box_format or _BOX_FORMAT
        self._drops_bad_objects = drops_bad_objects
        # Rows without values, in the order of the first file; images of later files come last.
        self.images: dict[Id, Row] = {}
        self.written_ids: dict[Id, Id] = {}  # id -> the id as it stands in the file
        self.url_images = set[Id]()  # images with a coco_url and without a file_name
        self.categories: dict[int, str] = {}  # id -> name
        self.keypoint_names: tuple[str, ...] = ()
        self.entry_names: set[str] = set()  # of all annotations
        self.attribute_names: set[str] = set()  # in "attributes", as CVAT writes it
        self.image_entry_names: set[str] = set()  # of the first image
        self.segmentation_count = 0
        self.is_panoptic = False  # a PNG says the segment of each pixel
        self.crowd_count = 0  # annotations with a bbox that are several objects
        self.box_counts = BoxCounts()

        self._list_names = set[str]()  # in the JSON objects of the files
        self._kept_names = frozenset((*columns, *_PANOPTIC_ENTRIES, *_ALWAYS_KEPT))
        self._notes = Notes()
        # Image -> offset, size, offset, size, ... of its annotations in the notes.
        self._note_ranges: dict[Id | InvalidId, array[int]] = {}
        self._caption_counts = Counter[Id | InvalidId]()
        self._box_check = BoxCheck()
        self.doubt_of_boxes = ""  # that boxes may have another form, for the user

        for file_index in range(len(paths)):
            self._read(file_index)
        self._notes.flush()
        if box_format is None:
            sizes = self._sizes_of(self._box_check.image_ids)
            self._box_check.raise_if_not_coco(paths[0], sizes)
            self.doubt_of_boxes = self._box_check.describe_doubt(sizes)
        if not self.images:
            raise PackError(
                f"{readable(str(paths[0]))} has no images; {describe_lists(self._list_names)}"
            )

    @property
    def category_names(self) -> tuple[str, ...]:
        """The names of the categories by id; "" where there is no category of an id."""
        return list_numbered_names(self.categories)

    def _sizes_of(self, image_ids: Iterable[Any]) -> dict[Id, tuple[int, int]]:
        """Width and height of images by their ids, where the files say them."""
        sizes: dict[Id, tuple[int, int]] = {}
        for image_id in image_ids:
            row = self.images.get(image_id)
            if row is not None and row.size is not None:
                sizes[image_id] = row.size
        return sizes

    def have_only_classes(self) -> bool:
        """Whether annotations have a category and no place in the image, as iNaturalist's."""
        return "category_id" in self.entry_names and self.entry_names.isdisjoint(
            _PLACES
        )

    def has_several_of_an_image(self) -> bool:
        """Whether an image has more than one annotation."""
        return any(len(ranges) > 2 for ranges in self._note_ranges.values())

    def has_several_captions(self) -> bool:
        return any(self._caption_counts[image_id] > 1 for image_id in self.images)

    def read_category(self, entry: Entry) -> int:
        number = parse_id(entry.get("category_id"))
        if not isinstance(number, int) or number not in self.categories:
            raise ImageError(
                f"expected a category_id of the categories, got {entry.get('category_id')!r:.60}"
            )
        return number

    def read_box(self, entry: Entry) -> list[float]:
        """The box as left, top, right and bottom (xyxy); `bbox` in COCO's own files is xywh.

        Without a bbox it is the box around the segmentation.
        """
        if not entry.get("bbox") and entry.get("segmentation"):
            self.box_counts.around_segmentation += 1
        return self._find_box(entry)

    def _find_box(self, entry: Entry) -> list[float]:
        if entry.get("bbox") or not entry.get("segmentation"):
            box = check_boxes([entry.get("bbox")], self._box_format)[0]
            return box_corners(box, self._box_format)
        return find_box_around(entry["segmentation"])

    def read_annotations(self, image_id: Id) -> list[Annotation]:
        """The annotations of an image. Those of several files with one id are one annotation.

        Captions have ids of their own, which are not those of objects.
        """
        annotations: list[Annotation] = []
        first_by_id: dict[Id, tuple[Entry, int]] = {}  # id -> entry and file
        for number, file_index, entry in self._read_notes(image_id):
            # An annotation without an id is known by its number in the file.
            written_id = entry.get("id", number)
            annotation_id = parse_id(entry.get("id"))
            if annotation_id is not None and is_object(entry):
                first, first_file = first_by_id.setdefault(
                    annotation_id, (entry, file_index)
                )
                # Within one file, equal ids are a mistake, and both are kept.
                if first_file != file_index:
                    first.update(entry)
                    continue
            annotations.append(Annotation(f"annotation {written_id!r:.40}", entry))
        return annotations

    def list_objects(
        self, annotations: Sequence[Annotation], *, has_boxes: bool
    ) -> list[Annotation]:
        """The annotations of an image that are about objects.

        Those that cannot be read are left out if the user wants it. `has_boxes`: boxes are packed.
        """
        objects = [item for item in annotations if is_object(item.entry)]
        if not self._drops_bad_objects:
            return objects
        readable_objects = []
        for item in objects:
            try:
                self.read_category(item.entry)
                if has_boxes:
                    self._find_box(item.entry)
            except ImageError:
                continue
            readable_objects.append(item)
        return readable_objects

    def rows_without_image(self) -> Iterator[Row]:
        """Rejected rows of the annotations whose image_id is not that of an image."""
        for image_id in self._note_ranges.keys() - self.images.keys():
            shown = repr(image_id)
            if isinstance(image_id, InvalidId):
                shown = image_id.shown
            problem = f"expected the image_id of one of the images, got {shown[:60]}"
            for number, file_index, _ in self._read_notes(image_id):
                where = row_name(f"{self.paths[file_index].name}/annotations", number)
                yield Row(where, problem=problem)

    def _read_notes(self, image_id: Id | InvalidId) -> Iterator[tuple[int, int, Entry]]:
        """Number in its file, number of the file, and content of each annotation of an image."""
        ranges = self._note_ranges.get(image_id, ())
        for offset, size in zip(ranges[::2], ranges[1::2], strict=True):
            yield json.loads(self._notes.read(offset, size))

    def _read(self, file_index: int) -> None:
        path = self.paths[file_index]
        earlier_ids = set(self.images)
        try:
            for list_name, number, entry in object_entries(path):
                self._list_names.add(list_name)
                if list_name not in ("images", "annotations", "categories"):
                    continue
                if not isinstance(entry, dict):
                    raise ValueError(
                        f"expected objects in {list_name}, got {entry!r:.60} ({number:,})"
                    )
                if list_name == "images":
                    where = row_name(f"{path.name}/images", number)
                    self._add_image(where, entry, earlier_ids)
                elif list_name == "annotations":
                    self._add_annotation(file_index, number, entry)
                else:
                    self._add_category(entry)
        except ValueError as problem:
            raise PackError(f"{readable(str(path))}: {problem}") from None

    def _add_image(self, where: str, entry: Entry, earlier_ids: Collection[Id]) -> None:
        """`earlier_ids`: the images of the files before, which this file may have again."""
        image_id = parse_id(entry.get("id"))
        if not self.image_entry_names:
            self.image_entry_names.update(entry)
        if image_id is None:
            raise ValueError(
                describe_image_entry(entry)
                or "expected a number or a text as the id of an image, got "
                f"{entry.get('id')!r:.60} ({where})"
            )
        row = _image_row(where, entry)
        first = self.images.setdefault(image_id, row)
        # A file may repeat images of the files before, but not its own.
        if first is not row and (image_id not in earlier_ids or first.path != row.path):
            raise ValueError(
                f"two images have the id {image_id}: {first.path!r:.200} and {row.path!r:.200}; "
                "expected one image for an id, the same in all files"
            )
        self.written_ids.setdefault(image_id, entry["id"])
        if entry.get("file_name") is None and isinstance(entry.get("coco_url"), str):
            self.url_images.add(image_id)

    def _add_annotation(self, file_index: int, number: int, entry: Entry) -> None:
        written_id = entry.pop(IMAGE_ID, None)
        image_id: Id | InvalidId | None = parse_id(written_id)
        if image_id is None:
            # It waits under its text, so that it can be reported when all images are known.
            image_id = InvalidId(repr(written_id))

        if len(self.entry_names) < _MAX_ENTRY_NAMES:
            self.entry_names.update(entry)
        # One caption an image is a text, several are a list: the kind of the field depends on it.
        if "caption" in entry:
            self._caption_counts[image_id] += 1
        # Roboflow writes the numbers as texts.
        for name in _NUMBERS_OF_OBJECTS:
            if name in entry:
                entry[name] = parse_numbers(entry[name])
        box = entry.get("bbox")
        segmentation = entry.get("segmentation")
        self._box_check.add(box, entry.get("area"), segmentation, image_id)

        if box and entry.get("iscrowd"):
            self.crowd_count += 1
        attributes = entry.get("attributes")
        has_room = len(self.attribute_names) < _MAX_ENTRY_NAMES
        if has_room and isinstance(attributes, dict):
            self.attribute_names.update(attributes)

        if "segments_info" in entry:
            self.is_panoptic = True
        # Polygons and runs are most of a file, and are kept only where a field needs them.
        kept = {
            name: value for name, value in entry.items() if name in self._kept_names
        }
        if segmentation:
            self.segmentation_count += 1
            # `read_box` puts a box around it, even if no field needs the segmentation.
            if not box:
                kept["segmentation"] = segmentation
        note = _encode_note([number, file_index, kept]).encode()
        ranges = self._note_ranges.setdefault(image_id, array("q"))
        ranges.extend((self._notes.add(note), len(note)))

    def _add_category(self, entry: Entry) -> None:
        number: Any = parse_id(entry.get("id"))
        name = entry.get("name")
        is_class = isinstance(number, int) and 0 <= number < MAX_CLASSES
        if not is_class or not isinstance(name, str):
            raise ValueError(
                describe_category_entry(entry)
                or f"expected categories with an id of 0 to {MAX_CLASSES - 1:,} and a name, got "
                f"{entry.get('id')!r:.40} and {name!r:.60}"
            )
        first_name = self.categories.setdefault(number, name)
        if first_name != name:
            raise ValueError(
                f"category {number} is {name!r:.60}, and {first_name!r:.60}"
            )
        if entry.get("keypoints") is not None:
            self._add_keypoint_names(number, entry["keypoints"])

    def _add_keypoint_names(self, number: int, points: Any) -> None:
        """`number`, `points`: of a category. A field of keypoints has one list of names."""
        are_names = isinstance(points, list) and set(map(type, points)) <= {str}
        if not are_names or self.keypoint_names not in ((), tuple(points)):
            raise ValueError(
                f"category {number}: expected names of keypoints, the same for all categories; got "
                f"{points!r:.60}"
            )
        self.keypoint_names = tuple(points)


def image_path(entry: Entry) -> object:
    """The path of an image, as the file has it: a text, unless the file is damaged."""
    path = entry.get("file_name")
    url = entry.get("coco_url")
    if path is None and isinstance(url, str):
        # LVIS has only the URL, whose folder is that of the split: train2017/000000000009.jpg
        without_query, _, _ = url.partition("?")
        path = "/".join(without_query.split("/")[-2:])
    return path


def _image_row(where: str, entry: Entry) -> Row:
    """An image of the file as a row without values; its problem if it cannot be packed."""
    path = image_path(entry)
    if not isinstance(path, str):
        return Row(where, {}, f"expected a file_name, got {path!r:.60}")

    width: Any = _parse_side(entry.get("width"))
    height: Any = _parse_side(entry.get("height"))
    # Some tools leave out the size, or write 0. The image itself says it.
    if (width, height) in ((None, None), (0, 0)):
        return Row(where, {}, path=path)
    for side in (width, height):
        if type(side) is not int or side <= 0:
            problem = (
                f"expected a width and a height, got {width!r:.40} and {height!r:.40}"
            )
            return Row(where, {}, problem, path)
    return Row(where, {}, path=path, size=(width, height))


def _parse_side(value: object) -> object:
    """A width or height; some tools write "640" or 640.0. Other values stay, for the message."""
    return parse_id(value) or value
