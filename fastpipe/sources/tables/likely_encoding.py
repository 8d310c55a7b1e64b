"""The bytes of a table -> the encoding that its text is likely to have, for a message.

Excel on Windows writes CSV files in cp1252, and no byte of such a file says so. So packing does not
guess: a user says --encoding. Where fastpipe looks for tables, it has to read such a table, to name
it and the option.
"""

from __future__ import annotations

import codecs

from fastpipe.sources.encodings import detect_encoding
from fastpipe.sources.files import SourcePath, open_binary

# The first letter with an accent may stand behind many rows.
_HEAD_BYTES = 1 << 20
_MARK_BYTES = 4
_OF_EXCEL = "cp1252"
# Each byte is a character in it.
_OF_ANY_BYTES = "latin-1"


def likely_encoding(table: SourcePath) -> str | None:
    """The encoding to pass for a table; None if its text is read without.

    Raises:
        OSError: the table cannot be read.
    """
    with open_binary(table) as file:
        head = file.read(_HEAD_BYTES)
    if detect_encoding(head[:_MARK_BYTES]) is not None or _is_text(head, "utf-8"):
        return None
    return _OF_EXCEL if _is_text(head, _OF_EXCEL) else _OF_ANY_BYTES


def _is_text(data: bytes, encoding: str) -> bool:
    """Whether bytes are text in an encoding. The last character may be cut off."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return True
