"""The content of a destination -> whether a pack starts, continues, has nothing to do, or must stop."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from fastpipe.errors import ConfigError, DatasetError, PackError
from fastpipe.format.description import damage
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, DATASET_FORMAT, INDEX_FILE
from fastpipe.packing.shard.journal import Journal, made_with
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath
from fastpipe.remote.urls import place_of
from fastpipe.store.files import cannot_write
from fastpipe.store.opening import open_store

_ADDRESS = re.compile(r"[a-z][a-z0-9]+:/")


def destination_of(dst: str | os.PathLike[str]) -> Place:
    """DST as a path or a URL.

    Raises:
        ConfigError: a URL that cannot be written to.
    """
    if isinstance(dst, str) and "://" in dst and not dst.lower().startswith("file://"):
        from fastpipe.store.bucket import check_writable  # most packs write into folders

        check_writable(Url(dst))
    found = place_of(dst)
    if isinstance(found, Url):
        return found
    folder = Path(cast("str | os.PathLike[str]", found))
    if isinstance(dst, Path) and _ADDRESS.match(str(folder)):
        raise ConfigError(f"DST {folder}: pathlib.Path damages URLs: pass the URL as a string")
    return folder


@contextlib.contextmanager
def opened(destination: Place, options: PackOptions, *, shared_spool: bool = False) -> Iterator[Journal]:
    """The work of a pack into a folder or a URL, locked. Errors of the disk are named.

    Args:
        destination: of the dataset.
        options: of the pack; its `spool` is the folder in which files of a bucket are made.
        shared_spool: `spool` is something else.

    Raises:
        ConfigError: a URL that cannot be written to, or a spool where none is needed.
        PackError: another pack writes there, or there is something else.
    """
    check_ours(destination, options, shared_spool=shared_spool)
    spool = options.spool if isinstance(options.spool, Path) and not shared_spool else None
    with disk_errors(destination), Journal(open_store(destination, options.source.remote, spool)) as journal:
        yield journal


def check_ours(destination: Place, options: PackOptions, *, shared_spool: bool = False) -> None:
    """Refuses places that hold something else: packing never touches files that are not its own. See `opened`."""
    spool = None if shared_spool else options.spool
    if spool is not None and isinstance(destination, Path):
        raise ConfigError(
            f"--spool: shards are made in DST itself where that is a folder ({destination}); leave it out"
        )
    if isinstance(spool, Url):
        raise ConfigError(
            f"--spool {spool}: expected a folder of this machine, because shards are made there; a URL can be the "
            "spool of a pack on a cluster"
        )
    if isinstance(destination, Path) and destination.exists() and not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a folder to pack into")
    opened_store = open_store(destination, options.source.remote)
    with disk_errors(destination, "write to"), contextlib.closing(opened_store) as store:
        journal = Journal(store)
        said = journal.description()
        if (said is not None and said.get("format") == DATASET_FORMAT) or journal.plan() is not None:
            return
        other = store.any_other()
        if other is not None:
            raise PackError(
                f"{destination} is not empty and holds no packed dataset: there is {other}. Choose a new or empty "
                "folder"
            )


@contextlib.contextmanager
def disk_errors(place: Place, verb: str = "use") -> Iterator[None]:
    """Names the file that the disk refused: `place`, or what is being used of it."""
    try:
        yield
    except OSError as problem:
        named = (problem.filename2 or problem.filename) if verb == "use" else None
        raise cannot_write(str(named or place), problem, verb) from problem


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


def plan_run(
    journal: Journal,
    facts: Facts,
    options: PackOptions,
    unchanged: Callable[[dict[str, Any]], bool] = lambda _: False,
    **others: Any,
) -> dict[str, Any] | None:
    """Decides what there is to do, and writes down the plan if there is something.

    Args:
        journal: of the destination, locked.
        facts: of what is to be packed.
        options: how. With `overwrite` another dataset, or a damaged one, may be replaced. It stays until there is a new
            shard. With `fail_fast` rejected files are not acceptable.
        unchanged: whether the sources of a dataset, which have the same paths and sizes, have the same content.
        **others: further options.

    Returns:
        The content of dataset.json, if the dataset is there, whole, and what this pack would make; None where there is
        something to do.

    Raises:
        PackError: the destination holds something else.
    """
    place = journal.store.place
    info = journal.description()
    shaping = {**options.shaping(facts.kinds), **others}
    if info is not None:
        problem = _damage(journal, info) or _difference(info, facts, shaping, unchanged)
        if problem is None:
            _check_rejected(journal, info, fail_fast=options.fail_fast)
            return info
        if not options.overwrite:
            raise PackError(
                f"{place} holds a different dataset, or a damaged dataset: {problem}. Choose another folder, or pass "
                "--overwrite to replace it"
            )
    plan = {
        "source": facts.root,
        "listing": facts.state,
        "options": shaping,
        "made_with": made_with(facts.kinds.values()),
    }
    unfinished = journal.plan()
    if unfinished is not None and info is None and not options.overwrite:
        differs = {name for name in plan if unfinished.get(name) != plan[name]}
        # The same files may be in another place now, or files of the same folder may have come, gone or changed.
        if differs not in (set(), {"source"}, {"listing"}):
            raise PackError(
                f"{place} holds an unfinished pack with other sources or options ({_changed(unfinished, plan)}). "
                "Run the earlier command again to finish it, choose another folder, or pass --overwrite to start from "
                "the beginning"
            )
    journal.begin(plan)
    return None


def _damage(journal: Journal, info: dict[str, Any]) -> str | None:
    """What is missing of a dataset, as far as names and sizes tell."""
    place = journal.store.place
    try:
        if info.get("format") != DATASET_FORMAT:
            return f"{DATASET_FILE} is none of fastpipe's"
        if isinstance(place, Path):
            return damage(Index(place))
        there = journal.store.sizes()
        for shard in info["shards"]:
            if there.get(shard["name"]) != shard["size_bytes"]:
                return f"{shard['name']} has {there.get(shard['name'], 0):,} bytes, expected {shard['size_bytes']:,}"
        return None if INDEX_FILE in there else f"{INDEX_FILE} is missing"
    except (DatasetError, KeyError, TypeError) as broken:
        return str(broken)


def _changed(unfinished: dict[str, Any], plan: dict[str, Any]) -> str:
    for name, words in (("made_with", "made with"), ("source", "packed from")):
        if unfinished.get(name) != plan[name] and unfinished.get("options") == plan["options"]:
            return f"{words} {unfinished.get(name)} there, {plan[name]} now"
    return _words(unfinished.get("options"), plan["options"])


def _difference(
    info: dict[str, Any], facts: Facts, shaping: dict[str, Any], unchanged: Callable[[dict[str, Any]], bool]
) -> str | None:
    if info.get("version") != 1:
        return f"it has been changed since it was packed, and has version {info.get('version')}: see fastpipe log"
    pack = first_pack(info)
    same = pack["options"] == shaping and pack["source"].get("xxh3_128") == facts.content
    return None if same and unchanged(info) else _words(pack["options"], shaping)


def first_pack(info: dict[str, Any]) -> dict[str, Any]:
    """The pack that made a dataset: its options, its source, its plan; nothing of what there is not."""
    packs = info.get("packs")
    found = packs[0] if isinstance(packs, list) and packs and isinstance(packs[0], dict) else {}
    return {"options": {}, "source": {}, "plan": {}, **found}


def _words(there: object, options: dict[str, Any]) -> str:
    old = there if isinstance(there, dict) else {}
    changed = [f"{name} {old.get(name)!r} there, {new!r} now" for name, new in options.items() if old.get(name) != new]
    return "; ".join(changed) or "the source files have changed"


def _check_rejected(journal: Journal, info: dict[str, Any], *, fail_fast: bool) -> None:
    rejected = info["counts"]["rejected"]
    if fail_fast and rejected:
        raise PackError(
            f"{journal.store.place} is packed, but {rejected:,} files were rejected: see rejected.jsonl there. Repair "
            "or remove them in the source and pack with --overwrite, or pack without --on-error fail"
        )
