"""A list of captions with the number of each behind the name of its image -> rows by number.

Flickr8k.token.txt and Flickr30k's results_20130124.token have lines such as 1000.jpg#0, a tab, and the
caption. Captions have quotes in them, which are no quotes of CSV.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastpipe.sources.encodings import open_as_utf8
from fastpipe.sources.files import SourcePath, open_unchanged
from fastpipe.sources.tables.rows import Row, row_name
from fastpipe.sources.tables.table_text import SPACES, TextForm

_NUMBERED_NAME = re.compile(r"(.+)#(\d{1,9})")


def read_numbered_captions(
    path: SourcePath, form: TextForm, encoding: str | None
) -> Iterator[Row]:
    """Reads the captions, those of an image in the order of their numbers."""
    separator = None  # any spaces
    if form.separator != SPACES:
        separator = form.separator
    rows: list[tuple[int, Row]] = []
    with open_unchanged(path) as opened:
        lines = open_as_utf8(opened, encoding, str(path))
        for line_number, line in enumerate(lines, start=1):
            if line_number <= form.skipped or not line.strip():
                continue
            rows.append(_read_row(row_name(path.name, line_number), line, separator))
    rows.sort(key=lambda numbered: numbered[0])
    for _, row in rows:
        yield row


def _read_row(where: str, line: bytes, separator: str | None) -> tuple[int, Row]:
    """The number of a caption, and its row."""
    try:
        name, caption = line.decode("utf-8-sig").strip().split(separator, 1)
    except ValueError:  # also of text that is not UTF-8
        problem = f"expected a name, a number and a caption, got {line[:60]!r}"
        return 0, Row(where, problem=problem)
    match = _NUMBERED_NAME.fullmatch(name.strip())
    if match is None:
        problem = (
            "expected a name with the number of its caption behind it, such as a.jpg#0, got "
            f"{name!r:.60}"
        )
        return 0, Row(where, problem=problem)
    return int(match[2]), Row(where, {"path": match[1], "caption": caption.strip()})
