"""The title of a page of the documentation -> the words by which help and messages name it.

A wheel has no docs folder. So a message names a page by its title, which the site's search finds.
"""

from __future__ import annotations


def name_page(title: str, section: int = 0) -> str:
    """For example: the page "Failures" of the documentation, section 3."""
    words = f'the page "{title}" of the documentation'
    if section:
        words += f", section {section}"
    return words
