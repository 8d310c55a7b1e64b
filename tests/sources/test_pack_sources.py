"""Tests of sources.kinds: which files a folder holds, their classes, and the order they are packed in."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType

import pytest
from support.programs.cli_run import succeeded
from support.sources.listed import refuse_to_list
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import write_tar

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.sources.facts import Facts
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.source_bytes import read_source


def tree(root: Path, *paths: str) -> Path:
    """A folder with small files; a path that ends with a slash is an empty folder."""
    for path in paths:
        file = root / path
        if path.endswith("/"):
            file.mkdir(parents=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(path.encode())
    return root


def paths(listing: Listing) -> list[str]:
    return sorted(source.path for source in listing.sources)


def one(listing: Listing) -> Source:
    (source,) = listing.sources
    return source


def test_classes_are_those_of_torchvisions_image_folder(
    tmp_path: Path, torchvision: ModuleType
) -> None:
    names = ["b", "B", "a10", "a2", "Ä", "z z", "10", "9", "_", "名前"]
    tree(tmp_path, *(f"{name}/1.jpg" for name in names))
    from torchvision.datasets.folder import find_classes

    expected, numbers = find_classes(str(tmp_path))
    listing = list_sources(tmp_path, 0)
    assert listing.classes == expected
    assert {source.path.split("/")[0]: source.label for source in listing.sources} == numbers


@pytest.mark.parametrize("kind", ["classes", "flat", "tars", "csv"])
def test_hidden_names_are_passed_over(tmp_path: Path, kind: str) -> None:
    """`hf download --local-dir` leaves .cache; macOS leaves files such as ._a.csv; Jupyter .ipynb_checkpoints."""
    tree(tmp_path, ".cache/huggingface/a.tar.metadata", "._a.tar", "._a.csv", ".DS_Store")
    expected = []
    if kind == "tars":
        write_tar(tmp_path / "a.tar", {"1.jpg": b"picture", "1.cls": b"0"})
        expected = ["0"]
    elif kind == "classes":
        tree(tmp_path, "ant/1.jpg")
        expected = ["ant"]
    else:
        tree(tmp_path, "1.jpg")
    if kind == "csv":
        (tmp_path / "a.csv").write_text("path\n1.jpg\n")
        (tmp_path / "._a.csv").write_bytes(b"path,\0\n")
    listing = list_sources(tmp_path, 0, options=SourceOptions(split="a") if kind == "csv" else None)
    assert one(listing).problem is None
    assert listing.classes == expected
    assert listing.stray == ([] if kind == "csv" else [".DS_Store", "._a.csv", "._a.tar", ".cache"])


def test_hidden_folders_of_a_tar_are_passed_over(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "a.tar",
        {"ant/1.jpg": b"picture", ".cache/1.jpg": b"picture", "ant/.deep/2.jpg": b"picture"},
    )
    listing = list_sources(tmp_path / "a.tar", 0)
    assert (listing.classes, paths(listing)) == (["ant"], ["ant/1.jpg"])
    assert listing.stray == [".cache/1.jpg"]
    assert [str(each) for each in listing.assumed] == [
        "folders whose names begin with a dot: 1, such as ant/.deep; they are left out"
    ]


def test_a_class_holds_the_files_of_all_folders_below_it(tmp_path: Path) -> None:
    """Whatever the files are called; a class without files keeps its number."""
    names = ["a/1.jpg", "a/deep/2.jpg", "a/deep/deeper/3.jpg", "c/a/4.jpg"]
    names += ["a/no suffix", "a/text.txt", "a/.hidden.jpg", "a/UPPER.JPG", "a/ä ö\n.jpg"]
    listing = list_sources(tree(tmp_path, *names, "b/"), 0)
    assert (listing.classes, paths(listing)) == (["a", "b", "c"], sorted(names))
    for source in listing.sources:
        assert source.label == "abc".index(source.path[0])
        assert read_source(tmp_path, source) == source.path.encode()
        assert (source.size_bytes, source.problem) == (len(source.path.encode()), None)


def test_a_flat_folder_has_no_classes(tmp_path: Path) -> None:
    listing = list_sources(tree(tmp_path, "1.jpg", "2.jpg", "README"), 0)
    assert (listing.classes, listing.stray, listing.fields) == ([], [], ())
    assert {source.path: source.label for source in listing.sources} == {
        "1.jpg": -1,
        "2.jpg": -1,
        "README": -1,
    }


def test_a_list_beside_images_is_named_and_no_image(tmp_path: Path) -> None:
    listing = list_sources(tree(tmp_path, "1.jpg", "2.jpg", "notes.txt"), 0)
    assert {source.path for source in listing.sources} == {"1.jpg", "2.jpg"}
    (assumption,) = listing.assumed
    assert assumption.text.startswith("labels: none, though notes.txt beside the images")


def test_a_pack_of_a_flat_folder_says_how_to_give_it_a_label(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.jpg").write_bytes(jpeg_bytes())
    words = " ".join(succeeded("pack", tmp_path / "source", tmp_path / "packed").split())
    assert (
        "1 sample, with label -1; to give all one label, put the images into one subfolder: SRC/all/1.jpg"
        in words
    )
    index = PackedIndex(tmp_path / "packed")
    assert (index.records["label"].tolist(), index.classes, dict(index.fields)) == ([-1], [], {})
    assert not (tmp_path / "packed" / "fields").exists()


def test_files_beside_the_class_folders_are_told_apart(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg", "README", "2.jpg")
    (tmp_path / "broken").symlink_to("nowhere")
    listing = list_sources(tmp_path, 0)
    assert listing.stray == ["2.jpg", "README", "broken"]
    assert paths(listing) == ["a/1.jpg"]


def test_a_source_that_is_no_image_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "one.png").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "gone": "does not exist; expected a folder of images, one folder for each class; a tar file",
        "file": "is not a source that fastpipe reads: expected a folder of images, a tar, or a file",
        "one.png": f"is one image; pass the folder of your images, such as {tmp_path}",
        "empty": "holds no folders and no files",
    }.items():
        with pytest.raises(PackError) as caught:
            list_sources(tmp_path / name, 0)
        assert words in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)


def test_links_are_followed(tmp_path: Path) -> None:
    elsewhere = tree(tmp_path / "elsewhere", "1.jpg", "deep/2.jpg")
    root = tree(tmp_path / "root", "a/3.jpg")
    (root / "b").symlink_to(elsewhere)
    (root / "a" / "more").symlink_to(elsewhere / "deep")
    (root / "a" / "4.jpg").symlink_to(elsewhere / "1.jpg")
    listing = list_sources(root, 0)
    assert listing.classes == ["a", "b"]
    assert paths(listing) == ["a/3.jpg", "a/4.jpg", "a/more/2.jpg", "b/1.jpg", "b/deep/2.jpg"]


def test_a_cycle_of_links_ends(tmp_path: Path) -> None:
    root = tree(tmp_path, "a/1.jpg", "a/deep/2.jpg")
    (root / "a" / "self").symlink_to(".")
    (root / "a" / "deep" / "up").symlink_to("..")
    (root / "a" / "deep" / "loop").symlink_to("loop")
    listing = list_sources(root, 0)
    assert [path for path in paths(listing) if "loop" not in path] == ["a/1.jpg", "a/deep/2.jpg"]
    (loop,) = (source for source in listing.sources if "loop" in source.path)
    assert loop.problem == "cannot be read: Too many levels of symbolic links"


def test_what_is_no_file_is_named_and_a_pipe_never_opened(tmp_path: Path) -> None:
    tree(tmp_path, "a/")
    (tmp_path / "a" / "broken.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    assert {source.path: source.problem for source in list_sources(tmp_path, 0).sources} == {
        "a/broken.jpg": "cannot be read: No such file or directory",
        "a/pipe.jpg": "not a regular file (a folder, pipe, socket or device)",
    }


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/1.jpg", "b/2.jpg")
    refuse_to_list(tmp_path / "b", monkeypatch)
    with pytest.raises(PackError, match="b cannot be listed: Permission denied"):
        list_sources(tmp_path, 0)


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(raw)
    with open(raw + b"/\xff.jpg", "wb") as file:
        file.write(b"content")
    listing = list_sources(tmp_path, 0)
    assert os.fsencode(listing.classes[0]) == b"caf\xe9"
    assert os.fsencode(one(listing).path) == b"caf\xe9/\xff.jpg"
    assert read_source(tmp_path, one(listing)) == b"content"
    assert listing.digest() != list_sources(tree(tmp_path / "other", "a/b.jpg"), 0).digest()


MANY = [f"{'abc'[number % 3]}/{number}.jpg" for number in range(60)]


def order(root: Path, seed: int) -> list[str]:
    return [source.path for source in list_sources(root, seed).sources]


def test_the_seed_picks_the_order_and_classes_are_mixed(tmp_path: Path) -> None:
    tree(tmp_path, *MANY)
    assert order(tmp_path, 1) == order(tmp_path, 1)
    assert len({tuple(order(tmp_path, seed)) for seed in (0, 1, 2, 2**64 - 1)}) == 4
    assert sorted(order(tmp_path, 1)) == sorted(MANY)
    first_half = [path[0] for path in order(tmp_path, 0)[:30]]
    assert all(first_half.count(label) >= 4 for label in "abc")


def test_files_keep_their_places_when_one_goes_and_one_comes(tmp_path: Path) -> None:
    tree(tmp_path, *MANY)
    before = order(tmp_path, 5)
    (tmp_path / MANY[17]).unlink()
    tree(tmp_path, "a/new.jpg", "aa/new class.jpg")
    after = order(tmp_path, 5)
    assert [path for path in after if "new" not in path] == [
        path for path in before if path != MANY[17]
    ]


def test_the_order_does_not_depend_on_where_the_folder_is(tmp_path: Path) -> None:
    here, there = tree(tmp_path / "here", *MANY), tree(tmp_path / "there", *reversed(MANY))
    assert order(here, 3) == order(there, 3)
    assert list_sources(here, 3).digest() == list_sources(there, 3).digest()


def test_digests_tell_changes(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg", "b/2.jpg")
    before = list_sources(tmp_path, 0)
    times = before.state_digest()
    os.utime(tmp_path / "a" / "1.jpg", ns=(5, 5))
    assert list_sources(tmp_path, 0).digest() == before.digest()
    assert list_sources(tmp_path, 0).state_digest() != times
    (tmp_path / "a" / "1.jpg").write_bytes(b"longer than before")
    assert list_sources(tmp_path, 0).digest() != before.digest()


def test_a_file_moved_into_anothers_place_is_a_change_however_old_it_is(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg", "b/2.jpg")
    before = Facts.of(list_sources(tmp_path, 0)).changed_ns
    (tmp_path / "old.jpg").write_bytes((tmp_path / "a" / "1.jpg").read_bytes())
    os.utime(tmp_path / "old.jpg", ns=(5, 5))
    time.sleep(0.02)  # a file system's clock may be that coarse
    (tmp_path / "old.jpg").rename(tmp_path / "a" / "1.jpg")
    assert Facts.of(list_sources(tmp_path, 0)).changed_ns > before
