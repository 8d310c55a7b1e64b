"""Writes the table of kornia's modules in docs/explanation/augmentation.md anew, from the formulas."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from support.batches.formula_table import PAGE, page_with_table  # noqa: E402

PAGE.write_text(page_with_table())
