"""Epochs and packs of a Python program under LeakSanitizer: what is left at its end does not depend on their number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.checkout import ROOT
from support.running.soak import Tried, long_form

SCRIPT = """
    import gc, sys
    from pathlib import Path
    import fastpipe
    from fastpipe.packing.job.threads import PackOptions, pack

    data, folder, epochs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    for verify in (False, True):
        for epoch in range(epochs):
            loader = fastpipe.loader(data, 4, size=32, num_workers=2, verify=verify)
            for images, labels in loader:
                pass
            next(iter(loader)), loader.stats()
            del loader
    for number in range(epochs):
        pack(data.parent / "source", folder / str(number), PackOptions(workers=2))
    gc.collect()
"""


@pytest.mark.skipif(not long_form(), reason="builds a sanitized engine: make soak")
def test_nothing_is_left_of_epochs_and_packs(textured: Path, tmp_path: Path, tried: Tried) -> None:
    built = tmp_path / "built"
    environment = {**os.environ, "FASTPIPE_BUILD": "asan"}
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        tmp_path / "base",
        "--build-lib",
        built,
    ]
    subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        timeout=900,
    )
    left = {left_of(built, textured, tmp_path / str(epochs), epochs) for epochs in (1, 10)}
    assert len(left) == 1, left
    tried(
        "epochs and packs of a Python program, under LeakSanitizer",
        22 + 11,
        "what Python leaves does not grow",
    )


def left_of(built: Path, data: Path, folder: Path, epochs: int) -> tuple[int, int]:
    """(bytes, allocations) that nobody refers to at the end; none was made by the engine."""
    preloaded = (
        subprocess.run(
            ["c++", f"-print-file-name={name}.so"], check=True, capture_output=True, text=True
        ).stdout
        for name in ("libasan", "libstdc++")
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(map(str.strip, preloaded)),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(built),
        "PYTHONSAFEPATH": "1",
        "ASAN_OPTIONS": "detect_leaks=1:fast_unwind_on_malloc=0:malloc_context_size=40",
    }
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), data, folder, epochs]
    folder.mkdir()
    ended = subprocess.run(
        list(map(str, command)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "csrc" not in ended.stderr, ended.stderr
    assert "_engine" not in ended.stderr, ended.stderr
    found = re.findall(r"(\d+) byte\(s\) leaked in (\d+) allocation", ended.stderr)
    assert len(found) == 1, (
        "Python itself leaves some: the sanitizer was not at work\n" + ended.stderr
    )
    return int(found[0][0]), int(found[0][1])
