"""Tries the fastpipe that is installed: packs pictures that it makes, loads them, and looks at whose libjpeg did it.

    VENV/bin/python -I scripts/wheel_smoke.py

It needs nothing but what fastpipe depends on, and this checkout's pyproject.toml, which has the version. Any
disagreement ends it with an AssertionError.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import fastpipe
from fastpipe.tools.cli.commands import app
from fastpipe.tools.demo.render import make_photo

CLASSES = ("ant", "bee", "cow")
PICTURES = 24
WIDTH, HEIGHT = 64, 48
INSTALLED = Path(fastpipe.__file__).resolve().parent
JPEG_LIBRARY = re.compile(r"lib(turbo)?jpeg")


def main() -> None:
    """Everything, in the order in which a user would do it."""
    version = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())[
        "project"
    ]["version"]
    assert INSTALLED.is_relative_to(Path(sys.prefix).resolve()), (
        f"{INSTALLED} is not of {sys.prefix}"
    )
    assert fastpipe.__version__ == version, f"expected {version}, got {fastpipe.__version__}"
    with tempfile.TemporaryDirectory() as folder:
        source, packed = Path(folder, "source"), Path(folder, "packed")
        make_pictures(source)
        for name, options in (("jpegs", ["--quality", "95"]), (packed.name, [])):
            app(["pack", str(source), str(packed.with_name(name)), *options], standalone_mode=False)
            check_epoch(packed.with_name(name))
        assert len(make_photo(seed=1, index=1, label=1).jpeg) > 1000
        if sys.platform == "linux":  # macOS has no list of a process's libraries in /proc
            check_libraries()
        assert command("--version") == f"fastpipe {version}\n"
        assert "pack" in command("--help")
        assert command("docs", "tutorial").startswith("# Tutorial\n")
        assert str(PICTURES) in command("inspect", packed, "--no-sheet")
    sys.stdout.write(f"fastpipe {version} works on Python {sys.version.split()[0]}\n")


def picture(number: int) -> NDArray[np.uint8]:
    """(HEIGHT, WIDTH, 3) RGB: left and right half of one colour each, which tell the picture's number and its class."""
    pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:, : WIDTH // 2] = (20 + number * 9, 128, 40)
    pixels[:, WIDTH // 2 :] = (60, 40 + number % 3 * 80, 200)
    return pixels


def make_pictures(source: Path) -> None:
    """JPEG, which keeps its coefficients, and PNG, which keeps its pixels, or libturbojpeg has to encode, in turn."""
    for number in range(PICTURES):
        path = source / CLASSES[number % 3] / f"{number}{('.jpg', '.png')[number // 3 % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), np.ascontiguousarray(picture(number)[:, :, ::-1]))


def check_epoch(packed: Path) -> None:
    """Each picture once, with its label and its pixels: of both halves, away from where they meet."""
    seen = []
    with fastpipe.loader(
        packed, batch_size=5, size=32, train=False, num_workers=2, crop=fastpipe.Resize()
    ) as loader:
        for images, labels in loader:
            for image, label in zip(
                images.permute(0, 2, 3, 1).numpy(), labels.tolist(), strict=True
            ):
                number = round((int(image[16, 4, 0]) - 20) / 9)
                for x in (4, 27):
                    difference = image[16, x].astype(int) - picture(number)[
                        0, x * WIDTH // 32
                    ].astype(int)
                    assert abs(difference).max() <= 4, (
                        f"picture {number} at column {x}: {image[16, x]}"
                    )
                assert label == number % 3, f"picture {number} has the label {label}"
                seen.append(number)
    assert sorted(seen) == list(range(PICTURES)), seen


def loaded_libraries() -> Iterator[Path]:
    """Every libjpeg and libturbojpeg that is in this process's memory."""
    files = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()
    }
    return (Path(file).resolve() for file in sorted(files) if JPEG_LIBRARY.match(Path(file).name))


def check_libraries() -> None:
    """The wheel's own libraries were used, and none of the system's; other packages may bring theirs."""
    loaded = list(loaded_libraries())
    for folder in (
        INSTALLED / "_lib",
        INSTALLED.with_name("fastpipe_loader.libs"),
    ):  # the second is not in every wheel
        if folder.exists():
            assert any(path.parent == folder for path in loaded), (
                f"expected a library from {folder}, got {loaded}"
            )
    packages = [Path(folder).resolve() for folder in sys.path if folder.endswith("site-packages")]
    strangers = [
        path for path in loaded if not any(path.is_relative_to(folder) for folder in packages)
    ]
    assert not strangers, f"loaded from outside the environment: {strangers}"


def command(*arguments: object) -> str:
    """What the installed `fastpipe` command prints."""
    words = [str(Path(sys.executable).with_name("fastpipe")), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
