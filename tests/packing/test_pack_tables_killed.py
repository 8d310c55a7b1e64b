"""A pack of tables that SIGKILL ends, at calls and at random moments: it goes on, and converts no run again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.faults.injector import Fault
from support.faults.packs import CHANGING, Packs, faults_at_each
from support.running.soak import Tried, times
from support.sources.pack_sources import digests, write_large_folder
from support.sources.tables import write_table

SETTING = {"fastpipe.packing.pipeline.exchange._SPOOLED_BYTES": 40_000}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables whose samples fill three shards; one row has no image."""
    root = tmp_path_factory.mktemp("tables")
    photos = [path.read_bytes() for path in sorted(write_large_folder(root / "photos", images=8).glob("*/*.jpg"))]
    write_table(root / "source" / "a.parquet", photos[:4], rows_per_group=3, text=list("abcd"))
    write_table(root / "source" / "b.parquet", [*photos[4:], None], rows_per_group=3, text=list("efghi"))
    return root / "source"


def packs_of_tables(forks: Forks, source: Path, destination: Path) -> Packs:
    command = ("pack", source, destination, "--shard-size", "100000", "--workers", "2")
    ended = forks.run(*command, setting=SETTING)
    assert ended.code == 0, ended.err
    return Packs(forks, command, destination, digests(destination))


class SpooledPacks(Packs):
    """With small runs."""

    def run(self, fault: Fault | None = None, **how: object):  # type: ignore[no-untyped-def, override]
        return super().run(fault, setting=SETTING, **how)


@pytest.fixture
def packs(programs: Forks, source: Path, place: Path) -> SpooledPacks:
    return SpooledPacks(**vars(packs_of_tables(programs, source, place / "packed")))


def test_a_pack_of_tables_killed_at_any_call_goes_on(packs: SpooledPacks, tried: Tried) -> None:
    calls = [line for line in packs.calls(*CHANGING) if "/spool/" in line]
    assert sum(" rename " in line for line in calls) >= 5, "expected several spool files"
    killed = 0
    for fault, line in faults_at_each(packs, CHANGING, times(6, 2)):
        assert packs.run(fault).code == -9, line
        packs.assert_whole_files()
        spool = packs.destination / ".pack" / "spool"
        before = {path.name: path.stat().st_ino for path in spool.glob("run-*")} if spool.exists() else {}
        log = packs.destination.parent / "renames.log"
        log.unlink(missing_ok=True)
        assert packs.run(Fault(packs.destination, ("rename",), log=log)).code == 0
        packs.assert_done()
        renames = log.read_text().splitlines() if log.exists() else []  # none where only tidying was left
        made = {Path(name.split(" ", 2)[2]).name for name in renames if "/spool/" in name}
        assert not made & before.keys(), f"{line}: runs were converted again"
        killed += 1
    tried("pack of Parquet ended by SIGKILL at a write, rename, fsync or unlink", killed, "a second run; same bytes")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_the_spool_is_named_and_the_pack_goes_on(
    packs: SpooledPacks, tried: Tried, number: int
) -> None:
    tries = 0
    for fault, line in faults_at_each(packs, CHANGING, times(3, 1), kind="error", number=number):
        if "/spool" not in line:
            continue
        ended = packs.run(fault)
        assert ended.code in (0, 1), f"{line}: {ended}"  # what is only tidied up may fail
        if ended.code:
            assert os.strerror(number) in ended.err, ended.err
            assert str(packs.destination) in ended.err
            assert "run the same command again" in " ".join(ended.err.split())
        packs.assert_goes_on()
        tries += 1
    tried(
        f"disk refuses the spool of a pack ({errno.errorcode[number]})", tries, "exit code 1 and the path; same bytes"
    )
