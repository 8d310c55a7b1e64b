"""LitData: JPEG files -> its chunks, of their own bytes; no byte is looked at.

python cluster_litdata.py PHOTOS DESTINATION WORKERS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from litdata import optimize


def sample(path: str) -> dict[str, Any]:
    return {"jpeg": Path(path).read_bytes(), "label": Path(path).parent.name}


if __name__ == "__main__":
    photos, destination, workers = sys.argv[1:]
    files = [str(path) for path in sorted(Path(photos).glob("*/*"))]
    optimize(
        sample,
        files,
        destination,
        chunk_bytes="64MB",
        num_workers=int(workers),
        start_method="fork",
        keep_data_ordered=True,  # else workers share a queue, and no two runs have the same chunks
    )
