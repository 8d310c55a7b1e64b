"""A user's own DataLoader, or training script -> why it is slow or stuck, and which line to change.

`import fastpipe` loads only this module; the first diagnosis loads the others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from fastpipe.arguments import refusing_unknown
from fastpipe.errors import ConfigError, positive, whole

if TYPE_CHECKING:
    from fastpipe.diagnosis.report import Diagnosis


@refusing_unknown("fastpipe.diagnose")
def diagnose(
    dataloader: Any,
    *,
    batches: int = 100,
    epochs: int = 2,
    seconds: float = 120.0,
    step: Callable[[Any], Any] | None = None,
    stall_timeout: float = 60.0,
) -> Diagnosis:
    """Says why a torch DataLoader is slow or stuck.

    diagnose() iterates over it for a while and watches all its processes:

        print(fastpipe.diagnose(loader, step=train_step))

    The loader does not change: diagnose() iterates over a copy with its own workers. Order and
    results stay the same, and the random generators of torch, NumPy and Python on the CPU, and the
    loader's generator, get back their states. If the loader hangs, diagnose() still returns: it
    ends workers that hang. Without workers, it iterates in a thread; if the dataset hangs, this
    thread stays until the program ends.

    Args:
        dataloader: a `torch.utils.data.DataLoader`, or an object of a subclass.
        batches: largest number of batches of each epoch.
        epochs: largest number of epochs.
        seconds: after this time diagnose() requests no more batches.
        step: called with each batch, like a training step; diagnose() compares its time with the
            loader's time. None: batches are only read, as fast as possible.
        stall_timeout: seconds without a batch after which the loader counts as stuck: diagnose()
            dumps all stacks and stops.

    Returns:
        A Diagnosis: `print` shows it, `as_dict()` is for JSON.

    Raises:
        ConfigError: an argument is wrong. Errors of `step` are passed on.

    Example:
        >>> batches = torch.utils.data.DataLoader(fastpipe.open("data/train"), batch_size=None)
        >>> for finding in fastpipe.diagnose(batches, batches=8).findings:
        ...     print(finding.what, finding.change)
    """
    from fastpipe.diagnosis.run import Limits, run
    from fastpipe.diagnosis.source.places import find_creation

    if not isinstance(dataloader, DataLoader):
        raise ConfigError(
            f"dataloader: expected a torch.utils.data.DataLoader, got {type(dataloader).__name__}; "
            "for a fastpipe.loader use stats(), fastpipe.monitor(loader) or stall_timeout="
        )
    limits = Limits(
        batches=whole("batches", batches, least=1, most=10**9),
        epochs=whole("epochs", epochs, least=1, most=10**6),
        until_s=time.monotonic() + positive("seconds", seconds),
        stall_s=positive("stall_timeout", stall_timeout),
    )
    # The frame of the decorator's function; find_creation goes on with those that called it.
    frame = sys._getframe(1)
    return run(dataloader, limits, step, find_creation(dataloader, frame))
