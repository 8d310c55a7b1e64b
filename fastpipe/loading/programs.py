"""The program that asks for batches, its trainer and its optimizers -> what it may not expect, said once in the log.

Nothing here changes a batch. A program that resumes without a state or `set_epoch`, options of a trainer that are for
a DataLoader, and a state that Accelerate has loaded are no errors; but without a word nobody would notice what they do.
"""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fastpipe.plan.recipe import Recipe

_LOG = logging.getLogger("fastpipe")
_DEFAULT_SEED, _DEFAULT_BATCH_SIZE = 42, 8  # of transformers' TrainingArguments
_PERSISTENT = "dataloader_persistent_workers"
_told: set[str] = set()


def tell_trainer(recipe: Recipe, workers: int, ahead: int) -> None:
    """Names options of Hugging Face's Trainer, which is iterating now, that have no effect on a loader."""
    if "transformers.trainer" not in sys.modules or "trainer" in _told:
        return
    for frame in _frames("transformers.trainer"):
        arguments = getattr(frame.f_locals.get("self"), "args", None)
        if arguments is None:
            continue
        _told.add("trainer")
        options = dict(_without_effect(arguments, recipe, workers, ahead))
        if options:
            given = ", ".join(f"{name}={getattr(arguments, name)!r}" for name in options)
            to_pass = ", ".join(filter(None, options.values()))
            advice = f" Pass it to fastpipe.loader(...): {to_pass}" if to_pass else ""
            stays = " Its threads stay from epoch to epoch anyway." if _PERSISTENT in options else ""
            _LOG.warning(
                "TrainingArguments(%s) is for DataLoaders that the Trainer makes, and has no effect on this "
                "loader.%s%s",
                given,
                stays,
                advice,
            )
        return


def _without_effect(arguments: Any, recipe: Recipe, workers: int, ahead: int) -> Iterator[tuple[str, str]]:
    """Option of TrainingArguments -> what to pass to the loader, where it is not as there; "": nothing."""
    threads = getattr(arguments, "dataloader_num_workers", 0)
    if threads not in (0, workers):
        yield "dataloader_num_workers", f"num_workers={threads}"
    prefetch = getattr(arguments, "dataloader_prefetch_factor", None)
    if prefetch not in (None, ahead):
        yield "dataloader_prefetch_factor", f"prefetch_factor={prefetch}"
    if getattr(arguments, _PERSISTENT, False):
        yield _PERSISTENT, ""
    size_option = f"per_device_{'train' if recipe.shuffle else 'eval'}_batch_size"
    size = getattr(arguments, size_option, _DEFAULT_BATCH_SIZE)
    if size not in (_DEFAULT_BATCH_SIZE, recipe.batch_size):
        yield size_option, f"batch_size={size}"
    if getattr(arguments, "dataloader_drop_last", False) and not recipe.drop_last:
        yield "dataloader_drop_last", "drop_last=True"
    if not recipe.shuffle:
        return
    seed, data_seed = getattr(arguments, "seed", _DEFAULT_SEED), getattr(arguments, "data_seed", None)
    if data_seed not in (None, recipe.seed):
        yield "data_seed", f"seed={data_seed}"
    elif data_seed is None and seed not in (_DEFAULT_SEED, recipe.seed):
        yield "seed", f"seed={seed}"


def tell_restored(epoch: int, batches: int) -> None:
    """Where Accelerate has loaded a state of the middle of an epoch: a program may skip its batches itself, too."""
    if not batches or "accelerate" in _told or next(_frames("accelerate.checkpointing"), None) is None:
        return
    _told.add("accelerate")
    _LOG.warning(
        "Accelerate has loaded the state of this loader, for it is registered (register_for_checkpointing): the next "
        "loop gets the rest of epoch %d, from batch %d on. If the program skips the steps that are done itself, as in "
        "`if step < resume_step: continue`, they are skipped twice, and as many batches are never trained on: remove "
        "that line, or do not register the loader. accelerator.skip_first_batches skips nothing twice",
        epoch,
        batches,
    )


def tell_begun_anew(recipe: Recipe) -> None:
    """As a loader begins at epoch 0 that nobody has placed: the optimizer may show that the program has resumed."""
    if not recipe.shuffle or recipe.ranks.rank or "begun" in _told:
        return
    _told.add("begun")  # later a loader may well begin when a model is trained already
    evidence = _trained() if "torch.optim" in sys.modules else ""
    if evidence:
        _LOG.warning(
            "%s, as in a program that has resumed, and this loader begins with epoch 0: its order, crops and flips are "
            "those of the first epoch again. Call loader.set_epoch(epoch) before each epoch, or save "
            "loader.state_dict() in the checkpoint and load it",
            evidence,
        )


def _trained() -> str:
    """What shows that training went on before this process began it; "": nothing."""
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    # An object refers to its class, so the collector finds those of some classes without a loop here over millions.
    kinds = [*_with_derived(Optimizer), *_with_derived(LRScheduler)]
    for found in gc.get_referrers(*kinds):
        if isinstance(found, Optimizer) and found.state:
            return f"the optimizer {type(found).__name__} has a state already"
        if isinstance(found, LRScheduler) and found.last_epoch > 0:
            return f"the schedule {type(found).__name__} is at {found.last_epoch} already"
    return ""


def _with_derived(kind: type) -> Iterator[type]:
    yield kind
    derived: type
    for derived in kind.__subclasses__():
        yield from _with_derived(derived)


def _frames(module: str) -> Iterator[FrameType]:
    """The functions of a module that are being called now."""
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe()))
    return (frame for frame in frames if frame.f_globals.get("__name__") == module)
