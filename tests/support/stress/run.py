"""Runs the stress program on a packed dataset: `python -m stress.run DATA --sanitizers thread --seconds 600`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from support.native.native_build import build

from fastpipe.dataset.format.packed_index import PackedIndex


def write_rows(data: Path, file: Path) -> int:
    """Writes what the program reads of a dataset; returns the number of samples."""
    index = PackedIndex(data)
    lines = [f"shard {shard.path.resolve()} {shard.size_bytes}" for shard in index.shards]
    names = ("shard", "offset", "size", "width", "height", "xxh3_64")
    lines += ["row " + " ".join(str(record[name]) for name in names) for record in index.records]
    file.write_text("".join(f"{line}\n" for line in lines))
    return len(index)


def main() -> int:
    """Returns the program's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--sanitizers", default="", help='"thread" or "address,undefined"; none by default'
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0, help="decode everything so often, instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastpipe-stress-") as folder:
        program = build(Path(__file__).parent, Path(folder) / "build", options.sanitizers)
        rows = Path(folder) / "rows"
        write_rows(options.data, rows)
        numbers = [f"--{name}={getattr(options, name)}" for name in ("seconds", "seed", "epochs")]
        return subprocess.run(
            [program, *" ".join(numbers).replace("=", " ").split(), rows], check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
