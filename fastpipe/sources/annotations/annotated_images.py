"""Files of annotation tools -> a listing of the images with their boxes, classes and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_files import files_of_folder, read_by
from fastpipe.sources.annotations.annotated_pictures import OTHER_NAME, Pictures
from fastpipe.sources.annotations.outlines import (
    can_draw_all,
    choose_fields,
    mask_value,
    option_of_masks,
)
from fastpipe.sources.annotations.tools.annotated_image import AnnotatedImage
from fastpipe.sources.annotations.tools.readers import (
    READERS,
    Reader,
    read_annotated,
)
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import SourcePath, not_a_folder, shared_folders
from fastpipe.sources.folders.splits import choose_split, first_paths
from fastpipe.sources.listing import Assumption, Listing, SourceField, add_assumptions
from fastpipe.sources.options import KEEP, KEEP_IMAGE, SourceOptions
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.row_paths import is_name
from fastpipe.sources.tables.rows import Row, row_name
from fastpipe.sources.tables.unlisted import Unlisted

# The images of a file lie in its folder or in one of so many folders around it.
_MAX_LEVELS = 3
BOXES = "boxes"
_ATTRIBUTES = "attributes"
_TAGS = "tags"


class _Entry(NamedTuple):
    """An annotated image, and where it is written."""

    image: AnnotatedImage
    file: Path
    where: str


def list_annotated_images(
    root: Path,
    files: Sequence[SourcePath],
    options: SourceOptions,
    other_files: Sequence[SourcePath] = (),
    *,
    is_file: bool,
) -> Listing:
    """Lists the images that files of a tool annotate, in no order.

    Args:
        root: the folder that the user passes, or the file.
        files: of annotations, or folders with a file for each image.
        options: the user's options.
        other_files: as `files`, of other splits.
        is_file: the user passes the file.

    Raises:
        PackError: a file is damaged, or it is not certain which images it is about.
    """
    first = Path(str(files[0]))
    reader_name = read_by(first)
    if not reader_name:
        raise PackError(
            f"--format annotations: {readable(str(first))} has no annotations of a tool that fastpipe "
            f"reads; expected one of {', '.join(READERS)}"
        )
    reader = READERS[reader_name]
    all_entries: list[_Entry] = []
    for path in files:
        all_entries += _read(Path(str(path)), reader_name)
    entries = all_entries
    others: list[_Entry] = []
    # Where the user has a list of splits, it counts, and not what the tool writes.
    if options.split_list is None:
        entries, others = _divide_by_split(all_entries, root, options.split)
    others += _read_other_files(other_files, reader_name)
    if not options.keeps_images:
        _reject_bad_objects(entries)
    annotated = [entry for entry in entries if entry.image.is_annotated]
    if not annotated:
        raise PackError(f"{readable(str(first))} has no image that is annotated")

    image_root = options.root_of_images()
    if image_root is not None and not isinstance(image_root, Path):
        raise PackError(
            "expected a folder of this machine, for files of annotation tools are not read by URL; "
            f"got {image_root}",
            option="image_root",
        )
    if image_root is not None and not image_root.is_dir():
        raise PackError(
            not_a_folder(image_root, "pass the folder of the images"),
            option="image_root",
        )
    if image_root is None and is_file:
        pictures, paths = _pictures_around(first, annotated, reader)
    else:
        pictures = Pictures(image_root or root)
        paths = _paths_of(annotated, pictures, reader)
    all_images = [entry.image for entry in (*entries, *others)]
    listing = _list(
        annotated,
        paths,
        pictures.root,
        options,
        all_images,
        reader.classes,
        lambda: _rows_of_others(others, pictures, reader),
    )
    unannotated_count = len(entries) - len(annotated)
    if unannotated_count:
        fate = "left out"
        if options.unlisted == KEEP:
            fate = "packed without annotations, as --unlisted keep says"
        text = (
            f"images that nobody has annotated: {unannotated_count:,} of {len(entries):,}; they are "
            f"{fate}"
        )
        listing = add_assumptions(listing, [Assumption(text)])
    return listing


def _read(path: Path, reader_name: str) -> Iterator[_Entry]:
    reader = READERS[reader_name]
    if not path.is_dir():
        number = -1
        for number, image in enumerate(read_annotated(path, reader)):
            where = path.name if reader.is_beside else row_name(path.name, number)
            yield _Entry(image, path, where)
        if number < 0:
            raise PackError(f"{readable(str(path))} has no image")
        return
    for file in files_of_folder(path, reader_name):
        try:
            yield from _read(file, reader_name)
        except PackError as problem:
            # One damaged file is one image that is not packed.
            yield _Entry(AnnotatedImage("", problem=str(problem)), file, file.name)


def _divide_by_split(
    entries: list[_Entry], root: Path, split: str | None
) -> tuple[list[_Entry], list[_Entry]]:
    """The images of a split, if the tool writes splits, and those of the other splits."""
    splits = {entry.image.split for entry in entries} - {""}
    if split is None and len(splits) < 2:
        return entries, []
    chosen = choose_split(root, split, dict.fromkeys(sorted(splits)))
    of_split = []
    others = []
    for entry in entries:
        if entry.image.split == chosen:
            of_split.append(entry)
        else:
            others.append(entry)
    return of_split, others


def _reject_bad_objects(entries: Sequence[_Entry]) -> None:
    """Rejects the images with an object that cannot be read."""
    for entry in entries:
        for problem in entry.image.object_problems:
            entry.image.reject(f"{problem}; {KEEP_IMAGE}")


def _read_other_files(files: Sequence[SourcePath], reader_name: str) -> list[_Entry]:
    """The entries of files about other splits."""
    entries: list[_Entry] = []
    for path in files:
        try:
            entries += _read(Path(str(path)), reader_name)
        except PackError:
            continue  # the user has not asked for this split
    return entries


def _rows_of_others(
    others: Sequence[_Entry], pictures: Pictures, reader: Reader
) -> list[Row]:
    """Rows of the images of other splits, which are not images without a row."""
    if not others:
        return []
    paths = _paths_of(others, pictures, reader)
    return [
        Row(entry.where, path=path, is_of_another=True)
        for entry, path in zip(others, paths, strict=True)
        if isinstance(path, str)
    ]


def _pictures_around(
    file: Path, entries: Sequence[_Entry], reader: Reader
) -> tuple[Pictures, list[str | ValueError]]:
    """The pictures in the nearest folder around a file that has some of it, and that of each entry."""
    folder = Path(str(file.absolute()))
    tried: list[str] = []
    for above in list(folder.parents)[:_MAX_LEVELS]:
        if above in shared_folders(folder) and tried:
            break
        pictures = Pictures(above)
        paths = _paths_of(entries, pictures, reader)
        if any(isinstance(path, str) for path in paths):
            return pictures, paths
        tried.append(str(above))
    written = next((name for entry in entries for name in _names_of(entry)), "")
    raise PackError(
        f"{readable(str(file))}: none of its images, such as {readable(written)}, is in "
        f"{first_paths(tried)}. --image-root says where the images are"
    )


def _names_of(entry: _Entry) -> list[str]:
    """The names that the picture of an entry may have, the most certain one first."""
    names = [entry.image.path, *entry.image.other_paths]
    return [name for name in names if is_name(name)]


def _near(file: Path, pictures: Pictures) -> str:
    """The path of a file below the folder of the pictures; its name if it lies elsewhere.

    The name may say a split.
    """
    root = pictures.root.absolute()
    path = file.absolute()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _paths_of(
    entries: Sequence[_Entry], pictures: Pictures, reader: Reader
) -> list[str | ValueError]:
    """The picture of each entry, or why there is none."""
    if reader.is_beside:
        return _paths_beside(entries, pictures, reader.prefix)
    written_paths = [entry.image.path for entry in entries]
    dropped_count = pictures.end_of(written_paths)
    near = _near(entries[0].file, pictures)
    paths: list[str | ValueError] = []
    for entry in entries:
        path = None
        try:
            for name in _names_of(entry):
                path = path or pictures.find_by_end(name, dropped_count, near)
        except ValueError as problem:
            paths.append(problem)
            continue
        paths.append(path or _absent(entry, pictures))
    return _without_shared(paths, entries)


def _paths_beside(
    entries: Sequence[_Entry], pictures: Pictures, prefix: str
) -> list[str | ValueError]:
    """As `_paths_of`, where each image has a file that is called like it."""
    by_folder: dict[Path, list[int]] = {}
    for index, entry in enumerate(entries):
        by_folder.setdefault(entry.file.parent, []).append(index)

    paths: list[str | ValueError] = [ValueError()] * len(entries)
    for folder, indexes in by_folder.items():
        near = _near(folder, pictures)
        # The names of tools have the ending of the image in them, as a.jpg.json, or not.
        names = [entries[index].file.stem.removeprefix(prefix) for index in indexes]
        names += [
            split_written_path(name)[-1]
            for index in indexes
            for name in _names_of(entries[index])
            if split_written_path(name)
        ]
        image_folder = pictures.find_folder(names, near)
        for index in indexes:
            try:
                path = _path_beside(
                    entries[index], pictures, near, image_folder, prefix
                )
                paths[index] = path or _absent(entries[index], pictures, image_folder)
            except ValueError as problem:
                paths[index] = problem
    return _without_shared(paths, entries)


def _path_beside(
    entry: _Entry,
    pictures: Pictures,
    near: str,
    image_folder: str | None,
    prefix: str,
) -> str | None:
    """The picture that a file is called like; else the one whose name it writes.

    Args:
        entry: of the file.
        pictures: those of the source.
        near: the folder of the file.
        image_folder: where the pictures lie that are called like files beside it.
        prefix: at the start of the names of the files alone.

    Files are copied and renamed with their pictures, and what is written in them stays.
    """
    written_path = None
    for name in _names_of(entry):
        path = _joined(near, name)
        parts = split_written_path(name)
        if path in pictures.paths:
            written_path = path
        elif image_folder is not None and parts:
            written_path = pictures.in_folder(parts[-1], image_folder)
    if image_folder is None:
        return written_path
    stem = entry.file.stem.removeprefix(prefix)
    path_of_stem = pictures.in_folder(stem, image_folder)
    if path_of_stem is not None and written_path not in (None, path_of_stem):
        entry.image.remarks[OTHER_NAME] += 1
    return path_of_stem or written_path


def _joined(folder: str, path: str) -> str:
    """A path that is relative to a folder, without "..": ../images/a.jpg is images/a.jpg."""
    parts = folder.split("/") if folder else []
    for part in split_written_path(path):
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)


def _absent(
    entry: _Entry, pictures: Pictures, image_folder: str | None = None
) -> ValueError:
    written = next(iter(_names_of(entry)), entry.file.stem)
    place = readable(str(pictures.root / (image_folder or "")))
    return ValueError(f"no image {readable(written)} in {place}")


def _without_shared(
    paths: list[str | ValueError], entries: Sequence[_Entry]
) -> list[str | ValueError]:
    """The paths, without those that several entries with other names lead to."""
    first_entry: dict[str, _Entry] = {}
    shared: set[str] = set()
    for path, entry in zip(paths, entries, strict=True):
        if isinstance(path, ValueError):
            continue
        first = first_entry.setdefault(path, entry)
        if (first.file, first.image.path) != (entry.file, entry.image.path):
            shared.add(path)
    result: list[str | ValueError] = []
    for path in paths:
        if isinstance(path, str) and path in shared:
            text = (
                f"several annotations with other names fit the image {readable(path)}"
            )
            result.append(ValueError(text))
        else:
            result.append(path)
    return result


def _list(
    entries: Sequence[_Entry],
    paths: Sequence[str | ValueError],
    image_root: Path,
    options: SourceOptions,
    all_images: Sequence[AnnotatedImage],
    classes: Sequence[str],
    rows_of_others: Callable[[], Sequence[Row]],
) -> Listing:
    """Lists the images of a split, or all.

    Args:
        all_images: also those of other splits, which have the same classes.
        classes: their names, if the format says them.
        rows_of_others: gives the images of other splits.
    """
    valid = [entry.image for entry in entries if entry.image.problem is None]
    known = [
        image for image in all_images if image.problem is None and image.is_annotated
    ]
    if not classes:
        classes = sorted({name for image in known for name in image.names})
    tags = sorted({tag for image in known for tag in image.tags})
    has_boxes = bool(classes) or not tags
    are_labels = bool(tags) and all(len(image.tags) == 1 for image in known)
    has_attributes = any(any(image.attributes) for image in known)

    own_fields: list[SourceField] = []
    if has_boxes:
        own_fields.append(
            SourceField(BOXES, "boxes", names=tuple(classes), column=BOXES)
        )
    if has_attributes and has_boxes:
        own_fields.append(
            SourceField(_ATTRIBUTES, "json", is_per_box=True, column=_ATTRIBUTES)
        )
    if tags and not are_labels:
        own_fields.append(
            SourceField(_TAGS, "classes", names=tuple(tags), column=_TAGS)
        )
    fields = choose_fields(own_fields, classes, known, options.fields)

    labels = {name: label for label, name in enumerate(classes)}
    rows = []
    for entry, path in zip(entries, paths, strict=True):
        image = entry.image
        if image.problem is not None or isinstance(path, ValueError):
            problem = image.problem or str(path)
            known_path = path if isinstance(path, str) else ""
            rows.append(Row(entry.where, problem=problem, path=known_path))
            continue
        boxes: dict[str, Any] = {
            "boxes": [list(box) for box in image.boxes],
            "labels": [labels[name] for name in image.names],
        }
        if image.may_leave_image or image.around:
            boxes["cut"] = True
        if image.object_problems:
            boxes["dropped"] = len(image.object_problems)
        value_of_column: dict[str, Any] = {
            BOXES: boxes,
            _ATTRIBUTES: image.attributes,
            _TAGS: image.tags,
        }
        try:
            values = _values_of_fields(image, fields, value_of_column, labels)
        except ValueError as problem:
            rows.append(Row(entry.where, problem=str(problem), path=path))
            continue
        label = image.tags[0] if are_labels else None
        rows.append(Row(entry.where, values, path=path, label=label, size=image.size))
    if are_labels:
        # Classes of whole images are numbered by the tags of all splits, too.
        for image in known:
            rows.append(Row("", label=image.tags[0], is_of_another=True))

    kept_values = _values_of_fields(
        AnnotatedImage(""),
        fields,
        {BOXES: {"boxes": [], "labels": []}, _ATTRIBUTES: [], _TAGS: []},
        labels,
    )
    unlisted = Unlisted(options.unlisted, kept_values, rows_of_others)
    return list_rows(
        image_root,
        rows,
        fields,
        place=readable(image_root.name),
        assumed=[
            *_describe(valid, fields, own_fields),
            *_describe_other_numbers(valid, [classes, tags]),
        ],
        unlisted=unlisted,
    )


def _values_of_fields(
    image: AnnotatedImage,
    fields: Sequence[SourceField],
    value_of_column: Mapping[str, Any],
    labels: Mapping[str, int],
) -> dict[str, Any]:
    """The values of an image by field. ValueError: an object has no outline for a mask.

    Args:
        image: the image.
        fields: that are packed.
        value_of_column: the values of fields that are no masks.
        labels: class -> its number.
    """
    values: dict[str, Any] = {}
    for field in fields:
        if field.kind == "mask":
            values[field.name] = mask_value(image, field.column, labels)
        else:
            values[field.name] = value_of_column[field.column]
    return values


def _describe(
    images: Sequence[AnnotatedImage],
    fields: Sequence[SourceField],
    own_fields: Sequence[SourceField],
) -> list[Assumption]:
    """Says what becomes of shapes, attributes and classes that a box cannot hold.

    `own_fields`: the fields without the wishes of the user.
    """
    around: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    remarks: Counter[str] = Counter()
    unpacked: set[str] = set()
    for image in images:
        around.update(image.around)
        left_out.update(image.left_out)
        remarks.update(image.remarks)
        unpacked |= image.unpacked

    assumed: list[Assumption] = []
    texts: list[str] = []
    columns = {field.column for field in fields}
    if around and BOXES in columns:
        option = ""
        is_drawn = any(field.kind == "mask" for field in fields)
        if can_draw_all(images) and not is_drawn:
            option = option_of_masks(own_fields)
        text = (
            f"boxes: those around {_counts(around)}, cut off at the edge of the image"
        )
        if option:
            text += "; the option packs masks of them, too"
        assumed.append(Assumption(text, option))
    if left_out:
        texts.append(f"left out, because they give no box: {_counts(left_out)}")
    texts += [text.format(f"{count:,}") for text, count in remarks.items()]
    empty_count = sum(
        left == right or top == bottom
        for image in images
        for left, top, right, bottom in image.boxes
    )
    if empty_count:
        texts.append(
            f"boxes without width or height: {empty_count:,}; they are packed as they are"
        )
    for field in fields:
        if field.column == _TAGS:
            texts.append(
                "labels: none, for some images have no class or several; the classes of images "
                f"({first_paths(field.names)}) are the field {_TAGS}"
            )
    if unpacked:
        texts.append(
            f"values of images that are not packed: {first_paths(sorted(unpacked))}"
        )
    return assumed + [Assumption(text) for text in texts]


def _describe_other_numbers(
    images: Sequence[AnnotatedImage], lists_of_classes: Iterable[Sequence[str]]
) -> list[Assumption]:
    """Says that classes have other numbers in the files of the tool.

    `lists_of_classes`: of the boxes, and of whole images.
    """
    number_of_class: dict[str, int] = {}
    for image in images:
        number_of_class.update(image.class_numbers)
    if len(set(number_of_class.values())) < len(number_of_class):
        return []  # Rekognition gives each class of an image the number 1
    for classes in lists_of_classes:
        for label, name in enumerate(classes):
            number = number_of_class.get(name, label)
            if number != label:
                text = (
                    "classes: numbered in the order of their names, and not as in the annotations: "
                    f"{readable(name)} is {label} here, and {number} there; a list of the names in "
                    "the order of the annotations gives their numbers"
                )
                return [Assumption(text, "--classes-from FILE")]
    return []


def _counts(counter: Counter[str]) -> str:
    texts = [f"{name} ({count:,})" for name, count in sorted(counter.items())]
    return ", ".join(texts)
