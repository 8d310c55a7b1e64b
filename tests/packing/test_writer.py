"""fastpipe.Writer: samples added one by one become a dataset, with the values of their fields."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.datasets.field_values import FIELDS, column, notes, opened, rows, sample, stored_files
from support.programs import warm
from support.sources.pack_sources import (
    assert_near,
    assert_same_pixels,
    digests,
    jpeg_bytes,
    pillow,
    pixels,
    saved,
)

import fastpipe
from fastpipe import _engine
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, PackError
from fastpipe.tools.verify.verification import verify

SAMPLES = 14


def write(
    destination: Path, samples: int = SAMPLES, fields: Any = FIELDS, **options: Any
) -> fastpipe.Writer:
    with fastpipe.Writer(
        destination, fields=fields, **{"shard_size": 100_000, **options}
    ) as writer:
        for number in range(samples):
            writer.add(**sample(number))
    return writer


def rejected(destination: Path) -> dict[str, str]:
    lines = (destination / "rejected.jsonl").read_text().splitlines()
    return {entry["path"]: entry["reason"] for entry in map(json.loads, lines)}


def test_every_kind_is_stored_exactly(tmp_path: Path) -> None:
    writer = write(tmp_path / "packed")
    packed, index = tmp_path / "packed", PackedIndex(tmp_path / "packed")
    assert writer.summary.info == index.info
    assert len(index.shards) > 1
    assert len(index) == SAMPLES
    assert {field.name: field.kind for field in index.fields.values()} == FIELDS
    assert (index.fields["embedding"].width, index.fields["pose"].points) == (7, 5)
    assert index.fields["boxes"].labelled
    given = [sample(number) for number in range(SAMPLES)]
    names = index.fields["tags"].names
    assert names == tuple(f"tag {number}" for number in range(4))
    assert index.fields["tags"].classes == 4
    assert column(packed, "score").tolist() == [one["score"] for one in given]
    assert (column(packed, "embedding") == np.float32([one["embedding"] for one in given])).all()
    tags = [[names[number] for number in row] for row in rows(packed, "tags", "tags.offsets")]
    assert tags == [one.get("tags", []) for one in given]
    texts = [bytes(row).decode() for row in rows(packed, "caption.bytes", "caption.offsets")]
    assert texts == [one.get("caption", "") for one in given]
    assert [json.loads(bytes(row)) for row in rows(packed, "meta.bytes", "meta.offsets")] == [
        one.get("meta") for one in given
    ]
    assert [bytes(row) for row in rows(packed, "raw.bytes", "raw.offsets")] == [
        one.get("raw", b"") for one in given
    ]
    for one, boxes, pose in zip(
        given,
        rows(packed, "boxes", "boxes.offsets"),
        rows(packed, "pose", "pose.offsets"),
        strict=True,
    ):
        np.testing.assert_array_equal(
            boxes, np.float32(one.get("boxes", {"boxes": np.empty((0, 4))})["boxes"])
        )
        np.testing.assert_array_equal(pose, np.float32(one.get("pose", np.empty((0, 5, 3)))))
    labels = [label for one in given for label in one.get("boxes", {"labels": []})["labels"]]
    assert column(packed, "boxes.labels").tolist() == labels
    for name in ("seg", "depth"):
        for one, data, record in zip(
            given, stored_files(packed, name), column(packed, name), strict=True
        ):
            if data is None:
                assert name not in one
                assert record.tobytes() == bytes(26)
                continue
            np.testing.assert_array_equal(opened(data), one[name])
            assert (record["width"], record["height"], record["bits"]) == (
                70,
                45,
                8 * one[name].itemsize,
            )
            assert record["format"] == 1
    for one, data in zip(given, stored_files(packed, "second"), strict=True):
        if data is not None:
            assert_same_pixels(data, one["second"])
    assert verify(packed).sound


def test_the_notes_in_the_shards_hold_the_same_float32(tmp_path: Path) -> None:
    write(tmp_path / "packed")
    found = np.float32([note["embedding"] for note in notes(tmp_path / "packed")])
    np.testing.assert_array_equal(found, column(tmp_path / "packed", "embedding"))
    assert [note["path"] for note in notes(tmp_path / "packed")] == [
        f"sample-{number}" for number in range(SAMPLES)
    ]


def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 4):
        write(tmp_path / str(workers), workers=workers)
    assert digests(tmp_path / "1") == digests(tmp_path / "4")


def add_all(
    destination: Path, *, stop: bool = False, overwrite: bool = False, **changes: Any
) -> fastpipe.Writer:
    """Adds all samples, and fails before the end. One after the other, so that there are finished shards then.

    Args:
        changes: values that all samples get in place of their own.
    """
    with fastpipe.Writer(
        destination, FIELDS, shard_size=100_000, workers=1, overwrite=overwrite
    ) as writer:
        for number in range(SAMPLES):
            values = {**sample(number), **changes}
            writer.add(
                **{
                    name: value(number) if callable(value) else value
                    for name, value in values.items()
                }
            )
        if stop:
            raise RuntimeError("stopped")
    return writer


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpipe.packing.pipeline.ahead.RUN_TASKS", 1)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("changes", [{}, {"key": None}])
def test_an_interrupted_writer_goes_on(
    tmp_path: Path, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    add_all(tmp_path / "whole", **changes)
    packed = tmp_path / "packed"
    with pytest.raises(RuntimeError, match="stopped"):
        add_all(packed, stop=True, **changes)
    assert not (packed / "dataset.json").exists()
    assert len(list(packed.glob("shard-*.tar"))) >= 1
    with pytest.raises(fastpipe.DatasetError, match="unfinished"):
        PackedIndex(packed)
    assert "interrupted" not in caplog.text
    summary = add_all(packed, **changes).summary
    assert (summary.resumed > 0) == (not changes)  # without keys it begins anew
    is_logged = "continues an interrupted run" in caplog.text
    assert is_logged == (not changes)
    assert ("of an interrupted run>" in repr(summary)) == (not changes)
    assert (summary.files < SAMPLES) == (not changes)
    assert digests(packed) == digests(tmp_path / "whole")


@pytest.mark.usefixtures("one_by_one")
def test_a_finished_shard_has_no_classes_of_the_next_sample(tmp_path: Path) -> None:
    """Of an interrupted run whose finished shards are all that is added in the end."""
    packed = tmp_path / "packed"
    picture = jpeg_bytes((640, 480))  # one fills a shard

    def add(samples: int, *, stop: bool = False) -> fastpipe.Writer:
        with fastpipe.Writer(packed, {"tags": "classes"}, shard_size=100_000, workers=1) as writer:
            for number in range(samples):
                writer.add(picture, tags=[f"tag {number}"], key=str(number))
            if stop:
                raise RuntimeError("stopped")
        return writer

    with pytest.raises(RuntimeError, match="stopped"):
        add(SAMPLES, stop=True)
    finished = len(list(packed.glob("shard-*.tar")))
    assert finished >= 1
    assert add(finished).summary.resumed == finished
    names = tuple(f"tag {number}" for number in range(finished))
    assert PackedIndex(packed).fields["tags"].names == names


@pytest.mark.usefixtures("one_by_one")
def test_shards_of_a_version_that_agreed_on_other_things_are_made_again(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    with pytest.raises(RuntimeError, match="stopped"):
        add_all(packed, stop=True)
    entries = list((packed / ".pack").glob("shard-*.done"))
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes().replace(b'"shared":', b'"width":', 1))
    assert add_all(packed).summary.resumed == 0
    add_all(tmp_path / "whole")
    assert digests(packed) == digests(tmp_path / "whole")


@pytest.mark.usefixtures("one_by_one")
def test_other_samples_do_not_continue_an_interrupted_writer(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    with pytest.raises(RuntimeError, match="stopped"):
        add_all(packed, stop=True)
    before = digests(packed)
    for change in ({"key": lambda number: f"other-{number}"}, {"label": 2}):
        with pytest.raises(PackError, match="expected the same keys and labels"):
            add_all(packed, **change)
    with pytest.raises(PackError, match=r"the 0 samples that were added differ from the [1-9]"):
        write(packed, 0)
    with pytest.raises(PackError, match="other sources or options"):
        write(packed, 0, fields={"caption": "text"})
    assert digests(packed) == before
    # A remedy that the messages name.
    other = add_all(packed, overwrite=True, key=lambda number: f"other-{number}").summary
    assert (other.resumed, other.info["samples"]) == (0, SAMPLES)
    add_all(tmp_path / "other", key=lambda number: f"other-{number}")
    assert digests(packed) == digests(tmp_path / "other")
    write(packed, overwrite=True)
    write(tmp_path / "whole")
    assert digests(packed) == digests(tmp_path / "whole")


def test_a_dataset_is_replaced_only_on_demand(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    write(packed)
    before = digests(packed)
    with (
        pytest.raises(PackError, match=r"a finished dataset, and a .*Writer writes only new"),
        fastpipe.Writer(packed),
    ):
        pass
    assert digests(packed) == before
    with fastpipe.Writer(packed, overwrite=True) as writer:
        writer.add(jpeg_bytes(), label=0)
    left = ["dataset.json", "index.npy", "shard-000000.tar", "sources.npy"]
    assert sorted(digests(packed)) == left, "the old sidecars are gone"
    before = digests(packed)
    with (
        pytest.raises(RuntimeError, match="before the first shard"),
        fastpipe.Writer(packed, overwrite=True),
    ):
        raise RuntimeError("before the first shard")
    assert before.items() <= digests(packed).items()
    assert len(fastpipe.open(packed)) == 1


def deep_alpha() -> NDArray[np.uint16]:
    """Gray and alpha of 16 bits."""
    return np.random.default_rng(3).integers(0, 65536, (20, 30, 2), dtype=np.uint16)


def test_images_of_all_forms(tmp_path: Path) -> None:
    jpeg = jpeg_bytes()
    (tmp_path / "a.jpg").write_bytes(jpeg)
    array = pixels()
    gray = Image.fromarray(array).convert("L")
    from_jpeg = Image.open(tmp_path / "a.jpg")
    others = (
        array,
        gray,
        deep_alpha(),
        deep_alpha()[:, :, 0],
        Image.fromarray(array).quantize(9),
        from_jpeg,
    )
    with fastpipe.Writer(tmp_path / "packed") as writer:
        for image in (tmp_path / "a.jpg", str(tmp_path / "a.jpg"), jpeg, bytearray(jpeg), *others):
            writer.add(image)
        array[:] = 0  # the Writer has copies
    index = PackedIndex(tmp_path / "packed")
    data = index.shards[0].path.read_bytes()
    packed = [data[record["offset"] :][: record["size"]] for record in index.records]
    for one in packed[:4]:
        assert_same_pixels(one, jpeg)
    shown = [pixels(), np.asarray(gray)[:, :, None], deep_alpha(), deep_alpha()[:, :, :1]]
    for one, expected in zip(packed[4:], [*shown, pillow(packed[8])], strict=False):
        samples = _engine.png_samples(one)
        np.testing.assert_array_equal(samples, expected)
        assert samples.dtype == expected.dtype
    np.testing.assert_array_equal(pillow(packed[8]), np.asarray(others[4].convert("RGB")))
    assert_near(pillow(packed[9]), pillow(jpeg), 2)
    assert index.info["counts"]["png"] == {"pixels": 5}
    assert index.info["counts"]["reencoded"] == {"pixels": 1}  # that came from a JPEG
    assert index.records["label"].tolist() == [-1] * 10
    assert (index.classes, index.class_counts) == ([], [])
    assert [note["path"] for note in notes(tmp_path / "packed")][2:6] == ["#2", "#3", "#4", "#5"]


def test_a_writer_takes_quality_and_lossless(tmp_path: Path) -> None:
    from_jpeg = Image.open(io.BytesIO(jpeg_bytes()))
    for name, options in (
        ("low", {"quality": 20}),
        ("high", {"quality": 98}),
        ("exact", {"lossless": True}),
    ):
        with fastpipe.Writer(tmp_path / name, **options) as writer:
            writer.add(pixels())
            writer.add(from_jpeg)
    low, high, exact = (PackedIndex(tmp_path / name) for name in ("low", "high", "exact"))
    assert (low.records["size"] * 3 < high.records["size"]).all()
    assert exact.info["counts"]["png"] == {"pixels": 2}
    shown = fastpipe.open(tmp_path / "exact")[1][0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(shown, np.asarray(from_jpeg))
    with pytest.raises(ConfigError, match="--lossless does not go with --quality"):
        fastpipe.Writer(tmp_path / "none", quality=20, lossless=True)


def test_labels(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "numbers") as writer:
        for label in (4, np.int64(0), None):
            writer.add(jpeg_bytes(), label)
    index = PackedIndex(tmp_path / "numbers")
    assert (index.classes, index.class_counts) == (["0", "1", "2", "3", "4"], [1, 0, 0, 0, 1])
    assert index.records["label"].tolist() == [4, 0, -1]
    with fastpipe.Writer(tmp_path / "names", classes=["owl", "ant"]) as writer:
        for label in ("ant", "owl", 1, "bee", 2, -1, True, 1.5):
            writer.add(jpeg_bytes(), label, key=repr(label))
    assert PackedIndex(tmp_path / "names").records["label"].tolist() == [1, 0, 1]
    assert PackedIndex(tmp_path / "names").classes == ["owl", "ant"]
    assert rejected(tmp_path / "names").keys() == {"'bee'", "2", "-1", "True", "1.5"}
    with fastpipe.Writer(tmp_path / "unknown") as writer:
        writer.add(jpeg_bytes(), "ant", key="named")
        writer.add(jpeg_bytes(), 0)
    assert "pass the Writer a list of all classes" in rejected(tmp_path / "unknown")["named"]


BAD: list[tuple[str, Any, str]] = [
    ("score", None, "expected a value of kind int, got none"),
    ("score", 1.5, "expected a whole number"),
    ("score", 2**63, "expected a whole number of 64 bits"),
    ("score", True, "expected a whole number"),
    ("score", 10**5000, "expected a whole number of 64 bits, got int"),
    ("embedding", None, "expected a value of kind floats"),
    ("embedding", [1.0] * 6, "expected 7 numbers, as in the samples before; got 6"),
    ("embedding", [[1.0]], "shape (1, 1)"),
    ("embedding", [float("nan")] * 7, "finite"),
    ("embedding", [1e39] * 7, "finite"),
    ("embedding", ["1"] * 7, "expected a list of numbers"),
    ("embedding", torch.ones(7, requires_grad=True), "expected a list of numbers"),
    ("tags", "tag", "expected a list of class numbers or class names"),
    ("tags", [1], "expected classes as names, as in the samples before; got numbers"),
    ("tags", ["a", "a"], "each class once"),
    ("tags", np.array(1), "expected a list of class numbers or class names"),
    ("tags", [-1], "expected class numbers of 0 to"),
    ("caption", b"text", "expected a text (str), got b'text'; pass value.decode()"),
    ("caption", ["a", "b"], "Several texts of a sample are a field of kind json"),
    ("caption", Path("a.txt"), "pass the text of the file, path.read_text()"),
    ("embedding", 0.5, "expected a list of numbers, got 0.5; pass [0.5]"),
    ("caption", "\ud800", "expected text that can be UTF-8"),
    ("meta", {1, 2}, "expected a value that JSON can hold"),
    ("meta", [float("inf")], "expected a value that JSON can hold"),
    (
        "meta",
        reduce(lambda inner, _: [inner], range(100_000), 0),
        "expected a value that JSON can hold",
    ),
    ("meta", 10**5000, "expected a value that JSON can hold"),
    ("raw", "text", "expected bytes"),
    ("boxes", [[0, 0, 70.1, 45]], "inside the image"),
    ("boxes", [[-1, 0, 70, 45]], "inside the image"),
    ("boxes", [[5, 0, 4, 45]], "inside the image"),
    ("boxes", [[0, 0, 4]], "shape (M, 4)"),
    ("boxes", {"boxes": [[0, 0, 4, 4]], "labels": []}, "a label for each of 1 boxes, got 0"),
    ("boxes", {"labels": []}, "expected boxes and labels"),
    (
        "boxes",
        [[0, 0, 4, 4]],
        "expected boxes with labels, as in the samples before; got no labels",
    ),
    ("boxes", [[0, 0, float("nan"), 4]], "finite"),
    ("pose", [[[0, 0, 1]]], "expected 5 points an object, as in the samples before; got 1"),
    ("pose", [[0, 0, 1]], "shape (M, K, 3)"),
    ("pose", [[[0, 0, -1]] * 5], "a visibility of 0 or more"),
    ("seg", np.zeros((70, 45), np.uint8), "the size of the sample's image; got 45 x 70"),
    ("seg", np.zeros((45, 70), np.float32), "expected a mask"),
    ("seg", np.full((45, 70), 70000), "values from 70000"),
    ("seg", np.full((45, 70), -1), "values from -1"),
    ("seg", saved("PNG", "L", (70, 44)), "got 70 x 44"),
    ("seg", saved("PNG"), "a PNG with colours"),
    ("seg", jpeg_bytes(), "JPEG, which may change ids"),
    ("seg", saved("PNG", "L")[:-200], "the PNG is truncated"),
    (
        "seg",
        Image.open(io.BytesIO(saved("PNG", "L")[:-200])),
        "a PIL image that Pillow cannot decode",
    ),
    ("seg", 3, "expected a mask"),
    ("seg", "nowhere.png", "'nowhere.png' does not exist"),
    ("second", jpeg_bytes((70, 44)), "got 70 x 44"),
    ("second", b"text", "not an image"),
]


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # of torch's tensors
def test_a_bad_value_rejects_the_sample_by_name(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "packed", FIELDS) as writer:
        writer.add(**sample(1))
        for number, (name, value, _) in enumerate(BAD):
            writer.add(**{**sample(7), "key": str(number), name: value})
        writer.add(**sample(10))
    assert len(PackedIndex(tmp_path / "packed")) == 2
    reasons = rejected(tmp_path / "packed")
    assert sorted(reasons, key=int) == [str(number) for number in range(len(BAD))]
    for number, (name, _, words) in enumerate(BAD):
        assert reasons[str(number)].startswith(f"field {name}: "), (name, words)
        assert words in reasons[str(number)]
    assert verify(tmp_path / "packed").sound


def test_a_key_comes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fastpipe.packing.pipeline.keys._MIN_NEW", 4
    )  # some are in the set, and others sorted
    file = tmp_path / "a.jpg"
    file.write_bytes(jpeg_bytes())
    with fastpipe.Writer(tmp_path / "dst") as writer:
        for number in range(20):
            writer.add(file, 0, key=f"key {number}")
            for again in (0, number // 2, number):
                with pytest.raises(
                    ConfigError,
                    match=f"key 'key {again}' of sample {number + 1}: an earlier sample",
                ):
                    writer.add(file, 1, key=f"key {again}")
    data = fastpipe.open(tmp_path / "dst")
    assert sorted(data["key"]) == sorted(f"key {number}" for number in range(20))
    assert data["label"].sum() == 0
    assert len(data.select(["key 3"])) == 1


def test_paths_that_come_again_get_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(jpeg_bytes())
    with fastpipe.Writer(tmp_path / "dst") as writer:
        for _ in range(3):
            writer.add(file)
        writer.add(file.read_bytes())
    data = fastpipe.open(tmp_path / "dst")
    assert sorted(data["key"]) == sorted([str(file), f"{file}#2", f"{file}#3", "#3"])
    assert len(data.select([f"{file}#2"])) == 1


def test_a_set_of_classes_has_one_order(tmp_path: Path) -> None:
    """Python's differs from run to run, and numbers of classes would, too."""
    names = [f"name {number}" for number in range(40)]
    with fastpipe.Writer(tmp_path / "packed", {"tags": "classes", "numbers": "classes"}) as writer:
        writer.add(jpeg_bytes(), tags=set(names), numbers={5, 2**19, 3})
    assert PackedIndex(tmp_path / "packed").fields["tags"].names == tuple(sorted(names))
    assert [row.tolist() for row in rows(tmp_path / "packed", "numbers", "numbers.offsets")] == [
        [3, 5, 2**19]
    ]


def test_a_rejected_sample_leaves_nothing_behind(tmp_path: Path) -> None:
    """No class name of it gets a number, and no width of it counts."""
    for name, bad in (("clean", False), ("bad", True)):
        with fastpipe.Writer(
            tmp_path / name, {"tags": "classes", "v": "floats", "n": "int"}
        ) as writer:
            if bad:
                writer.add(jpeg_bytes(), tags=["lost"], v=[1.0, 2.0], n=None, key="bad")
                writer.add(b"no image", tags=["lost"], v=[1.0, 2.0], n=1, key="bad image")
            writer.add(jpeg_bytes(), tags=["kept"], v=[1.0], n=1, key="good")
            if bad:
                writer.add(jpeg_bytes(), tags=["lost"], v=[1.0, 2.0], n=1, key="wide")
    assert PackedIndex(tmp_path / "bad").fields == PackedIndex(tmp_path / "clean").fields
    assert rejected(tmp_path / "bad").keys() == {"bad", "bad image", "wide"}


def test_mistakes_of_the_program_are_raised_at_once(tmp_path: Path) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"fields": {"a": "words"}}, "expected one of int, floats"),
        ({"fields": {"label": "int"}}, "has an image and a label already"),
        ({"fields": {"key": "text"}}, "expected a field's name"),
        ({"fields": {"fpc": "bytes"}}, "fpc"),  # its members would take the place of the picture
        ({"fields": ["a"]}, r"fields: expected a dict of names and kinds, such as .*, got \['a'\]"),
        ({"classes": ["a", "a"]}, "each once"),
        ({"classes": 5}, r"classes: expected a list of names, each once, .*got"),
        (
            {"classes": {"a", "b"}},
            r"classes: expected a list of names",
        ),  # a set has another order in each run
        ({"classes": "ab"}, r"classes: expected a list of names"),
        ({"shuffle": True}, "keeps the order"),
        ({"tile": -1}, "tile: expected 0 to"),
    ]
    for options, words in mistakes:
        with pytest.raises(ConfigError, match=words):
            fastpipe.Writer(tmp_path / "packed", **options)
    writer = fastpipe.Writer(tmp_path / "packed", {"caption": "text"})
    with pytest.raises(ConfigError, match="inside the with block"):
        writer.add(jpeg_bytes())
    with writer:
        with pytest.raises(
            ConfigError,
            match=r"captoin: expected one of the fields .* \(caption\); did you mean 'caption'\?",
        ):
            writer.add(jpeg_bytes(), captoin="x")
        with pytest.raises(ConfigError, match="key: expected a text"):
            writer.add(jpeg_bytes(), key=3)  # type: ignore[arg-type]
        writer.add(jpeg_bytes())
    with pytest.raises(ConfigError, match="make another one"):
        writer.__enter__()
    assert len(PackedIndex(tmp_path / "packed")) == 1


def test_no_dataset_appears_after_an_error_that_the_program_catches(tmp_path: Path) -> None:
    """Samples that were converted together with the bad one are lost with it."""
    samples = [{"image": jpeg_bytes((16, 16)), "key": str(number)} for number in range(100)]
    samples[10]["image"] = b"no image"
    errors: list[str] = []
    with pytest.raises(PackError, match=r"samples are missing.*10 cannot be packed: not an image"):
        add_what_can_be(tmp_path / "packed", {}, samples, errors, on_error="fail")
    assert len(errors) > 2
    assert all("10 cannot be packed: not an image" in error for error in errors)
    assert not (tmp_path / "packed" / "dataset.json").exists()


class Unreadable:
    """Numbers of a program's own type, which cannot be read."""

    def __array__(self, *_: object, **__: object) -> None:
        raise KeyError("numbers")


def test_a_sample_that_raises_is_not_added(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "packed", {"numbers": "floats"}) as writer:
        for number in range(3):
            writer.add(jpeg_bytes(seed=number), key=str(number), numbers=[number])
            with pytest.raises(KeyError):
                writer.add(jpeg_bytes(), key="none", numbers=Unreadable())
    assert writer.summary.files == writer.summary.info["packs"][0]["source"]["files"] == 3
    assert column(tmp_path / "packed", "numbers").tolist() == [[0], [1], [2]]


@pytest.mark.usefixtures("one_by_one")
def test_no_dataset_appears_if_the_program_catches_that_samples_differ(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    with pytest.raises(RuntimeError, match="stopped"):
        add_all(packed, stop=True)
    others = [{**sample(number), "label": 2} for number in range(SAMPLES)]
    with pytest.raises(PackError, match=r"samples are missing.*expected the same keys and labels"):
        add_what_can_be(packed, FIELDS, others, [], shard_size=100_000)
    assert not (packed / "dataset.json").exists()


def add_what_can_be(
    packed: Path, fields: Any, samples: list[Any], errors: list[str], **options: Any
) -> None:
    """A program that goes on after each PackError."""
    with fastpipe.Writer(packed, fields, workers=1, **options) as writer:
        for one in samples:
            try:
                writer.add(**one)
            except PackError as problem:
                errors.append(str(problem))


def test_nothing_packed_is_an_error(tmp_path: Path) -> None:
    message = r"the only sample of .* could not be packed; nowhere\.jpg"
    with pytest.raises(PackError, match=message):  # noqa: SIM117
        with fastpipe.Writer(tmp_path / "packed") as writer:
            writer.add("nowhere.jpg")


def test_a_writer_without_samples_is_an_error(tmp_path: Path) -> None:
    message = r"^fastpipe\.Writer got no sample, so there is no dataset to write$"
    with pytest.raises(PackError, match=message), fastpipe.Writer(tmp_path / "packed"):
        pass


def test_a_large_file_that_is_no_image_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41")
    os.truncate(film, 3 << 30)
    tracemalloc.start()
    with fastpipe.Writer(tmp_path / "packed", {"second": "image"}) as writer:
        writer.add(film)
        writer.add(jpeg_bytes(), second=film, key="film as a field")
        writer.add(tmp_path, key="a folder")
        writer.add(jpeg_bytes())
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    reasons = rejected(tmp_path / "packed")
    assert "ISO media file" in reasons[str(film)]
    assert reasons["film as a field"].startswith("field second: ISO media file")
    assert "is a folder" in reasons["a folder"]


def test_a_writer_can_be_entered_again_after_an_exception(tmp_path: Path) -> None:
    writer = fastpipe.Writer(tmp_path / "packed")
    with pytest.raises(RuntimeError, match="stopped"), writer:
        raise RuntimeError("stopped")
    with writer:
        writer.add(jpeg_bytes())
    assert len(PackedIndex(tmp_path / "packed")) == 1


@pytest.mark.usefixtures("one_by_one")
def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    jpeg, peaks = jpeg_bytes((16, 16)), []
    for samples in (40, 160):
        tracemalloc.start()
        with fastpipe.Writer(
            tmp_path / str(samples), {"caption": "text", "boxes": "boxes"}, shard_size=400_000
        ) as w:
            for number in range(samples):
                w.add(jpeg, caption="x" * 100_000, boxes=[[0, 0, 8, 8]] * 20, key=str(number))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert column(tmp_path / "160", "boxes").shape == (3200, 4)
    assert peaks[1] < peaks[0] + 5_000_000, peaks  # 120 samples more hold 12 MB of captions


def test_half_a_character(tmp_path: Path) -> None:
    """A str may hold one, UTF-8 cannot: the other samples are packed all the same."""
    half = "a\ud800"
    with fastpipe.Writer(tmp_path / "packed", workers=1) as writer:
        writer.add(jpeg_bytes(seed=1), key=half)
        writer.add(b"", key=half + "b")
        writer.add(tmp_path / half)
    assert writer.summary.info["samples"] == 1
    assert rejected(tmp_path / "packed").keys() == {"a\\ud800b", str(tmp_path / "a\\ud800")}
    with pytest.raises(
        ConfigError, match=r"classes: expected .* that can be UTF-8, got \['b', 'a\\ud800'\]"
    ):
        fastpipe.Writer(tmp_path / "other", classes=["b", half])


def test_a_misspelt_class_is_answered_with_the_one_that_is_meant(tmp_path: Path) -> None:
    words = r"the only sample .*; k: label 'cta': .* 2 classes .*: cat, dog; did you mean 'cat'\?"
    with (
        pytest.raises(PackError, match=words),
        fastpipe.Writer(tmp_path / "dst", classes=["cat", "dog"]) as writer,
    ):
        writer.add(jpeg_bytes(), "cta", key="k")


PIXELS = np.zeros((20, 40, 3), np.uint8)


@pytest.mark.parametrize(
    "classes", [{"dog": 2, "cat": 1, "ant": 0}, {"ant": np.int64(0), "cat": 1, "dog": 2}]
)
def test_classes_with_numbers_of_their_own(tmp_path: Path, classes: Any) -> None:
    with fastpipe.Writer(tmp_path / "packed", classes=classes) as writer:
        for number, name in enumerate(("dog", "cat", "ant", "dog")):
            writer.add(PIXELS, label=name, key=f"{number}")
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["ant", "cat", "dog"]
    assert data.targets.tolist() == [2, 1, 0, 2]
    other = {"x": 1, "y": 0, "z": 2}
    assert data.with_labels([0, 1, 2, 2], classes=other).classes == ["y", "x", "z"]  # type: ignore[arg-type]


@pytest.mark.parametrize("numbers", [(1, 2), (0, 2), (0, 0), (0.0, 1.0)])
def test_classes_with_numbers_that_are_no_positions(tmp_path: Path, numbers: Any) -> None:
    classes = dict(zip(("cat", "dog"), numbers, strict=True))
    words = "classes: expected a list of names, or a dict of names and their numbers from 0 to 1"
    with pytest.raises(ConfigError, match=words):
        fastpipe.Writer(tmp_path / "packed", classes=classes)  # type: ignore[arg-type]


def test_points_as_shares_of_the_sides(tmp_path: Path) -> None:
    writer = fastpipe.Writer(tmp_path / "packed", {"joints": "keypoints"})
    words = (
        "expected points x, y in pixels of an image of 40 x 20, "
        r"got normalised coordinates \(0 to 1\), 0.1, 0.2"
    )
    with pytest.raises(PackError, match=words), writer:
        writer.add(PIXELS, key="one", joints=[[[0.1, 0.2, 1], [0.5, 0.6, 1], [7, 7, 0]]])
    with fastpipe.Writer(tmp_path / "right", {"joints": "keypoints"}) as writer:
        writer.add(PIXELS, key="corner", joints=[[[0, 0, 2], [1, 1, 2]]])
        writer.add(PIXELS, key="pixels", joints=[[[0.5, 0.5, 2], [20.5, 3, 2]]])
        writer.add(PIXELS, key="none", joints=[[[0, 0, 0], [0, 0, 0]]])
    assert writer.summary.tally.rejected == []


def test_zeros_and_ones_for_two_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fastpipe.pack")
    lists: dict[str, list[Any]] = {
        "flags": [[0, 1], [1, 0], np.array([0, 1])],
        "numbers": [[0, 1], [1], [0, 1]],
        "names": [["a", "b"], ["b", "a"], ["a"]],
        "others": [[0, 2], [2, 0], [1, 2]],
        "one": [[0, 1]],
    }
    for name, values in lists.items():
        with fastpipe.Writer(tmp_path / name, {"tags": "classes"}) as writer:
            for number, value in enumerate(values):
                writer.add(PIXELS, key=f"{number}", tags=value)
        words = "field tags: every sample has the classes 0 and 1, for all of its 3 lists are"
        assert (words in caplog.text) == (name == "flags")
        caplog.clear()


@pytest.mark.parametrize(
    "value",
    [
        [0, 1, 0, 0, 1],
        [0.0, 1.0, 0.0, 0.0, 1.0],
        [False, True, False, False, True],
        np.array([0, 1, 0, 0, 1], np.uint8),
        torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0]),
    ],
)
def test_a_zero_or_a_one_for_each_class(tmp_path: Path, value: Any) -> None:
    words = r"expected each class once.*if that is a zero or a one for each class, pass \[1, 4\]"
    with (
        pytest.raises(PackError, match=words),
        fastpipe.Writer(tmp_path / "packed", {"tags": "classes"}) as writer,
    ):
        writer.add(PIXELS, key="one", tags=value)


@pytest.mark.parametrize(
    ("kind", "meant"), [(str, "text"), ("string", "text"), (int, "int"), ("mask ", "mask")]
)
def test_kinds_in_other_words(tmp_path: Path, kind: Any, meant: str) -> None:
    words = f"fields: caption: got the kind .*expected one of int, .*did you mean '{meant}'"
    with pytest.raises(ConfigError, match=words):
        fastpipe.Writer(tmp_path / "packed", fields={"caption": kind})


@pytest.mark.parametrize(
    ("array", "conversion"),
    [
        (np.full((9, 9, 3), 0.5, np.float32), "(array * 255).round().astype(np.uint8)"),
        (np.full((9, 9, 3), 128.0), "array.round().astype(np.uint8)"),
        (np.zeros((3, 9, 9), np.uint8), "array.transpose(1, 2, 0)"),
        (
            np.full((3, 9, 9), 0.5, np.float32),
            "(array.transpose(1, 2, 0) * 255).round().astype(np.uint8)",
        ),
    ],
)
def test_arrays_that_become_images(tmp_path: Path, array: Any, conversion: str) -> None:
    with pytest.raises(PackError) as refused, fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(array, key="one")
    assert f". Pass {conversion}" in str(refused.value)
    pixels_of: Any = eval(conversion, {"array": array, "np": np})  # noqa: S307
    with fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(pixels_of, key="one")


@pytest.mark.parametrize(
    ("tensor", "conversion"),
    [
        (torch.zeros(3, 9, 9, dtype=torch.uint8), "tensor.permute(1, 2, 0).numpy()"),
        (torch.zeros(9, 9, 3, dtype=torch.uint8), "tensor.numpy()"),
        (torch.zeros(3, 9, 9), "tensor.mul(255).byte().permute(1, 2, 0).numpy()"),
    ],
)
def test_tensors_that_become_images(tmp_path: Path, tensor: torch.Tensor, conversion: str) -> None:
    with pytest.raises(PackError) as refused, fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(tensor, key="one")
    assert f"; or {conversion}" in str(refused.value)
    pixels: Any = eval(conversion, {"tensor": tensor})  # noqa: S307
    with fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(pixels, key="one")


def test_a_label_that_is_no_whole_number(tmp_path: Path) -> None:
    words = "label: expected a whole number, a class name or None, got float"
    with pytest.raises(PackError, match=words), fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(PIXELS, label=1.0, key="one")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("write", r"call writer\.add\(image, label=\.\.\., key=\.\.\.\)"),
        ("close", "the dataset is written when the block of `with fastpipe.Writer"),
        ("add_all", r"call writer\.add\(\.\.\.\) for each sample"),
    ],
)
def test_methods_of_other_writers(tmp_path: Path, method: str, words: str) -> None:
    writer = fastpipe.Writer(tmp_path / "data")
    with pytest.raises(AttributeError, match=rf"^a Writer has no '{method}': {words}"):
        getattr(writer, method)


def test_the_path_of_a_text_in_place_of_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "0.txt"
    path.write_text("a cat on a chair")
    caplog.set_level(logging.WARNING, "fastpipe.pack")
    for folder, captions in (
        ("right", [path.read_text(), str(path)]),
        ("missing", [str(tmp_path / "no.txt")] * 2),
        ("wrong", [str(path)] * 2),
    ):
        assert not caplog.messages
        with fastpipe.Writer(tmp_path / folder, fields={"caption": "text"}) as writer:
            for caption in captions:
                writer.add(np.zeros((9, 9, 3), np.uint8), caption=caption)
    (message,) = caplog.messages
    assert "field caption: " in message
    assert "pass pathlib.Path(path).read_text()" in message


@pytest.mark.parametrize("name", ["image", "label"])
def test_image_and_label_are_no_fields(tmp_path: Path, name: str) -> None:
    words = "each sample has an image and a label already.*leave '" + name + "' out"
    with pytest.raises(ConfigError, match=words):
        fastpipe.Writer(tmp_path / "packed", {name: "int"})


def test_threads_that_add_at_the_same_time(tmp_path: Path) -> None:
    destination = tmp_path / "packed"
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with fastpipe.Writer(destination, {"number": "int"}, shard_size=100_000) as writer:

            def add(number: int) -> None:
                writer.add(np.zeros((16, 16, 3), np.uint8), label=0, key=f"{number}", number=number)

            with ThreadPoolExecutor(8) as threads:
                list(threads.map(add, range(800)))
    finally:
        sys.setswitchinterval(switch_s)
    data = fastpipe.open(destination)
    assert sorted(data["number"]) == list(range(800))
    assert [int(key) for key in data["key"]] == list(data["number"])


ADDS_IN_CHILDREN = """
    import os, sys
    import fastpipe

    with fastpipe.Writer(sys.argv[1], {"number": "int"}) as writer:
        writer.add(key="parent", number=0)
        child = os.fork()
        if child == 0:
            try:
                writer.add(key="child", number=1)
            except fastpipe.ConfigError as problem:
                assert f"its forked child {os.getpid()} adds to it" in str(problem), problem
                assert "fastpipe.concat" in str(problem), problem
                print("refused", flush=True)
        else:
            os.waitpid(child, 0)
            writer.add(key="parent again", number=2)
    # The child leaves the block, too, and must leave the files of its parent as they are.
    if child == 0:
        os._exit(0)
    print(len(fastpipe.open(sys.argv[1])))
"""


def test_a_forked_child_adds_to_the_writer_of_its_parent(tmp_path: Path) -> None:
    done = warm.run_script(ADDS_IN_CHILDREN, tmp_path / "packed", timeout_s=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n2\n", "")


def test_a_writer_is_sent_to_another_process(tmp_path: Path) -> None:
    """Before its block begins it may be: it is then the other process's."""
    dumped = pickle.dumps(fastpipe.Writer(tmp_path / "packed", {"number": "int"}))
    writer = pickle.loads(dumped)  # noqa: S301
    with writer:
        writer.add(key="a", number=1)
        with pytest.raises(ConfigError, match=r"cannot be copied or sent.*fastpipe\.concat"):
            pickle.dumps(writer)
    assert len(fastpipe.open(tmp_path / "packed")) == 1


@pytest.mark.parametrize(
    ("points", "text"),
    [
        (
            [30, 40, 2, 50, 60, 2, 0, 0, 0],
            r"\(9,\)\. M is .* of objects.*reshape\(points, \(-1, K, 3\)",
        ),
        ([[30, 40, 2, 50, 60, 2]], r"\(1, 6\)\. M is .*np\.reshape"),
        ([[[30, 40]]], r"\(1, 1, 2\)\. M is the number of objects, K that of points of each$"),
        ([[[30, float("inf"), 2]]], r"finite as a float32, got \S+.*[^h]$"),
    ],
)
def test_points_of_another_shape(tmp_path: Path, points: Any, text: str) -> None:
    writer = fastpipe.Writer(tmp_path / "packed", {"joints": "keypoints"})
    with pytest.raises(PackError, match=text), writer:
        writer.add(PIXELS, key="one", joints=points)


@pytest.mark.parametrize(
    ("classes", "label", "words"),
    [
        (["cat"], 3, "label 3: there is 1 class, so the only label is 0"),
        (["cat", "dog"], np.int64(2), "label 2: there are 2 classes, so labels are 0 to 1"),
        (None, -1, "label -1: expected 0 to 999,999"),
    ],
)
def test_a_label_that_is_no_class(
    tmp_path: Path, classes: list[str] | None, label: Any, words: str
) -> None:
    with (
        pytest.raises(PackError, match=words),
        fastpipe.Writer(tmp_path / "packed", classes=classes) as writer,
    ):
        writer.add(PIXELS, label=label)


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "packed") as writer:
        writer.add(PIXELS)
        writer.add(str(tmp_path / "gone.jpg"), key="gone")
    assert writer.summary.tally.rejected == [("gone", f"'{tmp_path}/gone.jpg' does not exist")]
