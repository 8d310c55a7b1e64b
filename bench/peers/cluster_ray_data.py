"""Ray Data: JPEG files -> tars of WebDataset's naming, as its documentation writes them; no byte is looked at.

python cluster_ray_data.py PHOTOS DESTINATION CPUS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray


def sample(row: dict[str, Any]) -> dict[str, Any]:
    path = Path(row["path"])
    return {
        "__key__": f"{path.parent.name}-{path.stem}",
        "jpg": row["bytes"],
        "cls": path.parent.name,
    }


if __name__ == "__main__":
    photos, destination, cpus = sys.argv[1:]
    ray.init("local", num_cpus=int(cpus), include_dashboard=False, log_to_driver=False)
    ray.data.read_binary_files(photos, include_paths=True).map(sample).write_webdataset(
        destination,
        encoder=None,  # bytes as they are; its own encoder of "jpg" takes pictures
    )
