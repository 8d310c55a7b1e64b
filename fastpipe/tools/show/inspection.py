"""A dataset -> figures about it, and a sheet of its images.

Note [shuffle score]
How well an epoch's order is shuffled, beside a uniform permutation and the order of the shards:
three figures, each with its expectation for a uniform permutation of n samples in batches of b:

- class mix: Pearson's chi-squared of a batch's class counts against the dataset's, by its degrees
  of freedom and the correction for drawing without replacement, (classes - 1) * (n - b) / (n - 1);
  the mean over batches. Expected: 1. Larger: batches hold too few classes; 0: all hold the same.
- neighbours: the share of samples whose next one in the shard is in the same batch. Expected:
  (b - 1) / n.
- displacement: the mean distance between a sample's place in the shards and in the epoch, by n.
  Expected: 1 / 3.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.arrays import Float64s, Int64s, Uint8s
from fastpipe.dataset.format.fields import ARRAY_KINDS, Field
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.pixel_form import (
    NO_FORM,
    PixelForm,
    describe_forms,
    has_images,
)
from fastpipe.engine.engine import Engine
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import readable
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import Content
from fastpipe.plan.crop_options import parse_crop, parse_flip_probability
from fastpipe.plan.crops import Crop, Letterbox, Resize
from fastpipe.plan.draws import key
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.order import permute
from fastpipe.plan.placed import geometry_of, move_boxes
from fastpipe.plan.recipe import Recipe
from fastpipe.plan.spread import spread
from fastpipe.sources.scan.opening import open_data

# Enough for figures that do not move in the third place; a billion samples would take hours.
MOST_SAMPLES = 2_000_000
_MAX_ROWS = 1_000_000
_ROWS_AT_ONCE = 50_000  # whose boxes are in memory
_SHEET_SIZE = 160
_SHEET_IMAGES = 40
_STALL_TIMEOUT_S = 60.0
_BINS = 12
_PERCENTS = (0, 10, 50, 90, 100)


@dataclass(frozen=True)
class Histogram:
    """How a quantity is spread."""

    edges: list[float]  # one more than counts
    counts: list[int]  # samples in each bin
    percentiles: dict[int, float]  # at 0, 10, 50, 90 and 100 per cent
    mean: float


@dataclass(frozen=True)
class ArrayForm:
    """What the arrays of a field have in common."""

    dtype: str
    shape: tuple[int | None, ...]  # None for an axis in which they differ


@dataclass(frozen=True)
class BoxCounts:
    """The number of boxes in a field, and of each category."""

    samples: int  # that were looked at: all, or some of more than a million
    samples_with_boxes: int
    boxes: int
    categories: dict[str, int]  # boxes of each; {}: they have no labels


@dataclass(frozen=True)
class Inspection:
    """Figures about a dataset.

    Histograms of more than a million samples are of some of them, evenly spread.
    """

    path: str
    packed: bool  # else its shards are files or tars where they lie
    fingerprint: str
    samples: int
    images: int  # samples that have an image; the others have fields only
    shards: int
    size_bytes: int  # of all tar files
    class_counts: dict[str, int]
    unlabelled: int
    fields: dict[str, str]  # kind by name
    storage: str
    # Channels and bits that occur, and how many samples have them.
    forms: list[dict[str, int]]
    boxes: dict[str, BoxCounts]  # by the name of a field of boxes
    arrays: dict[str, ArrayForm]  # by the name of a field of arrays
    # Of packing or the scan: rejected, encoded anew, converted, ...
    counts: dict[str, Any]
    # Of the images; None: there are none.
    bytes: Histogram | None
    width: Histogram | None
    height: Histogram | None
    megapixels: Histogram | None


def inspect(index: Index) -> Inspection:
    """Gathers the figures of a dataset. Reads its index, not its pictures."""
    # Histograms of so many records do not change with more; the index may have a billion.
    step = max(1, -(-len(index) // _MAX_ROWS))
    records = index.records[::step]
    records = records[has_images(records)]
    sizes = records["size"].astype(np.float64)
    width = records["width"].astype(np.float64)
    height = records["height"].astype(np.float64)
    megapixels = width * height / 1e6

    class_counts = dict(zip(index.classes, index.class_counts, strict=True))
    kinds: dict[str, str] = {}
    arrays: dict[str, ArrayForm] = {}
    for name, field in index.fields.items():
        kinds[name] = field.kind
        if field.kind in ARRAY_KINDS:
            arrays[name] = ArrayForm(field.dtype, field.shape)
    return Inspection(
        path=str(index.path),
        packed=index.packed,
        fingerprint=index.fingerprint,
        samples=len(index),
        images=len(index) - index.form_counts[NO_FORM],
        shards=len(index.shards),
        size_bytes=int(index.shard_sizes.sum()),
        class_counts=class_counts,
        unlabelled=len(index) - sum(index.class_counts),
        fields=kinds,
        storage=index.storage,
        forms=describe_forms(index.form_counts),
        boxes=count_boxes(index),
        arrays=arrays,
        counts=index.counts,
        bytes=_histogram(sizes),
        width=_histogram(width),
        height=_histogram(height),
        megapixels=_histogram(megapixels),
    )


def count_boxes(index: Index) -> dict[str, BoxCounts]:
    """Counts the boxes of each field of boxes, in a million samples at most."""
    samples = np.array(spread(len(index), _MAX_ROWS), dtype=np.int64)
    counts = {}
    for name, field in index.fields.items():
        if field.kind == "boxes":
            column = index.column(name)
            counts[name] = _count_boxes_of(column, field, samples)
    return counts


def _count_boxes_of(column: Any, field: Field, samples: Int64s) -> BoxCounts:
    num_boxes = 0
    num_with_boxes = 0
    by_label: Counter[int] = Counter()
    for start in range(0, len(samples), _ROWS_AT_ONCE):
        stop = start + _ROWS_AT_ONCE
        values = column.take(samples[start:stop])
        num_boxes += len(values.values)
        box_counts = np.diff(values.offsets)
        num_with_boxes += int(np.count_nonzero(box_counts))
        if values.labels is not None:
            labels, counts = np.unique(values.labels, return_counts=True)
            counts_by_label = zip(labels.tolist(), counts.tolist(), strict=True)
            by_label.update(dict(counts_by_label))

    categories: dict[str, int] = {}
    if field.labelled:
        # Categories that the source names and no box has are shown, too.
        for label, name in enumerate(field.names):
            if name:
                categories[name] = by_label.pop(label, 0)
        for label in sorted(by_label):
            categories[str(label)] = by_label[label]
    return BoxCounts(len(samples), num_with_boxes, num_boxes, categories)


def _histogram(values: Float64s) -> Histogram | None:
    """Bins of equal width up to the 99th percentile; None without values.

    The last bin takes all beyond, so that one giant does not hide the rest.
    """
    if not len(values):
        return None
    low = float(values.min())
    high = float(np.percentile(values, 99))
    bins = _BINS
    if low == high:
        # One bin for this value, and one for giants where there are any.
        bins = 2 if values.max() > high else 1
    last_edge = max(high, low + 1e-9)
    edges = np.linspace(low, last_edge, bins + 1)
    clipped = np.minimum(values, edges[-1])
    counts, _ = np.histogram(clipped, edges)
    edges[-1] = max(edges[-1], values.max())
    return Histogram(
        edges=edges.tolist(),
        counts=counts.tolist(),
        percentiles={
            percent: float(np.percentile(values, percent)) for percent in _PERCENTS
        },
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
    """Writes a PNG of a batch, with classes, or with boxes if the dataset has any.

    Args:
        data: the dataset.
        out: the PNG.
        seed: of the batch.
        train: True: crops as training sees them; False: the middle of each picture, or with
            boxes the whole picture.
        count: of pictures.
        fingerprint: of an unpacked source that was scanned just now.

    Returns:
        How many pictures the sheet shows, and how many of them stand in for pictures that cannot be
        decoded.
    """
    # OpenCV: others do without.
    from fastpipe.tools.show.sheet import BACKGROUND, contact_sheet, write_png

    index = open_data(data, max_pixels=MAX_PIXELS, fingerprint=fingerprint)
    size = (_SHEET_SIZE, _SHEET_SIZE)
    box_field = None
    for field in index.fields.values():
        if field.kind == "boxes" and box_field is None:
            box_field = field
    shown = "crops as training sees them" if train else "the middle of each"
    crop = parse_crop(None, size, train=train)
    if box_field is not None and not train:
        # A crop would cut objects off.
        shown = f"whole, with {box_field.name}"
        crop = Letterbox(fill=BACKGROUND)
    content = Content.with_images(index)
    recipe = Recipe(
        batch_size=min(count, len(content)),
        size=size,
        crop=crop,
        flip=parse_flip_probability(None, train=train),
        shuffle=True,
        drop_last=False,
        seed=seed,
        content=content,
    )
    # The first batch of a loader, without torch.
    stats = Stats()
    slots = SlotRing((recipe.batch_size, *size, 3), keep=1)
    is_exact = not train  # decoded at full size
    views = [(slots, is_exact)]
    with closing(Engine(index, count_granted_cpus())) as engine:
        watchdog = Watchdog(_STALL_TIMEOUT_S, index, engine.activities)
        maker = BatchMaker(
            index, engine, views, stats, watchdog, PixelForm(), replace_bad=True
        )
        plan = EpochPlan(recipe, epoch=0)
        begun = maker.begin(plan.batch(0), plan, number=0)
        batch = maker.end(begun)
    images = batch.views[0]
    drawn_plan = batch.filled_plan
    captions = [index.class_name(label) for label in drawn_plan.labels.tolist()]
    if box_field is not None:
        images, categories = _with_boxes(images, drawn_plan, crop, index, box_field)
        # A detection dataset has no class of the whole picture.
        captions = [
            caption or names
            for caption, names in zip(captions, categories, strict=True)
        ]
    path = readable(index.path)
    title = f"{path}: {len(captions)} of {len(content):,} images, {shown}"
    sheet = contact_sheet(images, captions, title=[f"{title}, seed {seed}"])
    write_png(out, sheet)
    return len(captions), stats.replaced


def _with_boxes(
    images: Uint8s, plan: BatchPlan, crop: Crop, index: Index, field: Field
) -> tuple[Uint8s, list[str]]:
    """Images of a batch with the boxes of a field, and the categories in each as text."""
    # OpenCV: others do without.
    from fastpipe.tools.show.drawing import BoxMarks, Marks, name_of, with_marks

    widths = plan.records["width"].astype(np.int64)
    heights = plan.records["height"].astype(np.int64)
    geometry = geometry_of(crop, plan.crops, widths, heights, plan.flips)
    values = index.column(field.name).take(plan.samples)
    box_counts = np.diff(values.offsets)
    rows = np.repeat(np.arange(len(plan.samples)), box_counts)
    boxes = move_boxes(values.values, rows, geometry)

    height, width = images.shape[1:3]
    drawn = []
    categories = []
    for row, image in enumerate(images):
        in_row = rows == row
        labels = None if values.labels is None else values.labels[in_row]
        box_marks = BoxMarks(boxes[in_row], labels, field.names)
        marks = Marks((width, height), boxes=[box_marks])
        drawn.append(with_marks(image, marks))
        names = set()
        if labels is not None and field.names:
            names = {name_of(label, field.names) for label in labels.tolist()}
        categories.append(", ".join(sorted(names)))
    return np.stack(drawn), categories


@dataclass(frozen=True)
class ShuffleScore:
    """How an order is shuffled; see Note [shuffle score]."""

    class_mix: float
    neighbours: float
    displacement: float


@dataclass(frozen=True)
class ShuffleReport:
    """The scores of an epoch's order, of a uniform permutation, and of the order of the shards."""

    batch_size: int
    samples: int  # that were looked at: whole batches, the epoch's first
    epoch: ShuffleScore
    uniform: ShuffleScore
    shards: ShuffleScore


def score(
    samples: Int64s, labels: Int64s, batch_size: int, class_counts: Int64s
) -> ShuffleScore:
    """Scores the start of an order of all samples of a dataset.

    Args:
        samples: (m,) their numbers; m is a multiple of batch_size.
        labels: (m,) their labels.
        batch_size: samples in a batch.
        class_counts: (classes + 1,) how many of all samples each class has; the last count is of
            those without a label.
    """
    count = int(class_counts.sum())
    batch_count = len(samples) // batch_size
    # (m,) the batch of each sample.
    batches = np.repeat(np.arange(batch_count), batch_size)
    places = np.arange(len(samples))
    distances = np.abs(samples - places)
    displacement = float(distances.mean()) / count

    # Pairs of samples that follow one another in the shards and are both among those scored, and
    # whether one batch has both.
    by_sample = np.argsort(samples, kind="stable")
    differences = np.diff(samples[by_sample])
    is_next_sample = differences == 1
    batch_of_sample = batches[by_sample]
    is_same_batch = batch_of_sample[1:] == batch_of_sample[:-1]
    are_in_one_batch = is_next_sample & is_same_batch
    neighbours = float(are_in_one_batch.sum()) / len(samples)
    class_mix = _class_mix(labels, batches, batch_size, class_counts)
    return ShuffleScore(class_mix, neighbours, displacement)


def _class_mix(
    labels: Int64s, batches: Int64s, batch_size: int, class_counts: Int64s
) -> float:
    """See Note [shuffle score]; the arguments are as of `score`, and the batch of each sample."""
    count = int(class_counts.sum())
    if np.count_nonzero(class_counts) < 2 or batch_size >= count:
        return 1.0  # nothing can be mixed badly
    num_classes = len(class_counts)
    class_of = labels % num_classes  # NO_LABEL, -1, is the last class
    batch_count = len(labels) // batch_size
    # Of each class, in a batch. The samples that are scored may be of a few classes alone: the start
    # of a sorted dataset.
    expected = class_counts / count * batch_size

    # Chi-squared is the sum over all classes of (actual - expected)^2 / expected. Written as
    # actual^2 / expected, minus batch_size, it needs only the classes that a batch has.
    pair_numbers = batches * num_classes + class_of
    pairs, actual = np.unique(pair_numbers, return_counts=True)
    expected_of_pairs = expected[pairs % num_classes]
    sum_of_squares = (actual**2 / expected_of_pairs).sum()
    chi_squared = sum_of_squares / batch_count - batch_size
    degrees_of_freedom = np.count_nonzero(class_counts) - 1
    correction = degrees_of_freedom * (count - batch_size) / (count - 1)
    return float(chi_squared / correction)


def shuffle_report(
    index: Index, *, batch_size: int = 256, seed: int = 0, epoch: int = 0
) -> ShuffleReport:
    """Scores the order of an epoch of a training loader, in batches of all ranks together."""
    count = len(index)
    batch_size = min(batch_size, count)
    most_samples = min(count, max(MOST_SAMPLES, batch_size))
    sample_count = most_samples // batch_size * batch_size  # whole batches
    recipe = Recipe(
        batch_size=batch_size,
        size=(1, 1),  # nothing is read, so size, crop and flip are of no account
        crop=Resize(),
        flip=0.0,
        shuffle=True,
        drop_last=True,
        seed=seed,
        content=Content.of(index),
    )
    order = EpochPlan(recipe, epoch).orders[0]  # the only sequence: it is no mixture
    shard_order = np.arange(sample_count, dtype=np.int64)
    if count > MOST_SAMPLES:
        # Without a permutation of all samples in memory. No Stream has the number 0, so the epoch's
        # order does not come from this key.
        uniform_order = permute(shard_order, count, key(seed, epoch, 0))
    else:
        permutation = np.random.default_rng(0).permutation(count)
        uniform_order = permutation[:sample_count].astype(np.int64)

    num_unlabelled = count - sum(index.class_counts)
    class_counts = np.array([*index.class_counts, num_unlabelled], dtype=np.int64)

    def score_of(samples: Int64s) -> ShuffleScore:
        labels = index.records["label"][samples].astype(np.int64)
        return score(samples, labels, batch_size, class_counts)

    return ShuffleReport(
        batch_size=batch_size,
        samples=sample_count,
        epoch=score_of(order.take(0, sample_count).ids),
        uniform=score_of(uniform_order),
        shards=score_of(shard_order),
    )
