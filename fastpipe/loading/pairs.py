"""The loaders of a process -> pairs of one for training and one for evaluation, which are compared.

Note [pairs of loaders]
A program may have many loaders, for folds, for experiments one after another, for several models. Two
belong together if the program makes one after the other and has read neither of them; they are
compared at once, before hours of training. And an epoch of evaluation belongs to the epoch of
training before it, also if the loader of that is gone. Others are not compared.
"""

from __future__ import annotations

import weakref

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Url
from fastpipe.loading.classes import describe_other_classes, describe_two_evaluations
from fastpipe.loading.loader_facts import LoaderFacts
from fastpipe.loading.two_loaders import describe_two_loaders
from fastpipe.warnings_once import warn_once


class _Pairs:
    """What is known of the loaders of this process."""

    def __init__(self) -> None:
        # The newest loader of each kind, by `train`, if it has no partner and no epoch yet.
        self.waiting: dict[bool, weakref.ref[LoaderFacts]] = {}
        # The one that has begun the last epoch of training.
        self.trained: weakref.ref[LoaderFacts] | None = None
        # Lets it outlive its loader. Not that of a URL, whose cache would count as in use.
        self.kept: LoaderFacts | None = None
        # The evaluation that was compared with it last.
        self.evaluated: weakref.ref[LoaderFacts] | None = None


_pairs = _Pairs()  # in a module, as the loaders of a process do not know each other


def waiting_partner(*, train: bool) -> LoaderFacts | None:
    """The loader that a new one belongs to, if the program has made one. See Note [pairs of loaders].

    `train`: of the new one.
    """
    waiting = _pairs.waiting.get(not train)
    return None if waiting is None else waiting()


def add_loader(facts: LoaderFacts) -> None:
    """Compares a new loader with its partner, or has it wait for one."""
    partner = waiting_partner(train=facts.train)
    if partner is None:
        if not facts.train:
            _compare_evaluations(facts)
        _pairs.waiting[facts.train] = weakref.ref(facts)
        return
    # Another thread may have paired it meanwhile.
    _pairs.waiting.pop(partner.train, None)
    _compare(facts, partner)


def begin_epoch(facts: LoaderFacts) -> None:
    """Compares a loader that begins an epoch of evaluation with the one that has trained last."""
    waiting = _pairs.waiting.get(facts.train)
    if waiting is not None and waiting() is facts:
        _pairs.waiting.pop(facts.train, None)
    trained = None if _pairs.trained is None else _pairs.trained()
    if facts.train:
        if trained is not facts:
            _pairs.trained = weakref.ref(facts)
            _pairs.kept = None if _is_remote(facts.dataset) else facts
            _pairs.evaluated = None
        return
    evaluated = None if _pairs.evaluated is None else _pairs.evaluated()
    if trained is not None and evaluated is not facts:
        _pairs.evaluated = weakref.ref(facts)
        _compare(facts, trained)


def forget_all() -> None:
    """As in a new process: for tests."""
    _pairs.waiting = {}
    _pairs.trained = None
    _pairs.kept = None
    _pairs.evaluated = None


def _is_remote(data: Dataset) -> bool:
    return any(isinstance(stored.index.path, Url) for stored in data.stored)


def _compare_evaluations(facts: LoaderFacts) -> None:
    """Compares a new loader with the one for evaluation before it, if no epoch has begun since."""
    waiting = _pairs.waiting.get(False)
    other = None if waiting is None else waiting()
    if other is None:
        return
    message = describe_two_evaluations(other.dataset, facts.dataset)
    if message is not None:
        warn_once(message, message)


def _compare(first: LoaderFacts, second: LoaderFacts) -> None:
    """Logs what hardly is meant about a loader for training and one for evaluation, each once."""
    training, evaluation = (first, second) if first.train else (second, first)
    for message in describe_two_loaders(training, evaluation):
        warn_once(message, message)
    for message in describe_other_classes(training.dataset, evaluation.dataset):
        warn_once(message, message)
