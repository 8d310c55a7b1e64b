"""Options and data of all kinds, drawn together: what the docs say comes, or an error that says why not.

One model, support/walk, says without fastpipe's planning what the epochs of a draw hold and which options refuse each
other. Here are as few draws as have each value of each option twice; the long tier draws many hundreds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.running.soak import Tried, times
from support.walk.covering import Chosen, covering, pairs_of, values_of, wrong_draws
from support.walk.dataset_walk import DatasetWalk, draw_dataset
from support.walk.deeds import Walk
from support.walk.drawing import Draw
from support.walk.model import Wrong
from support.walk.walked_data import make
from support.walk.walking import again

from fastpipe.plan.buckets import Grouping

SEED = 7
TIMES = 2
DRAWN = times(3000, 20_000)  # of which those are chosen that cover all
PARTS = 10
DATASETS = times(30, 1000)

pytestmark = [pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all draws."""
    found = tmp_path_factory.mktemp("walk")
    make(found)
    return found


@pytest.fixture(scope="module")
def chosen(folder: Path) -> Chosen:
    def reasons_of(draw: Draw) -> set[str]:
        """Why it has no epochs."""
        damaged = any(part.damaged for part in draw.parts) and draw.options.get("on_error") != "'replace'"
        return Walk(draw, folder, "", Counter()).broken() or ({"damaged"} if damaged else set())

    return covering(make(folder), SEED, DRAWN, TIMES, reasons_of)


@pytest.fixture(autouse=True)
def one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of few batches has several windows in which samples are put together by their shapes."""
    monkeypatch.setattr(Grouping, "batches_of", staticmethod(lambda *_: 2))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def walked(draws: list[Draw], folder: Path) -> Counter[str]:
    """How these draws ended; the first that is not as the docs say fails the test."""
    ends: Counter[str] = Counter()
    for draw in draws:
        try:
            kind = Walk if draw.kind == "loader" else DatasetWalk
            ends[kind(draw, folder, "", Counter()).do()] += 1
        except Exception as error:
            what = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{what}\n{again(SEED, draw)}") from error
    return ends


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_drawn_is_what_the_docs_say(folder: Path, chosen: Chosen, part: int, tried: Tried) -> None:
    draws = chosen.taken[part::PARTS]
    assert walked(draws, folder) == {"done": len(draws)}
    tried("options and data at random", len(draws), "batches as documented, or an error that names the option")


def test_what_the_docs_refuse_together_is_refused(folder: Path, chosen: Chosen) -> None:
    ends = walked(chosen.refused, folder)
    assert ends.keys() == {"refused: together", "bad sample"}
    assert ends["refused: together"] > 20


def test_a_value_that_no_loader_takes_is_refused_by_the_options_name(folder: Path) -> None:
    draws = wrong_draws(make(folder), SEED, DRAWN)
    assert len(draws) > 200
    assert walked(draws, folder) == {"refused: wrong": len(draws)}


def test_single_samples_are_those_of_the_source_and_of_a_loader(folder: Path) -> None:
    known = make(folder)
    ends = walked([draw_dataset(SEED, number, known) for number in range(DATASETS)], folder)
    assert ends["dataset done"] > DATASETS / 2, ends


def test_each_value_of_each_option_comes_twice(chosen: Chosen) -> None:
    counts = Counter(value for draw in chosen.taken for value in values_of(draw))
    assert [value for value, count in counts.items() if count < TIMES] == []
    assert len(counts) >= 200
    pairs = {pair for draw in chosen.taken for pair in pairs_of(draw)}
    assert len(pairs) > 500
