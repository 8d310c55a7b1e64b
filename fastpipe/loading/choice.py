"""The arguments of fastpipe.loader() that choose samples, as a user passed them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Choice:
    """Unchecked; see `fastpipe.loader`."""

    samples: object = None
    classes: object = None
    labels: object = None
    limit: object = None
    kfold: object = None
    weights: object = None
    replacement: object = True
    repeats: object = 1
    epoch_size: object = None

    @property
    def everything(self) -> bool:
        """Whether nothing was passed."""
        chosen = (self.samples, self.classes, self.labels, self.limit, self.kfold, self.weights, self.epoch_size)
        usual = self.replacement is True and type(self.repeats) is int and self.repeats == 1  # True == 1
        return usual and all(each is None for each in chosen)
