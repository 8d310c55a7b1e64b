"""A dataset that grows and shrinks: `fastpipe add`, `remove`, `log`, and its versions as loaders see them."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import pickle
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.datasets.growing import at_once, photo, photos
from support.programs.cli_run import failed, fp, succeeded
from support.sources.pack_sources import digests, jpeg_bytes
from support.sources.tars import write_tar

import fastpipe
from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.errors import ConfigError, DatasetError, PackError
from fastpipe.packing.growth import grow
from fastpipe.packing.growth.command_line import pack_command
from fastpipe.packing.growth.version import versions
from fastpipe.packing.shard.options import PackOptions
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

SMALL = 100_000  # --shard-size


def epoch(data: Any, *fields: str, **options: Any) -> dict[str, tuple[Any, ...]]:
    """Key -> label and fields of each sample that a loader gives, each once."""
    names = ["image", "key", "label", *fields]
    with fastpipe.loader(
        data, 7, fields=names, drop_last=False, size=32, num_workers=2, **options
    ) as loader:
        found = [
            (key, (label, *values))
            for batch in loader
            for key, label, *values in zip(
                batch["key"],
                batch["label"].tolist(),
                *(batch[name] for name in fields),
                strict=True,
            )
        ]
    assert len(dict(found)) == len(found), "a sample came twice"
    return dict(found)


def pack(source: Path, destination: Path, **options: Any) -> Path:
    fastpipe.pack(source, destination, shard_size=SMALL, workers=2, **options)
    return destination


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source and what was packed of it, to be copied."""
    root = tmp_path_factory.mktemp("thirty")
    pack(photos(root / "src", 30), root / "dst")
    return root


@pytest.fixture
def work(thirty: Path, tmp_path: Path) -> Path:
    """The same, to be changed: source and dataset keep their times."""
    for name in ("src", "dst"):
        shutil.copytree(thirty / name, tmp_path / name)
    now = max(file.stat().st_ctime_ns for file in (tmp_path / "src").rglob("*"))
    os.utime(tmp_path / "dst/dataset.json", ns=(now, now))
    return tmp_path


def test_adding_writes_the_new_samples_alone(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", 200, classes=10)
    packed = pack(source, tmp_path / "dst")
    before = digests(packed)
    photos(source, 50, first=200, classes=10)
    grown = fastpipe.add(source, packed)
    assert (grown.added, grown.known, grown.removed) == (50, 200, 0)
    after = digests(packed)
    assert {name: after[name] for name in before if name != "dataset.json"} == {
        name: digest for name, digest in before.items() if name != "dataset.json"
    }
    new = {
        name: (packed / name).stat().st_size for name in after if after[name] != before.get(name)
    }
    alone = fastpipe.pack(photos(tmp_path / "fifty", 50, first=200, classes=10), tmp_path / "alone")
    shards = sum(shard["size_bytes"] for shard in alone.info["shards"])
    of_shards = sum(size for name, size in new.items() if name.startswith("shard-"))
    assert of_shards <= shards + 10_240  # the end of one more tar
    for name, each in (("index.npy", 54), ("sources.npy", 12)):
        assert new[f"v2/{name}"] == (packed / name).stat().st_size + 50 * each
    others = {
        "dataset.json",
        "v1/dataset.json",
        "v2/dataset.json",
        "v2/index.npy",
        "v2/sources.npy",
    }
    assert {name for name in new if not name.startswith("shard-")} == others
    assert len(epoch(packed)) == 250
    assert verify(packed).sound


def test_nothing_is_added_twice(work: Path) -> None:
    before = digests(work / "dst")
    text = succeeded("add", work / "src", work / "dst")
    assert re.search(r"^added +nothing *\ndataset +still version 1 of ", text)
    assert re.search(r"^known +30 files, by path, size and label", text, re.MULTILINE)
    assert digests(work / "dst") == before
    photos(work / "src", 5, first=30)
    assert fastpipe.add(work / "src", work / "dst").added == 5
    again = fastpipe.add(work / "src", work / "dst")
    assert (again.added, again.known, again.info["version"]) == (0, 35, 2)
    photos(work / "src", 5, first=35)
    assert fastpipe.add(work / "src", work / "dst").info["version"] == 3
    assert epoch(work / "dst") == epoch(pack(work / "src", work / "anew"))


def test_new_classes_come_behind_the_old_ones(work: Path) -> None:
    before = epoch(work / "dst")
    for name in ("aaa", "c1", "zzz"):
        photo(work / "src" / name / "new.jpg", hash(name) % 1000)
    fastpipe.add(work / "src", work / "dst")
    data = fastpipe.open(work / "dst")
    assert data.classes == ["c0", "c1", "c2", "aaa", "zzz"]
    assert data.class_counts == [10, 11, 10, 1, 1]
    after = epoch(work / "dst")
    assert {key: after[key] for key in before} == before
    assert [after[f"{name}/new.jpg"] for name in ("aaa", "c1", "zzz")] == [(3,), (1,), (4,)]
    assert verify(work / "dst").sound


def change(work: Path, number: int) -> str:
    """Gives a source another content; its key."""
    file = work / "src" / f"c{number % 3}" / f"{number:05d}.jpg"
    file.write_bytes(jpeg_bytes((48, 36), seed=5000 + number))
    return str(file.relative_to(work / "src"))


def test_changed_sources(work: Path) -> None:
    keys = [change(work, number) for number in (3, 4)]
    photos(work / "src", 1, first=30)
    before = digests(work / "dst")
    said = failed(1, "add", work / "src", work / "dst")
    assert "2 files of" in said
    assert all(key in said for key in keys)
    assert "--changed replace" in said
    assert digests(work / "dst") == before
    skipped = fastpipe.add(work / "src", work / "dst", changed="skip")
    assert (skipped.added, skipped.removed, skipped.skipped, skipped.known) == (1, 0, 2, 28)
    replaced = fastpipe.add(work / "src", work / "dst", changed="replace")
    assert (replaced.added, replaced.removed, len(fastpipe.open(work / "dst"))) == (2, 2, 31)
    data = fastpipe.open(work / "dst")
    assert {
        key for key, width in zip(data["key"], data["width"], strict=True) if width == 48
    } == set(keys)
    assert fastpipe.add(work / "src", work / "dst").known == 31
    assert verify(work / "dst").sound


def test_all_sources_have_changed(tmp_path: Path) -> None:
    """No image of the dataset stays, so nothing that is added is a copy."""
    source = photos(tmp_path / "src", 2)
    data = pack(source, tmp_path / "dst")
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        photo(path, 100 + number)
    replaced = fastpipe.add(source, data, changed="replace")
    assert (replaced.added, replaced.removed) == (len(fastpipe.open(data)),) * 2
    assert "copies: " not in str(replaced.assumed)


def test_other_photos_with_the_same_names(tmp_path: Path) -> None:
    for seed, camera in enumerate(("cam1", "cam2")):
        for name in ("a", "b"):
            path = tmp_path / camera / "bee" / f"{name}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg_bytes((48, 36), seed=seed))
    data = tmp_path / "data"
    fastpipe.pack(tmp_path / "cam1", data)
    with pytest.raises(PackError, match=r"other images with the same names.*fastpipe\.concat"):
        fastpipe.add(tmp_path / "cam2", data)
    fastpipe.pack(tmp_path / "cam2", tmp_path / "other", classes_from=data)
    both = fastpipe.concat(data, tmp_path / "other")
    assert (len(both), both.classes) == (4, ["bee"])


def test_other_photos_with_the_same_names_and_sizes(tmp_path: Path) -> None:
    """BMPs of two cameras, which were on the disk before the first ones were packed."""
    for seed, camera in enumerate(("cam1", "cam2")):
        for number in range(20):
            path = tmp_path / camera / "bee" / f"{number:03d}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), (seed, number, 0)).save(path)
    time.sleep(0.02)  # a file system's clock may be that coarse
    data = tmp_path / "data"
    fastpipe.pack(tmp_path / "cam1", data)
    with pytest.raises(PackError, match=r"^20 files .*other images with the same names"):
        fastpipe.add(tmp_path / "cam2", data)
    assert fastpipe.add(tmp_path / "cam1", data).known == 20


def test_a_source_of_the_same_size_that_is_newer_is_compared(work: Path) -> None:
    touched, other = work / "src/c0/00000.jpg", work / "src/c1/00001.jpg"
    os.utime(touched)  # a new time, the same bytes
    data = other.read_bytes()
    pictures = (jpeg_bytes((40, 30), seed=seed) for seed in range(1000, 3000))
    other.write_bytes(next(each for each in pictures if len(each) == len(data) and each != data))
    with pytest.raises(PackError, match=r"^1 file of .*: c1/00001.jpg\. Pass"):
        fastpipe.add(work / "src", work / "dst")


def test_copies_are_left_out_by_content(work: Path) -> None:
    more = photos(work / "more", 2, first=201)
    shutil.copy(work / "src/c0/00000.jpg", more / "c0/of a sample.jpg")
    shutil.copy(more / "c0/00201.jpg", more / "c1/of a new one.jpg")
    photo(more / "c2/new.jpg", 203)
    shutil.copytree(work / "dst", work / "by path")
    by_path = fastpipe.add(more, work / "by path")
    assert by_path.added == 5
    # The copy has the same class, and its original is in another source: neither is said.
    (text,) = [str(one) for one in by_path.assumed if one.text.startswith("copies: ")]
    assert "another class" not in text
    assert "no longer in" not in text
    grown = fastpipe.add(more, work / "dst", by="content")
    assert (grown.added, grown.copies) == (3, 2)
    again = fastpipe.add(more, work / "dst", by="content")
    assert again.copies == 2
    # The picture of a new sample came again in another class.
    (text,) = [str(one) for one in again.assumed if one.text.startswith("copies: ")]
    assert text.startswith("copies: 1 file was left out, as the dataset has the image, but has")
    assert "such as c0/00201.jpg, which is c1/of a new one.jpg: c0 in the source, c1 in" in text
    assert text.endswith(
        f"fastpipe remove {work / 'dst'} --keys FILE, with this line in FILE: c1/of a new one.jpg"
    )


def test_one_copy_of_another_class_whose_old_file_is_gone(work: Path) -> None:
    (work / "src/c0/00000.jpg").rename(work / "src/c1/moved.jpg")
    grown = fastpipe.add(work / "src", work / "dst")
    (text,) = [str(one) for one in grown.assumed if one.text.startswith("copies: ")]
    assert text.startswith(
        "copies: 1 image that is added now is in the dataset already: c1/moved.jpg, which is "
        "c0/00000.jpg. It has another class there, so training would see the image with both. Its "
        f"old file is no longer in {work / 'src'}. To remove its old sample: "
    )


def test_a_second_folder_never_had_the_old_file(work: Path) -> None:
    """One of its files is in the dataset by its path, which does not make it the packed folder."""
    more = photos(work / "more", 2, first=201)
    shutil.copy(work / "src/c1/00001.jpg", more / "c1/00001.jpg")
    shutil.copy(work / "src/c0/00000.jpg", more / "c1/copy.jpg")
    grown = fastpipe.add(more, work / "dst")
    assert grown.known == 1
    (text,) = [str(one) for one in grown.assumed if one.text.startswith("copies: ")]
    assert "It has another class there" in text
    assert "no longer in" not in text


def test_a_class_folder_with_another_name_is_named(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its images are in the dataset under the old name, and get a second label."""
    num_images = len(list((work / "src/c1").iterdir()))
    (work / "src/c1").rename(work / "src/kitten")
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        grown = fastpipe.add(work / "src", work / "dst")
    assert grown.added == num_images
    (copies,) = [text for text in map(str, grown.assumed) if text.startswith("copies: ")]
    assert copies.startswith(f"copies: {num_images} images that are added now are in the dataset")
    new_path, old_path = re.search(r"such as (\S+), which is (\S+)\. ", copies).groups()  # type: ignore[union-attr]
    assert new_path == old_path.replace("c1/", "kitten/")
    assert "(--by content)" in copies
    assert f"All {num_images} of them have another class there" in copies
    assert f"The old files of all {num_images} of them are no longer in {work / 'src'}" in copies
    assert "leaves copies out with this option (by='content')" in caplog.text
    # The line that the message has.
    line = re.search(r"fastpipe\.remove\(.*\.exists\(\)\]\)", copies)
    assert line is not None
    shutil.copytree(work / "dst", work / "cleaned")
    command = line[0].replace("/dst'", "/cleaned'")
    exec(command, {"fastpipe": fastpipe, "pathlib": pathlib})
    assert fastpipe.open(work / "cleaned").class_counts == [10, 0, 10, 10]
    again = fastpipe.add(photos(work / "others", 1, first=300), work / "dst")
    assert "copies: " not in str(again.assumed)


def test_sources_that_cannot_be_packed_are_tried_again(work: Path) -> None:
    bad = work / "src/c0/bad.jpg"
    bad.write_bytes(b"no picture")
    grown = fastpipe.add(work / "src", work / "dst")
    assert (grown.added, [path for path, _ in grown.rejected], grown.info["version"]) == (
        0,
        ["c0/bad.jpg"],
        1,
    )
    photos(work / "src", 1, first=30)
    fastpipe.add(work / "src", work / "dst")
    assert json.loads((work / "dst/v2/rejected.jsonl").read_text())["path"] == "c0/bad.jpg"
    photo(bad, 400)
    assert fastpipe.add(work / "src", work / "dst").added == 1
    assert not (work / "dst/v3/rejected.jsonl").exists()
    bad.with_name("worse.jpg").write_bytes(b"")
    with pytest.raises(PackError, match=r"worse\.jpg cannot be packed"):
        fastpipe.add(work / "src", work / "dst", on_error="fail")
    assert fastpipe.open(work / "dst").version == 3
    assert not (work / "dst/.pack/plan.json").exists()


def rows(folder: Path, numbers: range, *, names: bool = True, order: int = 1) -> Path:
    """Photos with metadata of many kinds."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number in numbers:
        photo(folder / f"{number:03d}.jpg", number)
        values = {
            "score": number / 100,
            "count": number,
            "caption": f"photo {number}" * (number % 3),
            "embedding": [number, number + 0.5],
            "tags": [f"tag{number % 4}", f"tags{number % 5}"] if names else [number % 4],
            "boxes": {
                "bbox": [[1.0, 2.0, 5.0, 6.0]] * (number % 3),
                "categories": [number % 2] * (number % 3),
            },
            "extra": {"n": number},
        }
        lines.append({"file_name": f"{number:03d}.jpg", **dict(list(values.items())[::order])})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


FIELDS = {
    "score": "score:floats",
    "count": "count:int",
    "caption": "caption:text",
    "embedding": "embedding:floats",
    "tags": "tags:classes",
    "extra": "extra:json",
}


def columns(data: Path) -> dict[str, Any]:
    """Key -> the values of all fields."""
    found = fastpipe.open(data).with_fields(["key", "image", *FIELDS])
    classes = fastpipe.open(data).fields["tags"].names

    def value(name: str, one: Any) -> Any:
        return (
            sorted(classes[at] for at in one.nonzero())
            if name == "tags"
            else np.asarray(one).tolist()
        )

    samples = (found[at] for at in range(len(found)))
    return {one["key"]: {name: value(name, one[name]) for name in FIELDS} for one in samples}


def test_a_bad_member_of_a_tar_without_labels(work: Path) -> None:
    """It has no class, and so no number among those of the dataset."""
    data = jpeg_bytes()
    tar = write_tar(work / "more.tar", {"a.jpg": data, "b.jpg": data, "b.jpeg": data})
    grown = fastpipe.add(tar, work / "dst")
    assert (grown.added, len(grown.rejected)) == (1, 1)
    assert epoch(work / "dst")["a.jpg"] == (-1,)


def test_fields_of_every_kind_grow_and_shrink(tmp_path: Path) -> None:
    all_rows = pack(rows(tmp_path / "all", range(40)), tmp_path / "whole", fields=FIELDS)
    pack(rows(tmp_path / "src", range(15)), tmp_path / "dst", fields=FIELDS)
    rows(tmp_path / "src", range(40), order=-1)
    reversed_fields = dict(list(FIELDS.items())[::-1])
    assert fastpipe.add(tmp_path / "src", tmp_path / "dst", fields=reversed_fields).added == 25
    expected = columns(all_rows)
    assert columns(tmp_path / "dst") == expected
    assert verify(tmp_path / "dst").sound
    grown = fastpipe.remove(tmp_path / "dst", where=["score >= 0.2", "count < 30"])
    assert grown.removed == 10
    kept = {key: values for key, values in expected.items() if not 20 <= values["count"] < 30}
    assert columns(tmp_path / "dst") == kept
    assert verify(tmp_path / "dst").sound
    fastpipe.pack(tmp_path / "dst", tmp_path / "packed again", shard_size=SMALL)
    again = {values["count"]: values for values in columns(tmp_path / "packed again").values()}
    assert again == {values["count"]: values for values in kept.values()}


def test_fields_that_do_not_fit(tmp_path: Path) -> None:
    pack(rows(tmp_path / "src", range(5)), tmp_path / "dst", fields=FIELDS)
    rows(tmp_path / "src", range(8))
    before = digests(tmp_path / "dst")
    for fields, said in (
        ({**FIELDS, "more": "count"}, "field more: .* has no such field, and .* has the kind int"),
        (
            {name: FIELDS[name] for name in FIELDS if name != "extra"},
            "field extra: .* and .* has no such field",
        ),
        (
            {**FIELDS, "caption": "caption:json"},
            "field caption: .* has the kind text, and .* has the kind json",
        ),
    ):
        with pytest.raises(PackError, match=said):
            fastpipe.add(tmp_path / "src", tmp_path / "dst", fields=fields)
    grown = fastpipe.add(
        tmp_path / "src", tmp_path / "dst", fields={**FIELDS, "embedding": "score:floats"}
    )
    assert grown.added == 0  # few files: nobody looks before they are packed
    assert (
        "field embedding: expected 2 numbers, as in the samples before; got 1"
        in grown.rejected[0][1]
    )
    assert digests(tmp_path / "dst") == before


def test_removing(work: Path) -> None:
    before = epoch(work / "dst")
    keys = sorted(before)[:4]
    (work / "keys.txt").write_text("\n".join(keys) + "\n")
    shards = {
        name: digest for name, digest in digests(work / "dst").items() if name.startswith("shard-")
    }
    text = succeeded("remove", work / "dst", "--keys", work / "keys.txt")
    assert re.search(r"^removed +4 samples *\ndataset +version 2 of ", text)
    assert "numbers (id) than in version 1; keys stay" in text
    left = {key: label for key, label in before.items() if key not in keys}
    assert epoch(work / "dst") == left
    assert fastpipe.remove(work / "dst", classes="c1").removed == sum(
        label == (1,) for label in left.values()
    )
    left = {key: label for key, label in left.items() if label != (1,)}
    assert epoch(work / "dst") == left
    data = fastpipe.open(work / "dst")
    assert (data.classes, data.class_counts[1]) == (["c0", "c1", "c2"], 0)
    assert fastpipe.remove(work / "dst", where="class == c2").removed == 10
    assert epoch(work / "dst") == {key: label for key, label in left.items() if label == (0,)}
    assert {
        name: digest for name, digest in digests(work / "dst").items() if name.startswith("shard-")
    } == shards
    assert verify(work / "dst").sound
    unpacked = work / "unpacked"
    succeeded("unpack", work / "dst", unpacked, "--format", "webdataset")
    assert sorted(epoch(pack(unpacked, work / "of unpacked"))) == sorted(
        epoch(work / "of unpacked")
    )
    assert len(fastpipe.open(work / "of unpacked")) == len(fastpipe.open(work / "dst"))
    new = pack(work / "dst", work / "new")
    assert len(epoch(new)) == len(fastpipe.open(work / "dst"))
    assert sum(file.stat().st_size for file in new.glob("*.tar")) < sum(
        file.stat().st_size for file in (work / "dst").glob("*.tar")
    )


def test_a_key_may_have_a_line_separator_in_it(tmp_path: Path) -> None:
    """A line of --keys ends at a line feed alone, though Python's `splitlines` ends it at U+2028, too."""
    names = ["a\u2028b.jpg", "b.jpg", "c\u2029d.jpg", "e.jpg"]
    for number, name in enumerate(names):
        photo(tmp_path / "src" / "c0" / name, number)
    pack(tmp_path / "src", tmp_path / "dst")
    (tmp_path / "keys.txt").write_bytes("\ufeffc0/a\u2028b.jpg\r\n\r\nc0/c\u2029d.jpg".encode())
    text = succeeded("remove", tmp_path / "dst", "--keys", tmp_path / "keys.txt")
    assert re.search(r"^removed +2 samples", text)
    assert sorted(epoch(tmp_path / "dst")) == ["c0/b.jpg", "c0/e.jpg"]


def test_a_file_without_keys_is_named(work: Path) -> None:
    (work / "keys.txt").write_text("\n")
    result = fp("remove", work / "dst", "--keys", work / "keys.txt")
    assert result.exit_code == 0
    assert "keys.txt: the file names no key, so nothing is removed" in " ".join(
        result.stderr.split()
    )


def test_new_samples_without_a_label_are_told(work: Path) -> None:
    photo(work / "class" / "new.jpg", 7)
    said = succeeded("add", work / "class", work / "dst")
    text = " ".join(said.replace("\u2502", " ").split())
    assert (
        "labels: 1 new sample has none (label -1), such as new.jpg, though all 30 samples" in text
    )


def test_what_is_assumed_of_new_sources_is_told(work: Path) -> None:
    photo(work / "src" / "aaa" / "new.jpg", 7)
    said = succeeded("add", work / "src", work / "dst")
    text = " ".join(said.replace("\u2502", " ").split())
    assert (
        "the class 'aaa' is new, and comes last here: it is 3. A fresh pack would sort it" in text
    )
    assert "--classes-from" in text


def test_what_cannot_be_removed(thirty: Path) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({}, r"expected keys=, classes= or where= \(--keys, --class or --where\)"),
        ({"keys": ["c0/00000.jpg", "gone.jpg"]}, "1 of 2 keys is not in .*'gone.jpg'"),
        ({"classes": "dog"}, "has no class 'dog'; it has 'c0', 'c1', 'c2'"),
        (
            {"where": "score < 1"},
            "no such column; expected one of label, width, height, channels, bits, class",
        ),
        ({"where": "width"}, "expected COLUMN OPERATOR VALUE"),
        ({"where": "width < wide"}, "expected a number"),
        ({"where": "class < c1"}, "classes have no order"),
        ({"keys": "c0/00000.jpg"}, "expected a list of keys"),
    ]
    for options, words in mistakes:
        with pytest.raises(ConfigError, match=words):
            fastpipe.remove(thirty / "dst", **options)
    assert fastpipe.open(thirty / "dst").version == 1


def test_removing_everything_or_nothing(work: Path) -> None:
    with pytest.raises(PackError, match="removes all 30 samples"):
        fastpipe.remove(work / "dst", where="width > 0")
    assert fastpipe.remove(work / "dst", where="width > 1000").removed == 0
    text = succeeded("remove", work / "dst", "--where", "width > 1000")
    assert re.search(r"^removed +nothing *\ndataset +still version 1 of ", text)
    assert fastpipe.open(work / "dst").version == 1


def grown_dataset(work: Path) -> Path:
    """A dataset of three versions."""
    photos(work / "src", 5, first=30)
    fastpipe.add(work / "src", work / "dst")
    fastpipe.remove(work / "dst", classes=["c2"])
    return work / "dst"


def test_log_and_versions(work: Path) -> None:
    one = epoch(work / "dst")
    packed = grown_dataset(work)
    found = json.loads(succeeded("log", packed, "--json"))
    assert [
        (each["version"], each["samples"], each["added"], each["removed"]) for each in found
    ] == [
        (1, 30, 30, 0),
        (2, 35, 5, 0),
        (3, 24, 0, 11),
    ]
    assert found[2]["command"] == f"fastpipe remove {packed} --class c2"
    assert [each["time_ns"] for each in found] == sorted(each["time_ns"] for each in found)
    assert "fastpipe add" in succeeded("log", packed)
    assert [len(fastpipe.open(packed, version=number)) for number in (1, 2, 3)] == [30, 35, 24]
    assert epoch(fastpipe.open(packed, version=1)) == one
    assert fastpipe.open(packed, version=1).index.info["version"] == 1
    for number in (0, 4):
        with pytest.raises((ConfigError, DatasetError), match="version"):
            fastpipe.open(packed, version=number)
    with pytest.raises(ConfigError, match="no versions"):
        fastpipe.open(work / "src", version=1)


def test_log_shows_commands_with_their_arguments(tmp_path: Path) -> None:
    photos(tmp_path / "src", 6)
    packed = tmp_path / "dst"
    fastpipe.pack(tmp_path / "src", packed, seed=3, shuffle=False, exif="apply")
    photos(tmp_path / "src", 3, first=6)
    succeeded("add", tmp_path / "src", packed, "--by", "content", "--format", "imagefolder")
    commands = [entry["command"] for entry in json.loads(succeeded("log", packed, "--json"))]
    assert commands == [
        f"fastpipe pack SRC {packed} --exif apply --seed 3 --no-shuffle",
        f"fastpipe add {tmp_path / 'src'} {packed} --by content --format imagefolder",
    ]
    said = succeeded("log", packed)
    assert f"fastpipepackSRC{packed}--exifapply" in "".join(said.split()), "in a folded column"
    assert "SRC: the source of the first pack; a dataset does not record where it was" in said
    with fastpipe.Writer(tmp_path / "written") as writer:
        writer.add(next((tmp_path / "src").rglob("*.jpg")).read_bytes())
    (entry,) = json.loads(succeeded("log", tmp_path / "written", "--json"))
    assert entry["command"] == "fastpipe.Writer"


def test_options_as_words_of_a_command() -> None:
    source = {
        "label_column": "species",
        "fields": [["caption", "text", None], ["m", "a b", "mask"]],
    }
    options = {**PackOptions().shaping(), "lossless": True, "max_size": 500, "source": source}
    assert pack_command({"source": {}, "options": options}) == [
        *("fastpipe", "pack", "SRC", "DST", "--label-column", "species"),
        *("--field", "caption=text", "--field", "m=a b:mask", "--max-size", "500", "--lossless"),
    ]


def test_a_state_says_its_version(work: Path) -> None:
    with fastpipe.loader(work / "dst", 4, size=32) as loader:
        next(iter(loader))
        state = loader.state_dict()
    packed = grown_dataset(work)
    with fastpipe.loader(packed, 4, size=32) as loader, pytest.raises(ConfigError) as caught:
        loader.load_state_dict(state)
    assert f"fastpipe.open('{packed}', version=1)" in str(caught.value)
    with fastpipe.loader(fastpipe.open(packed, version=1), 4, size=32) as loader:
        loader.load_state_dict(state)
        assert sum(1 for _ in loader) == 6


def test_a_loader_sees_the_old_version_or_the_new_one(work: Path) -> None:
    old = fastpipe.open(work / "dst").with_fields(["key", "image"])
    with fastpipe.loader(
        work / "dst", 5, fields=["image", "key"], drop_last=False, size=32
    ) as loader:
        batches = iter(loader)
        keys = list(next(batches)["key"])
        grown_dataset(work)
        keys += [key for batch in batches for key in batch["key"]]
        assert len(set(keys)) == 30
        assert len({key for batch in loader for key in batch["key"]}) == 30
        assert loader.state_dict()["dataset_versions"] == [1]
    in_worker = pickle.loads(pickle.dumps(old))  # noqa: S301 (our own); a worker opens it anew
    assert len(in_worker) == 30
    assert {in_worker[at]["key"] for at in range(30)} == set(keys)


def test_no_sample_comes_into_a_pack_again(work: Path) -> None:
    grown_dataset(work)
    with pytest.raises(PackError, match="has version 3: see fastpipe log"):
        pack(work / "src", work / "dst")
    fresh = pack(work / "src", work / "fresh")
    pack(work / "src", work / "dst", overwrite=True)
    assert digests(work / "dst") == digests(fresh)


def test_a_dataset_that_was_packed_again_goes_on_growing(work: Path) -> None:
    photos(work / "src", 4, first=30)
    fastpipe.add(work / "src", work / "dst")
    gone = sorted(epoch(work / "dst"))[:3]
    fastpipe.remove(work / "dst", keys=gone)
    new = pack(work / "dst", work / "new")
    assert epoch(new) == epoch(work / "dst"), "keys stay the paths of the sources"
    grown = fastpipe.add(work / "src", new)
    assert (grown.known, grown.added, grown.removed) == (31, 3, 0), (
        "the removed ones are in the source still"
    )
    assert epoch(new).keys() == epoch(work / "dst").keys() | set(gone)
    again = pack(new, work / "again")
    assert epoch(again) == epoch(new)
    assert fastpipe.add(work / "src", again).added == 0
    assert verify(again).sound


def test_a_grown_dataset_is_repaired_from_its_sources(work: Path) -> None:
    other = photos(work / "other", 12, first=100, classes=2)
    fastpipe.add(other, work / "dst")
    assert [
        pack["source"]["files"] for pack in fastpipe.open(work / "dst").index.info["packs"]
    ] == [30, 12]
    photos(work / "src", 5, first=30)
    fastpipe.add(work / "src", work / "dst")
    whole = digests(work / "dst")
    shards = sorted((work / "dst").glob("shard-*.tar"))
    first, second, third = shards[0], *shards[-2:]
    for source, shard in ((other, second), (work / "src", third)):
        data = bytearray(shard.read_bytes())
        data[3000] ^= 1
        shard.write_bytes(data)
        (work / "dst/v3/index.npy").unlink()
        assert repair(work / "dst", source, verify(work / "dst")) == [shard.name, "v3/index.npy"]
        assert digests(work / "dst") == whole
    assert first.exists()


def test_a_damaged_version_does_not_grow(work: Path) -> None:
    file = work / "dst/index.npy"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    photos(work / "src", 1, first=30)
    with pytest.raises(DatasetError, match=r"index\.npy has changed since it was packed"):
        fastpipe.add(work / "src", work / "dst")


def test_where_there_is_no_dataset(work: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        fastpipe.add(work / "src", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(DatasetError, match="not packed"):
        versions(work / "src")


def test_two_adds_at_once_lose_nothing(work: Path) -> None:
    sources = [photos(work / f"more{number}", 8, first=100 * (number + 1)) for number in range(2)]
    results = at_once(
        *(lambda source=source: fastpipe.add(source, work / "dst") for source in sources)
    )
    done = [result for result in results if isinstance(result, grow.Grown)]
    assert done
    for result in results:
        if not isinstance(result, grow.Grown):
            assert "another program is writing" in str(result) or "another program" in str(result)
    assert len(epoch(work / "dst")) == 30 + 8 * len(done)
    assert verify(work / "dst").sound


def test_labels_in_columns(work: Path) -> None:
    fastpipe.remove(work / "dst", where=["label == 0", "height <= 30"])
    assert fastpipe.open(work / "dst").class_counts == [0, 10, 10]
    assert not (work / "dst/v2" / FIELDS_FOLDER).exists()
