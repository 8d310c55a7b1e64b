"""Tests of fastpipe.errors: how texts of messages are shortened."""

from __future__ import annotations

import pytest

from fastpipe.errors import first_names, format_count, in_one_line


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (2, "a0, a1"), (3, "a0, a1, a2"), (1236, "a0, a1, a2 and 1,233 more")],
)
def test_a_list_of_names_ends_with_how_many_follow(count: int, text: str) -> None:
    assert first_names([f"a{number}" for number in range(count)], 3) == text


def test_the_text_of_an_error_has_no_line_breaks_and_a_length() -> None:
    problem = ValueError("no such\n\n  header: 0123456789")
    assert in_one_line(problem) == "no such header: 0123456789"
    assert in_one_line(problem, 14) == "no such header"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "file", "1 file"),
        (2000, "file", "2,000 files"),
        (3, "class", "3 classes"),
        (0, "batch", "0 batches"),
        (4, "box", "4 boxes"),
        (5, "category", "5 categories"),
    ],
)
def test_a_number_comes_with_the_plural_of_its_noun(count: int, noun: str, text: str) -> None:
    assert format_count(count, noun) == text
