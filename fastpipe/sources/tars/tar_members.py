"""The members of a tar -> their paths, keys and extensions, and the sources that they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from fastpipe.sources.files import (
    FIRST_OF_LEFT_BEHIND,
    is_left_behind,
    lies_in_left_behind,
)
from fastpipe.sources.listing import Source
from fastpipe.sources.tars.tar_reader import Member, TarFile, shorten_name

LABEL_EXTENSION = "cls"
DUPLICATE_PATH = (
    "an earlier member has the same name: unpacking the tar would overwrite it"
)
_MAX_NAME_CHARACTERS = 1024
# WebDataset's own notes about a shard, which are no samples.
_WEBDATASET_NOTE = re.compile("__[^/]*__($|/)")
# A terminal acts on control characters, and some programs take a backslash for a slash.
_FORBIDDEN = r"[\x00-\x1f\x7f-\x9f\\]"
# A path that leads out of the tar's folder. Nothing is ever written under a member's name, but who
# writes such a name means harm.
_HOSTILE = re.compile(rf"^/|(^|/)\.\.(/|$)|{_FORBIDDEN}")
# A folder that has a forbidden character, or a part that is empty, "." or "..".
_UNCLEAN = re.compile(rf"{_FORBIDDEN}|(^|/)\.{{0,2}}(/|$)")


# A member, its clean path, and why it is neither a file nor a folder; None if it is one.
CheckedMember: TypeAlias = tuple[Member, str, str | None]


def check_members(members: Iterable[Member]) -> Iterator[CheckedMember]:
    """Cleans the paths of members and refuses hostile ones.

    Passes over files that systems leave among pictures.
    """
    folder = ""
    is_clean_folder = True
    for member in members:
        path = member.name
        name_start = path.rfind("/") + 1
        if path[:name_start] != folder:
            folder = path[:name_start]
            is_clean_folder = _is_clean_folder(folder)

        # There may be millions of members, and most are clean. These tests are quicker than the
        # patterns.
        name = path[name_start:]
        if (
            is_clean_folder
            and member.problem is None
            and name.isprintable()
            and "\\" not in name
            and name[:1] not in ("", ".")
            and (name[0] not in FIRST_OF_LEFT_BEHIND or not is_left_behind(name))
            and len(path) <= _MAX_NAME_CHARACTERS
        ):
            yield member, path, None
            continue

        if lies_in_left_behind(path) and not _HOSTILE.search(path):
            continue
        problem = member.problem or _path_problem(member)
        parts = [part for part in path.split("/") if part not in ("", ".")]
        yield member, "/".join(parts), problem


# A million members lie in a few folders.
@lru_cache(1024)
def _is_clean_folder(folder: str) -> bool:
    """Whether a folder, with a slash at its end, has a clean path; "" is the tar's own."""
    if not folder:
        return True
    is_clean = not _UNCLEAN.search(folder[:-1])
    return is_clean and not lies_in_left_behind(folder)


def _path_problem(member: Member) -> str | None:
    """Why the path of a member is refused; None if it is not."""
    path = member.name
    _, _, name = path.rpartition("/")
    lacks_name = not member.is_folder and name in ("", ".")
    is_long = len(path) > _MAX_NAME_CHARACTERS
    if not lacks_name and not is_long and not _HOSTILE.search(path):
        return None
    return (
        "expected the name of a file inside the tar's folder, of at most "
        f"{_MAX_NAME_CHARACTERS:,} characters, no control character and no backslash"
    )


def split_key(path: str) -> tuple[str, str]:
    """WebDataset's key of a member, and its extension in small letters.

    The extension begins behind the first dot after the last slash. ("", "") for members without an
    extension, and for WebDataset's notes about the shard (__name__).
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.partition(".")
    if not stem or not dot:
        return "", ""
    if path.startswith("__") and _WEBDATASET_NOTE.match(path):
        return "", ""
    return folder + slash + stem, extension.lower()


def is_label(path: str) -> bool:
    """Whether a member is a KEY.cls, the label of a WebDataset's sample."""
    # Most paths are no labels, and the first test is quick.
    if path[-4:].lower() != ".cls":
        return False
    _, extension = split_key(path)
    return extension == LABEL_EXTENSION


def path_in_source(archive: str, path: str) -> str:
    """The path of a member; `archive` is that of its tar, or "" where the tar is the source."""
    if not archive:
        return path
    return f"{archive}/{path}"


def member_source(
    tar: TarFile, archive: str, member: Member, path: str, label: int = 0
) -> Source:
    """The source that is a member: a range of bytes in its tar."""
    state = tar.state
    return Source(
        path_in_source(archive, path),
        label,
        member.size_bytes,
        state.mtime_ns,
        state.ctime_ns,
        archive=archive,
        offset_bytes=member.offset_bytes,
        archive_bytes=state.size_bytes,
    )


def rejected_source(tar: TarFile, archive: str, member: Member, problem: str) -> Source:
    """A member that cannot be packed, under a name that is no other member's path."""
    name = f"{shorten_name(member.name)} (at byte {member.header_bytes})"
    return member_source(tar, archive, member, name)._replace(problem=problem)
