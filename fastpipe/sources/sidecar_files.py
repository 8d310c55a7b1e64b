"""Listed files of folders of images -> those that are called like images and hold annotations, which nobody reads.

Note [sidecar files]
Many tools write the annotations of a.jpg into a.txt, a.json or a.xml beside it, or into another folder. Who packs the
images alone has to know that they are left out. A folder with such files alone is no class.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import NO_LABEL
from fastpipe.sources.annotation_files import (
    ENDINGS,
    START_BYTES,
    TEXT,
    AnnotationTool,
    describe_file,
    tool_of,
)
from fastpipe.sources.doubtful_classes import AS_CLASSES
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Assumption, Source, read_source
from fastpipe.sources.splits import some

_LOOKED_AT = 4096  # sources that tell whether there are such files: there may be millions


def sidecar_files(
    root: SourcePath, sources: Sequence[Source], classes: Sequence[str], *, certain: bool
) -> list[Assumption]:
    """What is left out. PackError: a folder has annotations alone and would be a class, unless a user says that the
    folders are classes (`certain`).
    """
    step = max(1, len(sources) // _LOOKED_AT)
    if not any(_is_sidecar(source.path) for source in sources[::step]):
        return []
    sidecars = [source for source in sources if _is_sidecar(source.path)]
    pictures = [source for source in sources if not _is_sidecar(source.path)]
    names = {_file_name(source.path) for source in pictures}
    names |= {_stem(name) for name in names}
    unread = [source for source in sidecars if _stem(_file_name(source.path)) in names]
    without = {source.label for source in sidecars} - {source.label for source in pictures}
    without -= {NO_LABEL}
    no_classes = [source for source in unread if source.label in without]
    if no_classes and not certain:
        raise _no_class(root, classes, no_classes)
    assumed = []
    if without:
        folders = some(classes[label] for label in sorted(without))
        assumed.append(Assumption(f"classes: {folders} without any image", "--classes-from FILE"))
    if unread:
        first, tool = _example(root, unread)
        assumed.append(
            Assumption(
                f"files that are called like images, and are not read: {len(unread):,}, such as "
                f"{readable(first.path)} ({tool.name}). To keep what they say: {tool.remedy}"
            )
        )
    return assumed


def _no_class(root: SourcePath, classes: Sequence[str], unread: Sequence[Source]) -> PackError:
    first, tool = _example(root, unread)
    folder = readable(classes[first.label])
    return PackError(
        f"{readable(str(root))}: the folder {folder} has no image, but files that are called like the images in other "
        f"folders, such as {readable(first.path)}: {tool.name}. So it is no class. To keep what they say: "
        f"{tool.remedy}. To pack the images alone, pass their folder. {AS_CLASSES} takes the folders as classes"
    )


def _example(root: SourcePath, unread: Sequence[Source]) -> tuple[Source, AnnotationTool]:
    """One of the files, and what it is; rather one whose form is known."""
    by_label = {source.label: source for source in unread}
    for source in by_label.values():
        tool = tool_of(_start_of(root, source), source.path)
        if tool is not None and tool != TEXT:
            return source, tool
    first = min(unread, key=lambda source: source.path)
    return first, describe_file(_start_of(root, first), first.path)


def _is_sidecar(path: str) -> bool:
    return path.lower().endswith(ENDINGS)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _start_of(root: SourcePath, source: Source) -> bytes:
    if source.problem is None:
        with suppress(OSError, PackError):
            return read_source(root, source, START_BYTES)
    return b""
