"""Draws -> a few of them, in which each value of each option comes several times, and each two options once."""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from support.walk.drawing import Draw, draw
from support.walk.walked_data import Known

_NUMBERED = ("batch_size", "epoch_size", "seed", "prefetch_factor", "stall_timeout")  # their values are no kinds


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
            found.update(f"augment {word}" for word in re.findall(r"K\.\w+|Augment\.\w+|\w+(?==)", text))
        elif name == "sampler":
            words = r"[A-Z]\w+|replacement=\w+|lambda epoch: \W*\w+|balanced|classes|'key'|arange|full|classes="
            found.update(f"sampler {word}" for word in re.findall(words, text))
        else:
            found.add(f"{name}={text}")
    return found


def pairs_of(made: Draw) -> set[str]:
    """Each two options, and each option with what is done."""
    names = sorted([*made.options, f"deed {made.deed}", *([] if made.join is None else [made.join[0]])])
    return {f"{one}, {other}" for one, other in itertools.combinations(names, 2)}


def _gain(made: Draw, counts: Counter[str], times: int) -> float:
    """What a draw adds: a value that is new counts as much as a few pairs."""
    values = sum(counts[value] < times for value in values_of(made))
    return values + 0.1 * sum(counts[pair] == 0 for pair in pairs_of(made))


class Chosen(NamedTuple):
    """Draws that a loader takes, in which each value comes; and those that it refuses, of each reason some."""

    taken: list[Draw]
    refused: list[Draw]


def covering(
    known: dict[str, Known], seed: int, count: int, times: int, reasons_of: Callable[[Draw], set[str]]
) -> Chosen:
    """Of the first `count` draws, those that hold each of their values so many times, as far as there are so many.

    Draws with a value that no loader takes count for nothing here; wrong_draws() has them.
    """
    drawn = (draw(seed, number, known, urls=False) for number in range(count))
    left = [made for made in drawn if not (made.wrong or made.unsure)]
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    queue = [(-_gain(made, counts, times), made.number, made) for made in left]
    heapq.heapify(queue)
    chosen = Chosen([], [])
    while queue:
        _, number, made = heapq.heappop(queue)
        gain = _gain(made, counts, times)
        if queue and gain < -queue[0][0]:  # less than it was when it was put there
            heapq.heappush(queue, (-gain, number, made))
            continue
        if gain < 1:
            break
        reasons = reasons_of(made)
        if not reasons:
            chosen.taken.append(made)
            counts.update(values_of(made))
            counts.update(pairs_of(made))
        elif any(refusals[reason] < times for reason in reasons):
            chosen.refused.append(made)
            refusals.update(reasons)
    return chosen


def wrong_draws(known: dict[str, Known], seed: int, count: int) -> list[Draw]:
    """Of the first `count` draws, one for each value that no loader takes."""
    chosen: dict[str, Draw] = {}
    for number in range(count):
        made = draw(seed, number, known, urls=False)
        if len(made.wrong) == 1:
            (name,) = made.wrong
            chosen.setdefault(f"{name} {_wrong_value(made, name)}", made)
    return [*chosen.values()]


def _wrong_value(made: Draw, name: str) -> str:
    if name in made.options:
        return made.options[name]
    opened: Iterable[str] = (text for opening in made.opening for option, text in opening.items() if option == name)
    stepped = (step.args for step in made.after if step.method == name)
    return " ".join([*opened, *stepped])
