"""A folder in a folder: one class, or something around the classes; and lists in the folder beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import photos, values, write

import fastpipe
from fastpipe.errors import PackError


@becomes(
    "`GTSRB/Readme.txt` beside `GTSRB/Final_Training/`, `GTSRB/Final_Test/`",
    "refused, with the folder to pass",
    "SRC/GTSRB, --split train",
)
def test_a_note_beside_folders_in_the_only_folder(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "GTSRB/Final_Training/Images/00000/a.jpg", "GTSRB/Final_Test/Images/b.jpg"
    )
    write(source / "GTSRB/Readme-Images.txt", "The German Traffic Sign Benchmark")
    with pytest.raises(PackError, match=f"{source}/GTSRB with --split train"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes("one class folder", "one class; it is named, with the folder to pass for images alone")
def test_one_class(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "img_align/1.jpg", "img_align/2.jpg")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed.text == (
        "all images are of the class img_align, the only folder; for images without labels, pass "
        f"{source}/img_align"
    )
    certain = fastpipe.pack(source, tmp_path / "certain", format="imagefolder")
    assert certain.info["classes"] == ["img_align"]


@becomes(
    "CelebA: `Img/img_align_celeba/`, `Anno/list_attr_celeba.txt`",
    "refused; the tables are named, attributes first",
    "--image-root",
)
def test_tables_in_the_folder_beside_the_images(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "Img/img_align_celeba/000001.jpg", "Img/img_align_celeba/000002.jpg"
    )
    write(source / "Anno/identity_CelebA.txt", "000001.jpg 2880\n000002.jpg 2937\n")
    attributes = "2\nSmiling Young\n000001.jpg 1 -1\n000002.jpg -1 1\n"
    write(source / "Anno/list_attr_celeba.txt", attributes)
    images = source / "Img/img_align_celeba"
    with pytest.raises(
        PackError,
        match=f"Pass a table of these images: {source}/Anno/list_attr_celeba.txt, with --image-root "
        f"{images} --field tags=Smiling,Young:classes; or {source}/Anno/identity_CelebA.txt, with "
        f"--image-root {images}",
    ):
        fastpipe.pack(source, tmp_path / "packed")
    packed = fastpipe.pack(source / "Img", tmp_path / "images")
    first, second = (assumed.text for assumed in packed.assumed)
    assert "all images are of the class img_align_celeba" in first
    assert f"fastpipe pack {source}/Anno/list_attr_celeba.txt DST --image-root {images}" in second


def llava(root: Path, *folders: str) -> Path:
    """Images in these folders of images/, and LLaVA's conversations about them."""
    rows = []
    for number in range(6):
        name = f"{folders[number % len(folders)]}/00000003347{number}.jpg"
        photos(root / "images", name)
        turns = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A bus."}]
        rows.append({"id": f"00000003347{number}", "image": name, "conversations": turns})
    write(root / "llava_v1_5_mix665k.json", rows)
    return root


@becomes(
    "LLaVA: `images/coco/train2017/`, and beside `images/` llava_v1_5_mix665k.json",
    "refused; the JSON file is named, with the image root",
    "the JSON file, --image-root images",
)
@pytest.mark.parametrize(
    "folders", [["coco/train2017"], ["coco/train2017", "gqa/images", "vg/VG_100K"]]
)
def test_conversations_beside_the_folder(tmp_path: Path, folders: list[str]) -> None:
    source = llava(tmp_path / "llava", *folders)
    table = source / "llava_v1_5_mix665k.json"
    with pytest.raises(
        PackError,
        match=rf"Pass {table}, with --image-root {source}/images: it lists these images\. ",
    ):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(table, tmp_path / "packed", image_root=source / "images")
    assert not summary.tally.rejected
    assert summary.assumed == ()
    packed = values(tmp_path, "conversations")
    assert len(packed) == 6
    assert packed[f"{folders[0]}/000000033470.jpg"][1]["value"] == "A bus."


@becomes("the same, its images alone", "no labels; the command that packs the JSON file is named")
@pytest.mark.parametrize("folder", ["coco", "coco/train2017"])
def test_images_of_conversations(tmp_path: Path, folder: str) -> None:
    source = llava(tmp_path / "llava", "coco/train2017")
    text = fastpipe.pack(source / "images" / folder, tmp_path / "packed").assumed[-1].text
    command = f"fastpipe pack {source}/llava_v1_5_mix665k.json DST --image-root {source}/images. "
    assert f"To pack what it says: {command}" in text


@becomes("annotations of another dataset in the folder beside it", "the names of the folders")
def test_a_dataset_beside_it(tmp_path: Path) -> None:
    source = photos(tmp_path / "pets", "cat/part1.jpg", "dog/part2.jpg")
    other = photos(tmp_path / "task_xml", "images/part1.jpg")
    write(
        other / "annotations.xml",
        '<annotations><meta/><image name="part1.jpg" width="20" height="20"/></annotations>',
    )
    assert fastpipe.pack(source, tmp_path / "packed").assumed == ()


@becomes("CUB: `images/001.Albatross/`, `images.txt` with numbers", "the names of the folders")
def test_a_list_that_numbers_the_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/001.Albatross/a.jpg", "images/002.Auk/b.jpg")
    write(source / "images.txt", "1 001.Albatross/a.jpg\n2 002.Auk/b.jpg\n")
    assert fastpipe.pack(source / "images", tmp_path / "packed").assumed == ()


@becomes(
    "NIH: `images_001/`, `images_002/`, a table of images of both",
    "refused; the table is named, without an image root",
)
def test_a_table_of_folders_that_are_parts(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images_001/images/a.png", "images_002/images/b.png")
    write(source / "boxes.csv", "Image Index,Finding Label\na.png,Mass\n")
    words = rf"Pass the table: {source}/boxes\.csv, with --label-column 'Finding Label'\. "
    with pytest.raises(PackError, match=words):
        fastpipe.pack(source, tmp_path / "packed")
