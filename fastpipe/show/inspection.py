"""A dataset -> figures about it, and a sheet of its images.

Note [shuffle score]
How well an epoch's order is shuffled, beside a uniform permutation and the order of the shards: three figures, each
with its expectation for a uniform permutation of n samples in batches of b:

- class mix: Pearson's chi-squared of a batch's class counts against the dataset's, by its degrees of freedom and the
  correction for drawing without replacement, (classes - 1) * (n - b) / (n - 1); the mean over batches. Expected: 1.
  Larger: batches hold too few classes; 0: all hold the same.
- neighbours: the share of samples whose next one in the shard is in the same batch. Expected: (b - 1) / n.
- displacement: the mean distance between a sample's place in the shards and in the epoch, by n. Expected: 1 / 3.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.engine import Engine
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.format.folder import Place
from fastpipe.format.index import Index
from fastpipe.format.pixel_form import PixelForm, describe_forms
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.content import Content
from fastpipe.plan.crop_options import checked_crop, flip_probability
from fastpipe.plan.crops import Resize
from fastpipe.plan.draws import Int64s, key
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.order import permute
from fastpipe.plan.recipe import Recipe
from fastpipe.sources.scan.opening import open_data

# Enough for figures that do not move in the third place; a billion samples would take hours.
MOST_SAMPLES = 2_000_000
_MOST_ROWS = 1_000_000
_SHEET_SIZE = 160
_SHEET_IMAGES = 40
_STALL_TIMEOUT_S = 60.0
_QUANTILES = (0, 10, 50, 90, 100)


@dataclass(frozen=True)
class Histogram:
    """How a quantity is spread."""

    edges: list[float]  # one more than counts
    counts: list[int]  # samples in each bin
    percentiles: dict[int, float]  # at 0, 10, 50, 90 and 100 per cent
    mean: float


@dataclass(frozen=True)
class Inspection:
    """Figures about a dataset; histograms are of evenly spread samples where there are over a million."""

    path: str
    packed: bool  # else its shards are files or tars where they lie
    fingerprint: str
    samples: int
    shards: int
    size_bytes: int  # of all tar files
    class_counts: dict[str, int]
    unlabelled: int
    fields: dict[str, str]  # kind by name
    storage: str
    forms: list[dict[str, int]]  # channels and bits that occur, and how many samples have them
    counts: dict[str, Any]  # of packing or the scan: rejected, encoded anew, converted in each epoch, ...
    bytes: Histogram
    width: Histogram
    height: Histogram
    megapixels: Histogram


def inspect(index: Index) -> Inspection:
    """Gathers the figures of a dataset; reads its index, not its pictures."""
    rows = index.records[:: max(1, -(-len(index) // _MOST_ROWS))]
    width, height = rows["width"].astype(np.float64), rows["height"].astype(np.float64)
    return Inspection(
        path=str(index.path),
        packed=index.packed,
        fingerprint=index.fingerprint,
        samples=len(index),
        shards=len(index.shards),
        size_bytes=sum(shard.size_bytes for shard in index.shards),
        class_counts=dict(zip(index.classes, index.class_counts, strict=True)),
        unlabelled=len(index) - sum(index.class_counts),
        fields={name: field.kind for name, field in index.fields.items()},
        storage=index.storage,
        forms=describe_forms(index.form_counts),
        counts=index.counts,
        bytes=_histogram(rows["size"].astype(np.float64)),
        width=_histogram(width),
        height=_histogram(height),
        megapixels=_histogram(width * height / 1e6),
    )


def _histogram(values: NDArray[np.float64], bins: int = 12) -> Histogram:
    """Bins up to the 99th percentile; the last one takes what lies beyond, so that one giant does not hide the rest."""
    low, high = float(values.min()), float(np.percentile(values, 99))
    if low == high:  # one bin for this value, and one for giants where there are any
        bins = 1 + bool(values.max() > high)
    edges = np.linspace(low, max(high, low + 1e-9), bins + 1)
    counts, _ = np.histogram(np.minimum(values, edges[-1]), edges)
    edges[-1] = max(edges[-1], values.max())
    return Histogram(
        edges=edges.tolist(),
        counts=counts.tolist(),
        percentiles={q: float(np.percentile(values, q)) for q in _QUANTILES},
        mean=float(values.mean()),
    )


def write_contact_sheet(
    data: Place,
    out: Path,
    *,
    seed: int = 0,
    train: bool = False,
    count: int = _SHEET_IMAGES,
    fingerprint: str | None = None,
) -> tuple[int, int]:
    """Writes a PNG of a batch, with classes: as training sees it, or the middle of each picture. The fingerprint is
    that of an unpacked source that was scanned just now. Returns how many pictures the sheet shows, and how many of
    them stand in for pictures that cannot be decoded.
    """
    from fastpipe.show.sheet import contact_sheet, write_png  # OpenCV, which other commands do without

    index = open_data(data, max_pixels=MAX_PIXELS, fingerprint=fingerprint)
    size = (_SHEET_SIZE, _SHEET_SIZE)
    crop, flip = checked_crop(None, size, train=train), flip_probability(None, train=train)
    recipe = Recipe(min(count, len(index)), size, crop, flip, True, False, seed, Content.of(index))
    stats, views = Stats(), [(SlotRing((recipe.batch_size, *size, 3), keep=1), not train)]
    with closing(Engine(index, granted_cpus())) as engine:  # the first batch of a loader, without torch
        watchdog = Watchdog(_STALL_TIMEOUT_S, index, engine.activities)
        maker = BatchMaker(index, engine, views, stats, watchdog, PixelForm(), replace_bad=True)
        plan = EpochPlan(recipe, epoch=0)
        batch = maker.end(maker.begin(plan.batch(0), plan, 0))
    captions = [index.class_name(label) for label in batch.there.labels.tolist()]
    write_png(out, contact_sheet(batch.views[0], captions))
    return len(captions), stats.replaced


@dataclass(frozen=True)
class ShuffleScore:
    """How an order is shuffled; see Note [shuffle score]."""

    class_mix: float
    neighbours: float
    displacement: float


@dataclass(frozen=True)
class ShuffleReport:
    """The order of an epoch, and what it is compared with: a uniform permutation, and the order of the shards."""

    batch_size: int
    samples: int  # that were looked at: whole batches, the epoch's first
    epoch: ShuffleScore
    uniform: ShuffleScore
    shards: ShuffleScore


def score(samples: Int64s, labels: Int64s, batch_size: int, count: int) -> ShuffleScore:
    """Scores the start of an order of `count` samples: (m,) numbers and their labels; m is a multiple of batch_size."""
    batches = len(samples) // batch_size
    batch = np.repeat(np.arange(batches), batch_size)
    places = np.arange(len(samples))
    displacement = float(np.abs(samples - places).mean()) / count

    by_sample = np.argsort(samples, kind="stable")
    follows = np.diff(samples[by_sample]) == 1
    together = batch[by_sample[1:]] == batch[by_sample[:-1]]
    neighbours = float((follows & together).sum()) / len(samples)
    return ShuffleScore(_class_mix(labels, batch, batch_size, batches, count), neighbours, displacement)


def _class_mix(labels: Int64s, batch: Int64s, batch_size: int, batches: int, count: int) -> float:
    _, numbers = np.unique(labels, return_inverse=True)
    totals = np.bincount(numbers)
    if len(totals) < 2 or batch_size >= count:
        return 1.0  # nothing can be mixed badly
    expected = totals / len(labels) * batch_size
    pairs, found = np.unique(batch * len(totals) + numbers, return_counts=True)
    # The sum over all classes of (found - expected)^2 / expected, without those that a batch has none of.
    squares = (found**2 / expected[pairs % len(totals)]).sum() / batches - batch_size
    return float(squares / ((len(totals) - 1) * (count - batch_size) / (count - 1)))


def shuffle_report(index: Index, *, batch_size: int = 256, seed: int = 0, epoch: int = 0) -> ShuffleReport:
    """Scores the order in which a training loader goes through an epoch, in batches of all ranks together."""
    count = len(index)
    batch_size = min(batch_size, count)
    looked_at = min(count, max(MOST_SAMPLES, batch_size)) // batch_size * batch_size
    recipe = Recipe(batch_size, (1, 1), Resize(), 0.0, True, True, seed, Content.of(index))
    order = EpochPlan(recipe, epoch).orders[0]
    places = np.arange(looked_at, dtype=np.int64)
    if count > MOST_SAMPLES:
        uniform = permute(places, count, key(seed, epoch, 0))
    else:
        uniform = np.random.default_rng(0).permutation(count)[:looked_at].astype(np.int64)

    def scored(samples: Int64s) -> ShuffleScore:
        labels = index.records["label"][samples].astype(np.int64)
        return score(samples, labels, batch_size, count)

    return ShuffleReport(batch_size, looked_at, scored(order.take(0, looked_at).ids), scored(uniform), scored(places))
