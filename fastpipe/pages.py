"""The name of a page of the documentation -> the words by which help and messages name it.

They say the command that shows the page: a wheel is read where there may be no browser and no network.
"""

from __future__ import annotations


def name_page(name: str, section: int = 0) -> str:
    """The words by which a message names a page: `fastpipe docs failures`, section 3."""
    words = f"`fastpipe docs {name}`"
    if section:
        words += f", section {section}"
    return words
