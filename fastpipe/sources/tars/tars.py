"""The tars of a source -> a listing: a WebDataset, an image folder, or a packed dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import tee
from pathlib import Path

from fastpipe.arrays import Records
from fastpipe.dataset.format.description import read_self_checksum
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.layout import DATASET_FILE, NO_LABEL
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, first_names, readable
from fastpipe.sources.annotations.sidecar_files import assume_masks_in_tar
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.files import SourcePath, state_at
from fastpipe.sources.listing import (
    STORED,
    Assumption,
    ByteRange,
    Listing,
    Members,
    Source,
    SourceField,
    add_assumptions,
    replace_sources,
)
from fastpipe.sources.member_fields import (
    MOST_FIELDS,
    NOTE,
    chosen_member_fields,
    field_of_dataset,
    fields_of,
    place_in_list,
)
from fastpipe.sources.tables.likely import is_label_name
from fastpipe.sources.tars.numbered_members import check_numbered_labels
from fastpipe.sources.tars.tar_folders import TarFiles, list_folders, refuse_split
from fastpipe.sources.tars.tar_members import LABEL_EXTENSION, check_members, is_label
from fastpipe.sources.tars.tar_reader import TarFile
from fastpipe.sources.tars.tar_samples import (
    USUAL_COLUMNS,
    TarColumns,
    TarSamples,
    read_entries,
)
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.saved_columns import LABEL, read_saved

_MAX_SHOWN_CLASSES = 5
_MAX_SHOWN_EXTENSIONS = 10
# A synset of WordNet, as ImageNet's classes are called. Its digits are no number of a tar.
_SYNSET = re.compile("n[0-9]{8}")


def list_archives(
    root: SourcePath,
    tars: list[str],
    stray: Sequence[str] = (),
    requested: tuple[FieldColumn, ...] | None = None,
    split: str | None = None,
    columns: TarColumns = USUAL_COLUMNS,
) -> Listing:
    """Lists the content of the tars of a folder, in no order.

    If a member is a KEY.cls, they are a WebDataset with these labels; else, if members are in
    folders, an image folder; else a WebDataset without labels. With `columns`, they are a
    WebDataset.

    Args:
        root: the folder, or a tar itself.
        tars: paths of the tars in the folder; [""] where `root` is a tar.
        stray: files beside the tars.
        requested: the fields to take, by the extensions of members; None: all.
        split: one of an image folder.
    """
    stray = list(stray)
    if columns != USUAL_COLUMNS:
        refuse_split(root, split)
        has_labels = columns.label is None and _has_labels(root, tars)
        samples = TarSamples(has_labels, columns=columns)
        _add_tars(samples, root, tars)
        return _list_samples(root, tars, samples, stray, requested)

    # Only the members say whether the tars are an image folder or a WebDataset. A walk over tars of
    # many GB is slow, so one walk collects both.
    files = TarFiles()
    samples = TarSamples()
    for name in tars:
        with TarFile(root / name) as tar:
            members, same_members = tee(check_members(tar.members()))
            if not files.add_tar(tar, name, members):
                # The first KEY.cls shows that they are a WebDataset with labels. Samples before it
                # were collected without them, so all tars are walked again.
                refuse_split(root, split)
                samples = TarSamples(has_labels=True)
                _add_tars(samples, root, tars)
                return _list_samples(root, tars, samples, stray, requested)
            # With folders they are an image folder, and `samples` is not needed.
            if not files.folders:
                samples.add_tar(tar, name, same_members)

    listing = list_folders(
        root, [name or root.name for name in tars], files, stray, split
    )
    if listing is None:
        refuse_split(root, split)
        if files.folders:  # all of them are hidden
            samples = TarSamples()
            _add_tars(samples, root, tars)
        listing = _list_samples(root, tars, samples, stray, requested)
        return add_assumptions(listing, assume_masks_in_tar(files.sources))
    if requested is not None:
        raise PackError(
            f"--field: {readable(root)} holds folders of images, which have no fields; leave "
            "it out"
        )
    return listing


def list_tar_classes(
    root: SourcePath, tars: list[str], stray: Sequence[str] = ()
) -> Listing:
    """Lists the images in tars, in no order. Each tar is a class; cat-0 and cat-1 are one."""
    class_of_tar: dict[str, str] = {}
    for tar_name in tars:
        # 000.tar is named after no class, so it is a class of its own name.
        file_stem = tar_name.rpartition("/")[2].removesuffix(".tar")
        class_of_tar[tar_name] = _class_of_tar(tar_name) or file_stem
    classes = sorted(set(class_of_tar.values()))
    labels = {name: label for label, name in enumerate(classes)}

    files = TarFiles()
    for tar_name in tars:
        with TarFile(root / tar_name) as tar:
            if not files.add_tar(tar, tar_name, check_members(tar.members())):
                raise PackError(
                    f"{readable(root / tar_name)} has labels (KEY.cls), so its name is no "
                    "class; leave out --format"
                )

    def with_label(source: Source) -> Source:
        if source.problem is not None:
            return source
        name = class_of_tar[source.archive or ""]
        return source._replace(label=labels[name])

    replace_sources(files.sources, with_label)
    return Listing(root, classes, files.sources, list(stray))


def list_dataset(root: SourcePath, remote: RemoteOptions | None = None) -> Listing:
    """Lists the samples of a packed dataset, from its shards.

    DatasetError, PackError: it is not as it was packed.
    """
    if isinstance(root, Path):
        index = PackedIndex(root)
    else:
        # Most sources are on this machine.
        from fastpipe.store.remote.dataset import RemoteIndex

        remote_index = RemoteIndex(Url(root), remote or RemoteOptions())
        remote_index.fetch_sources()
        index = remote_index
    problem = _find_damage(root, index)
    if problem is not None:
        raise PackError(
            f"{root} is damaged: {problem}. Run fastpipe verify to find the damage, and repair it "
            "first"
        )

    samples = TarSamples(
        has_labels=True, class_count=len(index.classes), original_paths=set()
    )
    _add_tars(samples, root, [shard.name for shard in index.shards])
    samples.extension_counts.pop(NOTE, None)  # KEY.json is that of fastpipe
    for field in index.fields.values():
        if field.kind == "image":  # it is stored as a JPEG or a PNG
            samples.rename_extension(f"{field.name}.png", f"{field.name}.jpg")
    fields = tuple(field_of_dataset(field) for field in index.fields.values())
    listing = _listing_of(root, index.classes, samples, [], fields)
    _use_origins(listing.sources, index, index.sources())
    # Packing has turned the values of the fields together with the pictures.
    listing = replace(listing, coordinates=STORED)
    return add_assumptions(listing, _assume_saved_columns(root, index))


def _assume_saved_columns(root: SourcePath, index: PackedIndex) -> list[Assumption]:
    """Says that the columns that `save_columns` wrote beside a dataset are not packed."""
    saved = read_saved(index)
    if saved is None or not saved.files:
        return []
    names = ", ".join(saved.files)
    it = "it" if len(saved.files) == 1 else "them"
    verb = "is" if len(saved.files) == 1 else "are"
    old = repr(readable(root))
    if LABEL in saved.files:
        call = "with_labels(dict(zip(old['key'], old['label'])), classes=old.classes)"
    else:
        name = next(iter(saved.files))
        call = f"with_column({name!r}, dict(zip(old['key'], old[{name!r}])))"
    return [
        Assumption(
            f"{names}: save_columns wrote {it} beside {readable(root)}, which {verb} not packed: labels and "
            f"fields are those of the shards. To carry {it} over afterwards: old = fastpipe.open({old}); "
            f"new = fastpipe.open(DST); new.{call}.save_columns(DST)"
        )
    ]


def _find_damage(root: SourcePath, index: PackedIndex) -> str | None:
    """Describes what is wrong with the files of a packed dataset; None if nothing is."""
    checksums = read_self_checksum((root / DATASET_FILE).read_bytes())
    if checksums is not None and checksums[0] != checksums[1]:
        expected, actual = checksums
        return (
            f"{DATASET_FILE} has changed since it was written: expected hash {expected}, got "
            f"{actual}"
        )
    return index.damage(lambda name: state_at(root, name).size_bytes)


def _use_origins(sources: list[Source], index: PackedIndex, origins: Records) -> None:
    """Removes samples that the dataset no longer has, and gives the others their original sizes.

    `sources` and the rows of the index are in the order of the shards. `origins`: a row for each
    sample of the index.
    """
    shard_numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    # Shard, offset and original size of each sample of the index.
    rows = zip(
        index.records["shard"].tolist(),
        index.records["offset"].tolist(),
        origins["bytes"].tolist(),
        strict=True,
    )
    row = next(rows, None)

    def with_origin(source: Source) -> Source | None:
        nonlocal row
        position = (shard_numbers[source.archive or ""], source.offset_bytes)
        # Skips samples whose members are gone.
        while row is not None and row[:2] < position:
            row = next(rows, None)
        if source.problem is not None:
            return source
        if row is None or row[:2] != position:
            return None
        return source._replace(origin_bytes=row[2])

    replace_sources(sources, with_origin)


def _add_tars(samples: TarSamples, root: SourcePath, tars: Sequence[str]) -> None:
    for name in tars:
        with TarFile(root / name) as tar:
            samples.add_tar(tar, name, check_members(tar.members()))


def _has_labels(root: SourcePath, tars: Sequence[str]) -> bool:
    """Whether a member is a KEY.cls."""
    for name in tars:
        with TarFile(root / name) as tar:
            if any(is_label(member.name) for member in tar.members()):
                return True
    return False


def _list_samples(
    root: SourcePath,
    tars: Sequence[str],
    samples: TarSamples,
    stray: list[str],
    requested: tuple[FieldColumn, ...] | None,
) -> Listing:
    """The listing of a WebDataset."""
    if not samples.sources:
        _refuse_tars_without_image(root, samples)

    assumed: list[Assumption] = []
    fields: tuple[SourceField, ...] = ()
    extensions = samples.extension_counts
    if requested is not None:
        fields = chosen_member_fields(requested, extensions)
    else:
        fields = fields_of(extensions)
    if requested is None and len(fields) > MOST_FIELDS:
        fields = ()
        text = f"fields: none, because there are {len(extensions):,} different endings of members"
        assumed.append(Assumption(text, "--field NAME=ENDING"))

    # A user who names the fields has seen the endings of members.
    if requested is None and samples.columns == USUAL_COLUMNS:
        assumed += check_numbered_labels(root, samples, fields)

    # Samples without labels: the user sees what may be the labels.
    if samples.sources and not samples.class_names:
        assumed += _assume_no_classes(tars)
        if samples.columns.label is None:
            assumed += _assume_no_labels(root, samples)
    if samples.columns.label is not None:
        classes = samples.chosen_labels.settle(samples.sources)
        assumed += samples.chosen_labels.assumed(classes)
    else:
        classes = _join_classes(samples)
    listing = _listing_of(root, classes, samples, stray, fields)
    return replace(listing, assumed=tuple(assumed))


def _refuse_tars_without_image(root: SourcePath, samples: TarSamples) -> None:
    """Raises PackError, unless the tars are empty."""
    if "tar" in samples.dropped:
        raise PackError(
            f"{readable(root)} holds {samples.dropped['tar']:,} tars in its tars, which "
            "fastpipe does not read. Unpack it into a folder of tars and pack that: with --format "
            "imagefolder each tar there is a class"
        )
    if not samples.dropped:
        return
    option = ""
    for extension in samples.dropped:
        if is_picture(f"x.{extension}"):
            option = f"--image-column {extension} takes KEY.{extension} as the image of a sample. "
            break
    extensions = ", ".join(list(samples.dropped)[:_MAX_SHOWN_EXTENSIONS])
    raise PackError(
        f"{readable(root)} has no image in its tars: the endings of the members are "
        f"{extensions}. An ending begins at the first dot: photo.v1.jpg has v1.jpg, no image's. "
        f"{option}Or make the tar again without further dots in the names, or unpack it and pack "
        "the folder"
    )


def _assume_no_classes(tars: Sequence[str]) -> list[Assumption]:
    """Says that tars are named like classes, though their samples have no labels."""
    classes = list(dict.fromkeys(_class_of_tar(name) for name in tars))
    if len(classes) < 2:
        return []
    names = first_names([readable(name) for name in classes], _MAX_SHOWN_CLASSES)
    return [
        Assumption(
            f"labels: none, though the tars are called {names}, as if each were a class",
            "--format imagefolder",
        )
    ]


def _assume_no_labels(root: SourcePath, samples: TarSamples) -> Iterator[Assumption]:
    """Says that members, or entries of KEY.json, are named like labels, though they are fields."""
    for extension in samples.extension_counts:
        if _is_named_as_label(extension.removesuffix(".txt")):
            yield Assumption(
                f"labels: none, though the members .{extension} are called so",
                f"--label-column {extension}",
            )
            return

    # The entries of the first sample that has a KEY.json.
    for index, ranges in samples.field_ranges.items():
        if NOTE not in ranges:
            continue
        with TarFile(root / (samples.sources[index].archive or "")) as tar:
            entries = read_entries(tar, ranges[NOTE])
        for name, value in entries.items():
            if _is_named_as_label(name) and isinstance(value, (int, str)):
                yield Assumption(
                    f"labels: none, though the samples' .json have a key {readable(name)!r}",
                    f"--label-column {readable(name)}",
                )
                return
        return


def _is_named_as_label(name: str) -> bool:
    return is_label_name(name) or name.lower() == LABEL_EXTENSION


def _class_of_tar(path: str) -> str:
    """The class that a tar is named after: cat of cat.tar and of cat-000.tar; "" of 000.tar."""
    _, _, name = path.rpartition("/")
    stem = re.sub(r"\.tar$", "", name, flags=re.IGNORECASE)
    if _SYNSET.fullmatch(stem):
        return stem
    return re.sub(r"[-_.]?[0-9]+$", "", stem)


def _listing_of(
    root: SourcePath,
    classes: list[str],
    samples: TarSamples,
    stray: list[str],
    fields: tuple[SourceField, ...],
) -> Listing:
    """The samples, with those of their members that are fields; counts the others as dropped."""
    field_extensions = [field.column for field in fields]
    list_names = {_list_name(field) for field in fields if field.kind == "images"}
    for extension, count in samples.extension_counts.items():
        place = place_in_list(extension)
        is_of_list = place is not None and place.list_name in list_names
        if extension not in field_extensions and not is_of_list:
            samples.drop(extension, count)
    if fields:
        sources = samples.sources
        for index, source in enumerate(sources):
            if source.problem is not None:
                continue
            # There may be millions of samples, so each dict is freed as soon as it is read.
            ranges = samples.field_ranges.pop(index, {})
            parts = tuple(_members_of(field, ranges) for field in fields)
            sources[index] = source._replace(parts=parts)
    return Listing(root, classes, samples.sources, stray, samples.dropped, fields)


def _members_of(field: SourceField, ranges: Mapping[str, ByteRange]) -> Members:
    """The members of a sample that are a field's; `ranges` has all members by their extension."""
    if field.kind != "images":
        member = ranges.get(field.column)
        return () if member is None else (member,)
    list_name = _list_name(field)
    numbered = []
    for extension, member in ranges.items():
        place = place_in_list(extension)
        if place is not None and place.list_name == list_name:
            numbered.append((place.number, member))
    return tuple(member for _, member in sorted(numbered))


def _list_name(field: SourceField) -> str | None:
    """The name of the list that a field of lists of pictures has."""
    place = place_in_list(field.column)
    return None if place is None else place.list_name


def _join_classes(samples: TarSamples) -> list[str]:
    """The names of the classes of all tars.

    Labels stay as they are, unless a tar has another name or number for a class.
    """
    pairs = set[tuple[int, str]]()  # label and name
    for names in samples.class_names.values():
        pairs.update(names.items())
    name_of_label = dict(pairs)
    label_count = max(name_of_label, default=-1) + 1
    # A number without a name is a class that has no sample.
    classes = [name_of_label.get(label, str(label)) for label in range(label_count)]
    has_one_name = len(name_of_label) == len(pairs)
    if has_one_name and len(set(classes)) == len(classes):
        return classes

    # Two tars give one number to two classes, or two numbers to one. So a number means something
    # only in its tar, and the names decide.
    classes = sorted({name for _, name in pairs})
    new_labels = {name: label for label, name in enumerate(classes)}

    def with_new_label(source: Source) -> Source:
        if source.problem is not None or source.label == NO_LABEL:
            return source
        names = samples.class_names[source.archive or ""]
        name = names[source.label]
        return source._replace(label=new_labels[name])

    replace_sources(samples.sources, with_new_label)
    return classes
