"""A loader where the system gives no open file. tests/long/loading/test_tight_limits.py takes memory away, too."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.programs.warm import run_script
from support.running.soak import Tried

from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE


def test_no_open_file_left(many_shards: Path, tmp_path: Path, tried: Tried) -> None:
    """Each loader, and each of its batches, says so; once there are files again, all goes well."""
    dataset = Path(shutil.copytree(many_shards, tmp_path / "data"))
    script = """
        import os, resource, sys
        import fastpipe

        fastpipe.loader  # imported while there are files

        def take_all():
            files = []
            try:
                while True:
                    files.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return files

        def give_back(files):
            for file in files:
                os.close(file)

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        files = take_all()
        try:
            fastpipe.loader(sys.argv[1], 2, size=16)
        except fastpipe.DatasetError as problem:
            print(problem)
        give_back(files)
        with fastpipe.loader(sys.argv[1], 2, size=16, num_workers=2) as loader:
            files = take_all()
            for _ in range(2):
                try:
                    list(loader)
                except fastpipe.DatasetError as problem:
                    print(problem)
                give_back(files[:1])  # the index can be opened now
                del files[:1]
            give_back(files)
            print(len(list(loader)))
    """
    done = run_script(script, dataset, timeout_s=300)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0].startswith(
        f"{dataset / DATASET_FILE} cannot be read: Too many open files; check "
    )
    assert said[1].startswith(
        f"{dataset / INDEX_FILE} cannot be opened: Too many open files; check "
    )
    assert "the shard cannot be opened: Too many open files" in said[2]
    assert said[-1] == "12"
    tried(
        "no open file left",
        3,
        "a DatasetError or SampleError that says so; the loader goes on when there are some",
    )
