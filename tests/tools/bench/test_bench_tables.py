"""The tables that benchmarks print, of figures that are made up."""

from __future__ import annotations

import sys
from io import StringIO

from rich.console import Console
from support.checkout import ROOT

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import accuracy, wds
from bench.wds import OURS, THEIRS, Run
from fastpipe.tools.bench.measure import NAMES, Figures, Result
from fastpipe.tools.cli.tables import throughput_table


def test_the_table_of_throughput_fits_into_80_columns() -> None:
    """It is what the demo ends with: no figure and no name is cut."""
    results = []
    for name in NAMES:
        figures = Figures(14_234.0, 0.06, 1.93, 1266.0)
        results.append(Result(name, figures, 13_134.0, 14_334.0, 16.5))
    console = Console(width=80, record=True, file=StringIO())
    console.print(throughput_table(results))
    text = console.export_text()
    assert "…" not in text
    assert "DataLoader (turbo, cv2)   14,234 13,134-14,334 16.50 x 1.93    0.06 s 1,266 MB" in text


def test_accuracies() -> None:
    lines = accuracy.table({"one": [0.5, 0.7, 0.6], "other": [0.4, 0.4, 0.7]})
    assert lines == [
        "| | seed 0 | seed 1 | seed 2 | mean |",
        "|---|---:|---:|---:|---:|",
        "| one | 50.0 | 70.0 | 60.0 | 60.00 ± 5.77 |",
        "| other | 40.0 | 40.0 | 70.0 | 50.00 ± 10.00 |",
        "",
        "difference +10.00 ± 11.55",
    ]


def test_ratios_of_wds_are_those_of_a_round() -> None:
    runs = {way: [Run(100, 50), Run(20, 10), Run(60, 30)] for way in OURS}
    runs |= {way: [Run(50, 50), Run(5, 10), Run(20, 10)] for way in THEIRS}
    lines = wds.table(runs).splitlines()
    assert lines[-1].endswith("| 20 |" + 2 * " 3.00 x (2.00 to 4.00), by CPU time 1.00 x |")
    assert lines[2].endswith("| 60 |  |  |")
    assert len(lines) == 2 + len(OURS) + len(THEIRS)
