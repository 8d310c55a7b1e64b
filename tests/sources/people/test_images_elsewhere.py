"""Tables whose images lie elsewhere than their rows say: on another machine, or in several folders."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, tags, values

import fastpipe
from fastpipe.errors import PackError

NIH = "Image Index,Finding Labels\na.png,Effusion|Mass\nb.png,No Finding\nc.png,Mass\n"


@becomes(
    "NIH's chest X-rays: images_001/images to images_012/images, and Data_Entry_2017.csv with names alone",
    "the images are found in these folders, which is said",
    "--field 'tags=Finding Labels:classes'",
)
def test_images_in_several_folders(tmp_path: Path) -> None:
    photos(
        tmp_path, "images_001/images/a.png", "images_001/images/b.png", "images_002/images/c.png"
    )
    summary = pack_text(
        tmp_path, "Data_Entry_2017.csv", NIH, fields=["tags=Finding Labels:classes"], separator="|"
    )
    assert tags(tmp_path, "tags") == {
        "images_001/images/a.png": {"Effusion", "Mass"},
        "images_001/images/b.png": {"No Finding"},
        "images_002/images/c.png": {"Mass"},
    }
    folders = "images_001/images, images_002/images"
    assert assumed(summary) == [f"images: 3 are in subfolders of {tmp_path.name}: {folders}"]


@becomes(
    "the same, where two folders have a file of one name",
    "refused: both are named",
    "--image-root FOLDER",
)
def test_two_files_of_one_name(tmp_path: Path) -> None:
    photos(tmp_path, "one/a.png", "one/b.png", "two/b.png", "two/c.png")
    with pytest.raises(
        PackError, match=r"b\.png may be one/b\.png, two/b\.png.* --image-root .*one"
    ):
        pack_text(tmp_path, "a.csv", NIH)


def test_images_are_looked_for_only_where_no_row_has_one(tmp_path: Path) -> None:
    photos(tmp_path, "a.png", "thumbs/b.png", "thumbs/c.png")
    ((first, why), (second, _)) = pack_text(tmp_path, "a.csv", NIH, unlisted="drop").tally.rejected
    assert {first, second} == {"b.png", "c.png"}
    assert "no such file in the image root; --image-root says where the images are" in why


@becomes(
    "`images/` beside train.csv with names alone",
    "found there, which is said",
    "--image-root images",
)
def test_names_of_images_in_the_only_folder(tmp_path: Path) -> None:
    photos(tmp_path, "images/a.jpg", "images/b.jpg")
    summary = pack_text(tmp_path, "train.csv", "id,label\na.jpg,cat\nb.jpg,dog\n")
    assert labels(tmp_path) == {"images/a.jpg": "cat", "images/b.jpg": "dog"}
    assert assumed(summary) == [
        "images: column 'id' has names of images (--image-column id)",
        f"images: 2 are in a subfolder of {tmp_path.name}: images (--image-root {tmp_path / 'images'})",
    ]
    options = {"image_column": "id", "image_root": tmp_path / "images", "overwrite": True}
    assert (
        assumed(pack_text(tmp_path, "train.csv", "id,label\na.jpg,cat\nb.jpg,dog\n", **options))
        == []
    )


@becomes(
    "train.csv with names alone, which `train/` and `test/` both have",
    "those of train/, which is said",
)
def test_names_that_two_splits_have(tmp_path: Path) -> None:
    photos(tmp_path, "train/1.jpg", "train/2.jpg", "test/1.jpg", "test/2.jpg")
    summary = pack_text(tmp_path, "train.csv", "image,label\n1.jpg,cat\n2.jpg,dog\n")
    assert labels(tmp_path) == {"train/1.jpg": "cat", "train/2.jpg": "dog"}
    assert f"images: 2 are in a subfolder of {tmp_path.name}: train" in assumed(summary)[0]


PLACES = {
    "C:\\Users\\me\\data\\images\\{}.jpg": "images/",
    "C:/Users/me/data/images/{}.jpg": "images/",
    "/home/me/data/images/{}.jpg": "images/",
    "file/of/me/{}.jpg": "",
    "\\\\server\\share\\images\\{}.jpg": "images/",
}


@pytest.mark.parametrize("path", PLACES)
@becomes(
    "paths of another machine: C:\\Users\\me\\data\\images\\a.jpg or /home/me/data/images/a.jpg",
    "the files that lie below the table; which folders are left out is said",
)
def test_paths_of_another_machine(tmp_path: Path, path: str) -> None:
    files = [f"{PLACES[path]}{name}.jpg" for name in "ab"]
    photos(tmp_path, *files, "other/a.jpg")
    table = f"path,label\n{path.format('a')},cat\n{path.format('b')},dog\n"
    (said,) = assumed(pack_text(tmp_path, "a.csv", table))
    assert labels(tmp_path) == {files[0]: "cat", files[1]: "dog"}
    prefix = path.replace("\\", "/").removesuffix(f"{PLACES[path]}{{}}.jpg")
    assert said.startswith(f"paths: {prefix} at their start is left out: ")


def test_masks_of_another_machine(tmp_path: Path) -> None:
    from PIL import Image

    photos(tmp_path, "images/a.jpg")
    (tmp_path / "masks").mkdir()
    Image.new("L", (40, 30), 7).save(tmp_path / "masks" / "a.png")
    pack_text(
        tmp_path,
        "a.csv",
        "path,mask\nD:\\x\\images\\a.jpg,D:\\x\\masks\\a.png\n",
        fields=["mask=mask:mask"],
    )
    assert values(tmp_path, "mask")["images/a.jpg"][0][0] == 7


@becomes(
    "a slip in the folder of all paths: `birdx/1.jpg` beside `bird/` and `dog/1.jpg`",
    "the file in `bird/`, which is said; a row without one is rejected",
)
def test_a_slip_in_a_folder(tmp_path: Path) -> None:
    photos(tmp_path, "bird/a.jpg", "dog/b.jpg", "dog/c.jpg")
    table = "path,label\nbirdx/a.jpg,bird\nbirdx/b.jpg,bird\n"
    summary = pack_text(tmp_path, "a.csv", table, unlisted="drop")
    assert labels(tmp_path) == {"bird/a.jpg": "bird"}
    assert (
        f"images: 1 is in a subfolder of {tmp_path.name}: bird; birdx/a.jpg is bird/a.jpg"
        in assumed(summary)[0]
    )
    ((path, why),) = summary.tally.rejected
    assert path == "birdx/b.jpg"
    assert why.startswith("no such file in the image root")
    assert "; did you mean bird? (" in why
    # The folder of the paths is there, and has none of the files.
    table = "path,label\nbird/b.jpg,bird\nbird/c.jpg,bird\n"
    with pytest.raises(PackError, match=r"b\.csv, line 2: .*bird/b\.jpg does not exist"):
        pack_text(tmp_path, "b.csv", table, overwrite=True)


def test_the_folder_above_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "set", "one/a.png", "two/b.png", "two/c.png")
    (tmp_path / "set/lists").mkdir()
    (tmp_path / "set/lists/a.csv").write_text(NIH)
    monkeypatch.chdir(tmp_path / "set/lists")
    summary = fastpipe.pack("a.csv", tmp_path / "packed", image_root="..")
    assert any("images: 3 are in subfolders of set: one, two" in text for text in assumed(summary))


def test_a_folder_that_is_left_out_is_shown_with_its_file(tmp_path: Path) -> None:
    photos(tmp_path, "one/a.jpg", "two/b.jpg")
    table = "path,label\nphotos/a.jpg,x\nphotos/b.jpg,y\n"
    said = assumed(pack_text(tmp_path, "a.csv", table))
    assert f"in subfolders of {tmp_path.name}: one, two; photos/a.jpg is one/a.jpg" in said[0]


@becomes("paths of another machine, with no such files here", "refused", "--image-root FOLDER")
def test_paths_without_files(tmp_path: Path) -> None:
    photos(tmp_path, "x/other.jpg")
    words = (
        r"^none of the 2 images in a\.csv exists; the first: a\.csv, line 2: /home/me/a\.jpg does not "
        r"exist\. The paths of the table are relative to .*; --image-root says where the images are$"
    )
    with pytest.raises(PackError, match=words):
        pack_text(tmp_path, "a.csv", "path,label\n/home/me/a.jpg,cat\n/home/me/b.jpg,dog\n")
    words = r"^a\.csv, line 2: /home/me/a\.jpg does not exist, and a\.csv has no other image\."
    with pytest.raises(PackError, match=words):
        pack_text(tmp_path, "a.csv", "path,label\n/home/me/a.jpg,cat\n")


def test_images_of_a_table_that_are_damaged(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(PackError, match=r"the only image in a\.csv could not be packed; a\.jpg: "):
        pack_text(tmp_path, "a.csv", "path,label\na.jpg,cat\n", unlisted="drop")


def kaggle(root: Path, column: str) -> None:
    photos(root, "train/a.jpg", "train/b.jpg", "test/c.jpg")
    (root / "sampleSubmission.csv").write_text(f"{column},label\nc.jpg,0\n")
    (root / "train.csv").write_text(f"{column},label\na.jpg,1\nb.jpg,0\n")


@becomes(
    "Kaggle's train.csv and sampleSubmission.csv beside `train/` and `test/`",
    "the training table is read or named, the form for results is not, which is said",
    "--split train, or SRC/train.csv",
)
def test_a_form_for_results_is_no_table_of_labels(tmp_path: Path) -> None:
    import fastpipe

    kaggle(tmp_path / "src", "image")
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed", split="train")
    assert labels(tmp_path) == {"train/a.jpg": "1", "train/b.jpg": "0"}
    assert (
        assumed(summary)[1]
        == "tables: sampleSubmission.csv is not read, because its name is that of results or of a form for them"
    )
    with pytest.raises(
        PackError, match=r"pass the file that lists the images, such as .*train\.csv"
    ):
        fastpipe.pack(tmp_path / "src", tmp_path / "other")
    shutil.rmtree(tmp_path / "src")
    kaggle(tmp_path / "src", "id")
    said = assumed(fastpipe.pack(tmp_path / "src", tmp_path / "other", split="train"))
    train = tmp_path / "src" / "train"
    options = f"--image-root {train} --image-column id"
    assert said[0].endswith(f"if it has the labels, pass {train}.csv ({options})")
    shutil.rmtree(tmp_path / "src" / "test")
    train.rename(tmp_path / "src" / "images")
    with pytest.raises(
        PackError, match=r"Pass it: .*src/train\.csv, with --image-root .*src/images"
    ):
        fastpipe.pack(tmp_path / "src", tmp_path / "third")


@becomes(
    "`metadata.csv` whose file_name has `train/` and `test/`",
    "refused: the splits are named",
    "--split train or all",
)
@pytest.mark.parametrize("name", ["metadata.csv", "labels.csv"])
def test_splits_in_paths(tmp_path: Path, name: str) -> None:
    import fastpipe

    root = photos(tmp_path / "src", "train/a.jpg", "train/b.jpg", "test/c.jpg")
    (root / name).write_text("file_name,label\ntrain/a.jpg,cow\ntrain/b.jpg,bee\ntest/c.jpg,ant\n")
    sources = [root / name, *([root] if name == "metadata.csv" else [])]
    for source in sources:
        with pytest.raises(
            PackError, match="has the splits test, train in the folders of its paths; pass one"
        ):
            fastpipe.pack(source, tmp_path / "packed")
        for split, expected in {
            "train": {"train/a.jpg": "cow", "train/b.jpg": "bee"},
            "test": {"test/c.jpg": "ant"},
        }.items():
            summary = fastpipe.pack(source, tmp_path / "packed", split=split, overwrite=True)
            assert labels(tmp_path) == expected
            assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bee", "cow"]
            assert assumed(summary) == summary.stray == []
        fastpipe.pack(source, tmp_path / "packed", split="all", overwrite=True)
        assert len(labels(tmp_path)) == 3
        with pytest.raises(PackError, match=r"^split: .* has the splits test, train .*, got .dev."):
            fastpipe.pack(source, tmp_path / "packed", split="dev", overwrite=True)


@becomes(
    "a table of boxes whose paths have `images/train/` and `images/val/`",
    "refused",
    "--split train",
)
def test_splits_in_paths_of_boxes(tmp_path: Path) -> None:
    photos(tmp_path, "images/train/a.jpg", "images/val/b.jpg")
    rows = "images/train/a.jpg,1,2,3,4,cow\nimages\\val\\b.jpg,1,2,3,4,ant\n"
    text = f"path,xmin,ymin,xmax,ymax,class\n{rows}"
    with pytest.raises(PackError, match="has the splits train, val in the folders of its paths"):
        pack_text(tmp_path, "a.csv", text)
    assert assumed(pack_text(tmp_path, "a.csv", text, split="train")) == []
    assert values(tmp_path, "boxes") == {"images/train/a.jpg": [[[1, 2, 3, 4]], [1]]}


def test_folders_of_classes_are_no_splits(tmp_path: Path) -> None:
    photos(tmp_path, "train/a.jpg", "car/b.jpg")
    assert (
        assumed(pack_text(tmp_path, "a.csv", "path,label\ntrain/a.jpg,train\ncar/b.jpg,car\n"))
        == []
    )
    assert len(labels(tmp_path)) == 2


def test_the_image_root_that_is_named_works(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "old/ant/1.jpg", "photos/ant/1.jpg", "photos/bee/1.jpg")
    (source / "a.csv").write_text("path,label\nant/1.jpg,x\nbee/1.jpg,y\n")
    with pytest.raises(PackError, match=rf"such as --image-root {source}/old$"):
        fastpipe.pack(source / "a.csv", tmp_path / "packed")
    packed = fastpipe.pack(source / "a.csv", tmp_path / "packed", image_root=source / "photos")
    assert packed.info["samples"] == 2


ROWS_OF_IMGS = "path,label\nimgs/cat/1.jpg,cat\nimgs/dog/2.jpg,dog\n"


def test_the_proposed_folder_has_the_paths_of_the_rows(tmp_path: Path) -> None:
    """Without their first folder, which no folder here is called like."""
    photos(tmp_path, "a/cat/1.jpg", "a/dog/2.jpg", "b/cat/1.jpg", "b/dog/2.jpg")
    root = tmp_path / "a"
    with pytest.raises(PackError, match=rf"such as --image-root {root}$"):
        pack_text(tmp_path, "t.csv", ROWS_OF_IMGS)
    summary = pack_text(tmp_path, "t.csv", ROWS_OF_IMGS, image_root=root)
    assert labels(tmp_path) == {"cat/1.jpg": "cat", "dog/2.jpg": "dog"}
    assert summary.tally.rejected == []


def test_the_folder_of_all_rows_settles_where_they_are(tmp_path: Path) -> None:
    photos(tmp_path, "a/cat/1.jpg", "a/dog/2.jpg")
    option = f"(--image-root {tmp_path / 'a'})"
    (text,) = assumed(pack_text(tmp_path, "t.csv", ROWS_OF_IMGS))
    assert text.endswith(option)


def isic(folder: Path, notes: str | None) -> tuple[Path, Path]:
    """ISIC 2018 in a folder. Returns its table, and the folder of its images."""
    names = ["ISIC_0024306", "ISIC_0024307", "ISIC_0024308"]
    images = photos(folder / "ISIC2018_Task3_Training_Input", *(f"{name}.jpg" for name in names))
    truth = folder / "ISIC2018_Task3_Training_GroundTruth"
    truth.mkdir()
    table = truth / "ISIC2018_Task3_Training_GroundTruth.csv"
    flags = ["0.0,1.0,0.0,0.0,0.0", "1.0,0.0,0.0,0.0,0.0", "0.0,0.0,1.0,0.0,0.0"]
    rows = [f"{name},{cells}" for name, cells in zip(names, flags, strict=True)]
    table.write_text("\n".join(["image,MEL,NV,BCC,AKIEC,BKL", *rows, ""]))
    if notes is not None:
        for place in (images, truth):
            (place / "ATTRIBUTION.txt").write_text(notes)
            (place / "LICENSE.txt").write_text(notes)
    return table, images


@becomes(
    "ISIC 2018: `ISIC2018_Task3_Training_Input/` beside `ISIC2018_Task3_Training_GroundTruth/` with the table",
    "refused; the table is named with the folder of the images and its columns of 0 and 1",
    "the table with --image-root ISIC2018_Task3_Training_Input --field 'tags=*:classes'",
)
@pytest.mark.parametrize("notes", [None, "Cite this data set as follows:\n\nHAM10000\n"])
def test_isic(tmp_path: Path, notes: str | None) -> None:
    source = tmp_path / "src"
    table, images = isic(source, notes)
    options = f"--image-root {images} --field 'tags=*:classes'"
    with pytest.raises(PackError, match=re.escape(f"Pass {table}, with {options}. ")):
        fastpipe.pack(source, tmp_path / "none")
    (notice,) = assumed(fastpipe.pack(images, tmp_path / "images"))
    assert f"fastpipe pack {table} DST {options}. " in notice
    fastpipe.pack(table, tmp_path / "packed", image_root=images, fields=["tags=*:classes"])
    assert tags(tmp_path, "tags") == {
        "ISIC_0024306.jpg": {"NV"},
        "ISIC_0024307.jpg": {"MEL"},
        "ISIC_0024308.jpg": {"BCC"},
    }


@becomes(
    "the table of ISIC 2018 alone, whose images lie in the folder beside its own",
    "refused; the folder of the images is named",
    "--image-root ISIC2018_Task3_Training_Input",
)
def test_images_in_the_folder_beside(tmp_path: Path) -> None:
    table, images = isic(tmp_path / "src", None)
    words = f"Files of these names are elsewhere in {tmp_path / 'src'}: if they are the images, "
    remedy = f"pass --image-root {images} --field 'tags=*:classes'"
    with pytest.raises(PackError, match=re.escape(words + remedy)):
        fastpipe.pack(table, tmp_path / "none")


@becomes(
    "Vertex AI: import.csv with `TRAIN,gs://bucket/img/a.jpg,cat,0.1,0.2,,,0.5,0.6,,`, beside `img/a.jpg`",
    "boxes; that the images are the files of the same names is said",
    "SRC/import.csv --split train",
)
def test_boxes_of_vertex(tmp_path: Path) -> None:
    photos(tmp_path, "img/a.jpg", "img/b.jpg", "img/c.jpg")
    rows = (
        "TRAIN,gs://bkt/img/a.jpg,cat,0.25,0.5,,,0.5,1,,\n"
        "TRAIN,gs://bkt/img/a.jpg,dog,0,0,0.5,0,0.5,1,0,1\n"
        "TRAIN,gs://bkt/img/b.jpg,,,,,,,,,\n"
        "TEST,gs://bkt/img/c.jpg,cat,0,0,,,1,1,,\n"
    )
    summary = pack_text(tmp_path, "import.csv", rows, split="train")
    assert values(tmp_path, "boxes") == {
        "img/a.jpg": [[[10, 15, 20, 30], [0, 0, 20, 30]], [0, 1]],
        "img/b.jpg": [[], []],
    }
    text = "paths: gs://bkt/ at their start is left out: gs://bkt/img/a.jpg is img/a.jpg"
    assert text in assumed(summary)


@becomes(
    "Vertex AI: `TRAIN,gs://bucket/img/a.jpg,cat`",
    "labels and splits",
    "SRC/import.csv --split train",
)
def test_classes_of_vertex(tmp_path: Path) -> None:
    photos(tmp_path, "img/a.jpg", "img/b.jpg", "img/c.jpg")
    rows = "TRAIN,gs://k/img/a.jpg,cat\nTRAIN,gs://k/img/b.jpg,dog\nTEST,gs://k/img/c.jpg,cat\n"
    pack_text(tmp_path, "import.csv", rows, split="train")
    assert labels(tmp_path) == {"img/a.jpg": "cat", "img/b.jpg": "dog"}


@becomes(
    "paths of a Kaggle notebook, `../input/odir/Training Images/a.jpg`, beside `images/a.jpg`",
    "the images are found by their names, which is said",
    "--image-column filepath",
)
def test_paths_of_a_notebook(tmp_path: Path) -> None:
    photos(tmp_path, "images/a.jpg", "images/b.jpg")
    folder = "../input/odir/Training Images"
    rows = f"{folder}/a.jpg,b.jpg,cat\n{folder}/b.jpg,a.jpg,dog\n"
    summary = pack_text(
        tmp_path, "full.csv", f"filepath,other,label\n{rows}", image_column="filepath"
    )
    assert labels(tmp_path) == {"images/a.jpg": "cat", "images/b.jpg": "dog"}
    assert any(f"{folder}/a.jpg is images/a.jpg" in text for text in assumed(summary))
