"""How much memory a program of a test has used: text for the program, and a mark for tests that measure it.

The resource module does not say it: a process inherits the peak of the process that started it. This is pytest's here,
with all of torch, and the program's own memory is hidden below it.
"""

from __future__ import annotations

import os

import pytest

PEAK = """
def peak_bytes():
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10
"""

# The address sanitizer keeps what was freed.
frees_memory = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps memory"
)
