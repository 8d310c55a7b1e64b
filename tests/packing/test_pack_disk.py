"""A disk that is full, fails or takes half of a write: the pack says which file, and the same command finishes."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.faults.forks import Ended, Forks
from support.faults.injector import WRITING, Fault
from support.faults.packs import Packs, faults_at_each, finals, packs_of, small_shards, small_source
from support.running.soak import Tried, long_form, times

# With the sync of a shard that is being written under way: it begins after 32 MB else.
SYNCING = {"fastpipe.packing.shard.tar._SYNC_BYTES": 20_000}
FULL, BROKEN = errno.ENOSPC, errno.EIO
OUTCOME = "exit code 1 and the file's path; a second run finishes; same bytes"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_source(tmp_path_factory.mktemp("disk") / "source")


def assert_told(ended: Ended, packs: Packs, code: int) -> None:
    """Exit code 1, and an error that names a file of the destination, says why and what to do."""
    assert ended.code == 1
    assert ended.err.startswith("fastpipe: ")
    assert str(packs.destination) in ended.err
    assert os.strerror(code) in ended.err
    assert "run the same command again" in ended.err


def overwriting(programs: Forks, source: Path, packed: Path) -> Packs:
    """A pack that takes the place of an older dataset."""
    options = ("--overwrite", "--seed", 1)
    whole = packs_of(programs, source, packed, *options).whole
    shutil.rmtree(packed)
    copy = packed.with_name("copy")
    before = packs_of(programs, source, packed).whole
    packed.rename(copy)
    return Packs(programs, small_shards(source, packed, *options), packed, whole, copy, before)


@pytest.mark.parametrize("how", ["new", "shrunk", "overwrite"])
def test_a_disk_that_refuses_any_call(programs: Forks, source: Path, place: Path, tried: Tried, how: str) -> None:
    if how == "overwrite":
        packs = overwriting(programs, source, place / "packed")
    else:
        packs = packs_of(programs, source, place / "packed", *(("--max-size", 64) if how == "shrunk" else ()))
    step = times(6 if how == "new" else 14, 1)
    for code, each in itertools.product((FULL, BROKEN), (True, False)):
        if not long_form() and each != (code == FULL):
            continue
        first = 0 if code == FULL or long_form() else step // 2
        refused = 0
        for fault, line in faults_at_each(packs, WRITING, step, first=first, kind="error", number=code, each=each):
            ended = packs.run(fault)
            if ended.code == 0:  # what a pack can do without: tidying up after itself, the journal of another pack
                assert finals(packs.destination) == packs.whole, line
            else:
                assert_told(ended, packs, code)
                refused += 1
            packs.assert_whole_files()
            packs.assert_goes_on()
        what = f"{errno.errorcode[code]} at a call of `pack`" + " and at all that follow" * each
        tried(what, refused, OUTCOME)


def test_a_disk_that_loses_what_it_had_taken(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    """Only a sync tells that an earlier write has failed."""
    packs = packs_of(programs, source, place / "packed")
    syncs = len(packs.calls("fdatasync", setting=SYNCING))
    refused = 0
    for at in range(0, syncs, times(3, 1)):  # as many or fewer: one begins only when the one before is done
        packs.fresh()
        ended = packs.run(Fault(packs.destination, ("fdatasync",), "error", at=at, number=BROKEN), setting=SYNCING)
        if ended.code != 0:
            assert_told(ended, packs, BROKEN)
            refused += 1
        packs.assert_whole_files()
        packs.assert_goes_on()
    tried("EIO at a sync of a shard that is being written", refused, "exit code 1; a second run finishes; same bytes")


def test_a_disk_that_takes_half_of_a_write(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    packs = packs_of(programs, source, place / "packed")
    writes = len(packs.calls("write"))
    for at in range(writes):
        packs.fresh()
        ended = packs.run(Fault(packs.destination, ("write",), "short", at=at, each=at == 0))
        assert ended.code == 0, ended.err
        packs.assert_done()
    tried("a write of `pack` takes half, each in turn and all of them", writes, "the rest is written; same bytes")


def test_files_that_may_not_grow(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    """RLIMIT_FSIZE: as a full disk, which takes a part of a file, but for each file and in any place."""
    packs = packs_of(programs, source, place / "packed")
    sizes = {file.stat().st_size for file in packs.destination.iterdir()}
    packs.fresh()
    assert packs.run(Fault(packs.destination, ("rename",), at=9)).code == -9
    sizes |= {file.stat().st_size for file in (packs.destination / ".pack").iterdir()}
    limits = sorted({size // divisor - 1 for size in sizes if size > 20 for divisor in range(1, times(2, 20))})
    for limit in limits:
        packs.fresh()
        assert_told(packs.run(largest_file=limit), packs, errno.EFBIG)
        assert not list(packs.destination.rglob("*.partial"))
        packs.assert_whole_files()
        packs.assert_goes_on()
    tried("a file of `pack` may not grow over a size (RLIMIT_FSIZE)", len(limits), OUTCOME)


def test_two_packs_at_once(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    """A pack that begins while another is at any call of its own is refused, or does what is left to do."""
    packs = packs_of(programs, source, place / "packed")
    waits = refused = 0
    for fault, line in faults_at_each(packs, WRITING, times(20, 1), kind="delay", number=400):
        log = place / f"{fault.at}.log"
        first = programs.start(*packs.command, fault=replace(fault, log=log))
        until = time.monotonic() + 60
        while not log.exists() or f"{fault.at} " not in log.read_text():
            assert time.monotonic() < until, line
            time.sleep(0.005)
        second = programs.run(*packs.command)
        ended = programs.wait(first)
        told = "another pack is writing to"
        assert {ended.code, second.code} <= {0, 1}, line
        assert 0 in (ended.code, second.code), line
        for one in (ended, second):
            assert one.code == 0 or told in one.err, f"{line}: {one}"
            refused += one.code
        assert finals(packs.destination) == packs.whole
        packs.assert_goes_on()
        waits += 1
    assert refused > 0
    tried("two packs into one folder at once", waits, "one is refused, the other finishes; same bytes")
