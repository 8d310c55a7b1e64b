"""Draws -> a few of them, in which each value of each option comes."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from support.walk.drawing import Draw, draw
from support.walk.walked_data import Known

_NUMBERED = (
    "batch_size",
    "epoch_size",
    "seed",
    "prefetch_factor",
    "stall_timeout",
)  # their values are no kinds


def values_of(made: Draw) -> set[str]:
    """The kinds of data that a draw has, the values of its options, and what is done with it."""
    found = {f"data {part.name}" for part in made.parts} | {f"deed {made.deed}"}
    if made.join is not None:
        how, _, labels = made.join
        found.add(f"{how} labels={labels}")
    for step in itertools.chain(*made.steps, made.after):
        found.add(f"step {step.method}{step.end}")
    for name, text in made.options.items():
        if name == "fields":
            found.update(f"fields {word}" for word in re.findall(r"\w+", text))
        elif name in _NUMBERED:
            found.add(name)
        elif name == "augment":
            found.update(
                f"augment {word}" for word in re.findall(r"K\.\w+|Augment\.\w+|\w+(?==)", text)
            )
        elif name == "sampler":
            words = r"[A-Z]\w+|replacement=\w+|lambda epoch: \W*\w+|balanced|classes|'key'|arange|full|classes="
            found.update(f"sampler {word}" for word in re.findall(words, text))
        else:
            found.add(f"{name}={text}")
    return found


class Chosen(NamedTuple):
    """Draws that a loader takes, in which each value comes; and those that it refuses, of each reason some."""

    taken: list[Draw]
    refused: list[Draw]


def covering(
    known: dict[str, Known], seed: int, count: int, reasons_of: Callable[[Draw], set[str]]
) -> Chosen:
    """Of the first `count` draws, each with a value that none before it had; or with a reason to refuse it, twice."""
    chosen = Chosen([], [])
    seen: set[str] = set()
    refusals: Counter[str] = Counter()
    for number in range(count):
        made = draw(seed, number, known)
        values = values_of(made)
        if values <= seen:
            continue
        reasons = reasons_of(made)
        if not reasons:
            chosen.taken.append(made)
            seen |= values
        elif any(refusals[reason] < 2 for reason in reasons):
            chosen.refused.append(made)
            refusals.update(reasons)
    return chosen
