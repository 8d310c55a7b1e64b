"""A program that ends while a thread of its own reads samples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.programs.scripts import run_script


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the sanitizer takes the unwinding by which Python ends such a thread for an overflow of its stack",
)
def test_a_program_ends_cleanly_with_a_daemon_thread_in_mid_read(large: Path) -> None:
    """Arrays only: torch's own functions end a program that such a thread is in with an abort."""
    script = """
        import sys, threading, time
        import numpy as np
        from fastpipe.dataset.format.packed_index import PackedIndex
        from fastpipe.engine.pictures import Pictures
        index = PackedIndex(sys.argv[1])
        pictures = Pictures(index)
        def run():
            while True:
                numbers = np.arange(6)
                for number, record in zip(numbers, index.read(numbers)):
                    pictures.decode(int(number), record)
        for _ in range(3):
            threading.Thread(target=run, daemon=True).start()
        time.sleep(0.2)
    """
    for _ in range(3):
        done = run_script(script, large, timeout_s=300)
        assert (done.returncode, done.stderr) == (0, "")
