"""Tests of fastpipe.errors: the texts of messages."""

from __future__ import annotations

import pytest

from fastpipe.errors import (
    SampleError,
    first_names,
    format_count,
    format_share,
    in_one_line,
    suggest_class,
)


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
        (6, "key", "6 keys"),
    ],
)
def test_a_number_comes_with_the_plural_of_its_noun(count: int, noun: str, text: str) -> None:
    assert format_count(count, noun) == text


def test_a_sample_error_names_the_source_path_and_the_place() -> None:
    place = {"shard": "data/shard-000000.tar", "member": "000000-00000297", "offset": 153600}
    error = SampleError(key="cross/00023.jpg", sample=5, reason="it is no JPEG", **place)  # type: ignore[arg-type]
    lines = str(error).splitlines()
    assert lines[0] == "sample 5 (cross/00023.jpg) cannot be decoded: it is no JPEG"
    assert lines[1] == "  shard data/shard-000000.tar, member 000000-00000297, byte 153600"
    unknown = SampleError(sample=5, reason="it is no JPEG", **place)  # type: ignore[arg-type]
    assert str(unknown).splitlines() == ["sample 5 cannot be decoded: it is no JPEG", *lines[1:]]


@pytest.mark.parametrize(
    ("number", "total", "text"), [(1, 1, "1 key"), (1, 3, "1 of 3 keys"), (3, 3, "3 of 3 keys")]
)
def test_a_share_comes_with_the_noun_of_all(number: int, total: int, text: str) -> None:
    assert format_share(number, total, "key") == text


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        (["cat", "dog"], "; did you mean 'cat'?"),
        (["bee"], "; it has 'bee'"),
        ([], ": it has no classes"),
    ],
)
def test_a_class_that_is_not_there(classes: list[str], text: str) -> None:
    assert suggest_class("cats", classes) == text
