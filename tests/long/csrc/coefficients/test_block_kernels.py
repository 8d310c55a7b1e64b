"""Tests of the kernels that read blocks: all of a machine's, and those of an emulated ARM, give the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.native.bare_programs import CSRC, MACHINES, output_of

from fastpipe import _engine


@pytest.mark.parametrize("arm", MACHINES)
def test_all_kernels_agree(tmp_path: Path, *, arm: bool) -> None:
    sources = sorted((CSRC / "coefficients").glob("block*.cc"))
    sources = [
        source for source in sources if source.stem != "block_row_writer"
    ]  # that one knows JPEG
    run = output_of("block_agreement", sources, ["5000"], tmp_path, arm=arm)
    assert run.returncode == 0, run.stdout
    assert run.stdout.splitlines()[0].split() == (
        ["scalar", "neon"] if arm else _engine.block_kernels()
    )
