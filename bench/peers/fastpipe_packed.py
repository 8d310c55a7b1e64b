"""fastpipe itself, on what `fastpipe pack` made: the variant "exact" decodes every crop at full size."""

from __future__ import annotations

import contender

from fastpipe import loader  # imported now, and torch with it: the time of imports does not count


def read(task: contender.Task) -> contender.Loader:
    return loader(
        task.data, task.batch_size, size=task.size, train=True, num_workers=task.workers, exact=task.variant == "exact"
    )


if __name__ == "__main__":
    contender.main(("fastpipe", "torch"), read)
