"""Photos -> the same at most 500 pixels long, each encoded again with quality 90 with FFCV's own functions.

python shrink_photos.py PHOTOS DESTINATION
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from contender import photo_files
from ffcv.fields.rgb_image import encode_jpeg, resizer
from PIL import Image


def main(photos: Path, destination: Path) -> None:
    for name, _ in photo_files(photos):
        path = destination / Path(name).relative_to(photos)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            encode_jpeg(resizer(np.array(Image.open(name).convert("RGB")), 500), 90).tobytes()
        )
    sys.stdout.write(json.dumps({"destination": str(destination)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
