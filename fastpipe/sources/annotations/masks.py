"""A folder of images beside a folder of masks -> rows with a mask each, paired by their names.

Note [names of masks]
The mask of a.jpg is called a.png, or has a suffix: a_mask.gif of Carvana, a_segmentation.png of
ISIC. Some tools call the two image_7 and mask_7, or a_leftImg8bit and a_gtFine_labelIds. The suffix
is the kind of mask. It has to be the same for nearly all images; if several suffixes are, as in
Cityscapes, the user says which one is the mask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_mask_file
from fastpipe.sources.annotations.colour_list import find_colours
from fastpipe.sources.annotations.defect_masks import assume_no_defects, class_folder
from fastpipe.sources.annotations.labelmap import (
    LABELMAP,
    read_mask_classes,
    read_palette,
)
from fastpipe.sources.annotations.several_masks import (
    INSTANCES,
    are_numbers_alone,
    assume_united,
    find_further_masks,
    join_numbers,
    value_of_masks,
    without_numbered_kinds,
)
from fastpipe.sources.annotations.two_levels import JPEG_START, read_two_levels
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.files import SourcePath, files_below, open_binary
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.numbered_classes import VALUE_NAMES, read_value_names
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.path_labels import BY_FOLDER
from fastpipe.sources.png_of_numbers import (
    COLOR_TYPE_OFFSET,
    PNG_START,
    is_png_of_numbers,
    read_start,
)
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

_MASK = "mask"
# The value of a mask that is drawn, with nothing in it.
_EMPTY_MASK: dict[str, list[Any]] = {"shapes": []}
# The share of images that must have a mask of a kind. A few images are never labelled.
_MIN_SHARE = 0.95
# So many masks are decoded while listing: enough to see their kind, and quick.
_NUM_CHECKED = 16
_MAX_SHOWN = 5
_MAX_SHOWN_CHARACTERS = 200

# VOC's masks of single objects. Their numbers are no classes.
_OBJECT_MASKS = "SegmentationObject"
# The start of a PNG, which has the palette.
_HEADER_BYTES = 1 << 16

_RGB_AND_RGBA = (2, 6)
_WITH_COLOURS = "a PNG with colours, not with numbers of classes"

# These stand before or behind the name that an image and its mask have in common.
_IMAGE_AFFIX = re.compile(
    r"^(?:image|img|photo)[-_ ]?(?=\d)|[-_ ](?:leftImg8bit|image|img|im|sat|rgb)$",
    re.IGNORECASE,
)
_MASK_PREFIX = re.compile(
    r"^(?:mask|label|seg|gt|annotation|trimap)[-_ ]?(?=\d)", re.IGNORECASE
)
_LEADING_NUMBER = re.compile(r"\d+(?=[-_. ]|$)")
_SEPARATORS = "-_. "
_SEPARATOR = re.compile(r"[-_. ]")


class MaskFolders(NamedTuple):
    """The folders of images and of their masks or targets; these two are relative to `root`.

    classes: of images in class folders, some of which have no masks. Note [masks of defects]
    parts: the folders of images and of masks in each part of the source, as Urban/images_png and
        Urban/masks_png of LoveDA. `images` and `masks` are the folder around them, then.
    """

    root: SourcePath
    images: str
    masks: str
    classes: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def image_folders(self) -> list[str]:
        """All folders of images."""
        return [images for images, _ in self.parts] or [self.images]

    @property
    def mask_folders(self) -> list[str]:
        """The folder of masks of each folder of images."""
        return [masks for _, masks in self.parts] or [self.masks]

    @property
    def are_one(self) -> bool:
        """Whether the masks lie beside their images, as a_mask.png beside a.png."""
        return not self.parts and self.images == self.masks

    def __str__(self) -> str:
        images = readable(str(self.root / self.image_folders[0]))
        masks = readable(str(self.root / self.mask_folders[0]))
        return f"{images} and {masks}"


# Kind of mask -> image -> mask. See Note [names of masks]
_Pairs = Mapping[str, Mapping[str, str]]


def list_masks(
    folders: MaskFolders,
    options: SourceOptions,
    listed: Collection[str] | None = None,
    tops: Sequence[SourcePath] = (),
) -> Listing:
    """Lists the images of a folder with their masks, in no order.

    Args:
        folders, options: the source, and what the user says of it.
        listed: the names of the images to pack, without endings, as VOC lists them; None: all.
        tops: folders around the source, which may have the list of the colours of masks.

    Raises:
        PackError: the names do not tell which mask belongs to which image, or the pixels of masks
            are no numbers of classes.
    """
    images = sorted(_pictures_in(folders.root, folders.image_folders))
    masks = sorted(_pictures_in(folders.root, folders.mask_folders))
    assumed: list[Assumption] = []
    if folders.are_one:
        images = [path for path in images if not is_called_mask_file(path)]
        masks = [path for path in masks if is_called_mask_file(path)]
        if options.label_pattern is None:
            assumed += _assume_no_labels(folders, images)
    if listed is not None:
        listed_names = set(listed)
        # In VOC, a mask has the name of its image.
        images = _keep_stems(images, listed_names)
        masks = _keep_stems(masks, listed_names)
        if len(images) < len(listed_names):
            text = (
                f"images that the list names, and that are not in {folders.images}: "
                f"{len(listed_names) - len(images):,}; they are left out"
            )
            assumed.append(Assumption(text))
    pairs = _pair_names(folders, images, masks)
    if not pairs:
        pairs = _pair_numbers(folders, images, masks)
        assumed += _assume_numbers(pairs)
    is_instance_wanted = INSTANCES in options.field_columns
    if is_instance_wanted and are_numbers_alone(pairs):
        pairs = join_numbers(pairs)
    without_mask = _images_without_defect(folders, images, masks)
    if without_mask:
        # Each kind of mask is one of the images with a defect alone.
        pairs = pairs or {_MASK: {}}
    if options.fields is not None:
        fields = [_requested_field(folders, pairs, column) for column in options.fields]
    else:
        no_defect = set(without_mask)
        with_defect = [path for path in images if path not in no_defect]
        fields = [_only_field(folders, pairs, with_defect)]

    further_masks = find_further_masks(pairs, fields)
    packed_masks: set[str] = set()
    # Only class masks are checked: a field of the kind image takes any picture.
    for index, field in enumerate(fields):
        masks_of_field = sorted(pairs[field.column].values())
        packed_masks.update(masks_of_field)
        if field.kind != _MASK:
            continue
        colours = None
        if _have_colours(folders, masks_of_field):
            colours = find_colours(_folders_of_lists(folders, tops))
        if colours is not None:
            fields[index] = field._replace(names=colours.names, colours=colours.colours)
            further_masks[field.name] = {}
            assumed += assume_names(field, colours.names, colours.file.name)
            continue
        if _are_jpegs_of_two_levels(folders, masks_of_field):
            fields[index] = field._replace(has_two_levels=True)
            further_masks[field.name] = {}
            assumed.append(_assume_two_levels(field))
            continue
        masks_of_image = further_masks[field.name]
        for masks_of_one in masks_of_image.values():
            packed_masks.update(masks_of_one)
        assumed += assume_united(field, masks_of_image)
        if field.has_object_numbers:
            continue
        _check_masks(folders, field, masks_of_field)
        if (folders.root / LABELMAP).is_file():
            names = _class_names(folders, masks_of_field)
            fields[index] = field._replace(names=names)
            assumed += assume_names(field, names, LABELMAP)
        else:
            names = read_value_names(folders.root / VALUE_NAMES)
            if names:
                fields[index] = field._replace(names=names)
                assumed += assume_names(field, names, VALUE_NAMES)

    for field in fields:
        assumed += assume_no_defects(field.name, without_mask, folders.images)
    has_no_mask = set(without_mask)
    rows = (
        _make_row(
            folders,
            image,
            fields,
            pairs,
            further_masks,
            is_without=image in has_no_mask,
        )
        for image in images
    )
    beside: list[str] = []
    # The masks of MVTec AD are those of one split, and all splits have the same folder of masks.
    if not folders.classes or packed_masks:
        beside = [mask for mask in masks if mask not in packed_masks]
    listing = list_rows(
        folders.root,
        rows,
        fields,
        classes=folders.classes or None,
        beside=beside,
        options=options,
    )
    return replace(listing, assumed=tuple(assumed))


def _pictures_in(root: SourcePath, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from filter(is_picture, files_below(root, folder, hidden=False))


def _keep_stems(paths: Sequence[str], stems: Collection[str]) -> list[str]:
    """The paths whose names without endings are among `stems`."""
    return [path for path in paths if PurePosixPath(path).stem in stems]


def _pair_names(
    folders: MaskFolders, images: Sequence[str], masks: Sequence[str]
) -> _Pairs:
    """Pairs each mask with its image: see Note [names of masks]."""
    # Folder and name -> image.
    image_of: dict[tuple[str, str], str] = {}
    # Folder and name without affixes -> the images that are called so.
    images_without_affix: dict[tuple[str, str], list[str]] = {}
    for image in images:
        folder, stem = _folder_and_stem(image, folders.image_folders)
        image_of[folder, stem] = image
        common_name = _IMAGE_AFFIX.sub("", stem)
        images_without_affix.setdefault((folder, common_name), []).append(image)
    for key, images_of_name in images_without_affix.items():
        # Of img_7.jpg and photo_7.jpg, nothing says which one has mask_7.png.
        if len(images_of_name) == 1:
            image_of.setdefault(key, images_of_name[0])

    pairs: dict[str, dict[str, str]] = {}
    for mask in masks:
        folder, stem = _folder_and_stem(mask, folders.mask_folders)
        for end in _ends_of_image_names(stem):
            name = stem[:end]
            image_name = image_of.get((folder, name))
            if image_name is None:
                image_name = image_of.get((folder, _MASK_PREFIX.sub("", name)))
            if image_name is not None:
                kind = stem[end:].lstrip(_SEPARATORS) or _MASK
                pairs.setdefault(kind, {})[image_name] = mask
                break
    return pairs


def _ends_of_image_names(stem: str) -> list[int]:
    """Where the name of its image may end in that of a mask, the longest one first.

    A mask belongs to the image with the longest name that its own name begins with: a_1.png to
    a_1.jpg, and only without such an image to a.jpg.
    """
    ends = [match.start() for match in _SEPARATOR.finditer(stem)]
    return [len(stem), *reversed(ends)]


def are_masks_of(image_stems: Iterable[str], mask_stems: Iterable[str]) -> bool:
    """Whether a mask is called after an image, by their names without endings.

    This is a quick look, without the folders: see Note [names of masks].
    """
    image_names: set[str] = set()
    for stem in image_stems:
        image_names.add(stem)
        image_names.add(_IMAGE_AFFIX.sub("", stem))
        number = _LEADING_NUMBER.match(stem)
        if number is not None:
            image_names.add(number[0])
    for stem in mask_stems:
        for end in _ends_of_image_names(stem):
            name = stem[:end]
            if name in image_names or _MASK_PREFIX.sub("", name) in image_names:
                return True
    return False


def _pair_numbers(
    folders: MaskFolders, images: Sequence[str], masks: Sequence[str]
) -> _Pairs:
    """Pairs by the numbers that names begin with: 21_training.tif and 21_manual1.gif of DRIVE.

    Empty if a name does not begin with a number, or if two images, or two masks of one kind, begin
    with the same number. Masks whose number no image has are left out.
    """
    image_of: dict[tuple[str, str], str] = {}
    for image in images:
        folder, stem = _folder_and_stem(image, folders.image_folders)
        number = _LEADING_NUMBER.match(stem)
        if number is None or (folder, number[0]) in image_of:
            return {}
        image_of[folder, number[0]] = image

    pairs: dict[str, dict[str, str]] = {}
    for mask in masks:
        folder, stem = _folder_and_stem(mask, folders.mask_folders)
        number = _LEADING_NUMBER.match(stem)
        if number is None:
            return {}
        paired_image = image_of.get((folder, number[0]))
        if paired_image is None:
            continue
        kind = stem[number.end() :].lstrip(_SEPARATORS) or _MASK
        pairs_of_kind = pairs.setdefault(kind, {})
        if paired_image in pairs_of_kind:
            return {}
        pairs_of_kind[paired_image] = mask
    return pairs


def _assume_numbers(pairs: _Pairs) -> list[Assumption]:
    """Says that images and masks were paired by their numbers."""
    for masks_of_kind in pairs.values():
        image, mask = next(iter(masks_of_kind.items()))
        text = (
            "masks: those whose names begin with the number of the image, such as "
            f"{readable(mask)} of {readable(image)}; each number is of one image"
        )
        return [Assumption(text)]
    return []


def _assume_no_labels(folders: MaskFolders, images: Sequence[str]) -> list[Assumption]:
    """Says that folders of images beside their masks are no classes, unless the user wants them."""
    names = sorted({class_folder(image, folders.images) for image in images} - {""})
    if len(names) < 2:
        return []
    text = f"labels: none; if the folders {first_paths(names)} are classes, pass the option"
    return [Assumption(text, BY_FOLDER)]


def _folder_and_stem(path: str, tops: Sequence[str]) -> tuple[str, str]:
    """The folder of a file in one of the folders `tops`, and its name without the ending.

    Of several, the number of the folder stands before it: images and masks of a part have the same.
    """
    pure_path = PurePosixPath(path)
    for number, top in enumerate(tops):
        if pure_path.is_relative_to(top):
            relative = pure_path.relative_to(top)
            return f"{number}/{relative.parent}", relative.stem
    raise ValueError(f"{path} lies in none of the folders")


def _requested_field(
    folders: MaskFolders, pairs: _Pairs, column: FieldColumn
) -> SourceField:
    """The field of masks that a user asks for: its column is a kind of mask, or their folder."""
    is_folder = column.column == PurePosixPath(folders.mask_folders[0]).name
    if is_folder and column.column not in pairs and len(pairs) == 1:
        column = column._replace(column=next(iter(pairs)))
    if column.column == INSTANCES and INSTANCES not in pairs:
        kinds_of_files = list(without_numbered_kinds(pairs))
        if len(kinds_of_files) == 1 and column.kind in (None, _MASK):
            return SourceField(
                column.name, _MASK, column=kinds_of_files[0], has_object_numbers=True
            )
    if column.column not in pairs:
        kinds = first_paths(sorted(pairs)) or "(none)"
        raise PackError(f"{column}: {folders} have the kinds of masks {kinds}")
    if column.kind not in (None, _MASK, "image"):
        raise PackError(f"{column}: expected the kind mask or image")
    return SourceField(column.name, column.kind or _MASK, column=column.column)


def _only_field(
    folders: MaskFolders, pairs: _Pairs, images: Sequence[str]
) -> SourceField:
    """The field of the only kind of mask that nearly all images have.

    `images`: the paths of those that should have one.
    """
    num_images = len(images)
    complete_kinds = _complete_kinds(pairs, num_images)
    if len(complete_kinds) == 1 and not are_numbers_alone(pairs):
        return SourceField(_MASK, _MASK, column=complete_kinds[0])

    expected = "a mask of the same name for nearly each image"
    if complete_kinds:
        expected = "one kind of mask by its name"
    if not pairs:
        raise PackError(
            f"{folders}: expected {expected}; there are {num_images:,} images, and no mask is "
            "called after one of them. List images and masks in a CSV file (--field "
            "mask=COLUMN:mask), or move the masks to the same folders as the images. --format "
            "imagefolder takes the two folders as classes"
        )
    counts: list[str] = []
    for kind in sorted(pairs)[:_MAX_SHOWN]:
        counts.append(f"{readable(kind)} ({len(pairs[kind]):,})")
    numbers = ""
    if are_numbers_alone(pairs):
        numbers = (
            f"--field {_MASK}={INSTANCES}:{_MASK} numbers the masks of each image, if they are "
            "objects. "
        )
    without_mask = _paths_without_mask(pairs, images)
    missing = ""
    if without_mask:
        shown = ", ".join(readable(path) for path in without_mask[:_MAX_SHOWN])
        more = ", ..." if len(without_mask) > _MAX_SHOWN else ""
        missing = f" Without a mask: {shown}{more}."
    advice = f"--field {_MASK}=KIND packs one of these kinds"
    if len(pairs) == 1:
        (kind,) = pairs
        advice = (
            f"--field {_MASK}={readable(kind)} packs the images that have such a mask"
        )
    raise PackError(
        f"{folders}: expected {expected}; there are {num_images:,} images, and masks called after "
        f"them: {', '.join(counts)}.{missing} {numbers}{advice}, "
        "--format imagefolder takes the two folders as classes. Other pairs can be listed in a CSV "
        "file: --field mask=COLUMN:mask"
    )


def _paths_without_mask(pairs: _Pairs, images: Sequence[str]) -> list[str]:
    """The images that have a mask of no kind."""
    with_mask: set[str] = set()
    for mask_of_image in pairs.values():
        with_mask.update(mask_of_image)
    return [path for path in images if path not in with_mask]


def list_kinds(folders: MaskFolders) -> list[str]:
    """The kinds of masks that nearly all images have; those with PNGs of numbers come first."""
    images = sorted(_pictures_in(folders.root, folders.image_folders))
    masks = sorted(_pictures_in(folders.root, folders.mask_folders))
    pairs = _pair_names(folders, images, masks)
    complete_kinds = _complete_kinds(pairs, len(images))
    return sorted(
        complete_kinds, key=lambda kind: _rank_kind(folders, kind, pairs[kind])
    )


def _rank_kind(
    folders: MaskFolders, kind: str, masks: Mapping[str, str]
) -> tuple[bool, bool]:
    """The key that `list_kinds` sorts by: masks of classes, then those of objects, then pictures."""
    start = read_start(folders.root / min(masks.values()))
    return not is_png_of_numbers(start), "instance" in kind.lower()


def _complete_kinds(pairs: _Pairs, num_images: int) -> list[str]:
    """The kinds of masks that nearly all images have."""
    min_masks = _MIN_SHARE * num_images
    complete_kinds = []
    for kind, masks_of_kind in without_numbered_kinds(pairs).items():
        if len(masks_of_kind) >= min_masks:
            complete_kinds.append(kind)
    return complete_kinds


def _images_without_defect(
    folders: MaskFolders, images: Sequence[str], masks: Sequence[str]
) -> list[str]:
    """The images in class folders that have no masks. See Note [masks of defects]."""
    if not folders.classes:
        return []
    defects = {class_folder(mask, folders.masks) for mask in masks}
    return [
        image for image in images if class_folder(image, folders.images) not in defects
    ]


def _make_row(
    folders: MaskFolders,
    image: str,
    fields: Sequence[SourceField],
    pairs: _Pairs,
    further_masks: Mapping[str, Mapping[str, Sequence[str]]],
    *,
    is_without: bool,
) -> Row:
    """The row of an image.

    Args:
        folders, image, fields: the source, its image, and the fields.
        pairs: the masks of each kind.
        further_masks: of each field, the masks of the images that have several.
        is_without: the image shows nothing that a mask could mark.
    """
    values: dict[str, Any] = {}
    problem = None
    label = None
    if folders.classes:
        label = folders.classes.index(class_folder(image, folders.images))
    for field in fields:
        mask = pairs[field.column].get(image)
        values[field.name] = mask
        if mask is None and is_without:
            values[field.name] = _EMPTY_MASK
            continue
        masks = further_masks[field.name].get(image, [])
        if mask is not None and (masks or field.has_object_numbers):
            values[field.name] = value_of_masks(masks or [mask], field)
        if mask is None and problem is None:
            where = first_paths(folders.mask_folders)
            problem = f"no {field.name} of this name in {where}"
    return Row(image, values, problem, image, label)


def _have_colours(folders: MaskFolders, masks: Sequence[str]) -> bool:
    """Whether some of the masks are PNGs with red, green and blue."""
    return any(has_colours(folders.root / mask) for mask in _some_of(masks))


def has_colours(mask: SourcePath) -> bool:
    """Whether a mask is a PNG with red, green and blue."""
    start = read_start(mask)  # b"": the pack reports it with the reason
    is_png = start.startswith(PNG_START) and len(start) > COLOR_TYPE_OFFSET
    return is_png and start[COLOR_TYPE_OFFSET] in _RGB_AND_RGBA


def _are_jpegs_of_two_levels(folders: MaskFolders, masks: Sequence[str]) -> bool:
    """Whether masks are JPEGs of black and white, as those of Kvasir-SEG."""
    has_white = False
    for mask in _some_of(masks):
        try:
            with open_binary(folders.root / mask) as file:
                data = file.read()
            if not data.startswith(JPEG_START):
                return False
            has_white = has_white or bool(read_two_levels(data).any())
        except (OSError, ImageError):
            return False
    return has_white


def _assume_two_levels(field: SourceField) -> Assumption:
    """Says what becomes of JPEGs of black and white."""
    return Assumption(
        f"field {field.name}: the masks are JPEGs with values near 0 and 255; from 128 on they are "
        "packed as 255, below as 0. Losses that take numbers of classes expect 0 and 1. The option "
        "stores them as images",
        f"--field {field.name}={field.column}:image",
    )


def _some_of(masks: Sequence[str]) -> Sequence[str]:
    """A few of the masks, from all over their folder."""
    step = -(-len(masks) // _NUM_CHECKED)  # rounded up
    return masks[:: step or 1]


def _folders_of_lists(
    folders: MaskFolders, tops: Sequence[SourcePath]
) -> Iterator[SourcePath]:
    """The folders that may have the list of colours: the masks', those around it, and `tops`."""
    path = PurePosixPath(folders.masks)
    for relative in (path, *path.parents):
        if relative.name:
            yield folders.root / str(relative)
    yield folders.root
    yield from tops


def _check_masks(
    folders: MaskFolders, field: SourceField, masks: Sequence[str]
) -> None:
    """Raises PackError if the pixels of a few of the masks are no numbers of classes."""
    for mask in _some_of(masks):
        path = folders.root / mask
        start = read_start(path)  # b"": the pack reports it with the reason
        if start.startswith(JPEG_START):
            raise _no_numbers_error(path, "a JPEG, whose values are not exact", field)
        if not start.startswith(PNG_START):
            continue  # the pack takes it if it holds numbers
        has_header = len(start) > COLOR_TYPE_OFFSET
        if has_header and not is_png_of_numbers(start):
            raise _no_numbers_error(path, _WITH_COLOURS, field)


def _class_names(folders: MaskFolders, masks: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes in masks of VOC; none in masks of objects."""
    if not masks or PurePosixPath(folders.masks).parts[:1] == (_OBJECT_MASKS,):
        return ()
    try:
        with open_binary(folders.root / masks[0]) as file:
            data = file.read(_HEADER_BYTES)
    except OSError:
        return ()
    return read_mask_classes(folders.root, read_palette(data))


def assume_names(
    field: SourceField, names: Sequence[str], file: str
) -> list[Assumption]:
    """Says which names the classes of a field got from a file, or that they got none."""
    if names:
        meanings: list[str] = []
        for number, name in enumerate(names):
            if name:
                meanings.append(f"{number} is {name!r}")
        shown = ", ".join(meanings)[:_MAX_SHOWN_CHARACTERS]
        text = f"classes of the field {field.name}: those of {file}: {shown}"
    else:
        text = (
            f"classes of the field {field.name}: without names, for {file} does not have the "
            "colours of the masks"
        )
    return [Assumption(text)]


def refuse_colours(path: SourcePath, field: SourceField) -> PackError:
    """The error about a mask with colours of which nothing says the classes."""
    return _no_numbers_error(path, _WITH_COLOURS, field)


def _no_numbers_error(
    path: SourcePath, description: str, field: SourceField
) -> PackError:
    remedy = "Convert them"
    if description == _WITH_COLOURS:
        remedy = (
            "Write the classes of the colours into a file class_dict.csv beside the folder of the "
            "masks, with the line name,r,g,b and a line such as Animal,64,128,64 for each class"
        )
    return PackError(
        f"{readable(str(path))} is {description}; expected masks of one channel, or with a "
        f"palette, as PNG or GIF. {remedy}. Or store them as images with --field "
        f"{field.name}={field.column}:image"
    )
