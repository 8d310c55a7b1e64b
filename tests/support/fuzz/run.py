"""`make fuzz`: builds the fuzzer with the sanitizers, makes its seeds, and runs it in a process a core."""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.fuzz.seeds import write
from support.native.native_build import build


def main() -> int:
    """Returns 0 if nothing was found, 1 otherwise; each process tells what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs (default: 1,000,000)")
    parser.add_argument("--seed", type=int, default=0, help="of the damages (default: 0)")
    parser.add_argument(
        "--photos", type=Path, help="a folder of JPEGs to damage beside the synthetic ones"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="of processor time, after which each process ends",
    )
    parser.add_argument(
        "--plain", action="store_true", help="without the sanitizers: several times as fast"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastpipe-fuzz-") as folder:
        program = build(
            Path(__file__).parent,
            Path(folder) / "build",
            "" if options.plain else "address,undefined",
        )
        write(Path(folder) / "jpegs")
        folders = [str(Path(folder) / "jpegs"), *([str(options.photos)] if options.photos else [])]
        started = time.monotonic()
        bounds = [
            options.count * number // options.processes for number in range(options.processes + 1)
        ]
        processes = []
        for first, end in itertools.pairwise(bounds):
            span = [
                "--first",
                str(first),
                "--count",
                str(end - first),
                "--seconds",
                str(options.seconds),
            ]
            processes.append(
                subprocess.Popen([str(program), "--seed", str(options.seed), *span, *folders])
            )
        found = [process.wait() for process in processes]
    sys.stdout.write(f"{time.monotonic() - started:.0f} s, exit status of the processes: {found}\n")
    return 0 if not any(found) else 1


if __name__ == "__main__":
    sys.exit(main())
