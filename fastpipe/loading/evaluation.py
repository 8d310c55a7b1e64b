"""The options of a loader that evaluates, or should -> warnings about what makes its figures wrong.

Data for evaluation are read as for training, or images are changed at random, or not each sample
comes once. A program may mean it, so the log says it, once, and it is no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastpipe.dataset.dataset import Dataset
from fastpipe.device.augment import Augment
from fastpipe.device.augment.contents import parts_of
from fastpipe.device.augment.operation import Operation
from fastpipe.errors import format_count
from fastpipe.plan.picks import RejectionDraws, SpreadDraws
from fastpipe.plan.recipe import Recipe
from fastpipe.sources.folders.splits import is_for_evaluation
from fastpipe.warnings_once import is_known, warn_once

_DRAWS = (SpreadDraws, RejectionDraws)  # which may pick a sample again
# Modules of kornia and torchvision that draw, besides those that are called Random.
_DRAWING_CLASSES = frozenset(
    [
        "AugMix",
        "AutoAugment",
        "ColorJiggle",
        "ColorJitter",
        "ElasticTransform",
        "RandAugment",
        "TrivialAugment",
        "TrivialAugmentWide",
    ]
)


def warn_of_evaluation(
    data: Dataset,
    recipe: Recipe,
    augments: Sequence[Augment | None],
    *,
    train: bool,
    is_ordered: bool,
) -> None:
    """Says if data for evaluation are read as for training, or are mixed or altered at random.

    `is_ordered`: the user has passed shuffle=False, and no crop.
    """
    if train:
        _warn_read_as_for_training(data, is_ordered=is_ordered)
        return
    options = " and ".join(_random_options(recipe, augments))
    if options:
        soft_labels = ""
        if any(augment is not None and augment.soft for augment in augments):
            soft_labels = ". Its labels are soft, too: (N, classes), not (N,)"
        verb = "change" if " and " in options else "changes"
        advice = f"Leave {options} out"
        if "augment=" in options:
            advice = "To normalise them alone: augment=fastpipe.Augment.imagenet()"
        warn_once(
            options,
            f"train=False, and {options} {verb} images at random, so the evaluation sees "
            f"altered images. {advice}{soft_labels}",
        )
    _warn_other_samples(data, recipe)


def describe_random_defaults(
    data: Dataset, recipe: Recipe, *, has_crop: bool, has_hflip: bool
) -> str:
    """How images are random though the user has asked for neither; "": they are not.

    Of data that are called for evaluation the log has said it when the loader was made.

    Args:
        data: what the loader reads.
        recipe: its recipe.
        has_crop: the user has passed a crop.
        has_hflip: the user has passed hflip.
    """
    if recipe.other_views or _is_for_evaluation(data):
        return ""
    texts = []
    if recipe.crop.is_random and not has_crop:
        texts.append("random crops")
    if 0 < recipe.flip < 1 and not has_hflip:
        texts.append("mirrored at random")
    return ", ".join(texts)


def _warn_read_as_for_training(data: Dataset, *, is_ordered: bool) -> None:
    if _is_for_evaluation(data):
        warning = f"train {data.path}"
        if not is_known(warning):
            warn_once(
                warning,
                f"{data.path} is read as for training: random crops, mirrored, full batches only. "
                "To evaluate on all of it: fastpipe.loader(..., train=False)",
            )
            return
    if is_ordered:
        warn_once(
            "ordered training",
            "shuffle=False alone reads data as for training, with random crops, mirrored, full batches "
            "only. To evaluate on all samples: fastpipe.loader(..., train=False)",
        )


def _is_for_evaluation(data: Dataset) -> bool:
    """Whether a dataset, or each of those that are joined in it, is called val, test or the like.

    Who joins such a dataset with others trains on it on purpose.
    """
    for stored in data.stored:
        name = str(stored.index.path).rstrip("/").rpartition("/")[2]
        if not is_for_evaluation(name):
            return False
    return True


def _random_options(
    recipe: Recipe, augments: Sequence[Augment | None]
) -> Iterator[str]:
    """The options by which images are changed at random.

    Crops and mirroring are not looked at where samples are shuffled, or have several views: the
    loader then measures the loss of training, or of a method that needs random views.
    """
    if not recipe.shuffle and not recipe.other_views:
        if recipe.crop.is_random:
            yield "crop="
        if 0 < recipe.flip < 1:
            yield "hflip="
    for augment in augments:
        if augment is not None and any(map(_draws, augment.all_operations)):
            yield "augment="
            return


def _draws(operation: Operation) -> bool:
    """Whether an operation changes images at random; modules of others by their names."""
    module = getattr(operation, "module", None)
    if module is None:
        return True  # one of fastpipe's own
    for part in parts_of(module):
        name = type(part).__name__
        is_known = name.startswith("Random") or name in _DRAWING_CLASSES
        if is_known and callable(part):
            return True
    return False


def _warn_other_samples(data: Dataset, recipe: Recipe) -> None:
    """Says if an epoch of an evaluation has not each sample of the dataset once."""
    if recipe.shuffle or is_known("other samples"):
        return
    num_samples = format_count(len(data), "sample")
    num_rows = recipe.rows(0)
    if any(isinstance(pick, _DRAWS) for pick in recipe.picks):
        warn_once(
            "other samples",
            f"train=False with sampler=fastpipe.Weighted(...) draws {num_rows:,} times from {num_samples}, so "
            "some come several times, and others not at all. To evaluate on each sample once, leave sampler= "
            "out",
        )
        return
    num_global = recipe.batch_size * recipe.ranks.world_size
    if data.content.mixed and not isinstance(recipe.epoch_size, int):
        if recipe.crop.budget is None:
            num_rows = num_rows // num_global * num_global  # all batches are full
        warn_once(
            "other samples",
            f"train=False of a mixture: an epoch has {num_rows:,} rows by the weights, and "
            f"{data.path} has {num_samples}, so some are left out or come again. To evaluate on each "
            "sample once: fastpipe.concat(...) of the same datasets",
        )
        return
    num_left_out = num_rows % num_global
    if recipe.drop_last and recipe.crop.budget is None and num_left_out:
        warn_once(
            "other samples",
            f"train=False with drop_last=True leaves out {num_left_out:,} of {num_samples}, in each "
            "epoch the same ones. To evaluate on all of them leave drop_last out",
        )
