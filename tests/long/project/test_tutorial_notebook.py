"""docs/tutorial.ipynb runs in Jupyter's kernel, from its first cell to its last, with fewer photos and epochs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from support.checkout import ROOT


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        lines = [line for line in cell.source.splitlines() if not line.startswith("!pip ")]
        cell.source = "\n".join(lines).replace("!fastpipe", f"!{sys.executable} -m fastpipe")
        cell.source = cell.source.replace("fastpipe demo", "fastpipe demo --photos 60")
        cell.source = cell.source.replace("(15)", "(2)").replace("15 * len", "2 * len")
    # The kernel and the commands are other processes, which import this checkout.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[:1]]))
    run = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    run.execute()
    texts = [
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    ]
    assert "60 samples, 10 classes" in "".join(texts)
    assert (tmp_path / "predictions.csv").read_text().count("\n") > 10
