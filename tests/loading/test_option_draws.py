"""Options and data of all kinds, drawn together: what the docs say comes, or an error that says why not.

One model, support/walk, says without fastpipe's planning what the epochs of a draw hold and which options refuse each
other. Here are draws in which each value of each option comes; the long tier draws many hundreds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.running.soak import Tried, times
from support.walk.covering import Chosen, covering, values_of
from support.walk.deeds import Walk, evaluated, names, walked
from support.walk.drawing import Draw
from support.walk.walked_data import Known, make
from support.walk.walked_values import UNSURE, WRONG, WRONG_OPEN

import fastpipe
from fastpipe.plan import recipe
from fastpipe.plan.grouping import Grouping

SEED = 7
DRAWN = times(3000, 20_000)  # of which those are chosen that cover all
PARTS = 16

pytestmark = [pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all draws."""
    return tmp_path_factory.mktemp("walk")


@pytest.fixture(scope="module")
def known(folder: Path) -> dict[str, Known]:
    return make(folder)


@pytest.fixture(scope="module")
def chosen(folder: Path, known: dict[str, Known]) -> Chosen:
    def reasons_of(draw: Draw) -> set[str]:
        """Why it has no epochs."""
        damaged = (
            any(part.damaged for part in draw.parts) and draw.options.get("on_error") != "'replace'"
        )
        return Walk(draw, folder).broken() or ({"damaged"} if damaged else set())

    return covering(known, SEED, DRAWN, reasons_of)


@pytest.fixture(autouse=True)
def one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of few batches has several windows in which samples are put together by their shapes."""
    monkeypatch.setattr(Grouping, "batches_of", staticmethod(lambda *_: 2))
    monkeypatch.setattr(recipe, "samples_of_window", lambda *_: 9)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_drawn_is_what_the_docs_say(
    folder: Path, chosen: Chosen, part: int, tried: Tried
) -> None:
    draws = chosen.taken[part::PARTS]
    assert walked(SEED, draws, folder) == {"done": len(draws)}
    tried(
        "options and data at random",
        len(draws),
        "batches as documented, or an error that names the option",
    )


def test_what_the_docs_refuse_together_is_refused(folder: Path, chosen: Chosen) -> None:
    ends = walked(SEED, chosen.refused, folder)
    assert ends["refused"] > 15
    assert ends["bad sample"] > 0


def calls_of(
    folder: Path, table: dict[str, list[str]]
) -> Iterator[tuple[str, str, Callable[[], fastpipe.Loader]]]:
    """The name of each option, its value as text, and a loader of it."""
    values = {**names(folder), "data": fastpipe.open(folder / "fields" / "packed")}
    for name, texts in table.items():
        for text in texts:
            with_it = {"rank": ", world_size=1", "world_size": ", rank=0"}.get(name, "")
            call = f"lambda: fastpipe.loader(data, **{{'batch_size': 4, 'size': 8, '{name}': {text}}}{with_it})"
            yield name, text, evaluated(call, values)


def test_a_value_that_no_loader_takes_is_refused_by_the_options_name(
    folder: Path, known: dict[str, Known]
) -> None:
    for name, text, call in calls_of(folder, WRONG):
        with pytest.raises(fastpipe.ConfigError) as caught:
            call()
        words = {name, *re.findall("[a-z_]+", text.lower())} - {"fastpipe"}
        assert any(word in str(caught.value).lower() for word in words), (
            f"{name}={text}: {caught.value}"
        )


def test_a_value_of_which_the_docs_say_nothing_works_or_is_refused(
    folder: Path, known: dict[str, Known]
) -> None:
    for _, _, call in calls_of(folder, UNSURE):
        with contextlib.suppress(fastpipe.ConfigError), call() as loader:
            assert len(list(loader)) == len(loader)


def test_a_value_with_which_no_dataset_is_opened(folder: Path, known: dict[str, Known]) -> None:
    values = {**names(folder), "path": folder / "fields" / "packed"}
    for name, texts in WRONG_OPEN.items():
        for text in texts:
            with pytest.raises(fastpipe.ConfigError, match=name):
                evaluated(f"fastpipe.open(path, {name}={text})", values)


def test_each_value_of_each_option_comes(chosen: Chosen) -> None:
    values = {value for draw in chosen.taken for value in values_of(draw)}
    assert len(values) >= 195
    assert len(chosen.taken) < 125, "a gate's worth"
