"""Some samples -> the batch that an epoch of a loader makes of them, for somebody who looks; no iteration changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Transfer
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.loading.epoch import Maker
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe


@dataclass(frozen=True)
class Seen:
    """A batch on the CPU, as the training loop gets it."""

    plan: BatchPlan
    views: tuple[torch.Tensor, ...]  # images
    labels: torch.Tensor
    fields: list[dict[str, Any]]  # of each view, values by name; none if the loop gets (images, labels)


@dataclass(frozen=True)
class Look:
    """What a loader makes batches with; `augments` of each view."""

    recipe: Recipe
    maker: Maker
    stream: Stream
    augments: tuple[Augment | None, ...]

    def transfer(self) -> Transfer:
        """To the device."""
        recipe, maker = self.recipe, self.maker
        views = list(zip(self.augments, (view.seed for view in recipe.views), strict=True))
        classes = len(maker.index.classes)
        return Transfer(self.stream, views, classes=classes, stats=maker.stats, watchdog=maker.watchdog)

    def at(self, ids: NDArray[np.int64], epoch: int) -> Seen:
        """Decodes samples, (n,) ids, at full size and takes them through the loader's device and augmentation."""
        # Memory and figures of its own, and no thread but those of the engine.
        views = [(SlotRing((0,), 0, self.stream.slot), True) for _ in self.recipe.views]
        maker = replace(self.maker, views=views, stats=Stats(), replace_bad=False, prepare=None)
        of = EpochPlan(self.recipe, epoch)
        made = maker.end(maker.begin(of.of(ids), of, 0))
        transfer, fields = replace(self, maker=maker).transfer(), made.fields
        staged = transfer.begin(made)
        batch = transfer.hand_over(staged)
        values: list[dict[str, Any]] = [{} for _ in staged.images]
        for key, name in fields.names.items() if fields is not None else ():
            several = len(values) > 1 and fields is not None and fields.by_view(name)
            for view, mine in enumerate(values):
                mine[name] = _on_cpu(batch[key][view] if several else batch[key])
        return Seen(made.plan, tuple(each.cpu() for each in staged.images), staged.labels.cpu(), values)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cpu(each) for each in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value
