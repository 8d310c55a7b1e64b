"""What a user passes as a dataset -> its folder, or an error that says what to pass instead."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fastpipe.errors import ConfigError
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER

# The endings by which a list of image files is told from a list of datasets.
_IMAGES = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".heic",
        ".heif",
        ".avif",
        ".jp2",
        ".jxl",
        ".ppm",
        ".pgm",
    ]
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


def scheme_of(text: str) -> str:
    """The scheme of a URL, in small letters; "": the text is none."""
    found = _URL.match(text)
    return found[1].lower() if found is not None and found[2] else ""


def is_damaged_url(path: Path) -> bool:
    """Whether a path was made of a URL: pathlib makes one slash of two."""
    return _URL.match(str(path)) is not None


class Url(str):
    """Where a dataset is that is on no disk of this machine. It joins names as a Path does."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        return scheme_of(self)

    @property
    def path(self) -> str:
        """What follows the scheme: the bucket or server, and the folder in it."""
        return self[len(self.scheme) + len("://") :]

    @property
    def is_web(self) -> bool:
        """Whether a web server gives the files, which lists none and takes none."""
        return self.scheme in ("http", "https")

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self}/{name}")


Place = Path | Url


def dataset_folder(data: object) -> Path:
    """The path of a packed dataset's folder, whatever is there. ConfigError: it is no path."""
    if isinstance(data, (str, os.PathLike)):
        return Path(data)
    raise ConfigError(f"data: expected one folder that `fastpipe pack` wrote, got {_named(data)}")


def why_no_dataset(path: Path) -> str:
    """Why a folder without dataset.json is none, and what to do."""
    if not path.exists():
        hint = f"Pack it first: fastpipe pack SRC {path}"
        if is_damaged_url(path):
            hint = "pathlib.Path damages URLs: pass the URL as a string"
        elif path.parts[:1] == ("~",):
            hint = f"Python does not expand ~: pass {path.expanduser()}"
        elif re.search(r"[*?\[{]", str(path)):
            hint = "Pass the folder itself: it is one dataset, with all of its shards"
        return f"{path} does not exist; expected a folder that `fastpipe pack` wrote. {hint}"
    if not path.is_dir():
        hint = f". Pack it first: fastpipe pack {path} DST" if path.suffix == ".tar" else ""
        return f"{path} is a file; expected a folder that `fastpipe pack` wrote{hint}"
    if (path / WORK_FOLDER).exists():
        return (
            f"{path} holds an unfinished pack: {DATASET_FILE} is missing, because pack writes it last. Run the same "
            "`fastpipe pack` command again; it continues where it stopped"
        )
    if any(path.glob("shard-*.tar")):
        return (
            f"{path} holds an unfinished pack or copy: {DATASET_FILE} is missing. Copy all files of the dataset, or "
            "pack the source into another folder"
        )
    return (
        f"{path} is not a packed dataset: it has no {DATASET_FILE}. "
        f"If it holds photos, pack them first: fastpipe pack {path} DST"
    )


def _is_image(path: str) -> bool:
    return Path(path).suffix.lower() in _IMAGES


def _named(data: object) -> str:
    """An object that is no path, and what to pass instead."""
    name, kinds = type(data).__name__, {kind.__name__ for kind in type(data).__mro__}
    if isinstance(data, (list, tuple, set)):
        first = next(iter(data), None)
        path = first[0] if isinstance(first, (list, tuple)) and first else first
        if isinstance(path, (str, os.PathLike)) and _is_image(str(path)):
            return (
                f"a {name} of {len(data)} image files, such as {str(path)!r}. Write them into a CSV file with the "
                "columns path and label, a row for each image, and pack it: fastpipe pack FILE.csv DST. Then pass DST. "
                "Or store the images with fastpipe.Writer"
            )
        return (
            f"a {name} of {len(data)}. For all samples of several datasets pass fastpipe.concat(*data), for a part of "
            "each in every batch fastpipe.mix({data: weight}). Or pack the sources into one dataset: fastpipe pack"
        )
    if isinstance(data, Mapping):
        return f"a {name}. For a mixture pass fastpipe.mix({data!r})"
    if kinds & {"DataLoader", "Loader"}:
        return f"a {name}. That is already a loader: iterate over it"
    if type(data).__module__.startswith("fastpipe."):
        return f"{data!r}. It is open already: pass fastpipe.loader the dataset itself"
    if "Subset" in kinds:
        return f"a {name}. Pass fastpipe.loader the same of its dataset: fastpipe.open(FOLDER).select(subset.indices)"
    if "Dataset" in kinds:
        source = getattr(data, "root", "SRC")
        return f"a {name}. Pack its images once, with the command: fastpipe pack {source} DST. Then pass DST"
    return repr(data)
