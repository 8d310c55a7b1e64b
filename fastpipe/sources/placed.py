"""The paths of a table of which no file lies where they say -> where these files are, if that is certain.

Note [images elsewhere]
A table keeps the paths of the machine that it was written on, or names files alone that lie in several folders. Only
where not one row has its file, other places are tried. First all paths lose the same folders at their start: as few as
possible, until files exist. Else files are looked for by the ends of their paths in all folders below; two that fit are
refused. The place is an assumption, which the summary shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import files_below
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import is_picture
from fastpipe.sources.splits import count_shared, some, split_in_path, split_word
from fastpipe.sources.written_names import WrittenNames

_FEW_PATHS = 100  # that are tried, until one has a file


class Placed(NamedTuple):
    """Where the files of a table's paths are."""

    assumption: Assumption
    prefix: str = ""  # at the start of all paths, with / between folders; it is left out
    files: Mapping[
        str, str
    ] = {}  # path in the table -> path of the file, where files were looked for

    def path(self, written: str, *, is_image: bool) -> str:
        """The path of a file below the image root, from that in the table."""
        plain = _plain(written)
        if self.prefix and plain.startswith(self.prefix):
            return plain[len(self.prefix) :]
        return self.files.get(written, written) if is_image else written


def placed(root: Path, paths: Iterable[str], table: str) -> Placed | None:
    """Where the files of paths are; None: nowhere. PackError: two files fit one path. `table`: the name of its file."""
    parts = {
        path: [part for part in _plain(path).split("/") if part not in ("", ".")] for path in paths
    }
    parts = {path: names for path, names in parts.items() if names and ".." not in names}
    if not parts:
        return None
    shared = count_shared(names[:-1] for names in parts.values())
    return _without_prefix(root, parts, shared) or _below(root, parts, shared, table)


def _plain(path: str) -> str:
    return path.replace("\\", "/")


def _without_prefix(root: Path, parts: Mapping[str, Sequence[str]], shared: int) -> Placed | None:
    """Where the files are if all paths lose some of the folders that they share."""
    written_names = WrittenNames(root)
    few = list(parts)[:_FEW_PATHS]
    for count in range(shared + 1):
        for path in few:
            file = written_names.find("/".join(parts[path][count:]))
            if file is None or not (root / file).is_file():
                continue
            plain = _plain(path)
            prefix = plain[: len(plain) - len("/".join(parts[path][count:]))]
            if not prefix or not plain.endswith("/".join(parts[path][count:])):
                return None
            text = f"paths: {readable(prefix)} at their start is left out: {readable(path)} is {readable(file)}"
            return Placed(Assumption(text), prefix)
    return None


def _below(
    root: Path, parts: Mapping[str, Sequence[str]], shared: int, table: str
) -> Placed | None:
    """Where the files are if they lie in any folders below."""
    by_name: dict[str, list[str]] = {}
    for file in files_below(root, hidden=False):
        name = file.rpartition("/")[2]
        if is_picture(name):
            by_name.setdefault(name, []).append(file)
            by_name.setdefault(os.path.splitext(name)[0], []).append(file)
    for count in range(shared + 1):
        fitting = {path: list(_fitting(names[count:], by_name)) for path, names in parts.items()}
        if any(fitting.values()):
            return _chosen(root, {path: files for path, files in fitting.items() if files}, table)
    return None


def _fitting(names: Sequence[str], by_name: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The files whose paths end with these names, of which the last may lack its ending."""
    end = "/" + "/".join(names)
    for file in by_name.get(names[-1], ()):
        if f"/{file}".endswith(end) or f"/{os.path.splitext(file)[0]}".endswith(end):
            yield file


def _chosen(root: Path, fitting: Mapping[str, Sequence[str]], table: str) -> Placed:
    """One file for each path: the only one, or the only one in the split's folder that the table is called after."""
    word = split_in_path(os.path.splitext(table)[0])
    files = {}
    for path, several in fitting.items():
        ours = [file for file in several if word and word in map(split_word, file.split("/")[:-1])]
        one = several if len(several) == 1 else ours
        if len(one) != 1:
            folder = root / os.path.dirname(several[0])
            raise PackError(
                f"{readable(table)}: {readable(path)} may be {some(several)}, which lie below {readable(str(root))}. "
                f"Write the path of one into the table, or say which folder has the images, such as --image-root "
                f"{readable(str(folder))}"
            )
        files[path] = one[0]
    folders = list(dict.fromkeys(os.path.dirname(file) for file in files.values()))
    option = f"--image-root {readable(str(root / folders[0]))}" if len(folders) == 1 else ""
    text = f"images: {len(files):,} are in folders below {readable(root.name)}: {some(folders)}"
    return Placed(Assumption(text, option), files=files)
