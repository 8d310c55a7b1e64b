"""What a user sees of the demo photos: the same each time, sized like ImageNet, learnable by shape alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastpipe.errors import ConfigError
from fastpipe.tools.demo.photos import CLASSES, MANIFEST, make_photo, write_photos
from fastpipe.tools.demo.render import DemoPhoto

# Of make_photo(0, n, n): width, height, sampling as TurboJPEG numbers it, then bits a pixel, and the mean and deviation
# of blue, green and red, which depend a little on the encoder.
KNOWN = [
    ((375, 500, 0), 6.1, (138, 145, 153), (55, 50, 62)),
    ((446, 276, 2), 1.34, (116, 120, 123), (35, 39, 46)),
    ((500, 375, 0), 7.14, (91, 96, 86), (56, 67, 71)),
    ((500, 375, 0), 4.66, (86, 105, 121), (35, 46, 56)),
    ((1068, 745, 2), 0.84, (148, 145, 138), (34, 32, 27)),
    ((500, 371, 0), 3.37, (86, 94, 127), (61, 56, 36)),
    ((729, 995, 2), 5.28, (127, 122, 95), (54, 55, 62)),
    ((500, 308, 0), 4.56, (144, 126, 105), (55, 45, 37)),
    ((508, 800, 0), 1.47, (107, 107, 102), (40, 45, 51)),
    ((362, 262, 2), 2.17, (122, 128, 135), (47, 56, 75)),
]


@pytest.fixture(scope="module")
def sample() -> list[DemoPhoto]:
    return [make_photo(0, index, index) for index in range(len(KNOWN))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder that tests only read."""
    path = tmp_path_factory.mktemp("demo") / "photos"
    assert write_photos(path, 13, seed=4, workers=3) == 13
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_same_arguments_same_bytes_and_other_arguments_other_bytes() -> None:
    assert make_photo(1, 2, 3) == make_photo(1, 2, 3)
    jpegs = {
        make_photo(*arguments).jpeg for arguments in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))
    }
    assert len(jpegs) == 4


def test_photos_are_those_that_they_always_were(sample: list[DemoPhoto]) -> None:
    from turbojpeg import TurboJPEG

    codec = TurboJPEG()
    for photo, (facts, bits, means, deviations) in zip(sample, KNOWN, strict=True):
        width, height, sampling, _ = codec.decode_header(photo.jpeg)
        assert (photo.width, photo.height, sampling) == (width, height, sampling) == facts
        assert photo.jpeg.endswith(b"\xff\xd9")
        assert 8 * len(photo.jpeg) / (width * height) == pytest.approx(bits, rel=0.02)
        pixels = codec.decode(photo.jpeg).reshape(-1, 3)
        assert pixels.mean(axis=0) == pytest.approx(means, abs=1)
        assert pixels.std(axis=0) == pytest.approx(deviations, abs=1)


def test_a_scale_makes_smaller_photos(tmp_path: Path, sample: list[DemoPhoto]) -> None:
    write_photos(tmp_path, 3, scale=0.25)
    for index, photo in enumerate(sample[:3]):
        small = make_photo(0, index, index, 0.25)
        assert (small.width, small.height) == pytest.approx(
            (photo.width / 4, photo.height / 4), abs=1
        )
        assert (tmp_path / CLASSES[index] / f"{index:05d}.jpg").read_bytes() == small.jpeg


def test_folder_is_balanced_and_numbered(folder: Path) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg"))
    assert names == sorted(f"{CLASSES[index % 10]}/{index:05d}.jpg" for index in range(13))
    assert (folder / "crescent" / "00012.jpg").read_bytes() == make_photo(4, 12, 2).jpeg
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["seed"], manifest["count"]) == (4, 13)
    assert {path.name for path in folder.iterdir()} == {*CLASSES, MANIFEST}


def test_opencv_threads_are_put_back(tmp_path: Path) -> None:
    import cv2

    before = cv2.getNumThreads()
    write_photos(tmp_path, 1)
    assert cv2.getNumThreads() == before


def test_any_number_of_workers_writes_the_same_and_what_is_missing(
    folder: Path, tmp_path: Path
) -> None:
    expected = contents(folder)
    assert write_photos(tmp_path, 3, seed=4, workers=1) == 3
    (tmp_path / CLASSES[1] / "00001.jpg").unlink()
    assert write_photos(tmp_path, 13, seed=4, workers=1) == 11
    assert contents(tmp_path) == expected
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jpg")}
    assert write_photos(tmp_path, 13, seed=4, workers=2) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jpg")} == before


def test_mistakes_are_named_before_anything_is_made(folder: Path, tmp_path: Path) -> None:
    for arguments in ((-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 10)):
        with pytest.raises(ConfigError, match=r"expected .* got"):
            make_photo(*arguments)
    for wrong in ({"count": 0}, {"count": -5}, {"seed": -1}, {"workers": 0}):
        with pytest.raises(ConfigError, match=r"expected count >= 1"):
            write_photos(tmp_path / "new", **{"count": 1, **wrong})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("holiday.jpg", b"mine", "other files"), (MANIFEST, b"{}", "is not a list of demo photos")],
)
def test_a_folder_with_other_files_is_refused_and_left_alone(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        write_photos(tmp_path, 1)
    assert contents(tmp_path) == {name: content}
    with pytest.raises(ConfigError, match="cannot write demo photos"):
        write_photos(tmp_path / name, 1)


def test_a_folder_of_another_seed_or_larger_count_is_refused(folder: Path) -> None:
    before = contents(folder)
    for count, seed in ((13, 5), (12, 4)):
        with pytest.raises(ConfigError, match="holds 13 of seed 4"):
            write_photos(folder, count, seed=seed)
    assert contents(folder) == before
