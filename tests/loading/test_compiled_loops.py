"""Tests of loops over a loader in functions that torch compiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs.warm import run_script

import fastpipe

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (images.float().mean((1, 2, 3)) * (labels + 1)).sum()


def epoch(batches: Batches) -> torch.Tensor:
    total = torch.zeros(())
    for images, labels in batches:
        total = total + loss(images, labels)
    return total


@pytest.fixture
def graphs() -> Iterator[list[str]]:
    """What torch compiles, from one test."""
    torch._dynamo.reset()
    yield []
    torch._dynamo.reset()


def compiled(function: Any, graphs: list[str], **options: bool) -> Any:
    def keep(module: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(module.code)
        return module.forward

    return torch.compile(function, backend=keep, **options)


def test_a_loop_in_a_compiled_function(flat: Path, graphs: list[str]) -> None:
    with fastpipe.loader(flat, 5, size=12, num_workers=1) as loader:
        expected = [epoch(loader), epoch(loader)]
        loader.set_epoch(0)
        loop = compiled(epoch, graphs)
        assert torch.equal(torch.stack([loop(loader), loop(loader)]), torch.stack(expected))
    assert any("mean" in code for code in graphs), "the step is compiled"
    assert not any("fastpipe" in code for code in graphs)


def test_one_graph_for_the_loop_is_refused_with_words(flat: Path, graphs: list[str]) -> None:
    with (
        fastpipe.loader(flat, 5, size=12, num_workers=1) as loader,
        pytest.raises(
            torch._dynamo.exc.Unsupported, match="Without fullgraph=True a loop over a loader works"
        ),
    ):
        compiled(epoch, graphs, fullgraph=True)(loader)


def test_nobody_else_pays_for_the_compiler(flat: Path) -> None:
    code = """
        import sys, fastpipe
        for batch in fastpipe.loader(sys.argv[1], 5, size=12, num_workers=1):
            pass
        sys.exit("torch._dynamo" in sys.modules)
    """
    done = run_script(code, flat, timeout_s=300)
    assert done.returncode == 0, done.stderr
