"""A user's own DataLoader, or training script -> why it is slow or stuck, and which line to change.

Only this module is loaded by `import fastpipe`; the rest comes with the first diagnosis.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from fastpipe.checks import positive, whole
from fastpipe.errors import ConfigError

if TYPE_CHECKING:
    from fastpipe.diagnosis.report import Diagnosis


def diagnose(
    dataloader: Any,
    *,
    batches: int = 100,
    epochs: int = 2,
    seconds: float = 120.0,
    step: Callable[[Any], Any] | None = None,
    stall_timeout: float = 60.0,
) -> Diagnosis:
    """Says why a torch DataLoader is slow or stuck: iterates it for a while and looks at every process that it has.

        print(fastpipe.diagnose(loader, step=train_step))

    The loader stays as it is: a copy of it is iterated, with workers of its own; order and results do not change, and
    the random generators of torch, NumPy and Python on the CPU, and the loader's, are afterwards where they were. A
    loader that hangs does not hang its caller: workers that hang are ended; without workers it is iterated in a thread,
    which stays until the program ends if the dataset hangs.

    Args:
        dataloader: a `torch.utils.data.DataLoader`, or of a subclass.
        batches: at most, of each epoch.
        epochs: at most.
        seconds: after which no more batches are asked for.
        step: called with each batch, as a training step would be; its time is what the loader's is compared with. None:
            batches are only read, as fast as they come.
        stall_timeout: seconds without a batch after which the loader is stuck: all stacks are dumped, and it ends.

    Returns:
        What was found; `print` shows it, `as_dict()` is for JSON.

    Raises:
        ConfigError: an argument is none of these. What `step` raises is passed on.
    """
    from fastpipe.diagnosis.origin import made_at
    from fastpipe.diagnosis.run import Limits, run

    if not isinstance(dataloader, DataLoader):
        raise ConfigError(
            f"dataloader: expected a torch.utils.data.DataLoader, got {type(dataloader).__name__}; a fastpipe.loader "
            "tells by itself what holds it up: stats(), fastpipe.monitor(loader), stall_timeout="
        )
    limits = Limits(
        whole("batches", batches, least=1, most=10**9),
        whole("epochs", epochs, least=1, most=10**6),
        time.monotonic() + positive("seconds", seconds),
        positive("stall_timeout", stall_timeout),
    )
    return run(dataloader, limits, step, made_at(dataloader, sys._getframe(1)))
