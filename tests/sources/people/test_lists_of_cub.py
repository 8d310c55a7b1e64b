"""Files that say the split of each image, beside class folders and tables: CUB, CelebA, NIH's X-rays."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, values, write

import fastpipe
from fastpipe.errors import PackError


def cub(root: Path) -> Path:
    images = ("001.Crow/c_1.jpg", "001.Crow/c_2.jpg", "002.Wren/w_1.jpg", "002.Wren/w_2.jpg")
    photos(root / "images", *images)
    lines = [f"{number} {image}\n" for number, image in enumerate(images, 1)]
    write(root / "images.txt", "".join(lines))
    write(root / "train_test_split.txt", "1 0\n2 1\n3 1\n4 0\n")
    return root


@becomes(
    "CUB: `images/` with class folders, `train_test_split.txt` beside them (numbers of `images.txt`)",
    "all images; the list is named as not used, and which number is train",
    "--split-list train_test_split.txt --split 1",
)
def test_list_that_is_not_used(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    (text,) = assumed(fastpipe.pack(source / "images", tmp_path / "packed"))
    file = source / "train_test_split.txt"
    assert text == (
        f"split: none; {file} has the splits 0, 1 of these images and is not used; by its name, 0 is "
        f"test, 1 is train (--split-list {file} --split 1)"
    )
    assert len(fastpipe.open(tmp_path / "packed")) == 4


@becomes(
    "the same, of which the training is wanted",
    "the images of the split, with the classes of all",
    "--split-list train_test_split.txt --split 1",
)
def test_split_by_numbers(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    file = source / "train_test_split.txt"
    with pytest.raises(
        PackError, match=r"pass one of them; by its name, 0 is test, 1 is train; .all"
    ):
        fastpipe.pack(source / "images", tmp_path / "none", split_list=file)
    summary = fastpipe.pack(source / "images", tmp_path / "packed", split_list=file, split="1")
    assert assumed(summary) == []
    assert labels(tmp_path) == {"001.Crow/c_2.jpg": "001.Crow", "002.Wren/w_1.jpg": "002.Wren"}


@becomes(
    "class folders, and beside them a list of other numbers, such as `folds.txt`",
    "all images; the list is named, and that it does not say which number is train",
    "--split-list folds.txt --split 0",
)
def test_numbers_without_a_meaning(tmp_path: Path) -> None:
    photos(tmp_path / "src", "ant/1.jpg", "ant/2.jpg", "bee/3.jpg", "bee/4.jpg")
    file = write(tmp_path / "folds.txt", "ant/1.jpg 0\nant/2.jpg 1\nbee/3.jpg 0\nbee/4.jpg 1\n")
    (text,) = assumed(fastpipe.pack(tmp_path / "src", tmp_path / "packed"))
    assert "; which of them is for training, the file does not say (" in text
    summary = fastpipe.pack(
        tmp_path / "src", tmp_path / "packed", split_list=file, split="1", overwrite=True
    )
    assert assumed(summary) == []
    assert labels(tmp_path) == {"ant/2.jpg": "ant", "bee/4.jpg": "bee"}


def celeba(root: Path) -> Path:
    photos(root / "images", "1.jpg", "2.jpg", "3.jpg")
    write(root / "list_attr.csv", "image_id,label\n1.jpg,no\n2.jpg,yes\n3.jpg,no\n")
    return root


@becomes(
    "CelebA: a table of labels, and `list_eval_partition.txt` or `.csv` beside it (`000001.jpg 0`)",
    "all images; the list is named; or those of one split, with the classes of all",
    "--split-list list_eval_partition.txt --split 2",
)
@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_split_of_a_table(tmp_path: Path, ending: str) -> None:
    source = celeba(tmp_path / "celeba")
    text = "1.jpg 0\n2.jpg 1\n3.jpg 2\n"
    if ending == "csv":
        text = "image_id,partition\n" + text.replace(" ", ",")
    file = write(source / f"list_eval_partition.{ending}", text)
    table, root = source / "list_attr.csv", source / "images"
    (text,) = assumed(fastpipe.pack(table, tmp_path / "all", image_root=root))
    assert text.startswith(f"split: none; {file} has the splits 0, 1, 2 of these images")
    assert "; by its name, 0 is train, 1 is val, 2 is test (" in text
    assert text.endswith(" --split 0)")
    options = ("--image-root", root, "--split-list", file, "--split", "2")
    succeeded("pack", table, tmp_path / "packed", *options)
    assert labels(tmp_path) == {"3.jpg": "no"}
    assert fastpipe.open(tmp_path / "packed").classes == ["no", "yes"]


@becomes(
    "CelebA as it is downloaded: `Anno/list_attr_celeba.txt`, `Eval/list_eval_partition.txt`",
    "all images; the list of splits is named",
    "--split-list Eval/list_eval_partition.txt --split 0",
)
def test_list_in_a_folder_beside_the_table(tmp_path: Path) -> None:
    source = celeba(tmp_path / "celeba" / "Anno")
    file = write(source.parent / "Eval" / "list_eval_partition.txt", "1.jpg 0\n2.jpg 1\n3.jpg 2\n")
    table, root = source / "list_attr.csv", source / "images"
    (text,) = assumed(fastpipe.pack(table, tmp_path / "all", image_root=root))
    assert text.startswith(f"split: none; {file} has the splits 0, 1, 2 of these images")


def test_a_list_for_each_split_with_its_name_in_each_row(tmp_path: Path) -> None:
    source = celeba(tmp_path / "source")
    write(source / "test_split.txt", "3.jpg test\n")
    file = write(source / "train_split.txt", "1.jpg train\n2.jpg train\n")
    table, root = source / "list_attr.csv", source / "images"
    (text,) = assumed(fastpipe.pack(table, tmp_path / "all", image_root=root))
    assert "name some of these images each and are not used" in text
    assert text.endswith(f"--split-list {file})")
    fastpipe.pack(table, tmp_path / "packed", image_root=root, split_list=file)
    assert labels(tmp_path) == {"1.jpg": "no", "2.jpg": "yes"}
    # Of a list of all images, no image would be left out.
    for name in ("test_split.txt", "train_split.txt"):
        write(source / name, "1.jpg train\n2.jpg train\n3.jpg train\n")
    assert not assumed(fastpipe.pack(table, tmp_path / "one", image_root=root))


@becomes(
    "NIH's X-rays: `train_val_list.txt` and `test_list.txt`, names alone, beside the table",
    "all images; the lists are named; or those that one of them names",
    "--split-list test_list.txt",
)
def test_lists_of_names(tmp_path: Path) -> None:
    source = celeba(tmp_path / "nih")
    write(source / "train_val_list.txt", "1.jpg\n2.jpg\n")
    file = write(source / "test_list.txt", "3.jpg\n4.jpg\n")
    table, root = source / "list_attr.csv", source / "images"
    (text,) = assumed(fastpipe.pack(table, tmp_path / "all", image_root=root))
    assert "train_val_list.txt, " in text
    assert "test_list.txt" in text
    assert "name some of these images each" in text
    options = {"image_root": root, "split_list": file}
    with pytest.raises(PackError, match="names of images without a split"):
        fastpipe.pack(table, tmp_path / "none", split="test", **options)
    (text,) = assumed(fastpipe.pack(table, tmp_path / "packed", **options))
    assert text == f"split: 1 of the 2 names in {file} are of no image in {root}"
    assert labels(tmp_path) == {"3.jpg": "no"}


@pytest.mark.parametrize("header", ["", "image_name evaluation_status\n"])
@becomes(
    "DeepFashion: `list_eval_partition.txt` with the number of its lines first, and names of columns",
    "the images of the split",
    "--split-list list_eval_partition.txt --split train",
)
def test_list_with_a_count(tmp_path: Path, header: str) -> None:
    paths = ("a/1.jpg", "a/2.jpg", "b/3.jpg")
    source = photos(tmp_path / "src", *paths)
    lines = "a/1.jpg train\na/2.jpg test\nb/3.jpg train\n"
    file = write(tmp_path / "partition.txt", f"3\n{header}{lines}")
    with pytest.raises(PackError, match=r"has the splits test, train; pass one of them"):
        fastpipe.pack(source, tmp_path / "none", split_list=file)
    summary = fastpipe.pack(source, tmp_path / "packed", split_list=file, split="train")
    assert not any(text.startswith("split:") for text in assumed(summary))
    assert labels(tmp_path) == {"a/1.jpg": "a", "b/3.jpg": "b"}

    # Numbers of images are no count.
    numbers = write(tmp_path / "numbers.txt", "2\n1\n3\n")
    summary = fastpipe.pack(source, tmp_path / "all", split_list=numbers)
    assert summary.info["samples"] == 3
    names = write(tmp_path / "names.txt", "2\na/1.jpg\nb/3.jpg\n")
    summary = fastpipe.pack(source, tmp_path / "two", split_list=names)
    assert summary.info["samples"] == 2


def test_added_images_are_of_the_same_split(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    options = {"split_list": source / "train_test_split.txt", "split": "1"}
    fastpipe.pack(source / "images", tmp_path / "packed", **options)
    photos(source / "images", "002.Wren/w_3.jpg", "002.Wren/w_4.jpg")
    with open(source / "images.txt", "a") as numbers:
        numbers.write("5 002.Wren/w_3.jpg\n6 002.Wren/w_4.jpg\n")
    with open(source / "train_test_split.txt", "a") as splits:
        splits.write("5 1\n6 0\n")
    grown = fastpipe.add(source / "images", tmp_path / "packed")
    assert grown.added == 1
    assert str(grown.assumed[0]).startswith("--split-list ")
    assert sorted(values(tmp_path)) == ["001.Crow/c_2.jpg", "002.Wren/w_1.jpg", "002.Wren/w_3.jpg"]


def test_lists_that_are_not_certain(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a/1.jpg", "b/1.jpg")
    name = write(tmp_path / "name.txt", "1 train\n")
    with pytest.raises(PackError, match=r"1 in .*name.txt may be a/1.jpg or b/1.jpg"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed", split_list=name)
    twice = write(tmp_path / "twice.txt", "a/1 train\na/1.jpg val\n")
    with pytest.raises(PackError, match=r"several splits for a/1.jpg: val, train"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed", split_list=twice, split="val")
    other = write(tmp_path / "other.txt", "2.jpg\n")
    with pytest.raises(PackError, match="names none of the 2 images"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed", split_list=other)
    with pytest.raises(PackError, match="is not a file"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed", split_list=tmp_path / "none.txt")


def test_paths_of_another_machine(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a/1.jpg", "b/1.jpg")
    file = write(tmp_path / "list.txt", "C:\\data\\a\\1.jpg train\nC:\\data\\b\\1.jpg val\n")
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", split_list=file, split="val")
    assert labels(tmp_path) == {"b/1.jpg": "b"}
