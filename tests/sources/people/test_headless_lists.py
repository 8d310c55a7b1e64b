"""Lists without a header that have ids, or labels alone; and Kaggle's table of ImageNet."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError

PETS = """#Image CLASS-ID SPECIES BREED ID
#ID: 1:37 Class ids
Abyssinian_100 1 1 1
american_bulldog_1 2 2 1
american_bulldog_10 2 2 1
basset_hound_2 4 2 3
"""
PET_NAMES = {
    "Abyssinian_100.jpg": "Abyssinian",
    "american_bulldog_1.jpg": "american_bulldog",
    "american_bulldog_10.jpg": "american_bulldog",
    "basset_hound_2.jpg": "basset_hound",
}


@becomes(
    "Oxford's pets: `annotations/trainval.txt` (`Abyssinian_100 1 1 1`) and `images/`",
    "labels from 0 in the order of the numbers, with the names that the files begin with",
    "--image-root images",
)
def test_pets(tmp_path: Path) -> None:
    root = photos(tmp_path / "images", *PET_NAMES)
    text = write(tmp_path / "annotations" / "trainval.txt", PETS)
    with pytest.raises(PackError, match=f"pass --image-root {root}"):
        fastpipe.pack(text, tmp_path / "packed")
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    # Number 3 has no image here, and keeps its place.
    assert summary.info["classes"] == ["Abyssinian", "american_bulldog", "3", "basset_hound"]
    assert labels(tmp_path) == PET_NAMES
    assert values(tmp_path, "column_3", "column_4")["basset_hound_2.jpg"] == [2, 3]
    assert assumed(summary)[1] == (
        "classes: named by the starts of the files' names, and numbered as in column 2: 1 is "
        "Abyssinian (--label-column column_2)"
    )
    fastpipe.pack(
        text,
        tmp_path / "packed",
        image_root=root,
        label_column="column_2",
        first_label=1,
        overwrite=True,
    )
    assert set(labels(tmp_path).values()) == {"0", "1", "3"}


@becomes(
    "Oxford's pets: `annotations/test.txt` beside `trainval.txt`",
    "nothing is said where both number the classes alike; else that they do not is said",
    "--image-root images",
)
@pytest.mark.parametrize("is_alike", [True, False])
def test_two_lists_of_pets(tmp_path: Path, is_alike: bool) -> None:
    """The numbers are in the order of an index, in which capital letters are like small ones."""
    names = ("american_bulldog_1", "american_bulldog_2", "Bengal_1", "Bengal_2")
    root = photos(tmp_path / "images", *(f"{name}.jpg" for name in names))
    write(
        tmp_path / "lists/trainval.txt",
        "american_bulldog_1 1 2 1\nBengal_1 2 1 1\nBengal_2 2 1 1\n",
    )
    lines = "american_bulldog_1 1 2 1\namerican_bulldog_2 1 2 1\nBengal_2 2 1 1\n"
    if not is_alike:
        lines = "Bengal_1 1 2 1\namerican_bulldog_1 2 1 1\namerican_bulldog_2 2 1 1\n"
    text = write(tmp_path / "lists/test.txt", lines)
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    has_others = any(
        "with other numbers than those of trainval" in each for each in assumed(summary)
    )
    assert has_others is not is_alike


def test_numbers_that_do_not_fit_the_names(tmp_path: Path) -> None:
    photos(tmp_path, "ant_1.jpg", "ant_2.jpg", "bee_1.jpg")
    text = write(tmp_path / "list.txt", "ant_1 1 5\nant_2 2 6\nbee_1 3 7\n")
    fastpipe.pack(text, tmp_path / "packed")
    assert set(labels(tmp_path).values()) == {None}
    assert values(tmp_path, "column_2", "column_3")["ant_2.jpg"] == [2, 6]


@becomes(
    "FGVC-Aircraft: `images_variant_train.txt` (`1025794 707-320`, `1340192 Boeing 707`)",
    "the names, with their spaces",
    "--image-root images, or nothing",
)
@pytest.mark.parametrize("separator", [" ", "\t"])
@pytest.mark.parametrize("is_root_given", [True, False])
def test_fgvc(tmp_path: Path, separator: str, is_root_given: bool) -> None:
    root = photos(tmp_path / "images", "1025794.jpg", "1340192.jpg", "0056978.jpg")
    rows = [("1025794", "707-320"), ("1340192", "Boeing 707"), ("0056978", "707-320")]
    lines = "".join(f"{separator.join(row)}\n" for row in rows)
    text = write(tmp_path / "images_variant_train.txt", lines)
    options = {"image_root": root} if is_root_given else {}
    fastpipe.pack(text, tmp_path / "packed", **options)  # type: ignore[arg-type]
    prefix = "" if is_root_given else "images/"
    assert labels(tmp_path) == {f"{prefix}{path}.jpg": name for path, name in rows}


def test_names_that_all_have_two_words(tmp_path: Path) -> None:
    photos(tmp_path, "1025794.jpg", "1340192.jpg")
    text = write(tmp_path / "family.txt", "1025794 Boeing 707\n1340192 Boeing 717\n")
    fastpipe.pack(text, tmp_path / "packed")
    assert labels(tmp_path) == {"1025794.jpg": "Boeing 707", "1340192.jpg": "Boeing 717"}


@becomes(
    "Food-101: `meta/train.txt` (`apple_pie/1005649`) and `images/`",
    "no labels, and it is said; with the option the folders",
    "--image-root images --label-pattern '(.+)/'",
)
def test_food(tmp_path: Path) -> None:
    root = photos(tmp_path / "images", "apple_pie/1005649.jpg", "ribs/3.jpg", "ribs/4.jpg")
    text = write(tmp_path / "meta" / "train.txt", "apple_pie/1005649\nribs/3\n")
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    assert assumed(summary)[-1].endswith("its class: (--label-pattern '(.+)/')")
    fastpipe.pack(text, tmp_path / "packed", image_root=root, label_pattern="(.+)/", overwrite=True)
    assert labels(tmp_path) == {"apple_pie/1005649.jpg": "apple_pie", "ribs/3.jpg": "ribs"}


def test_a_header_stays_one(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    text = write(tmp_path / "list.txt", "image label\na.jpg cat\nb.jpg dog\n")
    fastpipe.pack(text, tmp_path / "packed")
    assert labels(tmp_path) == {"a.jpg": "cat", "b.jpg": "dog"}


@becomes(
    "`labels.txt` with a number, or a name, on each line, and as many images",
    "line by line, in the order of the names; it is said",
    "--image-root images",
)
@pytest.mark.parametrize("lines", ["3 1 0 1", "cat dog cat dog"])
def test_a_label_on_each_line(tmp_path: Path, lines: str) -> None:
    names = ["00.png", "01.png", "02.png", "03.png"]
    root = photos(tmp_path / "images", *names)
    text = write(tmp_path / "labels.txt", "\n".join(lines.split()) + "\n")
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    assert labels(tmp_path) == dict(zip(names, lines.split(), strict=True))
    first, *_, last = lines.split()
    assert assumed(summary) == [
        f"labels: line by line, of the images in the order of their names: 00.png is {first}, "
        f"03.png is {last}"
    ]


def test_the_images_beside_numbers_name_the_command(tmp_path: Path) -> None:
    root = photos(tmp_path / "images", "00.png", "01.png")
    text = write(tmp_path / "labels.txt", "5\n7\n")
    (text_shown,) = assumed(fastpipe.pack(root, tmp_path / "packed"))
    assert f"fastpipe pack {text} DST --image-root {root}" in text_shown


@becomes(
    "the same where names and numbers order the images otherwise (`10.png`, `2.png`), or with another "
    "number of images",
    "refused, with what to write",
    "a CSV file",
)
def test_labels_on_lines_of_uncertain_images(tmp_path: Path) -> None:
    root = photos(tmp_path / "images", "1.png", "2.png", "10.png")
    text = write(tmp_path / "labels.txt", "5\n7\n5\n")
    with pytest.raises(PackError, match=r"line 2 is about: 10.png by name, or 2.png by number"):
        fastpipe.pack(text, tmp_path / "packed", image_root=root)
    text = write(tmp_path / "labels.txt", "5\n7\n")
    with pytest.raises(PackError, match=r"a number on each of 2 lines .* has 3 images"):
        fastpipe.pack(text, tmp_path / "packed", image_root=root)


@becomes(
    "DTD's `labels_joint_anno.txt` (`banded/a.jpg banded grid`): several classes an image",
    "the field tags, as text; with the option, of classes",
    "--field tags=tags:classes --separator ' '",
)
def test_several_labels_behind_a_path(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    text = write(tmp_path / "joint.txt", "a.jpg banded\nb.jpg banded grid\nc.jpg grid\n")
    fastpipe.pack(text, tmp_path / "packed", fields={"tags": "tags:classes"}, separator=" ")
    assert tags(tmp_path, "tags") == {
        "a.jpg": {"banded"},
        "b.jpg": {"banded", "grid"},
        "c.jpg": {"grid"},
    }


@becomes(
    "Kaggle's ImageNet: `LOC_val_solution.csv` (`n01978930 85 1 499 272`)",
    "the class of each image; the text stays a field",
    "--image-root ILSVRC/Data/CLS-LOC/val",
)
def test_kaggles_imagenet(tmp_path: Path) -> None:
    root = photos(tmp_path / "val", "val_1.JPEG", "val_2.JPEG", "val_3.JPEG")
    text = write(
        tmp_path / "LOC_val_solution.csv",
        "ImageId,PredictionString\nval_1,n01978930 85 1 499 272 \n"
        "val_2,n01440764 1 2 3 4 n01440764 5 6 7 8\nval_3,n01440764 1 2 3 4 n01978930 5 6 7 8\n",
    )
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    assert labels(tmp_path) == {"val_1.JPEG": "n01978930", "val_2.JPEG": "n01440764"}
    assert fastpipe.open(tmp_path / "packed").classes == ["n01440764", "n01978930"]
    assert values(tmp_path, "predictionstring")["val_1.JPEG"].strip() == "n01978930 85 1 499 272"
    ((_, reason),) = summary.tally.rejected
    assert "expected one class with boxes" in reason

    mapping = write(
        tmp_path / "LOC_synset_mapping.txt", "n01440764 tench\nn01443537 goldfish\nn01978930 crab\n"
    )
    fastpipe.pack(text, tmp_path / "packed", image_root=root, classes_from=mapping, overwrite=True)
    assert fastpipe.open(tmp_path / "packed").classes == ["n01440764", "n01443537", "n01978930"]
    assert labels(tmp_path)["val_1.JPEG"] == "n01978930"


def test_prediction_strings_of_others(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    text = write(tmp_path / "t.csv", "ImageId,PredictionString\na,14 1 0 0 1 1\n")
    fastpipe.pack(text, tmp_path / "packed")
    assert labels(tmp_path) == {"a.jpg": None}


@becomes(
    "Kaggle's ImageNet: `CLS-LOC/val` itself",
    "no labels; the table four folders above is named, with the command",
)
def test_the_folder_of_a_split_below_its_table(tmp_path: Path) -> None:
    val = photos(tmp_path / "ILSVRC/Data/CLS-LOC/val", "ILSVRC2012_val_00000001.JPEG")
    text = write(
        tmp_path / "LOC_val_solution.csv",
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n01978930 85 1 499 272\n",
    )
    (text_shown,) = assumed(fastpipe.pack(val, tmp_path / "packed"))
    assert f"fastpipe pack {text} DST --image-root {val}" in text_shown


@becomes(
    "images without labels whose names look like classes (`cat.0.jpg`, `0002_c1s1.jpg`, `00000_7.png`)",
    "no labels; the option that takes them is named",
    "--label-pattern, as it is named",
)
@pytest.mark.parametrize(
    "classes",
    [
        {"cat.0.jpg": "cat", "cat.1.jpg": "cat", "dog.0.jpg": "dog", "dog.1.jpg": "dog"},
        {
            "big_cat_1.jpg": "big_cat",
            "big_cat_2.jpg": "big_cat",
            "ox_1.jpg": "ox",
            "ox_2.jpg": "ox",
        },
        {f"0002_c{n}s1_01.jpg": "0002" for n in "12"} | {f"-1_c{n}s1_03.jpg": "-1" for n in "12"},
        {f"{n:05d}_{n % 2}.png": str(n % 2) for n in range(4)},
        # The camera comes behind the person, and would be a class, too.
        {f"{n:04d}_c{camera}_01.jpg": f"{n:04d}" for n in (7, 1501) for camera in "123"},
        {"image_cat_1.jpg": "image_cat", "image_cat_2.jpg": "image_cat"}
        | {"image_dog_1.jpg": "image_dog", "image_dog_2.jpg": "image_dog"},
    ],
)
def test_classes_in_names(tmp_path: Path, classes: dict[str, str]) -> None:
    source = photos(tmp_path / "src", *classes)
    (assumption,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumption.text.startswith("labels: none. The names of the images may have the classes")
    pattern = assumption.option.removeprefix("--label-pattern '").removesuffix("'")
    fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern, overwrite=True)
    assert labels(tmp_path) == classes


@becomes(
    "images whose names are dates, or begin with a year or with the word of a camera "
    "(`2020_01_05.jpg`, `2007_000027.jpg`, `IMG_0001.jpg` beside `DSC_0001.jpg`)",
    "no labels; no option is named",
)
@pytest.mark.parametrize(
    "names",
    [
        [f"2020_0{month}_0{day}.jpg" for month in range(1, 5) for day in range(1, 5)],
        [f"2020-0{month}-0{day}.jpg" for month in range(1, 5) for day in range(1, 5)],
        [f"2020010{day}_10111{second}.jpg" for day in range(1, 3) for second in range(4)],
        [f"{year}_{number:06d}.jpg" for year in (2007, 2008, 2012) for number in (27, 32, 5)],
        [f"{word}_000{number}.jpg" for word in ("IMG", "DSC") for number in range(4)],
        [f"IMG_2020010{day}_10111{second}.jpg" for day in range(1, 3) for second in range(4)],
        ["0001.jpg", "0002.jpg", "1000.jpg", "1001.jpg"],
        ["image_1.jpg", "image_2.jpg", "image_3.jpg", "image_4.jpg"],
        ["a.jpg", "b.jpg", "c.jpg", "d.jpg"],
    ],
)
def test_names_without_classes(tmp_path: Path, names: list[str]) -> None:
    source = photos(tmp_path / "src", *names)
    assert not fastpipe.pack(source, tmp_path / "packed").assumed


@becomes(
    "Stanford Dogs: `Images/n02085620-Chihuahua/` beside `Annotation/` with files without endings",
    "refused; the folder of the classes is named",
    "SRC/Images",
)
def test_class_folders_beside_unread_annotations(tmp_path: Path) -> None:
    source = tmp_path / "src"
    images = photos(source / "Images", "n1-Chihuahua/n1_1.jpg", "n2-Spaniel/n2_1.jpg")
    write(source / "Annotation" / "n1-Chihuahua" / "n1_1", "<annotation></annotation>")
    with pytest.raises(PackError, match=f"are the classes, pass {images}"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "CUB's `images.txt` (`1 001.Albatross/a.jpg`); its `image_class_labels.txt` of numbers alone",
    "no labels, and it is said; the numbers alone are refused, with what to write",
    "--image-root images --label-pattern '(.+)/'",
)
def test_lists_of_cub(tmp_path: Path) -> None:
    paths = ["001.Albatross/a.jpg", "002.Finch/b.jpg"]
    root = photos(tmp_path / "images", *paths)
    text = write(tmp_path / "images.txt", f"1 {paths[0]}\n2 {paths[1]}\n")
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root)
    assert assumed(summary)[-1].endswith("its class: (--label-pattern '(.+)/')")
    fastpipe.pack(text, tmp_path / "packed", image_root=root, label_pattern="(.+)/", overwrite=True)
    assert labels(tmp_path) == {path: path.partition("/")[0] for path in paths}
    numbers = write(tmp_path / "image_class_labels.txt", "1 1\n2 2\n")
    with pytest.raises(PackError, match=r"numbers alone in its rows \(1 1\).*path,label"):
        fastpipe.pack(numbers, tmp_path / "none", image_root=root)
