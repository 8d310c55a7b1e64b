"""Classes that are folders in folders, or that stand in the names of files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import ConfigError, PackError

SUN = (
    "a/abbey/sun_1.jpg",
    "a/airport_terminal/indoor/sun_2.jpg",
    "b/bakery/shop/sun_3.jpg",
    "b/bakery/kitchen/sun_4.jpg",
)
FOLDERS = {path: path.rpartition("/")[0] for path in SUN}


@becomes(
    "SUN397: `a/abbey/`, `a/airport_terminal/indoor/`, without a list of classes",
    "refused; both options are named",
    "--label-pattern '(.+)/' or --format imagefolder",
)
def test_classes_below_letters(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *SUN)
    with pytest.raises(PackError, match="not certain which are the classes") as caught:
        fastpipe.pack(source, tmp_path / "packed")
    assert "--label-pattern '(.+)/' takes the folder of each image" in str(caught.value)
    assert "--format imagefolder takes a, b" in str(caught.value)

    summary = fastpipe.pack(source, tmp_path / "packed", label_pattern="(.+)/")
    assert labels(tmp_path) == FOLDERS
    assert summary.info["classes"] == sorted(FOLDERS.values())
    fastpipe.pack(source, tmp_path / "packed", format="imagefolder", overwrite=True)
    assert set(labels(tmp_path).values()) == {"a", "b"}


@becomes(
    "SUN397 with `ClassName.txt`, Places365 with `categories_places365.txt`, beside the folders",
    "the classes that the file lists, in its order",
)
@pytest.mark.parametrize("numbers", [False, True])
def test_a_list_of_class_folders_beside_them(tmp_path: Path, numbers: bool) -> None:
    source = photos(tmp_path / "src", *SUN)
    listed = ["b/bakery/shop", "b/bakery/kitchen", "a/abbey", "a/airport_terminal/indoor"]
    ends = [f" {number}" if numbers else "" for number in range(4)]
    lines = [f"/{folder}{end}\n" for folder, end in zip(listed, ends, strict=True)]
    write(source / "ClassName.txt", "".join(lines))
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert summary.info["classes"] == listed
    assert labels(tmp_path) == FOLDERS
    assert assumed(summary) == [
        "classes: the 4 folders that ClassName.txt lists, in its order, such as b/bakery/shop "
        f"(--classes-from {source}/ClassName.txt)"
    ]


@becomes(
    "the same with a list that lies elsewhere, or some of its classes",
    "the classes of the list; an image in no folder of the list is rejected",
    "--classes-from categories.txt",
)
def test_a_list_of_class_folders_elsewhere(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *SUN, "c/cave/sun_5.jpg")
    folders = [*sorted(FOLDERS.values()), "z/zoo"]
    names = write(tmp_path / "names.txt", "".join(f"/{name}\n" for name in folders))
    summary = fastpipe.pack(source, tmp_path / "packed", classes_from=names)
    assert summary.info["classes"] == folders
    assert labels(tmp_path) == FOLDERS
    assert [path for path, _ in summary.tally.rejected] == ["c/cave/sun_5.jpg"]


def test_a_list_of_other_folders_is_no_list_of_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", *SUN)
    write(source / "other.txt", "/x/abbey\n/x/cave\n/a/abbey\n")
    with pytest.raises(PackError, match="not certain which are the classes"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "iNaturalist, CIFAR-100's superclasses: `Aves/2761/1.jpg`, `fish/shark/1.png`",
    "the first folders, as torchvision; it is said",
    "--label-pattern '(.+)/'",
)
def test_classes_in_folders_of_groups(tmp_path: Path) -> None:
    paths = ("fish/ray/1.png", "fish/shark/2.png", "trees/oak/3.png")
    source = photos(tmp_path / "src", *paths)
    (text,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert text.startswith("classes: the first folders; fish, trees hold folders (fish/ray")
    assert text.count("--label-pattern") == 1
    assert "the folder of each image as its class, such as fish/ray (" in text
    assert set(labels(tmp_path).values()) == {"fish", "trees"}
    fastpipe.pack(source, tmp_path / "packed", label_pattern="(.+)/", overwrite=True)
    assert labels(tmp_path) == {path: path.rpartition("/")[0] for path in paths}
    assert not fastpipe.pack(
        source, tmp_path / "packed", format="imagefolder", overwrite=True
    ).assumed


@becomes(
    "Office-31, PACS: `amazon/images/bike/1.jpg`, `photo/dog/1.jpg`, the same in other domains",
    "the first folders; it is said, with the option for the last folders",
    "`--label-pattern '([^/]+)/[^/]*$'`",
)
@pytest.mark.parametrize("between", ["/", "/images/"])
def test_classes_in_folders_of_domains(tmp_path: Path, between: str) -> None:
    domains = ("amazon", "dslr")
    paths = [f"{domain}{between}{name}/1.jpg" for domain in domains for name in ("bike", "mug")]
    source = photos(tmp_path / "src", *paths)
    (text,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert text.startswith(
        f"classes: the first folders; amazon, dslr hold folders (amazon{between}bike"
    )
    assert "takes the last folder of each image as its class;" in text
    option = "([^/]+)/[^/]*$"
    assert text.endswith(f"--label-pattern '{option}')")
    fastpipe.pack(source, tmp_path / "packed", label_pattern=option, overwrite=True)
    assert labels(tmp_path) == {path: path.split("/")[-2] for path in paths}


def test_folders_that_all_classes_have_are_no_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "0/writer1/1.png", "0/writer2/1.png", "1/writer1/1.png")
    (text,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert text.startswith("classes: the first folders; 0, 1 hold folders (0/writer1")
    assert set(labels(tmp_path).values()) == {"0", "1"}


def test_one_folder_in_each_class_says_nothing(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "ant/images/1.jpg", "bee/images/2.jpg")
    assert not fastpipe.pack(source, tmp_path / "packed").assumed


@becomes(
    "the same below `train/` and `val/`",
    "a class has the same number in both splits",
    "--split val --label-pattern '(.+)/'",
)
def test_classes_in_folders_of_splits(tmp_path: Path) -> None:
    paths = [f"train/{path}" for path in SUN]
    source = photos(tmp_path / "src", *paths, "val/b/bakery/shop/sun_9.jpg")
    with pytest.raises(PackError, match="not certain which are the classes"):
        fastpipe.pack(source, tmp_path / "packed", split="train")
    summary = fastpipe.pack(source, tmp_path / "packed", split="val", label_pattern="(.+)/")
    assert summary.info["classes"] == sorted(FOLDERS.values())
    assert labels(tmp_path) == {"b/bakery/shop/sun_9.jpg": "b/bakery/shop"}


@becomes(
    "the class in the name of each file (`cat.0.jpg`, `0002_c1s1_000451_03.jpg`, `00000_7.png`)",
    "the class, as the option says",
    "--label-pattern '(.+?)[.]', '^(-?[0-9]+)_c', '_([0-9])[.]'",
)
@pytest.mark.parametrize(
    ("pattern", "classes"),
    [
        (r"^(.+?)[.]", {"cat.0.jpg": "cat", "cat.1.jpg": "cat", "dog.0.jpg": "dog"}),
        (r"^(-?\d+)_c", {"0002_c1s1_1.jpg": "0002", "-1_c1s1_2.jpg": "-1"}),
        (r"_(\d)[.]", {"00000_7.png": "7", "00001_2.png": "2", "00002_7.png": "7"}),
        (r"(?:(Abyssinian)|x)_\d+", {"Abyssinian_100.jpg": "Abyssinian"}),
    ],
)
def test_classes_in_names_of_files(tmp_path: Path, pattern: str, classes: dict[str, str]) -> None:
    source = photos(tmp_path / "src", *classes)
    summary = fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern)
    assert summary.info["classes"] == sorted(set(classes.values()))
    assert labels(tmp_path) == classes


@becomes(
    "UTKFace: `26_1_0_20170116174525125.jpg.chip.jpg`, with age, gender and race",
    "no labels; the patterns that take age, gender and race are named, also where each age comes once",
    "`--label-pattern '(?:^|/)(-?\\d{1,6})_[^/]+$'`",
)
@pytest.mark.parametrize("ages", [[100, 1, 26, 30, 8, 61], [100, 1, 26, 26, 1, 100]])
def test_ages_in_names_of_utkface(tmp_path: Path, ages: list[int]) -> None:
    names = [
        f"{age}_{number % 2}_0_2017010921330{number:04}.jpg.chip.jpg"
        for number, age in enumerate(ages)
    ]
    source = photos(tmp_path / "src", *names)
    (assumption,) = fastpipe.pack(source, tmp_path / "none").assumed
    assert assumption.text.startswith(
        "labels: none. The names of the images have age, gender and race, as UTKFace's"
    )
    pattern = assumption.option.removeprefix("--label-pattern '").removesuffix("'")
    fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern)
    assert labels(tmp_path) == {name: str(age) for name, age in zip(names, ages, strict=True)}

    # Some names lack the race. The folder around the images is named with the pattern, too.
    photos(source, "61_1_20170109142408075.jpg.chip.jpg")
    names.append("61_1_20170109142408075.jpg.chip.jpg")
    (assumption,) = fastpipe.pack(source, tmp_path / "short").assumed
    (gender,) = re.findall("--label-pattern '(.*?)' takes the gender", assumption.text)
    fastpipe.pack(source, tmp_path / "packed", label_pattern=gender, overwrite=True)
    assert labels(tmp_path) == {name: name.split("_")[1] for name in names}
    (tmp_path / "around").mkdir()
    source.rename(tmp_path / "around/UTKFace")
    (assumption,) = fastpipe.pack(tmp_path / "around", tmp_path / "one").assumed
    assert assumption.text.endswith(f"may have classes: --label-pattern '{pattern}' takes them")


def test_an_image_whose_name_has_no_class_is_rejected(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat.0.jpg", "nothing.jpg")
    summary = fastpipe.pack(source, tmp_path / "packed", label_pattern=r"(.+)\.\d+")
    assert labels(tmp_path) == {"cat.0.jpg": "cat"}
    ((path, reason),) = summary.tally.rejected
    assert path == "nothing.jpg"
    assert "expected a path with a class by --label-pattern" in reason
    with pytest.raises(PackError, match="no image has a class"):
        fastpipe.pack(source, tmp_path / "none", label_pattern="(.+)/")


@pytest.mark.parametrize("pattern", ["(", "cat", 3])
def test_patterns_that_are_refused(tmp_path: Path, pattern: str) -> None:
    source = photos(tmp_path / "src", "cat.0.jpg")
    with pytest.raises(ConfigError, match=r"^label_pattern: expected a"):
        fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern)
    with pytest.raises(ConfigError, match="leave out one of them"):
        fastpipe.pack(source, tmp_path / "packed", label_pattern="(.)", label_column="a")


@becomes(
    "Market-1501's root: `bounding_box_train/`, `bounding_box_test/`, `query/`, with a pattern",
    "the persons as classes; that the images of several splits are packed together is said",
    "--split train",
)
def test_root_of_market(tmp_path: Path) -> None:
    source = tmp_path / "market"
    photos(source / "bounding_box_train", "0002_c1s1_01.jpg", "0007_c2s1_01.jpg")
    photos(source / "bounding_box_test", "0001_c1s1_01.jpg", "-1_c1s1_01.jpg")
    photos(source / "query", "0001_c2s1_02.jpg")
    with pytest.raises(
        PackError, match=r"Pass one of them: .*bounding_box_train; .* --split train"
    ):
        fastpipe.pack(source, tmp_path / "none")
    pattern = "(?:^|/)(-?[0-9]+)_"
    texts = assumed(fastpipe.pack(source, tmp_path / "all", label_pattern=pattern))
    assert (
        "split: none; the images of bounding_box_test, bounding_box_train, which are called like "
        "splits, are packed together (--split train)"
    ) in texts
    texts = assumed(
        fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern, split="train")
    )
    assert not any("split: none" in text for text in texts)
    assert labels(tmp_path) == {"0002_c1s1_01.jpg": "0002", "0007_c2s1_01.jpg": "0007"}


@becomes(
    "DTD's `labels/train1.txt`, SUN397's `Training_01.txt`: paths alone, in class folders",
    "no labels, and it is said; with the option the folders",
    "--image-root images --label-pattern '(.+)/'",
)
def test_lists_of_paths_in_class_folders(tmp_path: Path) -> None:
    photos(tmp_path / "images", "banded/b_1.jpg", "dotted/d_1.jpg", "dotted/d_2.jpg")
    text = write(tmp_path / "labels" / "train1.txt", "banded/b_1.jpg\ndotted/d_1.jpg\n")
    root = tmp_path / "images"
    summary = fastpipe.pack(text, tmp_path / "packed", image_root=root, unlisted="drop")
    assert assumed(summary)[-1] == (
        "labels: none, for the list says paths alone; the images lie in banded, dotted. If the "
        "folder of each image is its class: (--label-pattern '(.+)/')"
    )
    fastpipe.pack(text, tmp_path / "packed", image_root=root, label_pattern="(.+)/", overwrite=True)
    assert labels(tmp_path) == {"banded/b_1.jpg": "banded", "dotted/d_1.jpg": "dotted"}


@becomes(
    "Places365: `data_256/a/airfield/`, and `val_256/` without class folders, with a pattern",
    "that the pattern makes a class of the split is said, with the folder to pass",
    "--label-pattern '(.+)/'",
)
def test_a_split_that_a_pattern_makes_a_class(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "data_256/a/airfield/1.jpg", "val_256/v_1.jpg")
    write(source / "lists/val.txt", "v_1.jpg 0\n")
    texts = assumed(fastpipe.pack(source, tmp_path / "packed", label_pattern="(.+)/"))
    assert texts == [
        "classes: lists without any image, but with files such as lists/val.txt; move folders that are "
        "no classes elsewhere (--classes-from FILE)",
        "val_256: a class by --label-pattern, though it looks like a split; to leave them out, "
        f"pass {source}/data_256",
    ]
    assert labels(tmp_path)["val_256/v_1.jpg"] == "val_256"


@becomes(
    "LOL: `our485/high/2.png` beside `our485/low/2.png`, and `eval15/`, with a pattern",
    "the last folders as classes; that the split is packed, too, and that their images have the "
    "same names, is said",
    "--split eval15",
)
def test_pairs_in_splits_by_a_pattern(tmp_path: Path) -> None:
    paths = [f"our485/{kind}/{number}.png" for kind in ("high", "low") for number in (2, 5, 9)]
    paths += [f"eval15/{kind}/1.png" for kind in ("high", "low")]
    source = photos(tmp_path / "src", *paths)
    pattern = "([^/]+)/[^/]*$"
    texts = assumed(fastpipe.pack(source, tmp_path / "packed", label_pattern=pattern))
    assert texts[0] == (
        "split: none; the images of eval15, which looks like a split, are packed with the "
        f"others; to leave them out, pass {source}/our485; to pack them alone (--split eval15)"
    )
    assert texts[1].startswith(
        "classes: the folders high, low are packed as classes, but their images have the same "
    )
    assert len(texts) == 2
    texts = assumed(
        fastpipe.pack(
            source, tmp_path / "packed", label_pattern=pattern, split="eval15", overwrite=True
        )
    )
    assert labels(tmp_path) == {"high/1.png": "high", "low/1.png": "low"}
    assert not any("split: none" in text for text in texts)


def test_a_pattern_with_splits_in_a_column(tmp_path: Path) -> None:
    photos(tmp_path, "ant/1.jpg", "bee/2.jpg", "cow/3.jpg")
    write(tmp_path / "t.csv", "path,split\nant/1.jpg,train\nbee/2.jpg,val\ncow/3.jpg,train\n")
    summary = fastpipe.pack(
        tmp_path / "t.csv", tmp_path / "packed", split="train", label_pattern="(.+)/"
    )
    assert summary.info["classes"] == ["ant", "bee", "cow"]
    assert labels(tmp_path) == {"ant/1.jpg": "ant", "cow/3.jpg": "cow"}


@becomes(
    "`path label` with numbers from 1 on (CUB, Flowers, Stanford Cars)",
    "as they are, and it is said; with the option, from 0 on",
    "--first-label 1",
)
def test_labels_from_1_on(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    text = write(tmp_path / "t.txt", "a.jpg 1\nb.jpg 3\nc.jpg 2\n")
    summary = fastpipe.pack(text, tmp_path / "packed")
    assert summary.info["classes"] == ["0", "1", "2", "3"]
    assert assumed(summary)[-1].endswith("class 0 of 4 has no sample (--first-label 1)")
    names = write(tmp_path / "names.txt", "1 ant\n2 bee\n3 cow\n")
    fastpipe.pack(text, tmp_path / "packed", first_label=1, classes_from=names, overwrite=True)
    assert labels(tmp_path) == {"a.jpg": "ant", "b.jpg": "cow", "c.jpg": "bee"}


@pytest.mark.parametrize("text", ["path,label\na.jpg,cat\n", "path\na.jpg\n"])
def test_a_first_label_without_numbers_is_refused(tmp_path: Path, text: str) -> None:
    photos(tmp_path, "a.jpg")
    with pytest.raises(PackError, match=r"^first_label: expected a column of labels"):
        fastpipe.pack(write(tmp_path / "t.csv", text), tmp_path / "packed", first_label=1)


def test_a_label_below_the_first_is_rejected(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    text = write(tmp_path / "t.csv", "path,label\na.jpg,0\nb.jpg,1\n")
    summary = fastpipe.pack(text, tmp_path / "packed", first_label=1)
    ((path, reason),) = summary.tally.rejected
    assert path == "a.jpg"
    assert "expected -1 (none) or 1 to" in reason


@becomes(
    "lists of classes with more in a line: `LOC_synset_mapping.txt`, CUB's `classes.txt`, "
    "`classInd.txt`",
    "the names, without numbers and descriptions",
    "--classes-from LOC_synset_mapping.txt",
)
@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["n01440764 tench, Tinca tinca", "n01443537 goldfish"], ["n01440764", "n01443537"]),
        (["1 001.Albatross", "2 002.Laysan"], ["001.Albatross", "002.Laysan"]),
        (["cat 0", "big dog 1"], ["cat", "big dog"]),
        (["digit 0", "digit 1"], ["digit 0", "digit 1"]),
        (["5 cents", "1 euro"], ["5 cents", "1 euro"]),
    ],
)
def test_lists_of_classes(tmp_path: Path, lines: list[str], names: list[str]) -> None:
    source = photos(tmp_path / "src", *(f"{name}/1.jpg" for name in names))
    given = write(tmp_path / "names.txt", "\n".join(lines))
    summary = fastpipe.pack(source, tmp_path / "packed", classes_from=given)
    assert summary.info["classes"] == names


def test_sidecar_files_are_left_out(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat_1.jpg", "dog_2.jpg")
    write(source / "cat_1.txt", "a cat")
    summary = fastpipe.pack(source, tmp_path / "packed", label_pattern="(.+)_")
    assert labels(tmp_path) == {"cat_1.jpg": "cat", "dog_2.jpg": "dog"}
    assert not summary.tally.rejected
    assert assumed(summary)[0].startswith(
        "files that have the names of images, and are not read: 1"
    )


def test_a_pattern_for_tars_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "src" / "cat.tar", "")
    for format_name in ("auto", "imagefolder"):
        with pytest.raises(PackError, match=r"^label_pattern: it has no effect on tars"):
            fastpipe.pack(
                tmp_path / "src", tmp_path / "packed", format=format_name, label_pattern="(.)"
            )
