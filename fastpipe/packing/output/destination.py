"""The content of the destination folder -> whether a pack starts, continues, has nothing to do, or must stop."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from fastpipe.errors import ConfigError, DatasetError, PackError
from fastpipe.format.description import is_dataset
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER
from fastpipe.packing.output.journal import Journal
from fastpipe.packing.picture.versions import versions
from fastpipe.packing.source.files import SourcePath
from fastpipe.remote.urls import place_of

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions

_ADDRESS = re.compile(r"[a-z][a-z0-9]+:/")


def destination_of(dst: str | os.PathLike[str]) -> Place:
    """DST as a path or a URL.

    Raises:
        ConfigError: a URL that cannot be written to.
    """
    if isinstance(dst, str) and "://" in dst and not dst.lower().startswith("file://"):
        from fastpipe.packing.output.bucket import check_writable  # most packs write into folders

        check_writable(Url(dst))
    found = place_of(dst)
    if isinstance(found, Url):
        return found
    folder = Path(cast("str | os.PathLike[str]", found))
    if isinstance(dst, Path) and _ADDRESS.match(str(folder)):
        raise ConfigError(f"DST {folder}: pathlib.Path damages URLs: pass the URL as a string")
    return folder


def open_journal(destination: Place, spool: Place | None, remote: RemoteOptions | None) -> Journal:
    """The work of a pack into a folder or a URL, locked.

    Args:
        destination: of the dataset.
        spool: for a URL: the folder in which shards are made; None: the default.
        remote: for a URL: credentials and timeouts; None: the defaults.

    Raises:
        ConfigError: a URL that cannot be written to, or a spool where none is needed.
        PackError: another pack writes there, or there is something else.
    """
    if isinstance(destination, Path):
        if spool is not None:
            raise ConfigError(
                f"--spool: shards are made in DST itself where that is a folder ({destination}); leave it out"
            )
        check_ours(destination)
        return Journal(destination)
    if isinstance(spool, Url):
        raise ConfigError(
            f"--spool {spool}: expected a folder of this machine, because shards are made there; a URL can be the "
            "spool of a pack on a cluster"
        )
    from fastpipe.packing.output.bucket import BucketJournal  # most packs need no obstore
    from fastpipe.remote.options import RemoteOptions

    return BucketJournal(destination, spool, remote or RemoteOptions())


def check_apart(source: SourcePath, destination: Place, spool: Place | None = None) -> None:
    """Refuses a destination in the source: the next pack would take it for a class; and the other way round.

    A spool in the source would be taken for a class, too. It may contain the source: it uses a folder of its own.
    """
    if spool is not None and _contains(source, spool):
        raise ConfigError(
            f"--spool {spool}: it is in SRC {source}, where its files would be packed; choose another folder"
        )
    if not isinstance(source, Path) or not isinstance(destination, Path):
        inner_url, outer_url = f"{destination}/", f"{source}/"
        if inner_url.startswith(outer_url) or outer_url.startswith(inner_url):
            raise ConfigError(
                f"SRC {source} must not contain DST {destination}, nor DST contain SRC; choose another DST"
            )
        return
    inner, outer = destination.resolve(), source.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise ConfigError(
            f"SRC {source} must not contain DST {destination}, nor DST contain SRC; choose another DST, for example "
            f"{outer.with_name(outer.name + '-packed')}"
        )


def _contains(source: SourcePath, folder: Place) -> bool:
    if isinstance(source, Path) and isinstance(folder, Path):
        return folder.resolve().is_relative_to(source.resolve())
    return f"{folder}/".startswith(f"{source}/")


def check_ours(destination: Path) -> None:
    """Refuses folders that hold something else: packing never touches files that are not its own."""
    if not destination.exists():
        return
    if not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a folder to pack into")
    ours = is_dataset(destination / DATASET_FILE) or (destination / WORK_FOLDER / "plan.json").exists()
    if not ours and any(entry.name != WORK_FOLDER for entry in destination.iterdir()):
        raise PackError(f"{destination} is not empty and holds no packed dataset; choose a new or empty folder")


class Listed(Protocol):
    """What a plan has of its sources: see Listing."""

    @property
    def kinds(self) -> dict[str, str]: ...
    def resolved_root(self) -> str: ...
    def digest(self) -> str: ...
    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str: ...


def plan_run(
    journal: Journal,
    listing: Listed,
    shaping: dict[str, Any],
    *,
    overwrite: bool,
    fail_fast: bool,
    unchanged: Callable[[Index], bool],
) -> Index | None:
    """Decides what there is to do, and writes down the plan if there is something.

    Args:
        journal: of the destination, locked.
        listing: of the source.
        shaping: the options that decide the dataset's bytes.
        overwrite: another dataset, or a damaged one, may be replaced. It stays until the first new shard is there.
        fail_fast: rejected files are not acceptable.
        unchanged: whether the sources of a dataset, which have the same paths and sizes, have the same content.

    Returns:
        The dataset, if it is there, whole, and what this pack would make; None where there is something to do.

    Raises:
        PackError: the destination holds something else.
    """
    destination = journal.shown
    replaces = (journal.destination / DATASET_FILE).exists()
    if replaces:
        problem = None
        try:
            index = Index(journal.destination, shown_as=destination)
            problem = journal.damage(index) or _difference(index, listing, shaping, unchanged)
        except DatasetError as broken:
            problem = str(broken)
        if problem is None:
            _check_rejected(index, fail_fast=fail_fast)
            return index
        if not overwrite:
            raise PackError(
                f"{destination} holds a different dataset, or a damaged dataset: {problem}. Choose another folder, or "
                "pass --overwrite to replace it"
            )
    plan = {
        "source": listing.resolved_root(),
        "listing": listing.digest_with_times(),
        "options": shaping,
        "made_with": versions(masks="mask" in listing.kinds.values()),
    }
    unfinished = journal.read_plan()
    if unfinished is None or replaces:  # what a pack has left beside a finished dataset is of that, and goes with it
        journal.begin(plan)
        return None
    differs = {name for name in plan if unfinished.get(name) != plan[name]}
    if differs <= {"source"}:  # the same files, perhaps in another place
        return None
    if differs == {"listing"}:  # files of the same folder have come, gone or changed
        journal.begin(plan, keep=_as_they_were(journal, listing))
        return None
    if not overwrite:
        raise PackError(
            f"{destination} holds an unfinished pack with other sources or options ({_changed(unfinished, plan)}). "
            "Run the earlier command again to finish it, choose another folder, or pass --overwrite to start from "
            "the beginning"
        )
    journal.begin(plan)
    return None


def plan_writing(journal: Journal, made_by: str, shaping: dict[str, Any], *, overwrite: bool) -> None:
    """The same for samples that a program adds one by one; they are known only when they come.

    So an unfinished dataset is continued only without `overwrite`: nothing else could tell to begin anew.

    Args:
        journal: of the destination, locked.
        made_by: the program's kind.
        shaping: the options that decide the dataset's bytes.
        overwrite: a dataset, or an unfinished one, is replaced.

    Raises:
        PackError: the destination holds a dataset, or another unfinished one.
    """
    destination = journal.shown
    replaces = (journal.destination / DATASET_FILE).exists()
    if replaces and not overwrite:
        raise PackError(
            f"{destination} holds a dataset; choose another folder, or pass overwrite=True to replace the dataset"
        )
    masks = "mask" in shaping.get("fields", {}).values()
    plan = {"source": made_by, "listing": "", "options": shaping, "made_with": versions(masks=masks)}
    unfinished = journal.read_plan()
    if unfinished not in (None, plan) and not overwrite:
        raise PackError(
            f"{destination} holds an unfinished pack with other sources, fields or options "
            f"({_words(unfinished.get('options'), shaping)}). Finish it as it was begun, choose another folder, or "
            "pass overwrite=True to start from the beginning"
        )
    finished = journal.finished()
    keep = sum(1 for _ in itertools.takewhile(lambda shard: shard.sources, finished))
    anew = overwrite or unfinished != plan  # a finished dataset is there only with overwrite
    if anew or keep < len(finished):
        journal.begin(plan, keep=0 if anew else keep)


def _as_they_were(journal: Journal, listing: Listed) -> int:
    """How many of the finished shards an undisturbed pack would make of these sources, too."""
    kept = start = 0
    for shard in journal.finished():
        if listing.digest_with_times(start, shard.next_source + 1) != shard.sources:
            break
        kept, start = kept + 1, shard.next_source
    return kept


def _changed(unfinished: dict[str, Any], plan: dict[str, Any]) -> str:
    for name, words in (("made_with", "made with"), ("source", "packed from")):
        if unfinished.get(name) != plan[name] and unfinished.get("options") == plan["options"]:
            return f"{words} {unfinished.get(name)} there, {plan[name]} now"
    return _words(unfinished.get("options"), plan["options"])


def _difference(
    index: Index, listing: Listed, shaping: dict[str, Any], unchanged: Callable[[Index], bool]
) -> str | None:
    source = index.info.get("source")
    same_source = isinstance(source, dict) and source.get("xxh3_128") == listing.digest()
    packed = index.info.get("pack")
    if packed == shaping and same_source and unchanged(index):
        return None
    return _words(packed, shaping)


def _words(there: object, shaping: dict[str, Any]) -> str:
    old = there if isinstance(there, dict) else {}
    changed = [f"{name} {old.get(name)!r} there, {new!r} now" for name, new in shaping.items() if old.get(name) != new]
    return "; ".join(changed) or "the source files have changed"


def _check_rejected(index: Index, *, fail_fast: bool) -> None:
    rejected = index.counts["rejected"]
    if fail_fast and rejected:
        raise PackError(
            f"{index.path} is packed, but {rejected:,} files were rejected: see rejected.jsonl there. Repair or "
            "remove them in the source and pack with --overwrite, or pack without --on-error fail"
        )
