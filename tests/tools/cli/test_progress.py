"""How far long work is, in a terminal and elsewhere."""

from __future__ import annotations

import io
from typing import NamedTuple

import pytest
from rich.console import Console

from fastpipe.machine import progress


class Work(NamedTuple):
    bytes: int
    total_bytes: int


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "name", ["/data/{a}/photos", "/data/{}", "/data/[/x]/photos", "/data/[red]cats", "/a:cat:/b"]
)
def test_names_of_folders_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, name: str, terminal: bool
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120)
    with progress.show_progress(
        console, f"scanning {name}", lambda work: f"{work.bytes} of {name}"
    ) as tell:
        tell(Work(1, 2))
        tell(Work(2, 2))
    assert f"scanning {name}" in shown.getvalue()
    assert f"2 of {name}" in shown.getvalue()
