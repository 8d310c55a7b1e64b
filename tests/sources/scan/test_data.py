"""What users pass as DATA: packed datasets, folders, tars and patterns; and what is none of these."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.programs.cli_run import succeeded
from support.sources.pack_sources import jpeg_bytes, saved, write_folder
from support.sources.tars import write_tar
from support.sources.unpacked_sources import (
    bad_files,
    epoch,
    odd_pictures,
    packed,
    web_tars,
    write_mixed,
)

import fastpipe
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE, WORK_FOLDER
from fastpipe.errors import DatasetError, ImageError
from fastpipe.sources.picture import convert


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "photos"
    return write_mixed(root, {**odd_pictures(), **bad_files()})


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return web_tars(tmp_path_factory.mktemp("data") / "tars", tars=3, samples=12)


def keys(data: object) -> list[str]:
    return [key for batch in epoch(data, 5, drop_last=False) for key in batch["key"]]


def test_patterns(tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = keys(tars)
    assert len(every) == 36
    assert keys(str(tars / "*.tar")) == every
    assert keys(str(tars / "train-{000..002}.tar")) == every
    assert keys(str(tars.parent / "*" / "train-00[012].tar")) == every
    some = keys(str(tars / "train-{000,002}.tar"))
    assert some == [key for key in every if not key.startswith("train-001")]
    assert keys(tars / "train-001.tar") == [
        key.removeprefix("train-001.tar/") for key in every if "-001" in key
    ]
    monkeypatch.chdir(tars)
    assert keys("*.tar") == every
    dataset = fastpipe.open("*.tar")
    monkeypatch.chdir(tars.parent)
    assert len(dataset) == len([dataset[number] for number in range(36)])
    for name in ("a", "b"):
        shutil.copytree(tars, tmp_path / name)
    of_two_folders = keys(str(tmp_path / "*" / "*-001.tar"))
    assert len(of_two_folders) == 24
    assert {key.split("/")[0] for key in of_two_folders} == {"a", "b"}


@pytest.mark.parametrize("pattern", ["*.tar", "shard-{000000..000000}.tar", "shard-000000.tar"])
def test_shards_of_a_packed_dataset_are_no_tars_of_others(tmp_path: Path, pattern: str) -> None:
    fastpipe.pack(write_folder(tmp_path / "src"), tmp_path / "dst")
    with pytest.raises(
        DatasetError, match=f"000000.tar is a shard of the packed dataset .*: pass {tmp_path}/dst"
    ):
        fastpipe.open(str(tmp_path / "dst" / pattern))
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "dst" / "shard-000000.tar", tmp_path / "other")
    assert len(fastpipe.open(str(tmp_path / "other" / "*.tar"))) == len(
        fastpipe.open(tmp_path / "dst")
    )


def test_a_tar_that_a_pattern_names_has_to_be_there(tmp_path: Path) -> None:
    folder = web_tars(tmp_path / "tars", tars=4, samples=4)
    (folder / "train-002.tar").unlink()
    missing = re.escape(
        f"{folder / 'train-002.tar'} does not exist, and {folder / 'train-{000..003}.tar'} names it"
    )
    with pytest.raises(DatasetError, match=missing):
        fastpipe.open(str(folder / "train-{000..003}.tar"))
    assert len(fastpipe.open(str(folder / "train-00{0..9..1}*.tar"))) == 12, (
        "with * there need not be any"
    )


def test_only_the_end_of_a_path_is_a_pattern(tmp_path: Path) -> None:
    """What is a folder is no pattern, whatever is in its name."""
    web_tars(tmp_path / "run1", tars=1, samples=4)
    for name in ("run[1]", "run*", "run{1}", "{a,b}"):
        folder = web_tars(tmp_path / name, tars=2, samples=4)
        assert len(fastpipe.open(str(folder / "*.tar"))) == 8
        assert len(fastpipe.open(str(folder / "train-{000..001}.tar"))) == 8
        with pytest.raises(DatasetError, match="matches no tar file"):
            fastpipe.open(str(folder / "*.tgz"))


@pytest.mark.parametrize("folder", [".", "a"])
def test_a_link_to_itself_leaves_out_one_file(tmp_path: Path, folder: str) -> None:
    root = tmp_path / "photos"
    (root / folder).mkdir(parents=True)
    (root / folder / "1.jpg").write_bytes(jpeg_bytes())
    (root / "loop").symlink_to("loop")
    name = os.path.normpath(f"{folder}/1.jpg")
    assert keys(root) == [name]
    assert fastpipe.pack(root, tmp_path / "packed").info["samples"] == 1
    assert keys(tmp_path / "packed") == [name]


def test_max_pixels_decides_which_large_pictures_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the loader, not of the scan, which is kept for the next loader."""
    (tmp_path / "photos").mkdir()
    large = bytearray(jpeg_bytes())
    at = large.index(b"\xff\xc0") + 5
    large[at : at + 4] = (14_000).to_bytes(2, "big") * 2
    png = saved("PNG")
    header = b"IHDR" + (15_000).to_bytes(4, "big") * 2 + png[24:29]
    files = {"0.jpg": jpeg_bytes(), "1.jpg": bytes(large)}
    files["2.png"] = png[:12] + header + zlib.crc32(header).to_bytes(4, "big") + png[33:]
    for name, data in files.items():
        (tmp_path / "photos" / name).write_bytes(data)
    limits: list[int] = []

    def limited(data: bytes, options: convert.EncodeOptions) -> None:
        limits.append(options.max_pixels)
        raise ImageError("enough")

    monkeypatch.setattr(convert, "convert", limited)
    for _ in range(2):
        usual = fastpipe.open(tmp_path / "photos").index
        assert len(usual) == 1
        rejected = usual.describe_rejected()  # type: ignore[attr-defined]
        assert "1.jpg: 14000 x 14000 is over the limit of 178,956,970 pixels" in rejected
        with fastpipe.loader(
            fastpipe.open(tmp_path / "photos", max_pixels=200_000_000), 1, size=8
        ) as loader:
            assert len(loader.dataset) == 2
        with fastpipe.loader(
            fastpipe.open(tmp_path / "photos", max_pixels=10**9), 1, train=False, size=8
        ) as loader:
            assert loader.dataset.index.records["width"].tolist()[1:] == [14_000, 15_000]
            with pytest.raises(ImageError, match="enough"):
                loader.dataset.index.convert(2)
    assert limits == [10**9] * 2


# What is put into an empty folder, and why the folder is no source.
NOTHING: list[tuple[Callable[[Path], object], str]] = [
    (lambda root: None, "is empty. Pass a packed dataset"),
    (lambda root: (root / WORK_FOLDER).mkdir(), "holds an unfinished pack"),
    (lambda root: (root / "cat").mkdir(), "has no image that can be loaded"),
    (
        lambda root: write_tar(root / "a.tar", {"a.txt": b"x"}),
        "has no image in its tars: .* are txt",
    ),
    (lambda root: (root / "a.tar").write_bytes(b"x" * 999), "a.tar"),
    (lambda root: (root / "a.tar.gz").write_bytes(b"x"), "is compressed"),
    (
        lambda root: (root / "notes.txt").write_text("text " * 9),
        "notes.txt: not an image of a known format",
    ),
    (lambda root: (root / DATASET_FILE).write_text("{"), "is not valid JSON"),
    (
        lambda root: (root / DATASET_FILE).write_text("\n<!DOCTYPE html>"),
        "is a web page or XML: check the URL, and that no login is needed",
    ),
]


def test_folders_that_are_nothing(tmp_path: Path) -> None:
    for number, (fill, words) in enumerate(NOTHING):
        root = tmp_path / str(number)
        root.mkdir()
        fill(root)
        for take in (fastpipe.open, fastpipe.loader):
            with pytest.raises(DatasetError, match=words):
                take(root)


def test_packed_datasets_are_not_taken_for_tars_or_classes(flat: Path, tmp_path: Path) -> None:
    for name in ("train", "val"):
        copy = Path(shutil.copytree(flat, tmp_path / name))
    one_of_them = re.escape(f"holds some: train, val. Pass one of them: {tmp_path / 'train'}")
    with pytest.raises(DatasetError, match=one_of_them):
        fastpipe.open(tmp_path)
    (copy / DATASET_FILE).unlink()
    with pytest.raises(DatasetError, match="holds an unfinished pack"):
        fastpipe.open(copy)
    (copy / INDEX_FILE).unlink()
    (copy / WORK_FOLDER).mkdir()
    words = r"holds an unfinished pack: .* or the program with fastpipe.Writer, again"
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(copy)


def test_what_only_packing_reads_is_told(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", images=3)
    (photos / "metadata.csv").write_text("file_name\nclass-0/0.jpg\n")
    (tmp_path / "coco" / "annotations").mkdir(parents=True)
    (tmp_path / "coco" / "annotations" / "instances_val.json").write_text(
        '{"images": [], "annotations": []}'
    )
    (tmp_path / "tables").mkdir()
    for path in (tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "tables" / "a.parquet"):
        path.write_text("path\n")
    for data, form in (
        (photos, "metadata"),
        (tmp_path / "coco", "coco"),
        (tmp_path / "tables", "parquet"),
        (tmp_path / "a.csv", "csv"),
        (tmp_path / "a.parquet", "parquet"),
    ):
        with pytest.raises(
            DatasetError, match=f"of the format {form}, which has to be packed first: fastpipe pack"
        ):
            fastpipe.loader(data)


def test_options_that_only_packing_has_are_told(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", images=3)
    (photos / "labels.csv").write_text("path,label\nclass-0/0.jpg,wren\n")
    with pytest.raises(
        DatasetError, match=r"--format picks one; .* These are options of `fastpipe pack`"
    ):
        fastpipe.open(photos)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"")
    for name, words in (
        ("no.tar", r"no\.tar does not exist"),
        ("*.tar", r"matches no tar file\. Expected a pattern of tars"),
        ("*.txt", r"it matches .*x\.txt, which is no tar"),
        ("x.txt", r"x\.txt is a file, not a dataset"),
    ):
        with pytest.raises(DatasetError, match=words):
            fastpipe.open(str(tmp_path / name))


def test_a_dataset_gives_the_pictures_of_the_packed_one(photos: Path, tmp_path: Path) -> None:
    names = ("image", "label", "key")
    mine, theirs = (
        fastpipe.open(data).with_fields(names)
        for data in (photos, packed(photos, tmp_path / "packed"))
    )
    assert len(mine) == len(theirs) > 20
    for one, other in zip(mine, theirs, strict=True):  # type: ignore[call-overload]
        assert (one["label"], one["key"]) == (other["label"], other["key"])
        assert torch.equal(one["image"], other["image"]), one["key"]


def test_commands(photos: Path, tmp_path: Path) -> None:
    found = json.loads(succeeded("inspect", photos, "--no-sheet", "--json", "--shuffle"))
    dataset = fastpipe.open(photos)
    assert (found["samples"], found["packed"]) == (len(dataset), False)
    assert 0.5 < found["shuffle"]["epoch"]["class_mix"] < 2
    told = succeeded("inspect", photos, "--sheet", tmp_path / "sheet.png")
    assert "not packed" in told
    assert (tmp_path / "sheet.png").stat().st_size > 1000
    succeeded("preview", photos, "--out", tmp_path / "preview.png", "--rows", 3)
    assert (tmp_path / "preview.png").stat().st_size > 1000


def test_doctor(photos: Path) -> None:
    from fastpipe.tools.doctor.dataset_checks import check_dataset

    checks = {check.name: check for check in check_dataset(photos)}
    assert "not packed" in checks["dataset"].found
    assert "images/s" in checks["decoding"].found


def test_several_processes_scan_at_once(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "photos", images=20)
    (root / "ant" / "odd.jpg").write_bytes(jpeg_bytes())
    children = [os.fork() for _ in range(3)]
    if 0 in children:
        try:
            os._exit(int(len(fastpipe.open(root)) != 21))
        finally:
            os._exit(9)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert len(fastpipe.open(root)) == 21
