"""A disk that is really full, of bytes or of files: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.checkout import TESTS
from support.faults.forks import Forks
from support.faults.packs import Digests, packs_of, small_source
from support.running.soak import Tried, times

_PRIVATELY = ("unshare", "--map-root-user", "--mount")
_TIME_LIMIT_S = 600
_PAGE_BYTES = 4096

# For each size of the disk: packs, makes room, packs again; prints what came of it.
PROGRAM = """
    import json, subprocess, sys
    from pathlib import Path
    from support.programs.cli_run import fp
    from support.faults.packs import small_shards
    from support.sources.pack_sources import digests

    source, disk = Path(sys.argv[1]), Path(sys.argv[2])

    def mount(options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "fastpipe", disk], check=True)

    for options in sys.argv[3:]:
        mount(options)
        full = fp(*small_shards(source, disk / "packed"))
        there = digests(disk / "packed") if (disk / "packed").exists() else {}
        mount("remount,size=16m,nr_inodes=1000")
        again = fp(*small_shards(source, disk / "packed"))
        print(json.dumps([full.exit_code, full.stderr, there, again.exit_code, digests(disk / "packed")]))
        subprocess.run(["umount", disk], check=True)
"""


@pytest.fixture(scope="module")
def may_mount() -> None:
    """Skips where nobody may mount: in some containers."""
    probe = [*_PRIVATELY, "mount", "-t", "tmpfs", "fastpipe", "/mnt"]
    try:
        tried = subprocess.run(probe, capture_output=True, text=True, timeout=300, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare (util-linux)")
    if tried.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {tried.stderr.strip()}")


def pages(whole: Digests, folder: Path) -> int:
    """What the finished dataset takes on a tmpfs."""
    return sum(-(-(folder / name).stat().st_size // _PAGE_BYTES) for name in whole)


@pytest.mark.usefixtures("may_mount")
def test_a_disk_that_is_full(programs: Forks, tmp_path: Path, tried: Tried) -> None:
    source = small_source(tmp_path / "source")
    whole = packs_of(programs, source, tmp_path / "packed").whole
    needed = pages(whole, tmp_path / "packed")
    sizes = [f"size={count * _PAGE_BYTES}" for count in range(1, needed, times(14, 1))]
    sizes += [f"size=16m,nr_inodes={count}" for count in range(2, 14, times(3, 1))]
    (tmp_path / "disk").mkdir()
    command = [*_PRIVATELY, sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM)]
    run = subprocess.run(
        [*command, str(source), str(tmp_path / "disk"), *sizes],
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert run.returncode == 0, run.stderr
    for size, line in zip(sizes, run.stdout.splitlines(), strict=True):
        code, told, there, code_again, there_again = json.loads(line)
        assert code == 1, size
        words = " ".join(told.split())
        assert f"{tmp_path / 'disk' / 'packed'}" in words, size
        assert "No space left on device" in words, size
        assert "run the same command again" in words, size
        finals = {name: digest for name, digest in there.items() if not name.startswith(".pack/")}
        assert finals.items() < whole.items(), size
        assert "dataset.json" not in finals, size
        assert not [name for name in there if name.endswith(".partial")], size
        assert code_again == 0, size
        assert there_again == whole, size
    outcome = "exit code 1 and the file's path; with more room a second run finishes; same bytes"
    tried("a disk that is full, of bytes or of files (tmpfs)", len(sizes), outcome)
