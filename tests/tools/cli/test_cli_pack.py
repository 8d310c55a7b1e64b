"""Tests of `fastpipe pack`: what it says, as words and as JSON, what its options do, and Ctrl-C."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import packed_jpeg
from support.programs.cli_run import failed, fp, succeeded
from support.sources.pack_sources import jpeg_bytes, saved, segments, write_folder
from support.sources.tars import write_tar

import fastpipe
from fastpipe.dataset.format.fields import KINDS
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import size_bytes

DRI = 0xDD


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "source")


def test_pack_tells_what_it_did(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    (source / "README").write_bytes(b"")
    (source / "dog").mkdir()
    text = succeeded("pack", source, tmp_path / "packed")
    assert re.search(r"packed +24 of 25 files, 4 classes *\n", text)
    assert re.search(r"shards +1, [\d,]+ bytes *\n", text)
    assert re.search(r"size +images \d+\.\d% of the source's [\d,]+ bytes; with tars \d", text)
    assert re.search(r"empty classes +dog *\n", text)
    assert re.search(r"not packed +1 file: README *\n", text)
    assert "rejected  1 file, listed in" in text
    assert "    ant/bad.jpg: not an image of a known format: starts with b'bad'" in text
    packed = str(tmp_path / "packed")
    assert text.endswith(
        f"next: fastpipe inspect {packed}, or fastpipe.loader({packed!r}, batch_size=6) in Python\n"
    )
    assert "nothing to do" in succeeded("pack", source, tmp_path / "packed")


def test_labels_that_need_an_option_are_the_next_step(tmp_path: Path) -> None:
    image = jpeg_bytes((16, 16), seed=1)
    members = {"a.jpg": image, "a.json": b'{"label": 1}', "b.jpg": image, "b.json": b'{"label": 0}'}
    tar = write_tar(tmp_path / "a.tar", members)
    text = succeeded("pack", tar, tmp_path / "packed")
    assert "labels: none, though the samples' .json have a key 'label'" in text
    next_step = "the same command with --label-column label --overwrite, for a dataset with labels"
    assert text.endswith(f"next: fastpipe inspect {tmp_path / 'packed'}, or {next_step}\n")
    text = succeeded("pack", tar, tmp_path / "packed", "--label-column", "label", "--overwrite")
    assert "fastpipe.loader(" in text


def test_names_of_files_that_are_not_packed_are_folded(source: Path, tmp_path: Path) -> None:
    names = [f"notes_of_the_second_session_{number}.txt" for number in range(6)]
    for name in names:
        (source / name).write_bytes(b"")
    text = succeeded("pack", source, tmp_path / "packed")
    table = text.partition("rejected")[0]
    assert max(map(len, table.splitlines())) <= 120
    assert all(name in table for name in names)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("train", "batch_size=6"),
        ("val", "batch_size=6, train=False"),
        ("photos-test", "batch_size=6, train=False"),
    ],
)
def test_the_loader_that_is_proposed_works(
    source: Path, tmp_path: Path, name: str, call: str
) -> None:
    text = succeeded("pack", source, tmp_path / name)
    packed = str(tmp_path / name)
    assert f", or fastpipe.loader({packed!r}, {call}) in Python" in text
    with fastpipe.loader(packed, 6, size=8, train="False" not in call) as loader:
        assert [len(labels) for _, labels in loader] == [6, 6, 6, 6]


def test_the_loader_of_a_detection_dataset_has_its_boxes(tmp_path: Path) -> None:
    """Batches of (images, labels) would have no labels, and a warning would say so."""
    images = []
    boxes = []
    (tmp_path / "photos").mkdir()
    for number in range(8):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(saved())
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 70, "height": 45})
        boxes.append({"id": number, "image_id": number, "category_id": 1, "bbox": [5, 5, 20, 20]})
    content = {
        "images": images,
        "annotations": boxes,
        "categories": [{"id": 1, "name": "dog"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    packed = str(tmp_path / "packed")
    text = succeeded("pack", tmp_path / "boxes.json", packed, "--image-root", tmp_path / "photos")
    call = f'fastpipe.loader({packed!r}, batch_size=2, fields=("image", "boxes"))'
    assert f", or {call} in Python\n" in text
    with eval(call) as loader:  # noqa: S307
        assert [len(batch["boxes"]) for batch in loader] == [2, 2, 2, 2]


_VALUES: dict[str, object] = {
    "int": 1,
    "floats": [0.5, 0.25],
    "classes": ["a", "b"],
    "text": "a dog",
    "json": {"a": 1},
    "boxes": [[1, 1, 9, 9]],
    "keypoints": [[[1, 2, 2], [3, 4, 2]]],
    "mask": "mask.png",
    "image": "0.jpg",
    "array": "array.npy",
    "images": ["0.jpg", "1.jpg"],
    "map": "map.npy",
}


@pytest.mark.parametrize("name", ["train", "val"])
@pytest.mark.parametrize("kind", sorted(_VALUES))
def test_the_loader_that_is_proposed_works_with_each_kind_of_field(
    tmp_path: Path, kind: str, name: str
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(saved())
    Image.new("L", (70, 45)).save(tmp_path / "mask.png")
    np.save(tmp_path / "array.npy", np.zeros(4, np.float32))
    np.save(tmp_path / "map.npy", np.zeros((45, 70, 2), np.float32))  # such as optical flow
    rows = [{"image": f"{number}.jpg", "value": _VALUES[kind]} for number in range(4)]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))

    packed = tmp_path / name
    text = succeeded("pack", table, packed, "--field", f"value=value:{kind}")
    call = text.partition(", or ")[2].removesuffix(" in Python\n")
    has_no_mirror = name == "train" and kind in ("keypoints", "map")
    assert (", hflip=False)" in call) == has_no_mirror
    with eval(call) as loader:  # noqa: S307
        assert all({"image", "value"} <= batch.keys() for batch in loader)


def test_each_kind_of_field_is_tried() -> None:
    assert {*_VALUES, "bytes"} == {*KINDS}  # a table of paths has no bytes


def test_images_beside_class_folders_are_answered_with_what_to_do(
    source: Path, tmp_path: Path
) -> None:
    shutil.copy(next(source.rglob("*.jpg")), source / "0.jpg")
    words = "1 file beside the class folders: 0.jpg; move images into a class folder"
    assert words in " ".join(succeeded("pack", source, tmp_path / "packed").split())


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--num-workers", "--workers"),
        ("--maxsize", "--max-size"),
        ("--max_size", "--max-size"),
        ("--resize", "--max-size"),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_is_meant(
    source: Path, tmp_path: Path, option: str, meant: str
) -> None:
    words = failed(2, "pack", source, tmp_path / "packed", option, "4")
    assert f"No such option: {option}; did you mean {meant}?" in words
    assert "Possible options" not in words
    assert failed(2, "pack", source, tmp_path / "packed", "--zzz").endswith("No such option: --zzz")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("jpg", "'jpg' is not one of 'jpeg', 'coefficients'; did you mean 'jpeg'?"),
        ("xyz", "'xyz' is not one of 'jpeg', 'coefficients'"),
    ],
)
def test_a_word_that_an_option_does_not_have(
    source: Path, tmp_path: Path, value: str, words: str
) -> None:
    text = failed(2, "pack", source, tmp_path / "packed", "--storage", value)
    assert text.endswith(f"Invalid value for '--storage': {words}")


def test_the_size_in_the_table_is_that_of_the_shards(source: Path, tmp_path: Path) -> None:
    """A share below 100 % beside a size that grew, because only one of them counts the tars' headers, misleads."""
    text = succeeded("pack", source, tmp_path / "packed")
    shards = int(re.search(r"shards +1, ([\d,]+) bytes", text)[1].replace(",", ""))  # type: ignore[index]
    words = r"images ([\d.]+)% of the source's ([\d,]+) bytes; with tars ([\d.]+)%"
    size = re.search(rf"size +{words} *\n", text)
    assert size is not None
    before = sum(file.stat().st_size for file in source.rglob("*.jpg"))
    assert int(size[2].replace(",", "")) == before
    assert shards == sum(file.stat().st_size for file in (tmp_path / "packed").glob("*.tar"))
    assert float(size[3]) == pytest.approx(100 * shards / before, abs=0.05)
    images = fastpipe.open(tmp_path / "packed").index.records["size"].sum()
    assert float(size[1]) == pytest.approx(100 * images / before, abs=0.05)


def test_files_of_fields_do_not_count_as_images(tmp_path: Path) -> None:
    """A share of 851 % beside arrays, none of which is in the source's bytes, says nothing of the images."""
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30)).save(tmp_path / "photos" / f"{number}.jpg")
        np.save(tmp_path / "photos" / f"{number}.npy", np.zeros((200, 200), np.float32))
    text = succeeded("pack", tmp_path / "photos", tmp_path / "packed", "--field", "latent=npy")
    size = re.search(r"images ([\d.]+)% of the source's .* with tars and fields ([\d.]+)%", text)
    assert size is not None
    assert float(size[1]) < 120
    assert float(size[2]) > 1000


def test_a_field_with_another_name_than_its_column_has_a_reason(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "0.jpg")
    (tmp_path / "rows.csv").write_text("path,id,size_\n0.jpg,7,8\n")
    text = succeeded("pack", tmp_path / "rows.csv", tmp_path / "packed")
    reason = "column 'id', whose name is reserved"
    assert re.search(rf"fields +id_ \(int; {reason}\), size_ \(int\) *\n", text)


def test_pack_tells_what_was_encoded_anew(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "a.png").write_bytes(saved("PNG"))
    (source / "ant" / "b.jpg").write_bytes(saved(mode="CMYK"))
    text = succeeded("pack", source, tmp_path / "packed")
    assert re.search(r"encoded again +1 \(1 CMYK\); all others keep their exact pixels", text)
    assert re.search(r"stored as PNG +1 \(1 PNG\)", text)
    assert "rejected  none" in text


def test_pack_as_json(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    (source / "README").write_bytes(b"")
    content = json.loads(succeeded("pack", source, tmp_path / "packed", "--json"))
    assert (content["samples"], content["classes"], content["shards"]) == (24, 3, 1)
    assert [one["path"] for one in content["rejected"]] == ["ant/bad.jpg"]
    assert content["outside_classes"] == ["README"]
    assert content["packed_bytes"] == PackedIndex(tmp_path / "packed").jpeg_bytes
    assert not content["already_packed"]

    again = json.loads(succeeded("pack", source, tmp_path / "packed", "--json"))
    assert again["already_packed"]
    assert again["fingerprint"] == content["fingerprint"]
    assert again["rejected"] == content["rejected"]


def test_pack_tells_of_files_of_several_frames(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "a.gif").write_bytes(
        saved("GIF", save_all=True, append_images=[Image.new("RGB", (9, 9))])
    )
    text = succeeded("pack", source, tmp_path / "packed")
    assert re.search(r"frames +1 file with several; the first of each was packed", text)


def test_odd_metadata_leave_the_terminal_alone(source: Path, tmp_path: Path) -> None:
    tiff = saved("TIFF")
    entry = tiff.index(b"\x1c\x01\x03\x00")  # PlanarConfiguration, of which there can be one only
    (source / "ant" / "a.tiff").write_bytes(tiff[: entry + 4] + b"\2" + tiff[entry + 5 :])
    run = fp("pack", source, tmp_path / "packed")
    assert run.exit_code == 0
    assert "1 TIFF" in run.stdout
    assert "Warning" not in run.stderr


def test_pack_takes_every_option(source: Path, tmp_path: Path) -> None:
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    options = "--workers 1 --max-size 40 --quality 70 --tile 16 --shard-size 1MiB --seed 3 --exif apply --keep-metadata"
    limits = "--max-pixels 1000000 --max-scans 20 --on-error report --damaged decode"
    packed = tmp_path / "packed"
    content = json.loads(
        succeeded("pack", source, packed, *options.split(), *limits.split(), "--json")
    )
    assert content["packs"][0]["options"] == {
        "max_size": 40,
        "quality": 70,
        "lossless": False,
        "shard_size": 1048576,
        "seed": 3,
        "shuffle": True,
        "apply_exif": True,
        "keep_metadata": True,
        "max_pixels": 1_000_000,
        "max_scans": 20,
        "tile": 16,
        "damaged": "decode",
        "storage": "jpeg",
        "source": {},
        "fields": {},
    }
    assert "--overwrite" in failed(1, "pack", source, packed)
    assert "packed" in succeeded("pack", source, packed, "--overwrite")
    assert "ant/bad.jpg cannot be packed" in failed(
        1, "pack", source, tmp_path / "fail", "--on-error", "fail"
    )


def test_tiles_are_32_pixels_wide_if_not_told_otherwise(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    content = json.loads(succeeded("pack", source, packed, "--json"))
    assert content["packs"][0]["options"]["tile"] == 32
    assert json.loads((packed / "dataset.json").read_bytes())["packs"][0]["options"]["tile"] == 32
    assert "nothing to do" in succeeded("pack", source, packed, "--tile", "32")
    text = failed(1, "pack", source, packed, "--tile", "16")
    assert "it was packed with --tile 32; now it would be with --tile 16 (tile=16)" in text
    assert "--overwrite" in text


def test_without_tiles_there_are_no_restart_markers(source: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 320, 3), dtype=np.uint8)
    Image.fromarray(noise).save(source / "ant" / "noise.jpg", quality=95)
    for tile, marked in [(0, 0), (32, 1)]:  # the others are too small for tiles
        packed = tmp_path / f"packed-{tile}"
        succeeded("pack", source, packed, "--tile", tile)
        index = PackedIndex(packed)
        found = [
            DRI in [marker for marker, _ in segments(packed_jpeg(index, sample))]
            for sample in range(len(index))
        ]
        assert sum(found) == marked, tile


def test_tiles_that_cannot_be_are_refused(source: Path, tmp_path: Path) -> None:
    for tile in ("-1", "65501", "99999999999999999999"):
        said = failed(2, "pack", source, tmp_path / "packed", "--tile", tile)
        assert f"--tile: expected 0 to 65500, got {tile}" in said
    for tile in ("wide", "1.5", ""):
        said = failed(2, "pack", source, tmp_path / "packed", "--tile", tile)
        assert "Invalid value for '--tile': Input should be a valid integer" in said
    assert not (tmp_path / "packed").exists()


def test_a_message_names_the_option_that_was_typed(source: Path, tmp_path: Path) -> None:
    """In Python the same message names the argument, as shard_size."""
    packed = tmp_path / "packed"
    for options, said in (
        (("--shard-size", "much"), "--shard-size: expected a number of bytes"),
        (("--split", "train"), f"--split: {source} has no splits"),
        (("--label-column", "a"), "--label-column: it has no effect on a folder of images"),
        (("--address", "auto"), "--address: it needs --on ray"),
    ):
        code = 2 if options[0] in ("--shard-size", "--address") else 1
        assert said in failed(code, "pack", source, packed, *options)


def test_shard_sizes() -> None:
    sizes = {
        "100000": 100_000,
        "256MB": 256_000_000,
        "1GiB": 2**30,
        "1.5 mib": 1572864,
        "200k": 200_000,
    }
    assert {words: size_bytes("--shard-size", words) for words in sizes} == sizes


def test_a_progress_line_now_and_then_where_there_is_no_terminal(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpipe.machine.progress._LINE_EVERY_S", 0.0)
    result = fp("pack", source, tmp_path / "packed")
    assert re.search(
        r"^packing: 24/24 files  [\d,]+ images/s  [\d.]+ MB/s$", result.stderr, re.MULTILINE
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", result.output)
