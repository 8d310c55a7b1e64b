"""The content of a destination -> whether a pack begins, continues, is done, or is refused."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from fastpipe.dataset.format.description import (
    NewerFormatError,
    parse_info,
    read_self_checksum,
)
from fastpipe.dataset.format.folder import Place, Url, is_damaged_url, scheme_of
from fastpipe.dataset.format.layout import DATASET_FILE, DATASET_FORMAT, INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import (
    ConfigError,
    DatasetError,
    PackError,
    format_count,
    readable,
)
from fastpipe.machine.environment import count_ranks
from fastpipe.packing.job.changed_sources import compare_with_packed
from fastpipe.packing.job.other_options import (
    describe_other_options,
    describe_other_state,
)
from fastpipe.packing.job.removal import removal_of_missing
from fastpipe.packing.job.repack import Repack
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import BY_RULE, PackOptions
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.store.files import write_error
from fastpipe.store.other_ranks import describe_folder_of_each_rank
from fastpipe.store.remote.options import place_of
from fastpipe.store.store import check_writable, open_store


def destination_of(dst: str | os.PathLike[str]) -> Place:
    """DST as a path or a URL. ConfigError: a URL that nobody can write to."""
    if isinstance(dst, Path) and is_damaged_url(dst):
        raise ConfigError(
            f"DST {dst}: pathlib.Path damages URLs: pass the URL as a string"
        )
    if isinstance(dst, str) and scheme_of(dst) not in ("", "file"):
        check_writable(Url(dst))
    place = place_of(dst)
    return (
        place if isinstance(place, Url) else Path(cast("str | os.PathLike[str]", place))
    )


@contextlib.contextmanager
def open_journal(
    destination: Place,
    options: PackOptions,
    *,
    shared_spool: bool = False,
    is_growing: bool = False,
) -> Iterator[Journal]:
    """The journal of a pack into a folder or a URL, locked. PackError: the destination holds
    something else.

    With `shared_spool`, --spool is for the tasks of a cluster; else it is where the files of a
    bucket are made. With `is_growing` the destination should hold a dataset.
    """
    spool = None if shared_spool else options.spool
    if isinstance(spool, Url) or (spool is not None and isinstance(destination, Path)):
        raise ConfigError(
            "expected a folder of this machine, for a DST that is a URL: shards are made there, and "
            "in DST itself where that is a folder. Only on a cluster the spool can be a URL; got "
            f"{spool}",
            option="spool",
        )
    if (
        isinstance(destination, Path)
        and destination.exists()
        and not destination.is_dir()
    ):
        raise PackError(f"{destination} is a file; expected a folder to pack into")

    journal = Journal(open_store(destination, options.source.remote, spool))
    with disk_errors(destination):
        info = journal.description() or {}
        if info.get("format") != DATASET_FORMAT and journal.plan() is None:
            other_file = journal.store.find_other_file()
            if other_file is not None:
                advice = "Choose a new or empty folder"
                if is_growing:
                    advice = (
                        "Pass the dataset that is to grow or shrink, or pack one first: fastpipe pack "
                        "SRC DST"
                    )
                raise PackError(
                    f"{destination} is not empty and holds no packed dataset: it has other files, "
                    f"such as {other_file}. {advice}"
                )
        # Only the program with the lock may close the store, for that removes unfinished files.
        with journal:
            yield journal


@contextlib.contextmanager
def disk_errors(place: Place) -> Iterator[None]:
    """Turns an OSError into a PackError that names the file, or else `place`."""
    try:
        yield
    except OSError as problem:
        name = str(problem.filename2 or problem.filename or place)
        raise write_error(name, problem, "use") from problem


def check_apart(
    source: SourcePath, destination: Place, spool: Place | None = None
) -> None:
    """Raises ConfigError if DST or the spool is in SRC, or SRC is in DST."""
    if spool is not None and _contains(source, spool):
        raise ConfigError(
            f"{spool} is in SRC {source}, where its files would be packed; choose another folder",
            option="spool",
        )
    if _contains(source, destination) or _contains(destination, source):
        raise ConfigError(
            f"SRC {source} must not contain DST {destination}, nor DST contain SRC; choose another "
            "DST, beside SRC"
        )


def _contains(outer: SourcePath | Place, inner: SourcePath | Place) -> bool:
    if isinstance(outer, Path) and isinstance(inner, Path):
        # A link may lead from one folder into the other.
        return inner.resolve().is_relative_to(outer.resolve())
    return f"{inner}/".startswith(f"{outer}/")


def begin_pack(
    journal: Journal, facts: Facts, options: PackOptions, listing: Listing | None = None
) -> dict[str, Any] | None:
    """Writes the plan of a pack; if its dataset is there already, returns the content of
    dataset.json instead.

    With `overwrite` another dataset stays until there is a new shard. Without a listing, images are
    not compared, and a source with a newer time counts as changed. PackError: the destination holds
    another dataset or pack.
    """
    shaping = options.shaping(facts.kinds, facts.coordinates)
    if facts.made_by:
        # The labels of a program are positions among them.
        shaping["classes"] = facts.classes

    info = journal.description()
    if info is not None:
        if not options.overwrite:
            _refuse_newer_format(journal)
        damage = _damage(journal, info)
        difference = None
        if damage is None:
            difference = _difference(info, facts, shaping)
        is_same_pack = damage is None and difference is None
        is_done = False
        if is_same_pack and _has_content(info, facts):
            is_done = _is_unchanged(journal, info, facts, options, listing)
        if is_done:
            _check_rejected(journal, info, options)
            # A pack that was killed at its very end leaves its work folder behind.
            journal.clear()
            return info
        if not options.overwrite:
            place = journal.store.place
            if is_same_pack:
                raise _changed_sources_error(place, listing)
            raise _other_dataset_error(place, facts, damage, difference)

    plan = {
        "source": facts.root,
        "listing": facts.state,
        "options": shaping,
        "made_with": made_with(),
    }
    unfinished = journal.plan()
    if unfinished is not None and info is None and not options.overwrite:
        _check_same_pack(journal, unfinished, plan)
    if facts.made_by:
        journal.begin_writer(plan, overwrite=options.overwrite)
    else:
        journal.begin(plan)
    return None


def _refuse_newer_format(journal: Journal) -> None:
    """Refuses a dataset that a newer fastpipe has packed: it is not damaged.

    A dataset.json that its own hash does not fit is damaged, whatever format version it has.
    """
    data = journal.store.read(DATASET_FILE)
    hashes = read_self_checksum(data)
    if hashes is None or hashes[0] != hashes[1]:
        return
    try:
        parse_info(data, f"{journal.store.place}/{DATASET_FILE}")
    except NewerFormatError as problem:
        raise PackError(f"{problem}, or choose another folder as DST") from problem
    except DatasetError:
        return  # damaged, and reported as such


def _changed_sources_error(place: Place, listing: Listing | None) -> PackError:
    """The error for a dataset that was packed of the same source, before that changed."""
    changes = None
    removal = ""
    if listing is not None and isinstance(place, Path):
        # Whatever is wrong with the dataset, the error is about the source.
        with contextlib.suppress(DatasetError, OSError):
            index = PackedIndex(place)
            changes = compare_with_packed(index, listing)
            if changes.is_deletion:
                removal = removal_of_missing(index, changes.gone_rows, listing.root)
    what = ""
    if changes is not None and changes.describe():
        what = f": {changes.describe()}"
    text = f"{place} is packed already, and the source files have changed since, or are others{what}"
    shown = readable(str(place))
    other_root = ""
    if changes is not None:
        other_root = changes.find_other_root()
    if changes is not None and other_root:
        old_path, new_path = changes.moved[0]
        return PackError(
            f"{place} is packed already, from the same images with other paths, such as {new_path}, "
            f"which was {old_path}. They differ by {other_root} in front, so SRC or --image-root "
            "(image_root=) is another one than before, or all files were moved. To pack all of them again "
            "with the new paths, pass --overwrite (overwrite=True), or choose another folder"
        )
    if changes is not None and changes.is_move:
        return PackError(
            f"{text}. Files were moved or renamed, so pack all of them again: pass --overwrite "
            f"(overwrite=True), or choose another folder. fastpipe add SRC {shown} would add them, and "
            "keep the samples with the old paths"
        )
    if changes is not None and removal:
        samples = "its sample" if changes.num_gone == 1 else "their samples"
        return PackError(
            f"{text}. To remove {samples}: {removal}. To pack the files that are left again, pass "
            "--overwrite (overwrite=True), or choose another folder"
        )
    return PackError(
        f"{text}. To add the new images: fastpipe add SRC {shown}. To pack all of them again, pass "
        "--overwrite (overwrite=True), or choose another folder"
    )


def _other_dataset_error(
    place: Place, facts: Facts, damage: str | None, difference: str | None
) -> PackError:
    """The error for a dataset that is damaged, or that another pack or program has made."""
    if damage is not None:
        return PackError(
            f"{place} holds a damaged dataset: {damage}. Choose another folder, or pass --overwrite "
            "(overwrite=True) to replace it"
        )
    if facts.made_by and count_ranks() > 1:
        return PackError(
            f"{place} holds a finished dataset, and a {facts.made_by} writes only new ones. This "
            f"program has {count_ranks()} ranks: if another rank has written it, "
            f"{describe_folder_of_each_rank(place)}. If an earlier run has written it, choose another "
            "folder, or remove it; overwrite=True replaces it, also with the samples of one rank alone"
        )
    if facts.made_by:
        return PackError(
            f"{place} holds a finished dataset, and a {facts.made_by} writes only new ones. To write "
            "it anew, with what has changed since, pass overwrite=True; or choose another folder"
        )
    return PackError(
        f"{place} holds a different dataset: {difference}. Choose another folder, or pass "
        "--overwrite (overwrite=True) to replace it"
    )


def _check_rejected(
    journal: Journal, info: dict[str, Any], options: PackOptions
) -> None:
    """Refuses a dataset without some of the files, if the user wants all or none."""
    rejected = info["counts"]["rejected"]
    if options.fail_fast and rejected:
        raise PackError(
            f"{journal.store.place} is packed without {format_count(rejected, 'file')}: see "
            "rejected.jsonl there. Repair or remove them in the source and pack with --overwrite, "
            "or pack without --on-error fail"
        )


def _check_same_pack(
    journal: Journal, unfinished: dict[str, Any], plan: dict[str, Any]
) -> None:
    """Refuses to continue a pack with other options, or with other sources in another place."""
    differing = set()
    for name, value in plan.items():
        if unfinished.get(name) != value:
            differing.add(name)
    # The same files may have moved; or files of the same folder may have been added, removed or
    # changed. Both at once is another source.
    if differing in (set(), {"source"}, {"listing"}):
        return
    changes = describe_other_options(
        unfinished.get("options"), plan["options"], "begun"
    )
    if not changes:
        changes = describe_other_state(unfinished, plan)
    raise PackError(
        f"{journal.store.place} holds an unfinished pack with other sources or options: "
        f"{changes}. Run the earlier command again to finish it, choose another folder, or pass "
        "--overwrite to start from the beginning"
    )


def _damage(journal: Journal, info: dict[str, Any]) -> str | None:
    """What is missing of a dataset, as far as the names and sizes of files tell; None: nothing."""
    place = journal.store.place
    try:
        if isinstance(place, Path):
            index = PackedIndex(place)
            return index.damage(lambda name: (place / name).stat().st_size)
        sizes = journal.store.sizes()
        for shard in info["shards"]:
            size_bytes = sizes.get(shard["name"], 0)
            if size_bytes != shard["size_bytes"]:
                expected_bytes = shard["size_bytes"]
                return f"{shard['name']} has {size_bytes:,} bytes, expected {expected_bytes:,}"
        return None if INDEX_FILE in sizes else f"{INDEX_FILE} is missing"
    except (DatasetError, KeyError, TypeError) as broken:
        return str(broken)


def _difference(
    info: dict[str, Any], facts: Facts, shaping: dict[str, Any]
) -> str | None:
    """How the options of a dataset differ from those of a pack; None: they are the same."""
    if info.get("version") != 1:
        return (
            f"it has been changed since it was packed, and has version {info.get('version')}: see "
            "fastpipe log"
        )
    if facts.made_by:
        return f"{facts.made_by} writes only new ones"

    first_pack = _first_pack(info)
    made_by = first_pack.get("source", {}).get("made_by")
    if made_by:
        return f"it was written by {made_by}"
    options = first_pack.get("options", {})
    num_turned = info.get("counts", {}).get("exif_oriented", 0)
    if BY_RULE not in options and num_turned == 0:
        # No image is turned, so that boxes of the image as shown and as stored are the same.
        shaping = dict(shaping)
        shaping.pop(BY_RULE, None)
    if options == shaping:
        return None
    return describe_other_options(options, shaping)


def _has_content(info: dict[str, Any], facts: Facts) -> bool:
    """Whether a dataset is packed from sources of these paths and sizes."""
    content = _first_pack(info).get("source", {}).get("xxh3_128")
    return bool(content == facts.content)


def _first_pack(info: dict[str, Any]) -> dict[str, Any]:
    """What dataset.json says of its first pack.

    The file may be of any program, so that nothing is taken for granted.
    """
    packs = info.get("packs")
    pack = None
    if isinstance(packs, list) and packs:
        pack = packs[0]
    return pack if isinstance(pack, dict) else {}


def _is_unchanged(
    journal: Journal,
    info: dict[str, Any],
    facts: Facts,
    options: PackOptions,
    listing: Listing | None,
) -> bool:
    """Whether sources that have the paths and sizes of a dataset's sources also have their content.

    A copy, a hard link or other permissions give a file a new time. So the shards of files with
    newer times are made again, and compared.
    """
    if not isinstance(journal.store.place, Path):
        # The times of a bucket are those of another machine's clock.
        return journal.store.note(DATASET_FILE) == facts.state
    file = journal.store.place / DATASET_FILE
    packed_ns = file.stat().st_mtime_ns
    if facts.changed_ns <= packed_ns:
        return True
    if listing is None:
        return False

    # Only shards with a source that is newer than the dataset are made again, in the work folder.
    hashes = {shard["name"]: shard["xxh3_64"] for shard in info["shards"]}
    repack = Repack(info, info["packs"][0], listing, options)
    for shard_slice, names in repack.slices(hashes):
        sources = listing.sources[shard_slice.start : shard_slice.stop]
        if all(source.ctime_ns <= packed_ns for source in sources):
            continue
        expected = {name: hashes[name] for name in names}
        with repack.remade(shard_slice, journal.store.scratch) as (_, tars):
            actual = {name: tar.xxh3_64 for name, tar in tars.items()}
            if actual != expected:
                return False
    # The next pack need not compare them again.
    os.utime(file, ns=(facts.time_ns, facts.time_ns))
    return True
