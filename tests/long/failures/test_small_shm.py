"""Failure 3: batches of worker processes go through /dev/shm, which is 64 MB in a container, and does not hold them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.programs.children import run
from support.running.soak import Tried

_OWN_MOUNTS = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]


def with_shm_of(size: str) -> Sequence[str]:
    """A command that runs another with a /dev/shm of its own; no other process sees it."""
    return [
        *_OWN_MOUNTS,
        "sh",
        "-c",
        f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"',
        "sh",
    ]


@pytest.fixture(scope="module", autouse=True)
def _rights() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed (Debian: util-linux)")
    refused = subprocess.run(
        [*with_shm_of("64k"), "true"], capture_output=True, text=True, check=False, timeout=300
    )
    if refused.returncode != 0:
        pytest.skip(
            f"a /dev/shm of the test's own needs the right to mount: {refused.stderr.strip()}"
        )


def test_batches_that_do_not_fit() -> None:
    script = """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Pictures(Dataset):
            def __len__(self):
                return 64

            def __getitem__(self, number):
                return torch.zeros(3, 256, 256)

        print(sum(len(batch) for batch in DataLoader(Pictures(), 32, num_workers=2, multiprocessing_context="fork")))
    """
    ended = run(script, within=with_shm_of("8m"))  # a batch is 25 MB
    assert ended.code == 1
    # torch asks for the memory first; before pytorch#161910 the worker died of writing to it.
    assert (
        "unable to allocate shared memory(shm) for file" in ended.complained
        or "Bus error" in ended.complained
    )
    assert run(script, within=with_shm_of("200m")).figures() == 64


@pytest.mark.parametrize("size", ["64k", "4k"])
def test_fastpipe_needs_none(large: Path, tried: Tried, size: str) -> None:
    script = """
        import os, sys
        import fastpipe

        with fastpipe.loader(sys.argv[1], 32, size=256, drop_last=False, num_workers=2, prefetch_factor=8) as loader:
            batches = [images for epoch in range(10) for images, _ in loader]
            assert os.listdir("/dev/shm") == []
        print(sum(len(images) for images in batches))
    """
    assert run(script, large, within=with_shm_of(size)).figures() == 60
    tried("a /dev/shm of 64 kB or less", 10, "epochs as ever; nothing is put there")
