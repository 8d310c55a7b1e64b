"""An epoch that continues at a loaded state -> a warning if the program skips its batches again.

A script for a DataLoader, which has no position, skips the batches that are done itself. A loader
with a loaded state has left them out already.
"""

from __future__ import annotations

from fastpipe.errors import format_count
from fastpipe.loading.epoch_watch import EpochWatch
from fastpipe.loading.optimizer_steps import Parameter, look_at_optimizers
from fastpipe.warnings_once import warn_once

_LEAST_SKIPPED = 2  # batches; one alone may be a look


class ResumedEpoch(EpochWatch):
    """Counts the batches before the first gradient, and the first step of an optimizer.

    Args:
        num_done: the batches of the epoch that the state had handed out.
    """

    def __init__(self, num_done: int) -> None:
        self._num_done = num_done
        self._num_skipped = 0
        self._parameters: list[Parameter] = []
        if num_done >= _LEAST_SKIPPED:
            for parameter in look_at_optimizers("resuming"):
                if not parameter.has_gradient:  # else it tells nothing of this epoch
                    self._parameters.append(parameter)

    def come_back(self) -> None:
        """Counts the last batch, or says how many were skipped when training begins."""
        if not self._parameters:
            return
        for parameter in self._parameters:
            if parameter.is_written or parameter.has_gradient:
                self._parameters = []
                if self._num_skipped == self._num_done:
                    self._warn()
                return
        self._num_skipped += 1

    def _warn(self) -> None:
        count = format_count(self._num_skipped, "batch")
        warn_once(
            "skipped twice",
            f"after load_state_dict {count} went by without a step of the optimizer, as many as the "
            "state had handed out. The loader has left these out already: `if step < done: continue` "
            "skips as many once more, which are never trained on. Leave that line out",
        )
