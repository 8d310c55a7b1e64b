"""Each call of each command that writes a dataset: killed or refused there, it goes on to the same bytes."""

from __future__ import annotations

import errno
import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.faults.injector import WRITING, Fault
from support.faults.pack_cases import CASES
from support.faults.packs import (
    CHANGING,
    Packs,
    assert_refused,
    faults_at_each,
    finals,
    find_packs,
    small_source,
)
from support.running.soak import Tried, long_form, times

KILLS = ("kill", "killed after", "torn")
# The sync of a shard that is being written begins after 32 MB else.
SYNCING = {"fastpipe.packing.shard.tar._SYNC_BYTES": 20_000}
FULL, BROKEN = errno.ENOSPC, errno.EIO
REFUSED = "exit code 1 and the file's path; a second run finishes; same bytes"


@pytest.mark.parametrize("name", CASES)
def test_a_command_killed_at_any_call_goes_on(
    programs: Forks, place: Path, tried: Tried, name: str
) -> None:
    """At each call that changes something; in the long form before, in and after each call of any kind."""
    packs = CASES[name].make(programs, place)
    killed = 0
    for kind in KILLS[: times(1, 3)]:
        for fault, line in faults_at_each(packs, WRITING if long_form() else CHANGING, kind=kind):
            if kind == "torn" and " write " not in line:
                continue
            ended = packs.run(fault)
            assert ended.code == -9, f"{line}: {ended}"
            packs.assert_whole_files()
            packs.assert_goes_on()
            killed += 1
    assert killed >= 2
    tried(
        f"{name} ended by SIGKILL at a write, rename, fsync or other call",
        killed,
        "a second run; same bytes",
    )


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refusals])
def test_a_disk_that_refuses_any_call(
    programs: Forks, place: Path, tried: Tried, name: str
) -> None:
    packs = CASES[name].make(programs, place)
    for code, each in itertools.product((FULL, BROKEN), (True, False)):
        if not long_form() and each != (code == FULL):
            continue
        refused = 0
        for fault, line in faults_at_each(packs, WRITING, kind="error", number=code, each=each):
            ended = packs.run(fault)
            # A pack can do without some calls: to tidy up, for the journal of another pack, for its report.
            if finals(packs.destination) != packs.whole:
                assert_refused(packs, ended, code, line)
                refused += 1
            packs.assert_whole_files()
            packs.assert_goes_on()
        what = f"{errno.errorcode[code]} at a call of {name}" + " and at all that follow" * each
        tried(what, refused, REFUSED)


@pytest.fixture
def packs(programs: Forks, place: Path) -> Packs:
    """A pack into an empty destination."""
    packs = find_packs(programs, small_source(place / "source"), place / "packed")
    packs.fresh()
    return packs


def test_a_pack_killed_while_it_syncs_goes_on(packs: Packs, tried: Tried) -> None:
    syncs = len(packs.calls("fdatasync", setting=SYNCING))
    killed = 0
    for at in range(syncs):  # as many or fewer: one begins only when the one before is done
        packs.fresh()
        ended = packs.run(Fault(packs.destination, ("fdatasync",), at=at), setting=SYNCING)
        assert ended.code in (-9, 0)
        packs.assert_whole_files()
        packs.assert_goes_on()
        killed += ended.code == -9
    tried(
        "pack ended by SIGKILL while a shard is synced", killed, "a second run finishes; same bytes"
    )


def test_a_pack_killed_again_and_again_goes_on(packs: Packs, tried: Tried) -> None:
    killed = 0
    # Each run gets a little further: it is killed at the fifth rename that it comes to, one more than publishing needs.
    while (ended := packs.run(Fault(packs.destination, ("rename",), at=4))).code != 0:
        assert ended.code == -9
        packs.assert_whole_files()
        killed += 1
        assert killed < 20
    packs.assert_done()
    tried("pack ended by SIGKILL in each of several runs", killed, "the last finishes; same bytes")


def test_two_packs_at_once(packs: Packs, place: Path, tried: Tried) -> None:
    """A pack that begins while another is at any call of its own is refused, or does what is left to do."""
    waits = refused = 0
    for fault, line in faults_at_each(packs, WRITING, times(20, 1), kind="delay", number=400):
        log = place / f"{fault.at}.log"
        first = packs.forks.start(*packs.command, fault=replace(fault, log=log))
        until = time.monotonic() + 300
        while not log.exists() or f"{fault.at} " not in log.read_text():
            assert time.monotonic() < until, line
            time.sleep(0.005)
        second = packs.forks.run(*packs.command)
        ended = packs.forks.wait(first)
        told = "another program is writing to"
        assert {ended.code, second.code} <= {0, 1}, line
        assert 0 in (ended.code, second.code), line
        for one in (ended, second):
            assert one.code == 0 or told in one.err, f"{line}: {one}"
            refused += one.code
        assert finals(packs.destination) == packs.whole
        packs.assert_goes_on()
        waits += 1
    assert refused > 0
    tried(
        "two packs into one folder at once", waits, "one is refused, the other finishes; same bytes"
    )
