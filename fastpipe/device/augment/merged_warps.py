"""Neighbouring stages that move pixels -> one matrix for each sample, for `merge_geometry=True`.

Two samplings blur an image twice, and what left it in the first does not come back in the second.
One sampling by the product of both matrices does neither, so its pixels are other ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpipe.device.augment.operation import StageWarps, WarpRun, number_rows
from fastpipe.device.augment.warps import Sampling, Warp


def find_warp_runs(stages: Sequence[StageWarps | None], count: int) -> list[WarpRun]:
    """The runs of at least two stages that are sampled alike; None: a stage that is no warp."""
    runs = []
    members: list[StageWarps] = []
    sampling: Sampling | None = None
    for number, stage in enumerate([*stages, None]):
        stage_sampling = None if stage is None else _sampling_of(stage)
        differs = None not in (sampling, stage_sampling) and sampling != stage_sampling
        if stage is None or differs:
            # Flips alone need no sampling.
            if len(members) > 1 and sampling is not None:
                first = number - len(members)
                arrays = {"matrices": _product(members, count)}
                runs.append(WarpRun(first, number, arrays, sampling))
            members = []
            sampling = None
        if stage is not None:
            members.append(stage)
            sampling = sampling or stage_sampling
    return runs


def _sampling_of(stage: StageWarps) -> Sampling | None:
    """A module's calls are all sampled alike."""
    for _, warp in stage:
        return warp.sampling
    return None


def _product(stages: Sequence[StageWarps], count: int) -> np.ndarray:
    """(n, 3, 3) from places in the last result to places in the first images."""
    product = np.tile(np.eye(3), (count, 1, 1))
    for stage in stages:
        product = product @ _matrices_of(stage, count)
    return product.astype(np.float32)


def _matrices_of(stage: StageWarps, count: int) -> np.ndarray:
    """(n, 3, 3) of one stage; the identity for samples that it leaves as they are."""
    matrices = np.tile(np.eye(3), (count, 1, 1))
    for rows, warp in stage:
        row_numbers = number_rows(rows, count)
        matrices[row_numbers] = _first(warp, len(row_numbers))
    return matrices


def _first(warp: Warp, count: int) -> np.ndarray:
    return warp.matrices if warp.matrices.ndim == 2 else warp.matrices[:count]
