"""Warnings in a program without logging of its own, and in one with it."""

from __future__ import annotations

import pytest
from support.programs import warm

PROGRAM = """
import logging, sys
import fastpipe
{configured}
logging.getLogger("fastpipe").warning("a warning")
logging.getLogger("fastpipe.pack").warning("another one")
logging.getLogger("fastpipe").info("a remark")
"""
ON_LOGGER = 'logging.getLogger("fastpipe").addHandler(logging.StreamHandler())'


@pytest.mark.parametrize(
    ("configured", "lines"),
    [
        ("", ["fastpipe: a warning", "fastpipe: another one"]),
        (
            "logging.basicConfig()",
            ["WARNING:fastpipe:a warning", "WARNING:fastpipe.pack:another one"],
        ),
        (ON_LOGGER, ["a warning", "another one"]),
        ("sys.stderr = None", []),
    ],
)
def test_each_warning_is_printed_once(configured: str, lines: list[str]) -> None:
    program = PROGRAM.format(configured=configured)
    ran = warm.run_script(program)
    assert ran.returncode == 0
    assert ran.stderr.splitlines() == lines
