"""The tar files of a source -> their samples and classes: of a WebDataset, an image folder, or a packed dataset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.description import read_self_checksum
from fastpipe.format.folder import Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, NO_LABEL
from fastpipe.packing.source.field_names import MOST_FIELDS, NOTE, field_of_dataset, fields_asked, fields_of
from fastpipe.packing.source.files import SourcePath, state_at
from fastpipe.packing.source.listing import Listing, Source, SourceField
from fastpipe.packing.source.options import FieldColumn
from fastpipe.packing.source.tar_reader import TarFile
from fastpipe.packing.source.tar_samples import Gathered

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


def list_archives(
    root: SourcePath, tars: list[str], stray: Sequence[str] = (), asked: tuple[FieldColumn, ...] | None = None
) -> Listing:
    """Lists what is in the tar files of a folder, in no order; of a tar itself with [""] as the name.

    If a member of any is a KEY.cls, they are a WebDataset, and the numbers in these are the labels; the classes are
    called after them. Else, if members are in folders, they hold an image folder, and the classes are its folders.
    Else they are a WebDataset without labels. The columns of `asked`, the fields to take, are endings of members; None:
    all. PackError: a tar is damaged or none, or no member has an ending that was asked for.
    """
    files, samples, others = Gathered(), Gathered(), list(stray)
    for name in tars:
        with TarFile(root / name) as tar:
            members, again = tee(tar.members())
            if not files.take_files(tar, name, members):
                return _web_dataset(root, _gathered(root, tars, Gathered(labelled=True)), others, asked)
            if not files.folders:  # else they are an image folder
                samples.take_samples(tar, name, again)
    listing = _image_folder(root, [name or root.name for name in tars], files, others)
    if listing is None:
        return _web_dataset(root, _gathered(root, tars, Gathered()) if files.folders else samples, others, asked)
    if asked is not None:
        raise PackError(f"--field: {readable(str(root))} holds folders of images, which have no fields; leave it out")
    return listing


def list_dataset(root: SourcePath, remote: RemoteOptions | None = None) -> Listing:
    """Lists the samples of a packed dataset, from its shards. DatasetError, PackError: it is not as packed."""
    if isinstance(root, Path):
        index = Index(root)
    else:
        from fastpipe.remote.dataset import RemoteIndex  # most sources are on this machine
        from fastpipe.remote.options import RemoteOptions

        index = behind = RemoteIndex(Url(root), remote or RemoteOptions())
        behind.fetch_sources()
    checksum = read_self_checksum((root / DATASET_FILE).read_bytes())
    problem = index.damage(lambda name: state_at(root, name).size_bytes)
    if checksum is not None and checksum[0] != checksum[1]:
        problem = f"{DATASET_FILE} has changed since it was written: expected hash {checksum[0]}, got {checksum[1]}"
    if problem is not None:
        raise PackError(f"{root} is damaged: {problem}. Run fastpipe verify to find the damage, and repair it first")
    names = [shard.name for shard in index.shards]
    gathered = Gathered(len(index.classes), labelled=True, with_fields=bool(index.fields), origins=set())
    _gathered(root, names, gathered)
    del gathered.endings[NOTE]  # the notes of samples are ours
    listing = _listing(root, index.classes, gathered, [], tuple(map(field_of_dataset, index.fields.values())))
    _take_origins(listing.sources, index, index.sources())
    return listing


def _take_origins(sources: list[Source], index: Index, known: NDArray[np.void]) -> None:
    """Leaves out samples that were removed from a dataset, and gives the others the sizes of their own sources.

    `sources` are in the order of the shards, as the index is.
    """
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    columns = (index.records["shard"], index.records["offset"], known["bytes"])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    row, kept = next(rows, None), 0
    for source in sources:
        place = numbers[source.archive or ""], source.offset_bytes
        while row is not None and row[:2] < place:
            row = next(rows, None)
        if source.problem is None:
            if row is None or row[:2] != place:
                continue
            source = source._replace(origin_bytes=row[2])
        sources[kept] = source
        kept += 1
    del sources[kept:]


def _gathered(root: SourcePath, tars: list[str], into: Gathered) -> Gathered:
    """The same, with the samples in tars."""
    for name in tars:
        with TarFile(root / name) as tar:
            into.take_samples(tar, name, tar.members())
    return into


def _web_dataset(
    root: SourcePath, gathered: Gathered, stray: list[str], asked: tuple[FieldColumn, ...] | None
) -> Listing:
    endings = gathered.endings
    if not gathered.sources and gathered.dropped:
        raise PackError(
            f"{readable(str(root))} has no image in its tars: the endings of the members are "
            f"{', '.join([*gathered.dropped][:10])}. An ending begins at the first dot of a name, as v1.jpg of "
            "photo.v1.jpg, which is no image's: make the tar again without further dots in the names, or unpack it and "
            "pack the folder"
        )
    if asked is not None:
        fields = fields_asked(asked, endings)
    else:
        fields = fields_of(endings) if len(endings) <= MOST_FIELDS else ()
    return _listing(root, _named_classes(gathered), gathered, stray, fields)


def _listing(
    root: SourcePath, classes: list[str], gathered: Gathered, stray: list[str], fields: tuple[SourceField, ...]
) -> Listing:
    """The samples with those of their members that are fields."""
    columns = {field.column for field in fields}
    for ending, members in gathered.endings.items():
        if ending not in columns:
            gathered.drop(ending, members)
    sources = gathered.sources
    for at, source in enumerate(sources if fields else ()):  # in place: there may be millions
        if source.problem is None:
            places = gathered.members.pop(at, {})
            sources[at] = source._replace(parts=tuple(places.get(field.column) for field in fields))
    return Listing(root, classes, sources, stray, gathered.dropped, fields)


def _named_classes(gathered: Gathered) -> list[str]:
    """The names of the classes. Labels stay what they are, unless a tar has another name or number for a class."""
    pairs = {pair for names in gathered.names.values() for pair in names.items()}
    found = dict(pairs)
    classes = [found.get(label, str(label)) for label in range(max(found, default=-1) + 1)]
    if len(found) == len(pairs) and len(set(classes)) == len(classes):
        return classes
    classes = sorted({name for _, name in pairs})
    numbers = {name: number for number, name in enumerate(classes)}
    for at, source in enumerate(gathered.sources):
        if source.problem is None and source.label != NO_LABEL:
            name = gathered.names[source.archive or ""][source.label]
            gathered.sources[at] = source._replace(label=numbers[name])
    return classes


def _image_folder(root: SourcePath, tars: list[str], gathered: Gathered, stray: list[str]) -> Listing | None:
    """As if the tars had been unpacked; see Note [a tar of a folder]. None: there are no folders."""
    folders = {folder for folder in gathered.folders if not folder[0].startswith(".")}
    tops = {folder[0] for folder in folders}
    depth = int(len(tops) == 1 and any(len(folder) == 2 for folder in folders) and _called(min(tops), tars))
    classes = sorted({folder[depth] for folder in folders if len(folder) > depth and folder[depth][0] != "."})
    if not classes:
        return None
    labels = {name: label for label, name in enumerate(classes)}
    sources = gathered.sources
    kept = 0
    for source in sources:  # in place: there may be millions
        if source.problem is None:
            prefix = f"{source.archive}/" if source.archive else ""
            parts = source.path[len(prefix) :].split("/")[depth:]
            if len(parts) < 2 or parts[0] not in labels:
                stray.append(source.path)
                continue
            source = source._replace(path=prefix + "/".join(parts), label=labels[parts[0]])
        sources[kept] = source
        kept += 1
    del sources[kept:]
    return Listing(root, classes, sources, stray)


def _called(folder: str, tars: list[str]) -> bool:
    """Whether the tars are called after the folder that all their members are in.

    Note [a tar of a folder]
    `tar cf photos.tar photos` puts the folder photos around the class folders, so photos is no class. Its members alone
    do not tell: those of the folder photos in a class-folder layout, with images one level deeper, are the same. The
    tar's name does. photos.tar, photos-000.tar and photos_1.tar are called after photos.
    """
    return all(re.fullmatch(re.escape(folder) + r"([-_.]?\d+)?\.tar", Path(tar).name, re.IGNORECASE) for tar in tars)
