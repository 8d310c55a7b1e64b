"""uint8 batches -> augmented, normalised batches on their device.

    plan (numpy) -> arrays -> operations -> pixels (normalise) -> erasing -> mixing

`module` has the class that users see, `chain` its base: the order of the stations.
"""

from fastpipe.device.augment.module import Augment, as_augment
from fastpipe.device.augment.operation import AugmentPlan

__all__ = ["Augment", "AugmentPlan", "as_augment"]
