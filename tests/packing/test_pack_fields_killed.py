"""A pack with fields that is killed, or that the disk refuses, at any of its calls, goes on afterwards."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.faults.injector import Fault
from support.faults.packs import CHANGING, Packs, faults_at_each, packs_of
from support.running.soak import times
from support.sources.pack_sources import digests, write_large_folder
from support.sources.tars import write_tar

from fastpipe.verify.verification import verify


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WebDataset of 8 pictures with texts and notes, which fill three shards."""
    root = tmp_path_factory.mktemp("fields")
    pictures = sorted(write_large_folder(root / "made", images=8).rglob("*.jpg"))
    members: dict[str, bytes] = {}
    for number, picture in enumerate(pictures):
        members |= {f"{number}.jpg": picture.read_bytes(), f"{number}.json": b'{"n": %d}' % number}
        members |= {f"{number}.txt": b"x" * number} if number % 3 else {}
    (root / "source").mkdir()
    write_tar(root / "source" / "a.tar", members)
    return root / "source"


def test_a_pack_with_fields_killed_at_any_call_goes_on(programs: Forks, source: Path, place: Path) -> None:
    packs = packs_of(programs, source, place / "packed")
    assert {"fields/txt.bytes.npy", "fields/txt.offsets.npy", "fields/json.bytes.npy", "shard-000002.tar"} <= (
        packs.whole.keys()
    )
    killed = 0
    for fault, _ in faults_at_each(packs, CHANGING, times(3, 1), kind="kill"):
        assert packs.run(fault).code == -9
        packs.assert_whole_files()
        packs.assert_goes_on()
        killed += 1
    assert verify(place / "packed").sound
    assert killed > 20


def test_a_pack_with_fields_on_a_full_disk_goes_on(programs: Forks, source: Path, place: Path) -> None:
    packs = packs_of(programs, source, place / "packed")
    failed = 0
    for fault, line in faults_at_each(
        packs, ("write", "fsync", "rename"), times(5, 1), kind="error", number=errno.ENOSPC
    ):
        ended = packs.run(fault)
        assert ended.code == 1, f"{line}: {ended}"
        assert "No space left on device" in ended.err
        packs.assert_whole_files()
        packs.assert_goes_on()
        failed += 1
    assert failed > 10


def test_an_overwrite_removes_the_old_sidecars(programs: Forks, source: Path, place: Path) -> None:
    """Killed anywhere, it leaves the old or the new dataset, or an unfinished one."""
    packs_of(programs, source, place / "packed")
    old = digests(place / "packed")
    shutil.copytree(place / "packed", place / "old")
    photos = write_large_folder(place / "photos", images=8)
    new = packs_of(programs, photos, place / "new")
    assert not any(name.startswith("fields") for name in new.whole)
    command = tuple(place / "packed" if each == place / "new" else each for each in new.command)
    packs = Packs(programs, (*command, "--overwrite"), place / "packed", new.whole, place / "old", old)
    for fault, _ in faults_at_each(packs, CHANGING, times(3, 1), kind="kill"):
        assert packs.run(fault).code == -9
        packs.assert_whole_files()
        packs.assert_goes_on()


def test_fields_left_by_a_killed_pack_do_not_stay_in_another_one(programs: Forks, source: Path, place: Path) -> None:
    packs = packs_of(programs, source, place / "packed")
    renames = packs.calls("rename")
    packs.fresh()
    assert packs.run(Fault(packs.destination, ("rename",), "kill", at=len(renames) - 1)).code == -9
    assert (packs.destination / "fields").exists()
    photos = write_large_folder(place / "photos", images=8)
    whole = packs_of(programs, photos, place / "other").whole
    command = (*packs.command[:1], photos, *packs.command[2:], "--overwrite")
    assert programs.run(*command).code == 0
    assert digests(packs.destination) == whole
