"""The program that asks for batches, its trainer, its optimizers -> warnings about their use.

Nothing here changes a batch. A program that resumes without a state or `set_epoch`, options of a
trainer that are for a DataLoader, and a state that Accelerate has loaded are not errors. But
without a warning nobody would notice their effect. Each warning comes once.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from fastpipe.dataset import other_order
from fastpipe.device.image_batch import names_read
from fastpipe.engine.stats import Stats
from fastpipe.errors import format_count
from fastpipe.loading.instances import instances_of
from fastpipe.loading.state import Position
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.partition import Ranks
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import is_known, remember, warn_once

_LOG = logging.getLogger("fastpipe")
# Loaders of a line that have begun epoch 0 after which the log says so.
_MANY_ANEW = 8
# (line of the program, dataset, seed, ranks) -> how many loaders have begun their first epoch, 0.
_first_epochs: Counter[tuple[str, str, int, Ranks]] = Counter()
# The defaults of transformers' TrainingArguments.
_DEFAULT_SEED = 42
_DEFAULT_BATCH_SIZE = 8
_USUAL_REPLACED = (
    0.02  # of the rows: some damaged samples are what on_error="replace" is for
)
_PERSISTENT = "dataloader_persistent_workers"
_MAX_LOOKS = 4  # at loaders that itertools.cycle may have
# Ids of the epochs of loaders that were looked at. If an id comes again, a look is missed.
_looked_at: list[int] = []


def warn_trainer(recipe: Recipe, num_workers: int, prefetch_factor: int) -> None:
    """Names options of Hugging Face's Trainer, if it iterates, that have no effect on a loader."""
    if "transformers.trainer" not in sys.modules or is_known("trainer"):
        return
    # Its TrainingArguments are an attribute of the trainer, whose method iterates over the loader.
    for frame in _calling_frames("transformers.trainer"):
        trainer = frame.f_locals.get("self")
        arguments = getattr(trainer, "args", None)
        if arguments is None:
            continue
        remember("trainer")
        options = _options_without_effect(
            arguments, recipe, num_workers, prefetch_factor
        )
        if options:
            given = ", ".join(
                f"{name}={getattr(arguments, name)!r}" for name in options
            )
            advice = ", ".join(filter(None, options.values()))
            if advice:
                advice = f" Pass it to fastpipe.loader(...): {advice}"
            if _PERSISTENT in options:
                advice = f" Its threads stay from epoch to epoch anyway.{advice}"
            _LOG.warning(
                f"TrainingArguments({given}) is for DataLoaders that the Trainer makes, and has no "
                f"effect on this loader.{advice}"
            )
        return


def _options_without_effect(
    arguments: Any, recipe: Recipe, num_workers: int, prefetch_factor: int
) -> dict[str, str]:
    """Options of TrainingArguments that differ from the loader's -> what to pass to the loader.

    An option at its default counts as not given. "" if there is nothing to pass.
    """
    options = {}
    threads = getattr(arguments, "dataloader_num_workers", 0)
    if threads not in (0, num_workers):
        options["dataloader_num_workers"] = f"num_workers={threads}"
    prefetch = getattr(arguments, "dataloader_prefetch_factor", None)
    if prefetch not in (None, prefetch_factor):
        options["dataloader_prefetch_factor"] = f"prefetch_factor={prefetch}"
    if getattr(arguments, _PERSISTENT, False):
        options[_PERSISTENT] = ""
    phase = "train" if recipe.shuffle else "eval"
    size_option = f"per_device_{phase}_batch_size"
    batch_size = getattr(arguments, size_option, _DEFAULT_BATCH_SIZE)
    if batch_size not in (_DEFAULT_BATCH_SIZE, recipe.batch_size):
        options[size_option] = f"batch_size={batch_size}"
    if getattr(arguments, "dataloader_drop_last", False) and not recipe.drop_last:
        options["dataloader_drop_last"] = "drop_last=True"
    if not recipe.shuffle:
        return options

    # The Trainer shuffles with data_seed, or with seed where there is no data_seed.
    seed = getattr(arguments, "seed", _DEFAULT_SEED)
    data_seed = getattr(arguments, "data_seed", None)
    if data_seed is not None:
        if data_seed != recipe.seed:
            options["data_seed"] = f"seed={data_seed}"
    elif seed not in (_DEFAULT_SEED, recipe.seed):
        options["seed"] = f"seed={seed}"
    return options


def warn_restored(epoch: int, batches: int) -> None:
    """If Accelerate loads a state inside an epoch: the program may skip batches itself, too."""
    if not batches or is_known("accelerate"):
        return
    if next(_calling_frames("accelerate.checkpointing"), None) is None:
        return
    warn_once(
        "accelerate",
        "Accelerate has loaded the state of this loader, for it is registered "
        f"(register_for_checkpointing): the next loop gets the rest of epoch {epoch}, from batch "
        f"{batches} on. If the program skips the steps that are done itself, as in "
        "`if step < resume_step: continue`, they are skipped twice, and as many batches are never "
        "trained on: remove that line, or do not register the loader. "
        "accelerator.skip_first_batches skips nothing twice",
    )


def warn_of_more_ranks(problem: Exception) -> None:
    """If a loaded state fits only where there are more ranks, and this process is alone so far.

    `problem`: the error that the loop raises if the process stays alone.
    """
    warn_once(
        "more ranks",
        f"{problem}. On this process alone the next loop raises this error. With several ranks, call "
        "torch.distributed.init_process_group() before load_state_dict",
    )


def warn_begun_anew(recipe: Recipe) -> None:
    """If a loader begins at epoch 0, and an optimizer shows that the program has resumed."""
    if not recipe.shuffle or recipe.ranks.rank or is_known("begun"):
        return
    remember("begun")  # a later loader may well begin when a model has been trained
    evidence = ""
    if "torch.optim" in sys.modules:
        evidence = _evidence_of_training()
    if evidence:
        _LOG.warning(
            f"{evidence}, as in a program that has resumed, and this loader begins with epoch 0: "
            "its order, crops and flips are those of the first epoch again. Call "
            "loader.set_epoch(epoch) before each epoch, or save loader.state_dict() in the "
            "checkpoint and load it"
        )


def warn_without_gradients(recipe: Recipe) -> None:
    """Says if data are read as for training while gradients are off, in a program that trains.

    A program that only computes features, or measures, has no training with gradients before.
    """
    reads_for_training = recipe.shuffle and recipe.drop_last and recipe.crop.is_random
    if not reads_for_training:
        return
    if torch.is_grad_enabled():
        remember("gradients")
        return
    path = str(recipe.content.index.path)
    warning = f"without gradients {path}"
    if not is_known("gradients") or is_known(warning):
        return
    warn_once(
        warning,
        f"{path} is read as for training (random crops, shuffled, full batches only) while gradients "
        "are off. To evaluate on it: fastpipe.loader(..., train=False)",
    )


def warn_epoch_without_gradients(recipe: Recipe, random_by_default: str) -> None:
    """Says if gradients were off in a whole epoch of images that are random by default alone.

    `random_by_default`: what the program has not asked for, such as "random crops".
    """
    path = str(recipe.content.index.path)
    warning = f"epoch without gradients {path}"
    if not recipe.shuffle or not random_by_default:
        return
    if is_known(warning) or is_known(f"without gradients {path}"):
        return
    # It measures the statistics of batch norm on the data of training.
    if next(_calling_frames("torch.optim.swa_utils"), None) is not None:
        return
    warn_once(
        warning,
        f"gradients were off in a whole epoch of {path}, as in an evaluation, and the loader reads it "
        f"as for training: {random_by_default}, by default. So metrics and features come from images that "
        "are changed at random. To evaluate: fastpipe.loader(..., train=False)",
    )


def warn_interleaved(older_epoch: int, newer_epoch: int) -> None:
    """If a program takes batches of two iterators in turn, as zip(loader, loader) does."""
    warn_once(
        "interleaved",
        f"two iterators of one loader give batches in turn, of epochs {older_epoch} and "
        f"{newer_epoch}: their rows do not belong together, and the loader's state is that of the "
        "newer one alone. For several crops of each image pass views=2; for two independent "
        "streams make two loaders with different seeds",
    )


def warn_older_goes_on(older_epoch: int, newer_epoch: int) -> None:
    """If a loop goes on after another one over its loader has begun, as where one lies in the other.

    The batches of both are right. The position is that of the newer loop, also when it has ended.
    """
    warn_once(
        "interleaved",
        f"the loop over epoch {older_epoch} goes on after a newer loop over the same loader has begun "
        f"epoch {newer_epoch}: state_dict() and the number of the next epoch now belong to the newer "
        "loop, so a checkpoint of the older one continues at a wrong place, and epochs count twice. "
        "For a look at the data, or an accuracy on it, make another loader: fastpipe.loader(...)",
    )


def warn_made_anew(line: str, recipe: Recipe, epoch: int) -> None:
    """Says if a line of the program has made several loaders, each of which begins with epoch 0.

    A loader that is made anew for each epoch gives the samples, crops and flips of epoch 0 again.
    If one of them comes to another epoch, the line makes loaders for something else.
    """
    if not recipe.shuffle:
        return
    key = (line, recipe.content.index.content, recipe.seed, recipe.ranks)
    if epoch > 0:
        _first_epochs[key] = -_MANY_ANEW
        return
    _first_epochs[key] += 1
    if _first_epochs[key] != _MANY_ANEW:
        return
    _LOG.warning(
        f"{line} has made {_MANY_ANEW} loaders of {recipe.content.index.path} with seed={recipe.seed}, and "
        "each begins with epoch 0: the same order, crops and flips again. Make the loader once, "
        "before the loop over epochs; or call loader.set_epoch(epoch), or pass another seed="
    )


def warn_short_epochs(count: int) -> None:
    """If a program takes only the first batch of several epochs in a row, as next(iter()) does."""
    warn_once(
        "short epochs",
        f"{count} epochs in a row ended with their first batch: each iter(loader) begins an epoch, so "
        "next(iter(loader)) in a loop never gets the other batches. Make the iterator once: "
        "batches = iter(loader), and next(batches) in the loop",
    )


def warn_looked_at_resumed(
    epoch: int, batches: int, remaining: int, next_epoch: int
) -> None:
    """If a program takes one batch of a resumed epoch, as a look at it does, and begins another.

    The state stood at `batches` batches of `epoch`; `remaining` batches of it were not taken.
    """
    if next_epoch == epoch:
        consequence = f"now epoch {epoch} begins at its first batch again"
    else:
        consequence = (
            f"now epoch {next_epoch} begins: the other {remaining} batches of epoch {epoch} are "
            "left out"
        )
    _LOG.warning(
        f"the loaded state continued at batch {batches} of epoch {epoch}. One batch was taken from "
        f"there, and {consequence}. If the one batch was a look, as next(iter(loader)) is, look "
        "before load_state_dict, or call load_state_dict again after it"
    )


def warn_other_epoch(next_epoch: int, epoch: int) -> None:
    """If a program resumes between two epochs, and begins another epoch than the next one."""
    if is_known("other epoch"):
        return
    consequence = "so epochs are left out"
    if epoch < next_epoch:
        consequence = "which the training before has read"
    warn_once(
        "other epoch",
        f"the loaded state is at the beginning of epoch {next_epoch}, and set_epoch({epoch}) begins "
        f"epoch {epoch}, {consequence}. To go on, begin the loop over epochs at {next_epoch}",
    )


def warn_nothing_left(epoch: int, batches: int) -> None:
    """If a program continues at the end of an epoch, where its loop gets no batch."""
    count = format_count(batches, "batch")
    warn_once(
        "nothing left",
        f"the loaded state is at the end of epoch {epoch}: its {count} were handed out, so this loop gets "
        f"none, and the next loop is epoch {epoch + 1}. To begin with that one: "
        f"loader.set_epoch({epoch + 1}) after load_state_dict, and a loop over epochs from {epoch + 1} on; "
        "or save the state when the loop over the batches has ended",
    )


def warn_loaded_in_loop(running: Position, loaded: Position) -> None:
    """If a program loads a state, and the loop that runs meanwhile goes on.

    `running`: where the loop stands; `loaded`: where the next one begins.
    """
    if is_known("loaded in a loop") or running == loaded:
        return
    warn_once(
        "loaded in a loop",
        f"load_state_dict was called while a loop over the loader runs: this loop goes on at batch "
        f"{running.batches} of epoch {running.epoch}, and the loaded position, batch "
        f"{loaded.batches} of epoch {loaded.epoch}, takes effect in the next loop. To go on there, leave "
        "the loop (break) and begin a new one: for images, labels in loader",
    )


def warn_other_order(recipe: Recipe) -> None:
    """If an evaluation has had samples in another order than a column that the program reads."""
    groups = isinstance(recipe.crop, Buckets) or recipe.crop.budget is not None
    if recipe.shuffle or not groups or recipe.picks:
        return
    if "ids" in names_read:
        return
    index = recipe.content.index
    other_order.note_evaluation(index.fingerprint, str(index.path))


def warn_same_epoch(epoch: int, count: int) -> None:
    """If a program sets one epoch again and again, and goes through all of it each time."""
    warn_once(
        "same epoch",
        f"epoch {epoch} was gone through {count} times in a row, as set_epoch({epoch}) before each loop "
        "does it: the same order, crops and flips again. Pass the number of the loop, "
        "loader.set_epoch(epoch); or leave set_epoch out: the loader counts epochs itself",
    )


def warn_replaced(stats: Stats, recipe: Recipe) -> None:
    """If on_error="replace" has put other samples into a good part of the rows."""
    path = recipe.content.index.path
    warning = f"replaced {path}"
    if stats.replaced <= _USUAL_REPLACED * stats.samples or is_known(warning):
        return
    share = stats.replaced / stats.samples
    warn_once(
        warning,
        f'{path}: on_error="replace" has put other samples in the place of {stats.replaced:,} of '
        f"{stats.samples:,} rows ({share:.0%}), which cannot be read. fastpipe verify {path} lists "
        "the damage; on_error='raise' says of the first one why",
    )


def warn_repeated_rows(count: int, recipe: Recipe) -> None:
    """If an evaluation on several ranks has had rows that repeat a sample, and nobody asks which.

    `count`: rows of an epoch of this rank.
    """
    if not count or recipe.shuffle or recipe.ranks.world_size == 1:
        return
    if "valid" in names_read or is_known("repeated rows"):
        return
    rows = format_count(count, "row")
    verb = "repeats" if count == 1 else "repeat"
    warn_once(
        "repeated rows",
        f"{rows} of the last batch of rank {recipe.ranks.rank} {verb} samples, so that all ranks "
        "have the same number of rows. A metric over all rows counts these samples twice: count only the rows "
        "of batch.valid. Where a trainer rebuilds the batches, pass "
        'fields=("image", "label", "valid") and count the rows of batch["valid"]',
    )


def warn_used_up(next_epoch: int) -> None:
    """If a program begins a loop over an iterator that has given its epoch: the loop gets nothing."""
    warn_once(
        "used up",
        f"a loop over iter(loader) gets no batch: this iterator has given its epoch, and has no other "
        f"one. For epoch {next_epoch} iterate over the loader itself: for images, labels in loader",
    )


def warn_cycled(iterator: object, owner: object) -> None:
    """If itertools.cycle has the iterator, whose epoch ends.

    It has kept all batches, and gives the same ones for ever: no epoch has other crops or another
    order. A look takes some hundredths of a second, so only the first loaders get one.

    `owner`: the epochs of the loader.
    """
    if is_known("cycled") or _is_looked_at(owner):
        return
    kinds = [type(referrer) for referrer in gc.get_referrers(iterator)]
    if itertools.cycle in kinds:
        warn_once(
            "cycled",
            "itertools.cycle(loader) keeps all batches of the first epoch in memory, and gives them "
            "again and again, with the same crops in the same order. For batches without an end write "
            "a generator: while True: yield from loader",
        )


def _is_looked_at(owner: object) -> bool:
    """Whether a loader gets no look any more; if it does, this counts as one."""
    if len(_looked_at) == _MAX_LOOKS or id(owner) in _looked_at:
        return True
    _looked_at.append(id(owner))
    return False


def _evidence_of_training() -> str:
    """Names an optimizer or a schedule that has made steps in this process or before it; or ""."""
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    for instance in instances_of(Optimizer, LRScheduler):
        if isinstance(instance, Optimizer) and instance.state:
            return f"the optimizer {type(instance).__name__} has a state already"
        if isinstance(instance, LRScheduler) and instance.last_epoch > 0:
            return f"the schedule {type(instance).__name__} is at {instance.last_epoch} already"
    return ""


def _calling_frames(module: str) -> Iterator[FrameType]:
    """The calls of a module's functions that have led here."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if frame.f_globals.get("__name__") == module:
            yield frame
