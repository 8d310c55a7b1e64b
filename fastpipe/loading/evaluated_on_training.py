"""Epochs of training and of evaluation in turn -> a warning if both read the same samples.

A validation on the samples of the training shows how well the model remembers them. Nothing fails,
and the figures look very good. A program may also measure its accuracy on the training set. So the
log says it only where the program evaluates again and again on nothing else.
"""

from __future__ import annotations

import logging

import torch

from fastpipe.errors import format_count
from fastpipe.loading.samples_of_epoch import Samples, samples_of
from fastpipe.plan.content import Content
from fastpipe.plan.recipe import Recipe

_LOG = logging.getLogger("fastpipe")
_NUM_ROUNDS = 2  # of training and evaluation in turn


class _Rounds:
    """The epochs of this process."""

    def __init__(self) -> None:
        self.trained_on: Samples | None = None  # by the last epoch of training
        # Of samples that were trained on since the evaluation before.
        self.num_evaluations = 0
        self.has_trained = False  # since that evaluation
        self.is_over = False  # it is said, or needs no warning


_rounds = _Rounds()


def note_epoch(recipe: Recipe) -> None:
    """Notes that a program has gone through an epoch; logs it if it validates on its training data."""
    if _rounds.is_over:
        return
    samples = samples_of(recipe.content)
    is_random = bool(recipe.shuffle or recipe.crop.is_random or recipe.picks)
    if is_random:
        if samples is not None and torch.is_grad_enabled():
            if samples != _rounds.trained_on:
                _rounds.num_evaluations = 0
            _rounds.trained_on = samples
            _rounds.has_trained = True
        return
    if _rounds.trained_on is None:
        return
    if samples is None or not _have_common(samples, _rounds.trained_on):
        # The program has other data for evaluation.
        _rounds.is_over = True
        return
    if _rounds.has_trained:
        _rounds.has_trained = False
        _rounds.num_evaluations += 1
    if _rounds.num_evaluations == _NUM_ROUNDS:
        _rounds.is_over = True
        _warn(recipe.content)


def forget_all() -> None:
    """As in a new process: for tests."""
    global _rounds
    _rounds = _Rounds()


def _have_common(evaluated: Samples, trained: Samples) -> bool:
    """Whether both are the same part of a dataset, or one of them is all of it."""
    if trained.dataset != evaluated.dataset:
        return False
    return None in (trained.part, evaluated.part) or trained.part == evaluated.part


def _warn(content: Content) -> None:
    path = content.index.path
    count = format_count(len(content), "sample")
    _LOG.warning(
        f"the evaluation reads {count} of {path} on which the program trains, too, and no other data: "
        "its figures show how well the model remembers them. To hold out a part for evaluation: "
        f"train, val = fastpipe.open({str(path)!r}).fold(0, of=5)"
    )
