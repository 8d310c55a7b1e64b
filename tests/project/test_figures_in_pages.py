"""Figures of a page that follow from others of the same page."""

from __future__ import annotations

import re

import pytest
from support.checkout import ROOT


def test_the_requests_of_a_later_epoch_follow_from_the_sizes() -> None:
    page = (ROOT / "docs/how-to/operations.md").read_text()
    images_tb = float(re.findall(r"^\| JPEGs in shards .* ([\d.]+) TB", page, re.MULTILINE)[0])
    index_gb = float(re.findall(r"^\| `index.npy` .* ([\d.]+) GB", page, re.MULTILINE)[0])
    ((limit_gb, given),) = re.findall(
        r"^\| train: .* of (\d+) GB \| .* \| ([\d,]+) \|", page, re.MULTILINE
    )
    # The index counts first.
    missing_bytes = images_tb * 1e12 - (int(limit_gb) - index_gb) * 1e9
    assert int(given.replace(",", "")) == pytest.approx(missing_bytes / 2**20, rel=0.005)
