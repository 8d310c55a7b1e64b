"""Under coverage: notes which test file runs which line, for scripts/prove_gate.py."""

from __future__ import annotations

import os

import pytest
from support.checkout import ROOT


def note_test_file(item: pytest.Item) -> None:
    """From now on, lines that run belong to the file of this test."""
    if "COVERAGE_RUN" not in os.environ or not item.path.is_relative_to(ROOT):
        return
    from coverage import Coverage

    coverage = Coverage.current()
    if coverage is not None:
        coverage.switch_context(str(item.path.relative_to(ROOT)))
