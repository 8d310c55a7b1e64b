"""Names of files that a terminal would act on, as the commands print them."""

from __future__ import annotations

from pathlib import Path

from support.programs.cli_run import fp
from support.sources.pack_sources import jpeg_bytes

from fastpipe.errors import readable


def test_control_characters_are_shown_and_not_sent(tmp_path: Path) -> None:
    folder = tmp_path / "source" / "ant"
    folder.mkdir(parents=True)
    (folder / "1.jpg").write_bytes(jpeg_bytes())
    (folder / "\x1b]0;owned\x07.jpg").write_bytes(b"no picture")
    shown = fp("pack", tmp_path / "source", tmp_path / "packed").stdout
    assert "\x1b]0;" not in shown
    assert "ant/\\x1b]0;owned\\x07.jpg: not an image" in shown


def test_readable_names() -> None:
    assert readable("caf\udce9\x9b2J\r") == "caf\\xe9\\x9b2J\\x0d"
    assert readable("ünïcode\nin two lines\t!") == "ünïcode\nin two lines\t!"
