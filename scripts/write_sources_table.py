"""Writes docs/reference/sources-table.md anew from the tests of sources as people have them."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from support.sources.becomes import TABLE, table  # noqa: E402

TABLE.write_text(table())
