"""ICDAR's lists of words: a picture and its text in quotes, with backslashes before quotes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import labels, photos, values, write

import fastpipe
from fastpipe.errors import PackError

LINES = (
    'word_1.png, "Genaxis Theatre"',
    'word_2.png, "\\"Joint\\""',
    'word_3.png, "a, b"',
    'word_4.png, "C:\\d"',
    'word_5.png, "15\\""',
)
TEXTS = {
    "word_1.png": "Genaxis Theatre",
    "word_2.png": '"Joint"',
    "word_3.png": "a, b",
    "word_4.png": "C:\\d",
    "word_5.png": '15"',
}


@becomes(
    'ICDAR 2015: `gt.txt` with `word_1.png, "Joint"`, and `\\"` in the quotes',
    "the texts as the field, without the quotes around them",
    "--field text=label:text",
)
def test_words(tmp_path: Path) -> None:
    photos(tmp_path / "words", *TEXTS)
    file = write(tmp_path / "words/gt.txt", "\ufeff" + "\n".join(LINES))
    fastpipe.pack(file, tmp_path / "packed", fields=["text=label:text"])
    assert values(tmp_path, "text") == TEXTS
    fastpipe.pack(file, tmp_path / "packed", overwrite=True)
    assert labels(tmp_path) == TEXTS


def test_other_quotes_stay(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    text = 'path,note\na.jpg,"{""name"":""\\""x\\""""}"\nb.jpg,"over\n""two\\"" lines"\n'
    fastpipe.pack(write(tmp_path / "a.csv", text), tmp_path / "packed", fields=["note=note:text"])
    assert values(tmp_path, "note") == {
        "a.jpg": '{"name":"\\"x\\""}',
        "b.jpg": 'over\n"two\\" lines',
    }
    file = write(tmp_path / "b.csv", 'path,note\na.jpg,"a "b" c"\n')
    with pytest.raises(PackError, match="If a quote is open or stands inside a value"):
        fastpipe.pack(file, tmp_path / "none")
