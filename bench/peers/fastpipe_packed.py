"""fastpipe itself, on what `fastpipe pack` made, or on files; every crop decoded at full size, but for the variant "".

The variant "gray" makes gray pictures, "small" moves whole ones by up to 4 pixels.
"""

from __future__ import annotations

import contender

from fastpipe import (
    RandomCrop,
    loader,
)  # imported now, and torch with it: the time of imports does not count
from fastpipe.distribution import DISTRIBUTION


def read(task: contender.Task) -> contender.Loader:
    more = {"small": {"crop": RandomCrop(padding=4)}, "gray": {"channels": "gray"}}.get(
        task.variant, {}
    )
    exact = task.variant != ""
    return loader(
        task.data,
        task.batch_size,
        size=task.size,
        train=True,
        num_workers=task.workers,
        exact=exact,
        **more,
    )


if __name__ == "__main__":
    contender.main((DISTRIBUTION, "torch"), read)
