"""fold without groups=: patients, videos and the like that are in both parts are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.pictures.drawn import FLAT_IMAGES

import fastpipe

pytestmark = pytest.mark.usefixtures("warned_anew")

NUMBERS = range(FLAT_IMAGES)
IDS = [f"P{number // 4:03d}" for number in NUMBERS]
FRAMES = [f"video-{number % 12}" for number in NUMBERS]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient_id", IDS),
        ("patient", [number // 4 for number in NUMBERS]),
        ("studyid", IDS),
        ("video", FRAMES),
        ("scene_id", FRAMES),
    ],
)
def test_a_column_of_patients(
    flat: Path, caplog: pytest.LogCaptureFixture, name: str, values: list[Any]
) -> None:
    data = fastpipe.open(flat).with_column(name, values)
    for _ in range(2):
        rest, part = data.fold(0, of=5)
    num_both = len({*part[name].tolist()} & {*rest[name].tolist()})
    words = f"{num_both} of the {len(set(values))} values of {name!r} are in both parts"
    assert caplog.text.count(words) == 1
    assert f"groups={name!r}" in caplog.text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("scene", ["street" if number % 3 else "park" for number in NUMBERS]),  # kinds
        ("num_person", [number % 11 for number in NUMBERS]),
        ("case_id", [f"{number}" for number in NUMBERS]),
        ("suitcase", FRAMES),
        ("score_id", IDS),
        ("patient_id", ["" for _ in NUMBERS]),
        ("patient_age", [number // 4 for number in NUMBERS]),
    ],
)
def test_other_columns(
    flat: Path, caplog: pytest.LogCaptureFixture, name: str, values: list[Any]
) -> None:
    fastpipe.open(flat).with_column(name, values).fold(0, of=5)
    assert "in both parts" not in caplog.text


def test_groups_and_classes(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(flat).with_column("patient_id", IDS)
    data.fold(0, of=2, groups="patient_id")
    people = [f"P{number % 2}" for number in NUMBERS]
    faces = fastpipe.open(flat).with_labels(people).with_column("person_id", people)
    faces.fold(0, of=5, stratify="label")
    assert "in both parts" not in caplog.text


def test_parts_that_are_chosen_otherwise(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(flat).with_column("patient_id", IDS)
    parts = [data.select(range(0, FLAT_IMAGES, 2)), data.select(range(1, FLAT_IMAGES, 2))]
    options: dict[str, Any] = {"size": 16, "num_workers": 1}
    with (
        fastpipe.loader(parts[0], 4, **options),
        fastpipe.loader(parts[1], 4, train=False, **options),
    ):
        assert caplog.text.count("values of 'patient_id' are in both parts") == 1
