"""The built site of the documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, ROOT / "docs" / "site" / "build.py", folder]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder
