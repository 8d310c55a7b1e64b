"""Messages that name a table beside images: they name its labels, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, tags, write

import fastpipe
from fastpipe.errors import PackError

TABLE = "image_id,breed\na,pug\nb,pug\nc,husky\nd,husky\n"


@becomes(
    "`images/` beside `labels.csv` whose column of labels is called `breed`, and the like",
    "refused; the table is named with the option that takes its labels",
    "SRC/labels.csv --image-root SRC/images --label-column breed",
)
def test_a_label_column_beside_a_folder(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *(f"images/{name}.jpg" for name in "abcd"))
    table = write(source / "labels.csv", TABLE)
    images = source / "images"
    words = f"Pass it: {table}, with --image-root {images} --label-column breed. "
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(table, tmp_path / "packed", image_root=images, label_column="breed")
    breeds = {"a.jpg": "pug", "b.jpg": "pug", "c.jpg": "husky", "d.jpg": "husky"}
    assert labels(tmp_path) == breeds
    (text,) = assumed(fastpipe.pack(images, tmp_path / "images"))
    assert f"DST --image-root {images} --label-column breed. " in text


@becomes(
    "a list without a header beside images, its words separated by spaces: `a.jpg  ant  5`",
    "no labels; the list is named with the option that takes its labels",
    "SRC/labels.txt --label-column column_2",
)
def test_a_list_of_several_words(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg")
    table = write(source / "labels.txt", "a.jpg  ant  5\nb.jpg   bee 7\nc.jpg ant 3\n")
    (text,) = assumed(fastpipe.pack(source, tmp_path / "none"))
    assert text.endswith(f"pass {table}, with --label-column column_2")
    fastpipe.pack(table, tmp_path / "packed", label_column="column_2")
    assert labels(tmp_path) == {"a.jpg": "ant", "b.jpg": "bee", "c.jpg": "ant"}


@becomes(
    "Tiny ImageNet's `val/` alone: `images/` beside `val_annotations.txt`, and `train/` above",
    "refused; the list is named with its labels and the numbers of training",
    "val_annotations.txt --image-root images --label-column column_2 --classes-from train",
)
def test_val_of_tiny_imagenet(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "train", "n02/images/n02_0.JPEG", "n01/images/n01_0.JPEG", "n03/images/x.JPEG")
    photos(source / "val/images", "val_0.JPEG", "val_1.JPEG")
    table = write(
        source / "val/val_annotations.txt", "val_0.JPEG\tn02\t0\t9\nval_1.JPEG\tn03\t0\t3\n"
    )
    images = source / "val/images"
    train = source / "train"
    words = f"Pass it: {table}, with --image-root {images} --label-column column_2 --classes-from {train}. "
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source / "val", tmp_path / "none")
    options = {"label_column": "column_2", "classes_from": train}
    fastpipe.pack(table, tmp_path / "packed", image_root=images, **options)
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["n01", "n02", "n03"]
    assert labels(tmp_path) == {"val_0.JPEG": "n02", "val_1.JPEG": "n03"}


@becomes(
    "Kaggle's ImageNet, the root with `--split val`: `ILSVRC/Data/CLS-LOC/`, `LOC_val_solution.csv`",
    "refused; the table of val is named with the numbers of training",
    "LOC_val_solution.csv --image-root val --classes-from train",
)
def test_root_of_imagenet(tmp_path: Path) -> None:
    source = tmp_path / "src"
    inner = source / "ILSVRC/Data/CLS-LOC"
    photos(inner / "train", "n02/n02_0.JPEG", "n01/n01_0.JPEG", "n03/n03_0.JPEG")
    photos(inner / "val", "ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    rows = "ILSVRC2012_val_00000001,n02 1 1 9 9 \nILSVRC2012_val_00000002,n03 1 1 9 9 \n"
    table = write(source / "LOC_val_solution.csv", f"ImageId,PredictionString\n{rows}")
    write(source / "LOC_train_solution.csv", "ImageId,PredictionString\nn02_0,n02 1 1 9 9 \n")
    options = f"--image-root {inner / 'val'} --classes-from {inner / 'train'}. "
    with pytest.raises(PackError, match=re.escape(f"has the labels: {table}, with {options}")):
        fastpipe.pack(source, tmp_path / "none", split="val")


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na.jpg,ant\nb.jpg,bee\n",
        "image,xmin,ymin,xmax,ymax,class\na.jpg,1,2,3,4,ant\nb.jpg,1,2,3,4,ant\n",
        "ImageId,ClassId,EncodedPixels\na.jpg,1,1 1\nb.jpg,1,2 1\n",
    ],
    ids=["label", "boxes", "masks"],
)
def test_classes_that_need_no_option(tmp_path: Path, text: str) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    write(source / "table.csv", text)
    with pytest.raises(PackError, match="--image-root") as refused:
        fastpipe.pack(source, tmp_path / "none")
    assert "--label-column" not in str(refused.value)


@becomes(
    "Roboflow's multi-label `train/_classes.csv`: `filename, apple, banana`",
    "refused; the table is named with the option that takes its columns of 0 and 1",
    "SRC/train/_classes.csv --field tags=apple,banana:classes",
)
def test_classes_of_roboflow(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", "train/b.jpg", "valid/a.jpg")
    text = "filename, apple, banana\na.jpg, 0, 1\nb.jpg, 1, 1\n"
    table = write(source / "train/_classes.csv", text)
    words = f"such as {table}, with --field tags=apple,banana:classes"
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none", split="train")
    fastpipe.pack(table, tmp_path / "packed", fields=["tags=apple,banana:classes"])
    assert tags(tmp_path, "tags") == {"a.jpg": {"banana"}, "b.jpg": {"apple", "banana"}}


@becomes(
    "APTOS: `train_1.csv` with `id_code,diagnosis` beside `train_images/train_images/`",
    "no labels; the table is named with its columns",
    "SRC/train_1.csv --image-root DIR --image-column id_code --label-column diagnosis",
)
def test_a_table_of_ids_beside_splits(tmp_path: Path) -> None:
    folders = ("train_images/train_images", "val_images/val_images")
    names = [f"{folder}/{name}0cf.png" for folder in folders for name in "abc"]
    source = photos(tmp_path / "src", *names)
    write(source / "train_1.csv", "id_code,diagnosis\na0cf,0\nb0cf,2\nc0cf,2\n")
    summary = fastpipe.pack(source, tmp_path / "none", split="train_images")
    images = source / folders[0]
    options = f"--image-root {images} --image-column id_code --label-column diagnosis"
    assert options in assumed(summary)[0]
    fastpipe.pack(
        source / "train_1.csv",
        tmp_path / "packed",
        image_root=images,
        image_column="id_code",
        label_column="diagnosis",
    )
    assert labels(tmp_path) == {"a0cf.png": "0", "b0cf.png": "2", "c0cf.png": "2"}


@becomes(
    "CelebA's root: `list_attr_celeba.csv` and `list_eval_partition.csv` beside `img_align_celeba/`",
    "refused; the table of attributes is named with the list of the splits",
    "list_attr_celeba.csv --image-root DIR --field 'tags=*:classes' --split-list list_eval_partition.csv",
)
def test_attributes_of_celeba(tmp_path: Path) -> None:
    source = tmp_path / "src"
    names = [f"00000{number}.jpg" for number in range(1, 5)]
    images = photos(source / "img_align_celeba/img_align_celeba", *names)
    header = "image_id,Bald,Male,Smiling,Young,Hat"
    flags = ["1,-1,-1,-1,1", "-1,1,-1,1,-1", "1,1,1,-1,-1", "-1,-1,1,1,1"]
    rows = [f"{name},{text}" for name, text in zip(names, flags, strict=True)]
    table = write(source / "list_attr_celeba.csv", "\n".join([header, *rows, ""]))
    parts = [f"{name},{min(index, 2)}" for index, name in enumerate(names)]
    split_list = write(
        source / "list_eval_partition.csv",
        "\n".join(["image_id,partition", *parts, ""]),
    )
    options = f"--image-root {images} --field 'tags=*:classes'"
    words = f"Pass one: {table}, with {options} (add --split-list {split_list} --split 0 to pack"
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(
        table,
        tmp_path / "packed",
        image_root=images,
        fields=["tags=*:classes"],
        split_list=split_list,
        split="0",
    )
    assert tags(tmp_path, "tags") == {names[0]: {"Bald", "Hat"}}


@becomes(
    "Kaggle's Planet: `train_v2.csv` with `haze primary` beside `train-jpg/`",
    "no labels; the table is named with the field of several classes",
    "train_v2.csv --image-root train-jpg --field tags=tags:classes --separator ' '",
)
def test_classes_of_planet(tmp_path: Path) -> None:
    source = tmp_path / "src"
    images = photos(source / "train-jpg", "train_0.jpg", "train_1.jpg", "train_2.jpg")
    text = "train_0,haze primary\ntrain_1,agriculture clear primary water\ntrain_2,clear primary\n"
    table = write(source / "train_v2.csv", f"image_name,tags\n{text}")
    command = f"fastpipe pack {table} DST --image-root {images} --field tags=tags:classes --separator ' '. "
    (notice,) = assumed(fastpipe.pack(images, tmp_path / "images"))
    assert command in notice


@becomes(
    "global wheat: `train.csv` with boxes beside `train/`, in which an image has no row",
    "the table is named with the option that packs the image, too",
    "train.csv --image-root train --unlisted keep",
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_boxes_of_some_images(tmp_path: Path, is_complete: bool) -> None:
    source = tmp_path / "src"
    images = photos(source / "train", "a1b2c3d4.jpg", "b1c2d3e4.jpg")
    table_text = "image_id,width,height,bbox\n"
    for name in ["a1b2c3d4", "b1c2d3e4"] if is_complete else ["a1b2c3d4"]:
        table_text += f'{name},40,30,"[0.0, 5.0, 8.0, 12.0]"\n'
    table = write(source / "train.csv", table_text)
    options = "" if is_complete else " --unlisted keep"
    (notice,) = assumed(fastpipe.pack(images, tmp_path / "images"))
    assert f"fastpipe pack {table} DST --image-root {images}{options}. " in notice
    if not is_complete:
        fastpipe.pack(table, tmp_path / "packed", image_root=images, unlisted="keep")
        assert len(fastpipe.open(tmp_path / "packed")) == 2


@becomes(
    "NIH's chest X-rays, the root",
    "refused; the table is named with the field of several classes and a list of a split",
    "--field 'tags=Finding Labels:classes' --separator '|' --split-list train_val_list.txt",
)
def test_findings_of_nih(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "images_001/images", "01_0.png", "01_1.png")
    photos(source / "images_002/images", "02_0.png")
    rows = "01_0.png,Edema\n01_1.png,Edema|Mass\n02_0.png,Mass\n"
    table = write(source / "Data_Entry_2017.csv", f"Image Index,Finding Labels\n{rows}")
    split_list = write(source / "train_val_list.txt", "01_0.png\n01_1.png\n")
    write(source / "test_list.txt", "02_0.png\n")
    words = (
        f"Pass the table: {table}, with --field 'tags=Finding Labels:classes' --separator '|' "
        f"(add --split-list {split_list} to pack one split). "
    )
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
