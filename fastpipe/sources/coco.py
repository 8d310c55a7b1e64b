"""COCO's annotations, of one file or of several about the same images -> the images' rows and fields.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import MOST_CLASSES
from fastpipe.sources.coco_paths import ImageFolder, check_unique, find_by_end
from fastpipe.sources.coco_shapes import box_around
from fastpipe.sources.column_kinds import xyxy
from fastpipe.sources.encodings import HINT, as_utf8
from fastpipe.sources.files import SourcePath, open_unchanged, state_or_problem
from fastpipe.sources.listing import Assumption, Listing, Notes, SourceField
from fastpipe.sources.options import FieldColumn, SourceOptions, named
from fastpipe.sources.row_paths import is_name
from fastpipe.sources.rows import Row, list_rows, row_name

Entry: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str

_TASKS = ("instances", "person_keypoints", "captions")
_OWN = {
    "bbox": ("boxes", "boxes"),
    "keypoints": ("keypoints", "keypoints"),
    "caption": ("captions", "json"),
}
_OTHERS = (FieldColumn("iscrowd", "iscrowd"), FieldColumn("area", "area"))
_ALL = (*(FieldColumn(name, entry) for entry, (name, _) in _OWN.items()), *_OTHERS)
_MADE_OF = {"instances": "segmentation"}
_IMAGE_ID = "image_id"  # it can be asked for as a field of the images
_MOST_ENTRIES = 1000
_FIRST_BOXES = 1000  # of a source, which show what all are
_SAME = 0.001  # of an area: areas are rounded
_PANOPTIC = (
    "this is COCO's panoptic format (segments_info): its masks are PNGs of colours, which fastpipe does not read. "
    "Convert it to COCO's detection format, for example with panopticapi's panoptic2detection_coco_format.py, or write "
    "its masks with fastpipe.Writer"
)


def coco_files(folder: SourcePath, names: Sequence[str]) -> dict[str, list[SourcePath]]:
    """Split -> the files of a folder that COCO calls after it, such as instances_val2017.json; tasks in order."""
    found: dict[str, list[SourcePath]] = {}
    for task in _TASKS:
        for name in names:
            split = name.removeprefix(f"{task}_").removesuffix(".json")
            if split and name == f"{task}_{split}.json":
                found.setdefault(split, []).append(folder / name)
    return dict(sorted(found.items()))


def list_coco(paths: Sequence[SourcePath], how: SourceOptions) -> Listing:
    """Lists the images of files about the same images, in no order; annotations of several with one id are one."""
    # A field that is called as COCO's own is made of the entry that this is made of: boxes of bbox.
    entry_of = {name: entry for entry, (name, _) in _OWN.items()}
    asked = how.fields and [
        each._replace(column=entry_of.get(each.column, each.column)) for each in how.fields
    ]
    columns = {_MADE_OF.get(each.column, each.column) for each in asked or _ALL}
    annotated = _Annotated(paths, {*columns, "category_id", "iscrowd"})
    if asked is None:
        asked = [each for each in _ALL if each.column in annotated.entries]
        if "bbox" not in annotated.entries and "segmentation" in annotated.entries:
            asked.insert(0, _ALL[0])  # boxes, which are put around segmentations
    fields = [_field(annotated, each) for each in asked]
    root = how.root_of_images()
    folder = _image_folder(annotated, how.split) if root is None else _given_folder(annotated, root)
    listing = list_rows(folder.root, _rows(annotated, fields), fields)
    assumed = [*folder.assumed, *annotated.assumed()]
    if how.fields is None:
        assumed += annotated.left_out()
    return replace(listing, assumed=(*listing.assumed, *assumed))


class _NoId(NamedTuple):
    """What stands in the place of an image's id."""

    shown: str


def id_of(said: object) -> Id | None:
    """An id in one form: 7, 7.0 and "7" are one, as programs write them; any other text is one, too. None: no id."""
    if type(said) is int:
        return said
    if isinstance(said, float) and said.is_integer():
        return int(said)
    if isinstance(said, str) and re.fullmatch("0|[1-9][0-9]{0,17}", said):
        return int(said)
    return said if isinstance(said, str) else None


class _Annotated:
    """The images and annotations of files about the same images. Annotations wait in `Notes`."""

    def __init__(self, paths: Sequence[SourcePath], wanted: Collection[str]) -> None:
        self.paths = paths
        self.images: dict[
            Id, Row
        ] = {}  # id -> row without values; those that only later files have come last
        self.ids: dict[Id, Id] = {}  # of the images, as they stand in the file
        self.by_url = set[Id]()  # images that have a coco_url and no file_name
        self._boxes = self._corners = self._shares = 0  # how many there are, and how many look so
        self.segmentations = 0  # annotations that have one
        self.boxes_around = 0  # boxes that are those around a segmentation
        self.categories: dict[int, str] = {}  # id -> name
        self.points: tuple[str, ...] = ()  # names of the keypoints
        self.entries: set[str] = set()  # names of what annotations have
        self._wanted = frozenset(wanted) | {"id", "caption", "bbox"}
        self._notes = Notes()
        # Id of an image, or what stands there instead -> offset and size of each of its annotations.
        self._noted: dict[Id | _NoId, array[int]] = {}
        self._captions = Counter[Id | _NoId]()
        for number in range(len(paths)):
            self._read(number)
        self._notes.flush()
        self._refuse_other_boxes()
        if not self.images:
            raise PackError(
                f'{readable(str(paths[0]))} has no images; expected COCO\'s "images" and "annotations". Of '
                'another JSON file, make a .jsonl file with a line for each image: {"path": "a.jpg", "label": "cat"}'
            )
        # Of categories, by id; "" where there is no such id.
        self.names = tuple(
            self.categories.get(number, "")
            for number in range(max(self.categories, default=-1) + 1)
        )
        self.several_captions = any(self._captions[image] > 1 for image in self.images)

    def category(self, entry: Entry) -> int:
        number = id_of(entry.get("category_id"))
        if not isinstance(number, int) or number not in self.categories:
            raise ImageError(
                f"expected a category_id of the categories, got {entry.get('category_id')!r:.60}"
            )
        return number

    def box(self, entry: Entry) -> list[float]:
        """Left, top, right and bottom; of an annotation without a bbox, of its segmentation."""
        if entry.get("bbox") or not entry.get("segmentation"):
            return xyxy([entry.get("bbox")])[0]
        self.boxes_around += 1
        return box_around(entry["segmentation"])

    def assumed(self) -> Iterator[Assumption]:
        """What was read otherwise than it stands there."""
        if self.boxes_around:
            text = f"annotations with a segmentation and no bbox: {self.boxes_around:,}; the boxes are those around it"
            yield Assumption(text)

    def left_out(self) -> Iterator[Assumption]:
        """What annotations have, and what is no field unless a user asks for it."""
        if self.segmentations:
            yield Assumption(
                f"annotations with polygons or runs (segmentation): {self.segmentations:,}; they are left out",
                "--field boxes --field mask=segmentation:mask",
            )

    def of_image(self, image: Id) -> list[tuple[str, Entry]]:
        """The annotations of an image, named. Those of several files with one id are one; captions have own ids."""
        found: list[tuple[str, Entry]] = []
        known: dict[Id, tuple[Entry, int]] = {}  # id -> annotation and file
        for place, file, entry in self._notes_of(image):
            name = entry.get("id", place)
            number = id_of(entry.get("id"))
            if number is not None and _is_object(entry):
                joined, first = known.setdefault(number, (entry, file))
                if first != file:
                    joined.update(entry)
                    continue
            found.append((f"annotation {name!r:.40}", entry))
        return found

    def lost(self) -> Iterator[Row]:
        """Annotations of no image."""
        for image in self._noted.keys() - self.images.keys():
            for number, file, _ in self._notes_of(image):
                where = row_name(f"{self.paths[file].name}/annotations", number)
                got = image.shown if isinstance(image, _NoId) else repr(image)
                yield Row(
                    where, problem=f"expected the image_id of one of the images, got {got[:60]}"
                )

    def _notes_of(self, image: Id | _NoId) -> Iterator[tuple[int, int, Entry]]:
        """Number in its file, number of the file, and entries, of each annotation of an image."""
        places = self._noted.get(image, ())
        for offset, size in zip(places[::2], places[1::2], strict=True):
            yield json.loads(self._notes.read(offset, size))

    def _read(self, file: int) -> None:
        before = set(self.images)
        try:
            for name, number, entry in entries(self.paths[file]):
                if name not in ("images", "annotations", "categories"):
                    continue
                if not isinstance(entry, dict):
                    raise ValueError(f"expected objects in {name}, got {entry!r:.60} ({number:,})")
                if name == "images":
                    self._add_image(
                        row_name(f"{self.paths[file].name}/images", number), entry, before
                    )
                elif name == "annotations":
                    self._add_annotation(file, number, entry)
                else:
                    self._add_category(entry)
        except ValueError as problem:
            raise PackError(f"{readable(str(self.paths[file]))}: {problem}") from None

    def _add_image(self, where: str, entry: Entry, before: Collection[Id]) -> None:
        """`before`: ids of the images of other files."""
        name, path = id_of(entry.get("id")), entry.get("file_name")
        url: Any = entry.get("coco_url")
        has_url = path is None and isinstance(url, str)
        if (
            has_url
        ):  # as LVIS has it, where the folder is that of the split: train2017/000000000009.jpg
            path = "/".join(url.partition("?")[0].split("/")[-2:])
        size: Any = tuple(
            id_of(side) or side for side in (entry.get("width"), entry.get("height"))
        )  # "640", 640.0
        problem = None
        if not isinstance(path, str):
            path, problem = "", f"expected a file_name, got {path!r:.60}"
        elif size not in ((None, None), (0, 0)) and not all(
            type(side) is int and side > 0 for side in size
        ):
            problem = f"expected a width and a height, got {size[0]!r:.40} and {size[1]!r:.40}"
        if name is None:
            raise ValueError(
                f"expected a number or a text as the id of an image, got {entry.get('id')!r:.60} ({where})"
            )
        row = Row(where, {}, problem, path, size=size if size[0] and problem is None else None)
        other = self.images.setdefault(name, row)
        if other is not row and (name not in before or other.path != path):
            both = f"{other.path!r:.200} and {path!r:.200}; expected one image for an id, the same in all files"
            raise ValueError(f"two images have the id {name}: {both}")
        self.ids.setdefault(name, entry["id"])
        if has_url:
            self.by_url.add(name)

    def _add_annotation(self, file: int, number: int, entry: Entry) -> None:
        if "segments_info" in entry:
            raise ValueError(_PANOPTIC)
        said = entry.pop(_IMAGE_ID, None)
        known = id_of(said)
        image = _NoId(repr(said)) if known is None else known
        if len(self.entries) < _MOST_ENTRIES:
            self.entries.update(entry)
        if "caption" in entry:
            self._captions[image] += 1
        self.segmentations += bool(entry.get("segmentation"))
        self._look_at_box(entry.get("bbox"), entry.get("area"))
        kept = {name: value for name, value in entry.items() if name in self._wanted}
        if not entry.get("bbox") and entry.get("segmentation"):  # a box is put around it
            kept["segmentation"] = entry["segmentation"]
        note = json.dumps([number, file, kept], separators=(",", ":")).encode()
        self._noted.setdefault(image, array("q")).extend((self._notes.add(note), len(note)))

    def _look_at_box(self, box: Any, area: Any) -> None:
        """Counts boxes whose numbers are corners, as their area tells, or shares of the image."""
        if (
            self._boxes == _FIRST_BOXES
            or not isinstance(box, list)
            or [type(each) in (int, float) for each in box] != [True] * 4
        ):
            return
        x, y, width, height = box
        self._boxes += 1
        self._shares += 0 < max(box) <= 1
        if type(area) in (int, float) and area > 0:
            of_corners, as_said = (width - x) * (height - y), width * height
            self._corners += abs(area - of_corners) <= _SAME * area < abs(area - as_said)

    def _refuse_other_boxes(self) -> None:
        """PackError: the first boxes are of another form than COCO's."""
        file = readable(str(self.paths[0]))
        which = f"{file}: the bbox of the first {self._boxes:,} annotations"
        if self._boxes and self._corners == self._boxes:
            raise PackError(
                f"{which} looks like x0, y0, x1, y1, for their area is that of these corners; expected x, y, width, "
                "height, as COCO has them. Write them so"
            )
        if self._boxes and self._shares == self._boxes:
            raise PackError(
                f"{which} has no number over 1, as shares of the image have; expected pixels, as COCO has them. Write "
                "them so"
            )

    def _add_category(self, entry: Entry) -> None:
        number, name, points = id_of(entry.get("id")), entry.get("name"), entry.get("keypoints")
        if (
            not isinstance(number, int)
            or not 0 <= number < MOST_CLASSES
            or not isinstance(name, str)
        ):
            got = f"{entry.get('id')!r:.40} and {name!r:.60}"
            raise ValueError(
                f"expected categories with an id of 0 to {MOST_CLASSES - 1:,} and a name, got {got}"
            )
        if self.categories.setdefault(number, name) != name:
            raise ValueError(
                f"category {number} is {name!r:.60}, and {self.categories[number]!r:.60}"
            )
        if points is not None:
            texts = isinstance(points, list) and all(isinstance(point, str) for point in points)
            if not texts or self.points not in ((), tuple(points)):
                expected = "expected names of keypoints, the same for all categories"
                raise ValueError(f"category {number}: {expected}; got {points!r:.60}")
            self.points = tuple(points)


def _image_folder(annotated: _Annotated, split: str | None) -> ImageFolder:
    """The folder with the first image: beside the annotations, or called after their split."""
    path = annotated.paths[0]
    task, _, after = Path(path.name).stem.partition("_")
    split = split or (
        after if task in ("instances", "captions") else after.removeprefix("keypoints_")
    )
    tops = [path.parent, path.parent.parent] if path.parent.name == "annotations" else [path.parent]
    roots = dict.fromkeys(
        root for top in tops for root in (top, top / "images", top / split, top / "images" / split)
    )
    first = _first_path(annotated)
    here = [root for root in roots if first and not isinstance(state_or_problem(root, first), str)]
    if len(here) == 1:
        return ImageFolder(here[0], _as_written)
    if not here and first and not annotated.by_url:
        by_end = find_by_end(first, [*roots])
        if len(by_end) == 1:
            return _moved(annotated, by_end[0])
        here = [folder.root for folder in by_end]
    if not here and annotated.by_url:
        flat = first.rpartition("/")[2]
        here = [
            root for root in roots if flat and not isinstance(state_or_problem(root, flat), str)
        ]
        if len(here) == 1:
            return ImageFolder(_with_urls(annotated, here[0]), _as_written)
    found = f"is in {'several' if here else 'none'} of {', '.join(readable(str(root)) for root in here or roots)}"
    only_urls = ""
    if annotated.by_url:
        only_urls = (
            ". Images have a coco_url and no file_name: download them, into folders or one folder"
        )
    raise PackError(
        f"{readable(str(path))}: the first image, {first[:200]!r}, {found}{only_urls}. --image-root says where the "
        "images are"
    )


def _given_folder(annotated: _Annotated, root: SourcePath) -> ImageFolder:
    """The folder that a user names."""
    root = _with_urls(annotated, root)
    first = _first_path(annotated)
    if first and not annotated.by_url and isinstance(state_or_problem(root, first), str):
        by_end = find_by_end(first, [root])
        if by_end:
            return _moved(annotated, by_end[0])
    return ImageFolder(root, _as_written)


def _first_path(annotated: _Annotated) -> str:
    return next((image.path for image in annotated.images.values() if is_name(image.path)), "")


def _as_written(path: str) -> str:
    return path


def _moved(annotated: _Annotated, folder: ImageFolder) -> ImageFolder:
    """The folder, in which the images have other paths than it is written."""
    named = {number: image for number, image in annotated.images.items() if is_name(image.path)}
    check_unique((image.path for image in named.values()), folder.below, annotated.paths[0])
    for number, image in named.items():
        annotated.images[number] = image._replace(path=folder.below(image.path))
    return folder


def _with_urls(annotated: _Annotated, root: SourcePath) -> SourcePath:
    """The root; images known by URL are looked for without their folder if the first one lies so."""
    first = next(iter(annotated.by_url), None)
    if first is not None:
        path = annotated.images[first].path
        flat = path.rpartition("/")[2]
        if isinstance(state_or_problem(root, path), str) and not isinstance(
            state_or_problem(root, flat), str
        ):
            for number in annotated.by_url:
                image = annotated.images[number]
                annotated.images[number] = image._replace(path=image.path.rpartition("/")[2])
    return root


def _field(annotated: _Annotated, asked: FieldColumn) -> SourceField:
    name, column, kind = asked
    if column == _IMAGE_ID:
        return _id_field(annotated, asked)
    file = readable(str(annotated.paths[0]))
    is_around = column == "bbox" and "segmentation" in annotated.entries
    if _MADE_OF.get(column, column) not in annotated.entries and not is_around:
        raise PackError(f"{asked}: the annotations of {file} have {named(annotated.entries)}")
    expected = _OWN.get(column, ("", "json"))[1]
    if column == "instances" or (column, kind) == ("segmentation", "mask"):
        expected = "mask"
    elif column == "caption" and kind != "json" and not annotated.several_captions:
        expected = "text"
    if kind not in (None, expected):
        raise PackError(f"{asked}: expected the kind {expected}, or none")
    if expected == "mask" and importlib.util.find_spec("pycocotools") is None:
        raise PackError(f"{asked}: masks need pycocotools: pip install 'fastpipe[coco]'")
    if expected == "mask" and column == "segmentation" and 0 in annotated.categories:
        raise PackError(
            f"{asked}: category 0 of {file} has the number of the background; pack instances=instances:mask"
        )
    of_categories = expected == "boxes" or (expected == "mask" and column == "segmentation")
    names = (
        annotated.names if of_categories else annotated.points if expected == "keypoints" else ()
    )
    pairs = flip_pairs(names) if expected == "keypoints" else ()
    return SourceField(name, expected, names=names, flip_pairs=pairs, column=column)


def _id_field(annotated: _Annotated, asked: FieldColumn) -> SourceField:
    """The ids of the images, which evaluation asks for; as texts if one is a text."""
    numbers = all(not isinstance(said, str) for said in annotated.ids.values())
    expected = "int" if numbers else "text"
    if asked.kind not in (None, expected, "text"):
        raise PackError(f"{asked}: expected the kind {expected}, or none")
    return SourceField(asked.name, asked.kind or expected, column=_IMAGE_ID)


def flip_pairs(points: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The points that change places in a mirrored image: those whose names differ in left and right only."""
    place = {name: number for number, name in enumerate(points)}
    mirrored = (
        re.sub("left|right", lambda side: {"left": "right"}.get(side[0], "left"), name)
        for name in points
    )
    pairs = ((number, place.get(name, number)) for number, name in enumerate(mirrored))
    return tuple(pair for pair in pairs if pair[0] < pair[1])


def _rows(annotated: _Annotated, fields: Sequence[SourceField]) -> Iterator[Row]:
    for number, image in annotated.images.items():
        of_image = annotated.of_image(number)
        values: dict[str, Any] = {}
        problem = image.problem
        for field in fields:
            if field.column == _IMAGE_ID:
                values[field.name] = number if field.kind == "int" else str(annotated.ids[number])
                continue
            try:
                values[field.name] = _value(annotated, field, of_image)
            except ImageError as wrong:
                problem = problem or f"field {field.name}: {wrong}"
        yield image._replace(values=values, problem=problem)
    yield from annotated.lost()


def _value(annotated: _Annotated, field: SourceField, of_image: Sequence[tuple[str, Entry]]) -> Any:
    if field.column == "caption":
        captions = [entry["caption"] for _, entry in of_image if "caption" in entry]
        return captions if field.kind == "json" else next(iter(captions), None)
    objects = [(name, entry) for name, entry in of_image if _is_object(entry)]
    if field.kind == "boxes":
        labels = _each(objects, annotated.category)
        return {"boxes": _each(objects, annotated.box), "labels": labels}
    if field.kind == "keypoints":
        return _each(objects, lambda entry: _points(entry, len(annotated.points)))
    if field.kind != "mask":
        return [entry.get(field.column) for _, entry in objects]
    numbers = (
        range(1, len(objects) + 1)
        if field.column == "instances"
        else _each(objects, annotated.category)
    )
    shapes = [(number, entry) for number, (_, entry) in zip(numbers, objects, strict=True)]
    crowds_first = sorted(
        shapes, key=lambda shape: not shape[1].get("iscrowd")
    )  # they cover no single object
    return {"shapes": [(number, entry.get("segmentation") or []) for number, entry in crowds_first]}


def _is_object(entry: Entry) -> bool:
    """Whether an annotation is of an object, and not only a caption of the image."""
    return "caption" not in entry or "bbox" in entry


def _each(objects: Sequence[tuple[str, Entry]], value: Callable[[Entry], Any]) -> list[Any]:
    """A value of each annotation; an error names the annotation."""
    found = []
    for name, entry in objects:
        try:
            found.append(value(entry))
        except ImageError as problem:
            raise ImageError(f"{name}: {problem}") from None
    return found


def _points(entry: Entry, points: int) -> list[list[float]]:
    flat = entry.get("keypoints")
    if flat is None:
        return [[0, 0, 0]] * points
    if not isinstance(flat, list) or len(flat) != 3 * points:
        raise ImageError(f"expected 3 x {points} numbers as keypoints, got {flat!r:.60}")
    return [flat[at : at + 3] for at in range(0, len(flat), 3)]


MOST_ENTRY_CHARACTERS = 16 << 20
_PIECE_BYTES = 1 << 20
_BEHIND = tuple(" \t\r\n,:]}")  # a value
_SPACE = re.compile(r"[ \t\r\n]*")


def entries(path: SourcePath) -> Iterator[tuple[str, int, Any]]:
    """List, number and value of each entry of an object's lists; -1: the value is no list. One is held at a time."""
    try:
        with open_unchanged(path) as file:
            text = _Text(file)
            for _ in text.each("{", "}"):
                if not isinstance(name := text.value(), str):
                    raise ValueError(f"expected a name, got {name!r:.60}")
                text.take(":")
                if text.next() != "[":
                    yield name, -1, text.value()
                    continue
                for number, _ in enumerate(text.each("[", "]")):
                    yield name, number, text.value()
            text.take("")  # there is no more text
    except (ValueError, RecursionError) as problem:
        raise PackError(
            f"{readable(str(path))} is damaged or no JSON object with lists, as COCO has them: {problem}"
        ) from problem


def array_entries(path: SourcePath, encoding: str | None = None) -> Iterator[Any]:
    """The entries of a file that is an array in JSON. One is held at a time."""
    try:
        with open_unchanged(path) as file:
            text = _Text(as_utf8(file, encoding, str(path)))
            for _ in text.each("[", "]"):
                yield text.value()
            text.take("")
    except (ValueError, RecursionError) as problem:
        hint = f". {HINT}" if isinstance(problem, UnicodeDecodeError) else ""
        raise PackError(
            f"{readable(str(path))} is damaged or no array in JSON: {problem}{hint}"
        ) from problem


class _Text:
    """A file's text from the place on at which it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder(
            parse_constant=lambda name: None if name == "NaN" else float(name)
        ).raw_decode
        self._text = ""
        self._at = 0
        self._before = 0  # characters
        self._ended = False

    def each(self, start: str, end: str) -> Iterator[None]:
        """Stops before each entry of an object or list, whose reader takes it."""
        self.take(start)
        found = self.take(end) if self.next() == end else ","
        while found != end:
            yield
            found = self.take(",", end)

    def next(self) -> str:
        """The next character that is no space, which is not taken; "" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, *expected: str) -> str:
        """Takes the next character, which must be one of these."""
        if (found := self.next()) not in expected:
            wanted = " or ".join(repr(each) if each else "no more text" for each in expected)
            place = self._before + self._at
            raise ValueError(f"expected {wanted} at character {place:,}, got {found!r}")
        self._at += 1
        return found

    def value(self) -> Any:
        self.next()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except ValueError as problem:  # it is damaged, or ends in the middle
                why = str(
                    getattr(problem, "msg", problem)
                )  # the error itself would keep the text in memory
            else:
                if self._ended or self._text[end : end + 1] in _BEHIND:
                    self._at = end
                    return value
                why = ""  # a number may go on
            if len(self._text) - self._at > MOST_ENTRY_CHARACTERS:
                why = f"{why or 'a long number'}; expected entries of at most {MOST_ENTRY_CHARACTERS:,} characters"
            elif self._more() or not why:
                continue
            raise ValueError(f"{why}, at character {self._before + self._at:,} or behind it")

    def _more(self) -> bool:
        """Reads on: twice as much as is there, so that a long value is not tried too often."""
        left = self._text[self._at :]
        data = self._file.read(max(_PIECE_BYTES, len(left)))
        self._before += self._at
        self._text, self._at = left + self._decode(data, not data), 0
        self._ended = not data
        return bool(data)
