"""A pack that SIGKILL ends at any of its calls: what has a final name is whole, and the same command finishes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.faults.injector import WRITING, Fault
from support.faults.packs import CHANGING, Packs, faults_at_each, finals, packs_of, small_shards, small_source
from support.programs.cli_run import succeeded
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import digests

from fastpipe.sources.kinds import list_sources
from fastpipe.verify.verification import verify

KILLS = ("kill", "killed after", "torn")
# With the sync of a shard that is being written under way: it begins after 32 MB else.
SYNCING = {"fastpipe.packing.shard.tar._SYNC_BYTES": 20_000}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_source(tmp_path_factory.mktemp("killed") / "source")


def kill_everywhere(packs: Packs, step: int = 1) -> int:
    """Kills the command at each call that changes something; in the long form before, in and after each call."""
    killed = 0
    for kind in KILLS[: times(1, 3)]:
        for fault, line in faults_at_each(packs, WRITING if long_form() else CHANGING, times(step, 1), kind=kind):
            if kind == "torn" and " write " not in line:
                continue
            ended = packs.run(fault)
            assert ended.code == -9, f"{fault}: {ended}"
            packs.assert_whole_files()
            packs.assert_goes_on()
            killed += 1
    return killed


@pytest.mark.parametrize("workers", [1, 2, 4] if long_form() else [2])
def test_a_pack_killed_at_any_call_goes_on(
    programs: Forks, source: Path, place: Path, tried: Tried, workers: int
) -> None:
    packs = packs_of(programs, source, place / "packed", "--workers", workers)
    assert {"shard-000002.tar", "index.npy", "rejected.jsonl", "dataset.json"} <= packs.whole.keys()
    killed = kill_everywhere(packs)
    tried("pack ended by SIGKILL at a write, rename, fsync or other call", killed, "a second run finishes; same bytes")


def test_a_pack_killed_while_it_syncs_goes_on(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    packs = packs_of(programs, source, place / "packed")
    syncs = len(packs.calls("fdatasync", setting=SYNCING))
    killed = 0
    for at in range(0, syncs, times(3, 1)):  # as many or fewer: one begins only when the one before is done
        packs.fresh()
        ended = packs.run(Fault(packs.destination, ("fdatasync",), at=at), setting=SYNCING)
        assert ended.code in (-9, 0)
        packs.assert_whole_files()
        packs.assert_goes_on()
        killed += ended.code == -9
    tried("pack ended by SIGKILL while a shard is synced", killed, "a second run finishes; same bytes")


def test_a_pack_killed_again_and_again_goes_on(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    packs = packs_of(programs, source, place / "packed")
    packs.fresh()
    killed = 0
    # Each run gets a little further: it is killed at the fifth rename that it comes to, one more than publishing needs.
    while (ended := packs.run(Fault(packs.destination, ("rename",), at=4))).code != 0:
        assert ended.code == -9
        packs.assert_whole_files()
        killed += 1
        assert killed < 20
    packs.assert_done()
    tried("pack ended by SIGKILL in each of several runs", killed, "the last finishes; same bytes")


def test_a_file_is_on_the_disk_before_it_gets_its_name(
    programs: Forks, source: Path, place: Path, tried: Tried
) -> None:
    """What a power cut needs, and no kill can show: the file is synced before the rename, its folder after it."""
    packs = packs_of(programs, source, place / "packed")
    work, synced, named_in, names = packs.destination / ".pack", set(), None, 0
    for line in packs.calls(*CHANGING):
        _, call, name = line.split(" ", 2)
        path = Path(name)
        if call == "fsync":
            synced.add(path)
            named_in = None if path == named_in else named_in
            continue
        assert named_in is None, f"{line}: before {named_in} was synced"
        if call == "write":
            synced.discard(path)
        elif call == "rename":
            assert any(each.parent == work and each.name.startswith(f"{path.name}.") for each in synced), line
            named_in, names = path.parent, names + 1
    tried("rename of `pack`", names, "the file is synced before it, its folder after it")


def killed_at_its_last_rename(packs: Packs, kind: str) -> None:
    """Leaves an unfinished pack ("kill"), or a finished one that has not tidied up ("killed after")."""
    at = len(packs.calls("rename")) - 1
    packs.fresh()
    assert packs.run(Fault(packs.destination, ("rename",), kind, at=at)).code == -9


@pytest.mark.parametrize("there", ["dataset", "unfinished", "damaged"])
def test_an_overwrite_killed_at_any_call_leaves_the_old_or_the_new(
    programs: Forks, source: Path, place: Path, tried: Tried, there: str
) -> None:
    packed, copy = place / "packed", place / "copy"
    options = ("--overwrite",) if there == "damaged" else ("--overwrite", "--seed", 1)
    whole = packs_of(programs, source, packed, *options).whole
    shutil.rmtree(packed)
    old = packs_of(programs, source, packed)
    if there != "dataset":
        killed_at_its_last_rename(old, "kill" if there == "unfinished" else "killed after")
    if there == "damaged":
        (packed / "shard-000001.tar").unlink()
    packed.rename(copy)
    packs = Packs(programs, small_shards(source, packed, *options), packed, whole, copy, finals(copy))
    killed = kill_everywhere(packs, step=4 if there == "dataset" else 6)
    outcome = "the old dataset, the new one, or an unfinished one that is refused; a second run finishes; same bytes"
    tried("`pack --overwrite` ended by SIGKILL at a write, rename, fsync or unlink", killed, outcome)


def test_a_pack_of_changed_sources_killed_at_any_call_goes_on(
    programs: Forks, source: Path, place: Path, tried: Tried
) -> None:
    """Of an unfinished pack only some shards stay, since a source is another now."""
    packed, copy = place / "packed", place / "copy"
    changing = Path(shutil.copytree(source, place / "source"))
    killed_at_its_last_rename(packs_of(programs, changing, packed), "kill")
    packed.rename(copy)
    in_the_middle = list_sources(changing, 0).sources[4].path
    data = bytearray((changing / in_the_middle).read_bytes())
    data[-300] ^= 0x10  # as many bytes: the sources are cut as before
    (changing / in_the_middle).write_bytes(data)
    whole = packs_of(programs, changing, packed).whole
    packs = Packs(programs, small_shards(changing, packed), packed, whole, copy, finals(copy))
    assert whole["shard-000000.tar"] == packs.before["shard-000000.tar"]
    killed = kill_everywhere(packs, step=6)
    outcome = "a second run finishes; the bytes are those of the source as it is then"
    tried("pack of sources that have changed since the last run, ended by SIGKILL", killed, outcome)


def test_a_repair_killed_at_any_call_harms_nothing(programs: Forks, source: Path, place: Path, tried: Tried) -> None:
    packed, copy = place / "packed", place / "copy"
    whole = packs_of(programs, source, packed).whole
    os.truncate(packed / "shard-000000.tar", 5000)
    (packed / "shard-000002.tar").unlink()
    (packed / "index.npy").write_bytes(b"")
    packed.rename(copy)
    packs = Packs(programs, ("verify", packed, "--repair", source), packed, whole, copy, finals(copy))
    killed = 0
    for kind in KILLS[: times(1, 3)]:
        for fault, line in faults_at_each(packs, WRITING if long_form() else CHANGING, times(3, 1), kind=kind):
            if kind == "torn" and " write " not in line:
                continue
            assert packs.run(fault).code == -9
            for name, digest in finals(packed).items():
                assert digest in (whole[name], packs.before.get(name)), f"{name} is neither the damaged one nor whole"
            assert packs.run().code == 0
            assert finals(packed) == whole
            assert verify(packed, workers=1).sound
            killed += 1
    tried("`verify --repair` ended by SIGKILL at a write, rename or fsync", killed, "a second run repairs; same bytes")


@pytest.mark.parametrize("step", ["list", "make", "publish"])
def test_a_step_killed_at_any_call_goes_on(programs: Forks, source: Path, place: Path, tried: Tried, step: str) -> None:
    """What the killed step has left behind does not matter to the steps that follow."""
    packed, before = place / "packed", place / "before"
    whole = packs_of(programs, source, packed).whole
    shutil.rmtree(packed)
    steps = ["list", "make", "publish"]
    left = steps[steps.index(step) :]
    for earlier in steps[: steps.index(step)]:
        succeeded(*small_shards(source, packed, "--step", earlier))
    if packed.exists():
        shutil.copytree(packed, before)

    def fresh() -> None:
        shutil.rmtree(packed, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, packed)

    command, calls = small_shards(source, packed, "--step", step), WRITING if long_form() else CHANGING
    log = place / "calls.log"
    fresh()
    assert programs.run(*command, fault=Fault(packed, calls, log=log)).code == 0
    killed = 0
    for at in range(0, len(log.read_text().splitlines()), times(8, 1)):
        fresh()
        assert programs.run(*command, fault=Fault(packed, calls, "kill", at=at)).code == -9
        for name, digest in finals(packed).items():
            assert digest == whole[name], name
        for name in left:
            succeeded(*small_shards(source, packed, "--step", name))
        assert finals(packed) == digests(packed) == whole
        killed += 1
    assert killed >= 2
    tried(f"--step {step} ended by SIGKILL at a write, rename or fsync", killed, "the steps go on; same bytes")
