"""A folder with a folder of images for each class, or with images alone -> its listing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.annotations.sidecar_files import (
    find_empty_classes,
    is_sidecar,
    leave_out_lists,
    leave_out_sidecar_files,
    refuse_masks,
    refuse_unread_data,
)
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.file_formats import MANIFESTS, format_of
from fastpipe.sources.files import (
    SourcePath,
    files_below,
    names_in,
    path_below,
    state_or_problem,
)
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES, numbers_as_texts
from fastpipe.sources.folders.doubtful_folders import check_class_folders, lists_among
from fastpipe.sources.folders.folder_lists import FolderList, find_folder_list
from fastpipe.sources.folders.folder_roles import (
    is_called_image,
    is_called_target,
    refuse_roles,
)
from fastpipe.sources.folders.nested_folders import check_nested_folders
from fastpipe.sources.folders.paired_folders import assume_no_pairs
from fastpipe.sources.folders.sidecar_fields import (
    list_with_sidecars,
    take_sidecars,
)
from fastpipe.sources.folders.split_classes import classes_outside_training
from fastpipe.sources.folders.splits import (
    FEW,
    find_split_parts,
    first_paths,
    split_of_name,
    training_or_first,
)
from fastpipe.sources.folders.tables_of_splits import find_tables_beside
from fastpipe.sources.folders.unread_names import describe_unread
from fastpipe.sources.listing import Assumption, Listing, Source
from fastpipe.sources.options import SourceOptions, quote_for_shell
from fastpipe.sources.path_labels import (
    LABEL_PATTERN,
    ClassOfPath,
    class_by_folder,
    class_by_pattern,
    describe_unfit_path,
    label_by_path,
)
from fastpipe.sources.recognised import Recognised
from fastpipe.sources.tables.table_files import (
    assume_forms_skipped,
    is_result_form,
)
from fastpipe.sources.tables.table_options import describe_options_of_table
from fastpipe.sources.tables.table_remedies import describe_options_of_labels
from fastpipe.sources.tables.table_text import LISTS


@dataclass(frozen=True)
class ClassFolders:
    """The class folders of a source.

    Attributes:
        root: the folder that they are in.
        classes: the classes of all splits.
        folders: label and name of each class folder in `root`; of folders of images without
            labels, NO_LABEL and the name.
        files: names of the images without labels in `root`.
        stray: names of the files in `root` that are not packed.
        assumed: see `Listing`.
        class_of: finds the class in the path of an image; None: the class is that of its folder
            in `folders`.
        unfit: the problem of an image whose path has no class.
    """

    root: SourcePath
    classes: list[str]
    folders: list[tuple[int, str]]
    files: list[str]
    stray: list[str]
    assumed: tuple[Assumption, ...]
    class_of: ClassOfPath | None = None
    unfit: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether there are class folders."""
        return any(label != NO_LABEL for label, _ in self.folders)


def find_class_folders(source: Recognised, options: SourceOptions) -> ClassFolders:
    """The class folders of a source of the format "imagefolder".

    If the source has no labels, its folders have the label NO_LABEL.

    Raises:
        PackError: they are no classes, and the user does not say that they are.
    """
    root = source.root
    names = source.names
    split = source.split
    are_classes = options.format == "imagefolder"
    by_path = _find_classes_in_paths(source, options)
    if by_path is not None:
        return by_path
    if not are_classes:
        refuse_roles(root, names.folders)
    assumed: list[Assumption] = []
    if source.splits:
        # The classes are those of all splits, so that a class has the same number in each.
        folders_by_split: dict[str, list[str]] = {}
        for name, folder in source.splits.items():
            folders_by_split[name] = names_in(folder).folders
        given_classes: tuple[str, ...] = ()
        if options.classes is not None:
            given_classes = options.classes.labels
        classes_by_split = _find_classes(
            folders_by_split, given_classes, are_classes=are_classes
        )
        has_labels = split in classes_by_split
        classes = sorted(set(chain.from_iterable(classes_by_split.values())))
        if not has_labels:
            assumed += _assume_no_labels(root, split, folders_by_split)
        elif not are_classes:
            assumed += check_nested_folders(root, names.folders)
        assumed += classes_outside_training(classes_by_split)
        if has_labels and source.top is not None and root.parent != source.top:
            assumed += _assume_wrapped_classes(source.top, root, classes)
    else:
        has_labels = bool(names.folders)
        classes = names.folders
        assumed += check_class_folders(root, names, are_classes=are_classes)
    assumed += numbers_as_texts(classes)
    assumed += describe_unread(
        source,
        are_tables_named=not has_labels,
        have_class_names=options.classes is not None,
    )

    folders: list[tuple[int, str]] = []
    if has_labels:
        # The split may lack a class that another split has.
        folders_of_split = set(names.folders)
        for label, name in enumerate(classes):
            if name in folders_of_split:
                folders.append((label, name))
        stray = [*names.files, *names.hidden]
        return ClassFolders(root, classes, folders, [], stray, tuple(assumed))
    if source.top is not None:
        # Kaggle has train.csv beside train and test.
        assumed += _assume_no_labels_beside_tables(source.top, root, split)
    folders = [(NO_LABEL, name) for name in names.folders]
    return ClassFolders(
        root, classes, folders, names.files, names.hidden, tuple(assumed)
    )


def _assume_wrapped_classes(
    top: SourcePath, root: SourcePath, classes: Sequence[str]
) -> Iterator[Assumption]:
    """Says that the classes of a split lie in its folder of images, as those of GTSRB.

    `top`: the folder of the splits. `root`: the folder of the classes.
    """
    if root.name.lower() != root.parent.name.lower():
        yield Assumption(
            f"classes: the folders in {readable(path_below(top, root))}, which is all that the "
            f"split has ({first_paths(classes)}); to pack the images without labels, move them out "
            "of these folders"
        )


def _find_classes_in_paths(
    source: Recognised, options: SourceOptions
) -> ClassFolders | None:
    """The folders of images whose paths say the classes; None if only the first folder does.

    See Note [labels in paths].
    """
    names = source.names
    classes: list[str] = []
    assumed: list[Assumption] = []
    if options.label_pattern is not None:
        class_of = class_by_pattern(options.label_pattern)
        unfit = describe_unfit_path(options.label_pattern)
        assumed = describe_unread(source)
    else:
        listed = _find_listed_folders(source, options)
        if listed is None:
            return None
        classes = listed.folders
        class_of = class_by_folder(frozenset(classes))
        unfit = f"its folder is not among the {len(classes):,} classes of {listed.file}"
        if options.classes is None:
            text = (
                f"classes: the {len(classes):,} folders that {listed.file} lists, in its order, such "
                f"as {readable(classes[0])}"
            )
            option = f"--classes-from {readable(str(source.root / listed.file))}"
            assumed.append(Assumption(text, option))
    folders = [(NO_LABEL, name) for name in names.folders]
    files = names.files
    stray = names.hidden
    if names.folders:
        # Beside folders lie lists and notes, and perhaps images.
        files = [name for name in names.files if is_picture(name)]
        others = [name for name in names.files if not is_picture(name)]
        stray = [*others, *names.hidden]
    return ClassFolders(
        source.root, classes, folders, files, stray, tuple(assumed), class_of, unfit
    )


def _assume_all_splits(
    root: SourcePath, sources: Sequence[Source], classes: Sequence[str]
) -> Iterator[Assumption]:
    """Says that images of several splits are packed together, where a pattern says the classes.

    Args:
        root, sources: of the listing.
        classes: those of the images, by the pattern.
    """
    # The folders in the root that have images, in the order of their names.
    folders = set[str]()
    for source in sources:
        folder, slash, _ = source.path.partition("/")
        if slash and folder not in folders and not is_sidecar(source.path):
            folders.add(folder)
    names = sorted(folders)
    names_in_parts = set[str]()
    for by_split in find_split_parts(names):
        names_in_parts.update(by_split.values())
        split = training_or_first(by_split)
        yield Assumption(
            f"split: none; the images of {first_paths(sorted(by_split.values()))}, which are called "
            "like splits, are packed together",
            f"--split {split}",
        )
    for name in names:
        if split_of_name(name) is None or name in names_in_parts:
            continue
        others = [other for other in names if other != name]
        remedy = f"to leave them out, move {readable(name)} elsewhere"
        if len(others) == 1:
            remedy = f"to leave them out, pass {readable(str(root / others[0]))}"
        if name in classes:
            # --split would leave no folder that the pattern could find.
            yield Assumption(
                f"{readable(name)}: a class by {LABEL_PATTERN}, though it looks like a split; "
                f"{remedy}"
            )
            continue
        yield Assumption(
            f"split: none; the images of {readable(name)}, which looks like a split, are packed "
            f"with the others; {remedy}; to pack them alone",
            f"--split {quote_for_shell(name)}",
        )


def _find_listed_folders(
    source: Recognised, options: SourceOptions
) -> FolderList | None:
    """The class folders that lie in one another, by given classes or by a list beside them."""
    if options.classes is not None:
        folders = list(options.classes.labels)
        is_deep = any("/" in folder for folder in folders)
        return FolderList("--classes-from", folders) if is_deep else None
    # With the option, the user says that the first folders are the classes.
    if options.format == "imagefolder" or source.splits or not source.names.folders:
        return None
    return find_folder_list(source.root, lists_among(source.names.files, LISTS))


def _find_classes(
    folders_by_split: Mapping[str, Sequence[str]],
    given_classes: Collection[str],
    *,
    are_classes: bool,
) -> dict[str, Sequence[str]]:
    """Split -> its class folders, of the splits with labels.

    Args:
        folders_by_split: the folders in each split.
        given_classes: the names of --classes-from. An only folder that is called so is a class.
        are_classes: the user says that all folders are classes.
    """
    classes_by_split: dict[str, Sequence[str]] = {}
    for split, folders in folders_by_split.items():
        # Where KITTI is packed with --split testing, image_2 and label_2 of training are no classes.
        if _have_roles(folders) and not are_classes:
            continue
        is_given = len(folders) == 1 and folders[0] in given_classes
        if is_given or not _is_unlabelled(split, folders_by_split):
            classes_by_split[split] = folders
    return classes_by_split


def _have_roles(folders: Sequence[str]) -> bool:
    """Whether folders are called like images and their labels. See Note [roles of folders]."""
    return any(map(is_called_image, folders)) and any(map(is_called_target, folders))


def _is_unlabelled(split: str, folders_by_split: Mapping[str, Sequence[str]]) -> bool:
    """Whether a split has images without labels.

    It has no folders, or only one that is a class of no other split, as test/images.
    """
    folders = folders_by_split[split]
    if len(folders) != 1:
        return not folders
    folder = folders[0]
    if is_called_images(folder):
        return True
    classes_of_others: set[str] = set()
    for other, other_folders in folders_by_split.items():
        if other != split:
            classes_of_others.update(other_folders)
    # KITTI has image_2 and label_2 in training, and image_2 in testing.
    if is_called_image(folder) and any(map(is_called_target, classes_of_others)):
        return True
    return bool(classes_of_others) and folder not in classes_of_others


def _assume_no_labels(
    root: SourcePath, split: str, folders_by_split: Mapping[str, Sequence[str]]
) -> list[Assumption]:
    """Says why the images of a split get no labels.

    Nothing needs to be said of a split without folders, beside other splits.

    Args:
        root: the folder of the split.
        split: its name.
        folders_by_split: the folders in each split.
    """
    folders = folders_by_split[split]
    # The other splits that have folders of images and of labels, as training of KITTI.
    splits_with_labels = []
    for other, other_folders in folders_by_split.items():
        if other != split and _have_roles(other_folders):
            splits_with_labels.append(other)
    if len(folders) == 1 and is_called_image(folders[0]) and splits_with_labels:
        text = (
            f"labels: none, for the split {readable(split)} has images alone, in "
            f"{readable(folders[0])}; {first_paths(splits_with_labels)} has labels beside them"
        )
        return [Assumption(text)]
    if folders:
        # A split with several folders has labels, see `_is_unlabelled`.
        folder = folders[0]
        reason = "is not a class of the others"
        option = "--classes-from FILE"
        if is_called_images(folder):
            reason = "looks like a folder of images, not like a class"
            option = ""
        text = (
            f"labels: none, for the only folder of the split {readable(split)}, "
            f"{readable(folder)}, {reason}"
        )
        inside = names_in(root / folder, FEW).folders
        if len(inside) > 1:
            # GTSRB has its classes in Final_Training/Images.
            text += (
                f". If the folders in it ({first_paths(inside)}) are the classes, pass "
                f"{readable(str(root / folder))}"
            )
            return [Assumption(text)]
        return [Assumption(text, option)]
    if len(folders_by_split) == 1:
        text = f"labels: none, for {readable(split)} is a split and no class"
        return [Assumption(text, AS_CLASSES)]
    return []


def _assume_no_labels_beside_tables(
    top: SourcePath, root: SourcePath, split: str
) -> list[Assumption]:
    """The assumption that a split has no labels, though a table beside the splits may have them."""
    files = names_in(top).files
    tables = [name for name in files if format_of(name) in (*MANIFESTS, "parquet")]
    if all(is_result_form(name) for name in tables):
        return []  # a form for results has no labels
    beside = find_tables_beside(top, root, split, tables)
    if not beside.of_split:
        text = f"labels: none; {first_paths(beside.names)} beside the splits is called after another split"
        return [Assumption(text), *assume_forms_skipped(tables)]
    if not beside.candidates:
        text = f"labels: none; {first_paths(beside.of_split)} beside the splits has no image of {readable(split)}"
        return [Assumption(text), *assume_forms_skipped(tables)]
    table = beside.candidates[0]
    options = f"--image-root {readable(str(root))}"
    if isinstance(top, Path) and isinstance(root, Path):
        pictures = names_in(root, FEW).files
        options += describe_options_of_table(top / table, pictures, root)
        options += describe_options_of_labels(top / table, root)
    assumption = Assumption(
        f"labels: none, though {readable(table)} lies beside the splits; if it has the labels, "
        f"pass {readable(str(top / table))}",
        options,
    )
    return [assumption, *assume_forms_skipped(tables)]


def list_class_folders(
    folders: ClassFolders,
    columns: Sequence[FieldColumn] | None = None,
    *,
    are_classes: bool = False,
) -> Listing:
    """All images: with labels if there are class folders, else without.

    `columns` are the fields that files beside the images have.

    Raises:
        PackError: they are images and their masks, or there is a folder without an image, and the
            user does not say that the folders are classes (`are_classes`).
    """
    root = folders.root
    hidden_folders = set[str]()
    labelled_paths = in_class_folders(root, folders.folders, hidden_folders)
    other_paths = ((name, NO_LABEL) for name in folders.files)
    sources = list(sources_at(root, chain(labelled_paths, other_paths)))
    sidecars = None
    if columns:
        sidecars = take_sidecars(root, sources, columns)
    # A folder of pickles or arrays has no images, whatever the user says of its folders.
    refuse_unread_data(root, sources)
    if not are_classes:
        refuse_masks(root, sources)
    left_out = leave_out_sidecar_files(
        root, sources, folders.classes, are_classes=are_classes
    )
    leave_out_lists(sources, folders.files)
    classes = folders.classes
    assumed = [*folders.assumed, *left_out, *assume_hidden_left_out(hidden_folders)]
    if folders.class_of is not None:
        classes = label_by_path(
            sources, folders.class_of, folders.unfit, classes or None
        )
        assumed += numbers_as_texts(classes)
        if not folders.classes:
            assumed += find_empty_classes(sources, classes)
            assumed += _assume_all_splits(root, sources, classes)
    if not are_classes:
        assumed += assume_no_pairs(sources, classes)
    listing = Listing(root, classes, sources, folders.stray, assumed=tuple(assumed))
    if sidecars is None:
        return listing
    return list_with_sidecars(listing, sidecars)


def in_class_folders(
    root: SourcePath,
    folders: Iterable[tuple[int, str]],
    hidden_folders: set[str] | None = None,
) -> Iterator[tuple[str, int]]:
    """Path and label of each file in class folders, which are labels and names.

    `hidden_folders` gets the paths of the folders that are passed over, for a dot in their names.
    """
    for label, name in folders:
        for path in files_below(root, name, hidden_folders=hidden_folders):
            yield path, label


def assume_hidden_left_out(hidden_folders: Collection[str]) -> list[Assumption]:
    """Says how many folders in class folders were passed over, as their names begin with a dot."""
    if not hidden_folders:
        return []
    text = (
        f"folders whose names begin with a dot: {len(hidden_folders):,}, such as "
        f"{readable(min(hidden_folders))}; they are left out"
    )
    return [Assumption(text)]


def sources_at(root: SourcePath, paths: Iterable[tuple[str, int]]) -> Iterator[Source]:
    """The sources of files by path and label; those that cannot be read have a `problem`."""
    for path, label in paths:
        state = state_or_problem(root, path)
        if isinstance(state, str):
            yield Source(path, label, 0, 0, 0, problem=state)
        else:
            yield Source(path, label, state.size_bytes, state.mtime_ns, state.ctime_ns)
