"""VQA's questions and answers, as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import write

import fastpipe
from fastpipe.errors import PackError

QUESTION = {"image_id": 9, "question": "What is it?", "question_id": 9000}
ANSWER = {"question_type": "what is", "image_id": 9, "question_id": 9000, "answers": []}


@becomes(
    "VQA v2: `v2_OpenEnded_mscoco_train2014_questions.json`, `v2_mscoco_train2014_annotations.json`",
    "refused, with the line of JSONL to write instead",
)
@pytest.mark.parametrize(("entry", "name"), [(QUESTION, "questions"), (ANSWER, "annotations")])
def test_questions_and_answers(tmp_path: Path, entry: dict[str, object], name: str) -> None:
    content = {"info": {"version": "2.0"}, "task_type": "Open-Ended", name: [entry]}
    file = write(tmp_path / f"v2_mscoco_train2014_{name}.json", content)
    with pytest.raises(PackError, match=r"is VQA's JSON.*does not read: write a JSONL file with a"):
        fastpipe.pack(file, tmp_path / "packed")
