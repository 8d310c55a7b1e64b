"""Ctrl-C and SIGTERM at any moment of a program with a loader: it ends soon, and says one thing at most."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest
from support.programs.forked import outcomes_of
from support.running.patience import in_time
from support.running.soak import Tried, times

# It comes by all stations, again and again: opening, the first batch, epochs, steps, the end of an epoch, closing.
PROGRAM = """
    say("importing")
    import contextlib, time
    import torch
    import fastpipe

    say("imported")
    weights = torch.ones(3 * 96 * 96, 50)
    while True:
        augment = {augment}
        with fastpipe.loader(DATA, 2, size=96, num_workers=3, device="cpu", augment=augment) as loader, {monitor}:
            say("opened")
            for epoch in range(2):
                for images, labels in loader:
                    images.float().reshape(2, -1) @ weights
                    time.sleep(0.002)
"""
FORMS = {
    "plain": {"augment": "None", "monitor": "contextlib.nullcontext()"},
    "augmented": {"augment": "fastpipe.Augment.simclr()", "monitor": "contextlib.nullcontext()"},
    "monitored": {"augment": "None", "monitor": "fastpipe.monitor(loader, every=0.01)"},
}
# A while for each: importing takes about as long, and so do several rounds of the program.
MOMENTS = {"importing": 0.4, "imported": 0.1, "opened": 0.8}


KINDS = {
    **{f"Ctrl-C, {form}": (form, signal.SIGINT, times(3, 50)) for form in FORMS},
    "SIGTERM": ("monitored", signal.SIGTERM, times(2, 50)),
}


@pytest.fixture(scope="module")
def endings(large: Path) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """By kind: when it was and how the program ended. One process forks them all."""
    rng = random.Random(11)
    programs = []
    for form, sent, count in KINDS.values():
        for _ in range(count):
            after = rng.choice(list(MOMENTS))
            code = PROGRAM.format(**FORMS[form])
            programs.append(
                {
                    "code": code,
                    "signal": sent,
                    "after": after,
                    "delay_s": rng.uniform(0, MOMENTS[after]),
                }
            )
    outcomes = iter(outcomes_of(programs, large, "torch"))
    moments = iter(f"{each['delay_s']:.3f} s after {each['after']}" for each in programs)
    return {
        kind: [(next(moments), next(outcomes)) for _ in range(count)]
        for kind, (_, _, count) in KINDS.items()
    }


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("Ctrl-C")])
def test_ctrl_c_at_random_moments(
    endings: dict[str, list[tuple[str, dict[str, Any]]]], tried: Tried, kind: str
) -> None:
    for moment, ended in endings[kind]:
        place = f"{moment}: {ended}"
        if "Exception ignored in: <function _get_module_lock.<locals>.cb" in ended["stderr"]:
            continue  # Python's import itself lost the Ctrl-C, one of 400 that come during imports
        assert in_time(ended["seconds"], 2), place
        assert not ended["left"], place
        if "RuntimeError: Error calling __set_name__" in ended["stderr"]:
            # Before Python 3.12 a Ctrl-C that comes while a class is made, as in an import, ends so.
            assert "\nKeyboardInterrupt\n" in ended["stderr"], place
            continue
        within = ended["stderr"].count(
            "During handling of the above exception"
        )  # as the import of an enum does
        assert ended["stderr"].count("Traceback") <= 1 + within, place
        assert ended["code"] in (-signal.SIGINT, 130), place
        assert ended["stderr"].rstrip().endswith("KeyboardInterrupt"), place
    tried(
        "Ctrl-C at a random moment",
        len(endings[kind]),
        "ends within 2 s, one traceback, no process left",
    )


def test_sigterm_at_random_moments(
    endings: dict[str, list[tuple[str, dict[str, Any]]]], tried: Tried
) -> None:
    for moment, ended in endings["SIGTERM"]:
        place = f"{moment}: {ended}"
        assert ended["code"] == -signal.SIGTERM, place
        assert in_time(ended["seconds"], 2), place
        assert "Traceback" not in ended["stderr"], place
        assert not ended["left"], place
    tried(
        "SIGTERM at a random moment",
        len(endings["SIGTERM"]),
        "ends within 2 s, no traceback, no process left",
    )
