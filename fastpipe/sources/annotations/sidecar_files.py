"""Listed files of folders of images -> assumptions and errors where some of them are no images.

Note [sidecar files]
Many tools write the annotations of a.jpg into a.txt, a.json or a.xml beside it, or into another
folder. A user who packs the images alone has to know that they are left out. A folder that has only
such files is no class.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Sequence

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_files import (
    DATA,
    JSON_DATA,
    ROW_A_BOX,
    SIDECAR_ENDINGS,
    TEXT,
    TOOL_BYTES,
    AnnotationTool,
    describe_file,
    recognise_tool,
)
from fastpipe.sources.annotations.annotation_folders import (
    is_called_mask_file,
    without_mask_suffix,
)
from fastpipe.sources.file_formats import (
    MANIFESTS,
    format_of,
    unread_remedy,
)
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.doubtful_folders import lists_beside_images
from fastpipe.sources.folders.splits import FEW, first_paths
from fastpipe.sources.listing import Assumption, Source, replace_sources
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.path_labels import BY_FOLDER
from fastpipe.sources.source_bytes import read_source
from fastpipe.sources.tables.json_mappings import find_json_mapping
from fastpipe.sources.tables.listed_images import (
    ListingTable,
    find_listing_tables,
    first_rows,
)
from fastpipe.sources.tables.pixel_tables import refuse_pixels
from fastpipe.sources.tables.point_tables import find_point_table
from fastpipe.sources.tables.table_remedies import some_tables

# There may be millions of sources. This many show whether there are sidecar files, or masks.
_NUM_CHECKED = 4096
# Behind the name of an image that has masks, as DeepGlobe's 119_sat.jpg beside 119_mask.png.
_IMAGE_SUFFIX = re.compile(
    r"[-_ ](?:sat|image|img|im|rgb|photo|leftimg8bit)$", re.IGNORECASE
)
# The start of so many files is read to see whether they are texts. Behind a URL each is a request.
_MAX_READ = 64
# Tables are looked for in so many folders of a folder without images.
_MAX_FOLDERS = 8
# So many tables in a folder without pictures are read to see whether they have pixels.
_MAX_TABLES = 3
# A picture of PPM in text begins so.
_TEXT_PICTURES = ("P1", "P2", "P3")
# CIFAR-10 has pickles without an ending: PROTO of version 2 or later.
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Masks are refused from this share of all files on. A few files may be called so by chance.
_MIN_MASK_SHARE = 0.2


def leave_out_sidecar_files(
    root: SourcePath,
    sources: list[Source],
    classes: Sequence[str],
    *,
    are_classes: bool,
) -> list[Assumption]:
    """Removes the sidecar files from the sources, in place. The assumptions name them.

    Args:
        root, sources, classes: of the listing.
        are_classes: the user says that the folders are classes.

    Raises:
        PackError: a folder has only annotations and would be a class, or only one folder has
            images; and the user does not say that the folders are classes.
    """
    image_labels = _labels_of_images(root, sources)
    empty_labels = {source.label for source in sources} - image_labels - {NO_LABEL}

    # Most folders have none. A sample of their files shows it quickly.
    step = max(1, len(sources) // _NUM_CHECKED)
    has_sidecars = any(is_sidecar(source.path) for source in sources[::step])
    if not has_sidecars and not empty_labels:
        return []

    sidecars: list[Source] = []
    image_names: set[str] = set()
    for source in sources:
        if is_sidecar(source.path):
            sidecars.append(source)
        else:
            image_names.add(_file_name(source.path))
    # A sidecar file of a.jpg is called a.txt or a.jpg.txt.
    image_names.update([_stem(name) for name in image_names])
    like_images: list[Source] = []  # called like an image
    for source in sidecars:
        if _stem(_file_name(source.path)) in image_names:
            like_images.append(source)

    # A folder of text files whose names fit no image may be a class that lost its images. A folder
    # of sidecar files never was a class.
    in_empty = [source for source in like_images if source.label in empty_labels]
    if in_empty and not are_classes:
        raise _no_class_error(root, classes, in_empty, image_labels)
    if empty_labels and len(image_labels) == 1 and not are_classes:
        files_in_empty = [source for source in sources if source.label in empty_labels]
        raise _only_folder_error(
            root, classes, image_labels.pop(), sorted(empty_labels), files_in_empty
        )
    assumed = []
    if empty_labels:
        # Their numbers stay, so that labels are those of the folders.
        first_path = min(
            source.path for source in sources if source.label in empty_labels
        )
        assumed.append(_assume_empty_classes(classes, sorted(empty_labels), first_path))
    paths_like_images = {source.path for source in like_images}
    if like_images:
        example, tool = _choose_example(root, like_images)
        if tool == DATA and format_of(example.path) in MANIFESTS:
            # DeepLabCut has CollectedData_me.csv beside CollectedData_me.h5 and the images.
            table = quote_for_shell(str(root / example.path))
            tool = AnnotationTool("a table", f"pass the table, {table}")
        _remove_sources(sources, paths_like_images)
        assumed.append(
            Assumption(
                f"files that have the names of images, and are not read: {len(like_images):,}, such as "
                f"{readable(example.path)} ({tool.name}). To keep what they say: {tool.remedy}"
            )
        )
    lists = [source for source in sidecars if source.path not in paths_like_images]
    assumed += _leave_out_class_lists(root, sources, lists, image_labels)
    return assumed


def _leave_out_class_lists(
    root: SourcePath,
    sources: list[Source],
    lists: Sequence[Source],
    image_labels: Container[int],
) -> list[Assumption]:
    """Removes lists in several class folders from the sources, in place, and names one of them.

    Tiny ImageNet has the boxes of n01443537 in n01443537/n01443537_boxes.txt, and GTSRB those of
    00000 in 00000/GT-00000.csv.
    """
    in_classes = []
    for source in lists:
        if source.label != NO_LABEL and source.label in image_labels:
            in_classes.append(source)
    num_classes = len({source.label for source in in_classes})
    if num_classes < 2:
        return []  # one file is rejected, and its reason is shown
    _remove_sources(sources, {source.path for source in in_classes})
    first_path = min(source.path for source in in_classes)
    remedy = ROW_A_BOX
    if find_json_mapping(root / first_path) is not None:
        # DiffusionDB has part-000001/part-000001.json, with the prompts of the images beside it.
        remedy = (
            f"pass the first one, {quote_for_shell(str(root / first_path))}, and then add the "
            "others: fastpipe add FILE DST"
        )
    return [
        Assumption(
            f"lists in class folders, which are not read: {len(in_classes):,} in {num_classes:,} "
            f"folders, such as {readable(first_path)}. To keep what they say: {remedy}"
        )
    ]


def _labels_of_images(root: SourcePath, sources: Sequence[Source]) -> set[int]:
    """The labels of the classes that have images, by the names of files.

    Images without an ending are usual as well. So of a class without a picture the start of such a
    file is read.
    """
    labels: set[int] = set()
    # Label -> a file that may be an image.
    candidates: dict[int, Source] = {}
    for source in sources:
        # There may be millions of images, and few classes.
        if source.label in labels:
            continue
        if is_picture(source.path):
            labels.add(source.label)
        elif "." not in _file_name(source.path):
            candidates.setdefault(source.label, source)

    if not labels:
        # No file is called like a picture, and any other file may be one.
        return {source.label for source in sources if not is_sidecar(source.path)}
    without_pictures = candidates.keys() - labels
    if len(without_pictures) > _MAX_READ:
        return labels | without_pictures
    for label in without_pictures:
        if not _is_text(_read_start(root, candidates[label])):
            labels.add(label)
    return labels


def _is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are a text, and no picture, or none."""
    try:
        text = start.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text and not text.startswith(_TEXT_PICTURES)


def find_empty_classes(
    sources: Sequence[Source], classes: Sequence[str]
) -> list[Assumption]:
    """Says which classes have sidecar files and no image. `sources`: with labels by their paths."""
    labels_of_sidecars: set[int] = set()
    labels_of_images: set[int] = set()
    for source in sources:
        # There may be millions of images, and few classes.
        if source.label in labels_of_images:
            continue
        if is_sidecar(source.path):
            labels_of_sidecars.add(source.label)
        else:
            labels_of_images.add(source.label)
    empty_labels = labels_of_sidecars - labels_of_images - {NO_LABEL}
    if not empty_labels:
        return []
    first_path = min(source.path for source in sources if source.label in empty_labels)
    return [_assume_empty_classes(classes, sorted(empty_labels), first_path)]


def _assume_empty_classes(
    classes: Sequence[str], empty_labels: Sequence[int], first_path: str
) -> Assumption:
    """`first_path`: of the files in these classes."""
    folders = first_paths(classes[label] for label in empty_labels)
    text = (
        f"classes: {folders} without any image, but with files such as {readable(first_path)}; "
        "move folders that are no classes elsewhere"
    )
    return Assumption(text, "--classes-from FILE")


def leave_out_lists(sources: list[Source], files: Sequence[str]) -> None:
    """Removes lists and documents beside images from the sources, in place.

    `files`: those of the root. The lists among them are named by an assumption already.
    """
    lists = lists_beside_images(files)
    # Without an image, each file is rejected with its reason.
    if lists and len(sources) > len(lists):
        _remove_sources(sources, set(lists))


def _remove_sources(sources: list[Source], paths: Container[str]) -> None:
    replace_sources(sources, lambda source: None if source.path in paths else source)


def _no_class_error(
    root: SourcePath,
    classes: Sequence[str],
    files: Sequence[Source],
    image_labels: Collection[int],
) -> PackError:
    """The error for a folder of files that are called like images.

    Args:
        root, classes: of the listing.
        files: those in it.
        image_labels: of the folders with images.
    """
    example, tool = _choose_example(root, files)
    folder = readable(classes[example.label])
    folder_of_images = "their folder"
    if len(image_labels) == 1:
        folder_of_images = readable(str(root / classes[next(iter(image_labels))]))
    return PackError(
        f"{readable(str(root))}: the folder {folder} has no image, but files with the names of "
        f"images in other folders, such as {readable(example.path)}: {tool.name}. So it is not a "
        f"class. To keep what they say: {tool.remedy}. To pack the images alone, pass "
        f"{folder_of_images}. {AS_CLASSES} takes the folders as classes"
    )


def _only_folder_error(
    root: SourcePath,
    classes: Sequence[str],
    label: int,
    empty_labels: Sequence[int],
    files: Sequence[Source],
) -> PackError:
    """The error for the only folder of images among folders.

    Args:
        root, classes: of the listing.
        label: of the folder of images.
        empty_labels: of the other folders.
        files: those in the other folders.
    """
    folder = root / classes[label]
    name = readable(classes[label])
    remedy = f"Pass {readable(str(folder))}"
    example, tool = _choose_example(root, files)
    if tool not in (TEXT, DATA, JSON_DATA):
        # ICDAR's files of boxes, gt_img_1.txt of img_1.jpg, belong to no format that is read.
        remedy = (
            f"{readable(example.path)}: {tool.name}. To keep what such files say: {tool.remedy}. "
            f"{remedy} for the images alone"
        )
    for empty in empty_labels:
        tables = _tables_in(root / classes[empty], folder)
        if tables:
            remedy = _remedy_of_tables(folder, tables)
            break
    point_table = _find_point_table(folder)
    if point_table is not None:
        remedy = (
            f"Pass {readable(str(point_table))}, which has the points of the images beside it; or "
            f"{readable(str(folder))} for the images alone"
        )
    others = first_paths(classes[empty] for empty in empty_labels)
    verb = "has" if len(empty_labels) == 1 else "have"
    return PackError(
        f"{readable(str(root))}: only the folder {name} has images, and {others} {verb} none, so the "
        f"folders are no classes. {remedy}. {AS_CLASSES} takes the folders as classes"
    )


def _find_point_table(folder: SourcePath) -> SourcePath | None:
    """The first table of points in a folder or in the first folders in it; None if there is none.

    DeepLabCut has labeled-data/video1/CollectedData_me.csv.
    """
    for inner, files in _files_of_folders(folder, FEW):
        tables = [name for name in files if name.endswith(".csv")]
        for name in tables[:_MAX_TABLES]:
            if find_point_table(inner / name, SourceOptions()) is not None:
                return inner / name
    return None


def _tables_in(folder: SourcePath, images: SourcePath) -> list[ListingTable]:
    """The tables in a folder, or in the first folder in it that has some, that list some images.

    WFLW has its lists in WFLW_annotations/list_98pt_rect_attr_train_test.
    """
    for inner, files in _files_of_folders(folder):
        tables = find_listing_tables(inner, files, image_folder=images)
        if tables:
            return tables
    return []


def _files_of_folders(
    folder: SourcePath, most: int | None = None
) -> Iterator[tuple[SourcePath, Sequence[str]]]:
    """A folder and the first folders in it, each with the names of its files.

    `most`: see `names_in`.
    """
    names = names_in(folder, most)
    yield folder, names.files
    for name in names.folders[:_MAX_FOLDERS]:
        yield folder / name, names_in(folder / name, most).files


def _remedy_of_tables(folder: SourcePath, tables: Sequence[ListingTable]) -> str:
    """What to do with tables of the images in a folder. `tables`: one at least."""
    path = tables[0].path
    says_paths_alone = all(len(row) == 1 for row in first_rows(path))
    if says_paths_alone and names_in(folder, FEW).folders:
        # Food-101 has its classes as folders, and the splits in meta/train.txt.
        option = f"--split-list {quote_for_shell(str(path))}"
        return (
            f"Pass {readable(str(folder))}, whose folders may be the classes; {option} packs the "
            "images of this list alone"
        )
    article = "the" if len(tables) == 1 else "a"
    return f"Pass {article} table of these images: {some_tables(tables)}"


def _choose_example(
    root: SourcePath, files: Sequence[Source]
) -> tuple[Source, AnnotationTool]:
    """A file for the message, and its tool.

    One file of each class is read, in search of a known tool.
    """
    # Label -> the last of its files.
    one_of_each_class = {source.label: source for source in files}
    for source in one_of_each_class.values():
        tool = recognise_tool(_read_start(root, source), source.path)
        if tool is not None and tool != TEXT:
            return source, tool
    first = min(files, key=lambda source: source.path)
    return first, describe_file(_read_start(root, first), first.path)


def _read_start(root: SourcePath, source: Source) -> bytes:
    """The first bytes of a file; none if it cannot be read, which is reported when it is packed."""
    if source.problem is not None:
        return b""
    try:
        return read_source(root, source, TOOL_BYTES)
    except (OSError, PackError):
        return b""


def is_sidecar(path: str) -> bool:
    """Whether a file has the ending of annotations or texts."""
    return path.lower().endswith(SIDECAR_ENDINGS)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def refuse_unread_data(root: SourcePath, sources: Sequence[Source]) -> None:
    """Raises PackError if a folder has no picture, but data that fastpipe does not read."""
    first_sources = sources[:_NUM_CHECKED]
    for source in first_sources:
        if is_picture(source.path):
            return
    # FER2013 is a table alone, and MNIST as CSV two of them.
    tables = [source for source in first_sources if format_of(source.path) == "csv"]
    for source in tables[:_MAX_TABLES]:
        refuse_pixels(root / source.path)
    for index, source in enumerate(first_sources):
        remedy = unread_remedy(source.path)
        # Images without an ending are usual as well, so only one file is read.
        if index == 0 and remedy is None and _PICKLE.match(_read_start(root, source)):
            remedy = unread_remedy("batch.pickle")
        if remedy is not None:
            raise PackError(
                f"{readable(str(root))} holds no image: {readable(source.path)} is {remedy}"
            )


def refuse_masks(root: SourcePath, sources: Sequence[Source]) -> None:
    """Raises PackError if many files are masks of others beside them.

    a_mask.png is one of a.png and of a_sat.png.
    """
    masks = _find_masks(sources)
    if masks:
        with_labels = ""
        if len({mask.rpartition("/")[0] for mask in masks}) > 1:
            with_labels = f"; with {BY_FOLDER} the folders are their classes"
        raise PackError(
            f"{readable(str(root))}: {len(masks):,} of {len(sources):,} files look like "
            f"masks of others beside them, such as {readable(masks[0])}. --format masks packs them "
            f"as masks of these, without labels{with_labels}; or list both in a CSV file (--field "
            "mask=COLUMN:mask). "
            f"{AS_CLASSES} packs them as images"
        )


def assume_masks_in_tar(sources: Sequence[Source]) -> list[Assumption]:
    """Says that members of tars which are called like masks of others are packed as images."""
    masks = _find_masks(sources)
    if not masks:
        return []
    text = (
        f"images: {len(masks):,} of {len(sources):,} members look like masks of others, such "
        f"as {readable(masks[0])}, and are packed as images of their own. In a tar, the mask of "
        "KEY.jpg is called KEY.mask.png; or unpack the tar, and move the masks to a folder masks "
        "beside a folder images"
    )
    return [Assumption(text)]


def _find_masks(sources: Sequence[Source]) -> list[str]:
    """The files that are called like masks of others beside them; none if these are few."""
    if not any(is_called_mask_file(source.path) for source in sources[:_NUM_CHECKED]):
        return []
    stems = {_stem(source.path) for source in sources}
    stems |= {_IMAGE_SUFFIX.sub("", stem) for stem in stems}
    masks: list[str] = []
    for source in sources:
        is_mask = is_called_mask_file(source.path)
        if is_mask and without_mask_suffix(source.path) in stems:
            masks.append(source.path)
    if len(masks) < _MIN_MASK_SHARE * len(sources):
        return []
    return masks
