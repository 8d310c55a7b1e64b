"""Where things lie in the checkout that holds these tests."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SUPPORT = TESTS / "support"
ROOT = TESTS.parent
PHOTOS = ROOT.parent / "shared" / "data" / "photos"
