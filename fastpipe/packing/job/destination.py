"""The content of a destination -> whether a pack starts, goes on, is done or must stop; shards made again."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fastpipe.errors import ConfigError, DatasetError, PackError
from fastpipe.format.fields import read_fields
from fastpipe.format.folder import Place, Url, is_damaged_url, scheme_of
from fastpipe.format.layout import DATASET_FILE, DATASET_FORMAT, INDEX_FILE, WORK_FOLDER, shard_number
from fastpipe.format.packed_index import PackedIndex
from fastpipe.packing.fields.agreement import agreed_in
from fastpipe.packing.pipeline.exchange import outcomes_of
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan, Run, Told, runs_of, stride_of
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Facts, Listing
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.store.files import cannot_write
from fastpipe.store.remote.options import place_of
from fastpipe.store.store import Folder, check_writable, open_store


def destination_of(dst: str | os.PathLike[str]) -> Place:
    """DST as a path or a URL; ConfigError: nobody can write there."""
    if isinstance(dst, Path) and is_damaged_url(dst):
        raise ConfigError(f"DST {dst}: pathlib.Path damages URLs: pass the URL as a string")
    if isinstance(dst, str) and scheme_of(dst) not in ("", "file"):
        check_writable(Url(dst))
    found = place_of(dst)
    return found if isinstance(found, Url) else Path(cast("str | os.PathLike[str]", found))


@contextlib.contextmanager
def opened(destination: Place, options: PackOptions, *, shared_spool: bool = False) -> Iterator[Journal]:
    """The work of a pack into a folder or a URL, locked. A place that holds something else is refused before that.

    With `shared_spool`, the spool is not the folder in which files of a bucket are made.
    """
    spool = None if shared_spool else options.spool
    if isinstance(spool, Url) or (spool is not None and isinstance(destination, Path)):
        raise ConfigError(
            f"--spool {spool}: expected a folder of this machine, for a DST that is a URL: shards are made there, and "
            "in DST itself where that is a folder. Only on a cluster the spool can be a URL"
        )
    if isinstance(destination, Path) and destination.exists() and not destination.is_dir():
        raise PackError(f"{destination} is a file; expected a folder to pack into")
    journal = Journal(open_store(destination, options.source.remote, spool))
    with disk_errors(destination):
        if (journal.description() or {}).get("format") != DATASET_FORMAT and journal.plan() is None:
            other = journal.store.any_other()
            if other is not None:
                raise PackError(
                    f"{destination} is not empty and holds no packed dataset: there is {other}. Choose a new or empty "
                    "folder"
                )
        with journal:  # only who has the lock closes the store, which removes what is half made
            yield journal


@contextlib.contextmanager
def disk_errors(place: Place) -> Iterator[None]:
    """Names the file that the disk refused, or `place`."""
    try:
        yield
    except OSError as problem:
        raise cannot_write(str(problem.filename2 or problem.filename or place), problem, "use") from problem


def check_apart(source: SourcePath, destination: Place, spool: Place | None = None) -> None:
    """Refuses DST or a spool in the source, where the next pack would take it for a class, and the source in DST."""
    if spool is not None and _contains(source, spool):
        raise ConfigError(
            f"--spool {spool}: it is in SRC {source}, where its files would be packed; choose another folder"
        )
    if _contains(source, destination) or _contains(destination, source):
        raise ConfigError(
            f"SRC {source} must not contain DST {destination}, nor DST contain SRC; choose another DST, beside SRC"
        )


def _contains(outer: SourcePath | Place, inner: SourcePath | Place) -> bool:
    if isinstance(outer, Path) and isinstance(inner, Path):
        return inner.resolve().is_relative_to(outer.resolve())
    return f"{inner}/".startswith(f"{outer}/")


def plan_run(
    journal: Journal, facts: Facts, options: PackOptions, listing: Listing | None = None
) -> dict[str, Any] | None:
    """Writes down the plan; gives the content of dataset.json instead, if the dataset is there, whole, and fits.

    With `overwrite` another one stays until there is a new shard. Without a listing all newer sources have changed.
    """
    place = journal.store.place
    info = journal.description()
    shaping = options.shaping(facts.kinds)
    if facts.made_by:
        shaping["classes"] = facts.classes  # a program's labels are places among them
    if info is not None:
        problem = _damage(journal, info) or _difference(info, facts, shaping)
        if problem is None and not _unchanged(journal, info, facts, options, listing):
            problem = "the source files have changed"
        if problem is None:
            rejected = info["counts"]["rejected"]
            if options.fail_fast and rejected:
                raise PackError(
                    f"{place} is packed, but {rejected:,} files were rejected: see rejected.jsonl there. Repair or "
                    "remove them in the source and pack with --overwrite, or pack without --on-error fail"
                )
            journal.clear()  # a pack that was killed at its very end leaves its work behind
            return info
        if not options.overwrite:
            raise PackError(
                f"{place} holds a different dataset, or a damaged dataset: {problem}. Choose another folder, or pass "
                "--overwrite (overwrite=True) to replace it"
            )
    plan = {"source": facts.root, "listing": facts.state, "options": shaping, "made_with": made_with()}
    unfinished = journal.plan()
    if unfinished is not None and info is None and not options.overwrite:
        differs = {name for name in plan if unfinished.get(name) != plan[name]}
        # The same files may be in another place now, or files of the same folder may have come, gone or changed.
        if differs not in (set(), {"source"}, {"listing"}):
            if unfinished.get("options") == shaping:
                said = _changes(unfinished, {name: plan[name] for name in ("source", "made_with")})
            else:
                said = _changes(unfinished.get("options"), shaping)
            raise PackError(
                f"{place} holds an unfinished pack with other sources or options ({said}). "
                "Run the earlier command again to finish it, choose another folder, or pass --overwrite to start from "
                "the beginning"
            )
    journal.begin(plan)
    return None


def _damage(journal: Journal, info: dict[str, Any]) -> str | None:
    """What is missing of a dataset, as far as names and sizes tell."""
    try:
        if isinstance(place := journal.store.place, Path):
            return PackedIndex(place).damage(lambda name: (place / name).stat().st_size)
        there = journal.store.sizes()
        for shard in info["shards"]:
            if there.get(shard["name"]) != shard["size_bytes"]:
                return f"{shard['name']} has {there.get(shard['name'], 0):,} bytes, expected {shard['size_bytes']:,}"
        return None if INDEX_FILE in there else f"{INDEX_FILE} is missing"
    except (DatasetError, KeyError, TypeError) as broken:
        return str(broken)


def _difference(info: dict[str, Any], facts: Facts, shaping: dict[str, Any]) -> str | None:
    if info.get("version") != 1:
        return f"it has been changed since it was packed, and has version {info.get('version')}: see fastpipe log"
    if facts.made_by:
        return f"{facts.made_by} writes only new ones"
    pack = first_pack(info)
    same = pack["options"] == shaping and pack["source"].get("xxh3_128") == facts.content
    return None if same else _changes(pack["options"], shaping)


def _unchanged(
    journal: Journal, info: dict[str, Any], facts: Facts, options: PackOptions, listing: Listing | None
) -> bool:
    """Whether sources with the paths and sizes of a dataset's have its content.

    A copy, a hard link or other permissions give a file a new time: shards of such files are made again, and compared.
    """
    if not isinstance(journal.store.place, Path):
        return journal.store.note(DATASET_FILE) == facts.state  # the times of another machine tell nothing
    file = journal.store.place / DATASET_FILE
    packed_ns = file.stat().st_mtime_ns
    if facts.changed_ns <= packed_ns or listing is None:
        return facts.changed_ns <= packed_ns
    hashes = {shard["name"]: shard["xxh3_64"] for shard in info["shards"]}
    again = Repack(info, info["packs"][0], listing, options)
    for run, names in again.runs(hashes):
        if any(source.ctime_ns > packed_ns for source in listing.sources[run.start : run.stop]):
            with again.remade(run, journal.store.scratch) as (_, tars):
                if {name: tar.xxh3_64 for name, tar in tars.items()} != {name: hashes[name] for name in names}:
                    return False
    os.utime(file, ns=(facts.time_ns, facts.time_ns))  # so that the next pack need not look again
    return True


def first_pack(info: dict[str, Any]) -> dict[str, Any]:
    """The pack that made a dataset: its options, its source, its plan; nothing of what there is not."""
    packs = info.get("packs")
    found = packs[0] if isinstance(packs, list) and packs and isinstance(packs[0], dict) else {}
    return {"options": {}, "source": {}, "plan": {}, **found}


def _changes(there: object, now: dict[str, Any]) -> str:
    then = there if isinstance(there, dict) else {}
    changed = [f"{name} {then.get(name)!r} there, {new!r} now" for name, new in now.items() if then.get(name) != new]
    return "; ".join(changed) or "the source files have changed"


@dataclass(frozen=True)
class Repack:
    """A pack of a dataset, whose shards can be made again: what dataset.json says of both, its sources as listed."""

    info: dict[str, Any]
    pack: dict[str, Any]
    listing: Listing
    options: PackOptions

    @cached_property
    def _plan(self) -> Plan:
        fields, said, shuffle = read_fields(self.info), self.pack["plan"], self.options.shuffle
        kinds = {name: field.kind for name, field in fields.items()}
        stride = stride_of(self.listing, said["step"], shuffle=shuffle)
        return Plan(said["step"], agreed_in(fields.values()), said["base"], kinds, stride)

    def runs(self, names: Iterable[str]) -> list[tuple[Run, set[str]]]:
        """The runs of sources that shards were made of, each with those of these names."""
        plan, of = self._plan, defaultdict[int, set[str]](set)
        for name in names:
            of[(shard_number(name) - plan.base) % plan.stride].add(name)
        runs = runs_of(self.listing, plan.step, self.options.seed, shuffle=self.options.shuffle)
        return [(run, of[run.number]) for run in runs]

    @contextlib.contextmanager
    def remade(self, run: Run, scratch: Path, told: Told = lambda *_: None) -> Iterator[tuple[Path, dict[str, Tar]]]:
        """The shards of one of the `runs`, made again in a folder in `scratch` that goes in the end; by name."""
        ours = replace(self.listing, sources=self.listing.sources[run.start : run.stop])
        again = Run(run.number, 0, len(ours.sources))
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / WORK_FOLDER).mkdir()
            outcomes = outcomes_of(ours, [again], self.options, folder / "spool")
            how = replace(self.options, fail_fast=False)  # of a source that cannot be packed the shard differs
            store = Folder(folder, folder)
            (entry,) = make_shards(store, ours, self._plan, how, {"again.done": again}, outcomes, told)
            yield folder, {tar.name: tar for tar in entry.tars}
