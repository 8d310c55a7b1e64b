"""Numbered members of a WebDataset, such as KEY.0.jpg -> whether they are lists, or whole samples.

A key ends at the first dot of a name. So img0.0.jpg and img0.1.jpg are two pictures of the sample
img0. That is right for lists of pictures. It is wrong for photos with a dot in their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fastpipe.errors import PackError, first_names, format_count, readable
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Assumption, SourceField
from fastpipe.sources.member_fields import place_in_list
from fastpipe.sources.tars.tar_members import LABEL_EXTENSION, split_key
from fastpipe.sources.tars.tar_samples import TarSamples

_MAX_SHOWN_PICTURES = 3
_MAX_SHOWN_FIELDS = 4


class _NumberedPictures(NamedTuple):
    """The pictures of all lists."""

    num_pictures: int
    num_samples: int
    key: str  # of the first sample that has several
    names: list[str]  # of its pictures
    # The endings of members beside them, such as cls of img0.0.cls beside img0.0.jpg.
    companions: list[str]


def check_numbered_labels(
    root: SourcePath, samples: TarSamples, fields: Sequence[SourceField]
) -> list[Assumption]:
    """Says that numbered pictures are lists.

    Raises:
        PackError: each picture has a label of its own, and the samples have none. The labels
            would be lost.
    """
    lists = [field for field in fields if field.kind == "images"]
    if not lists:
        return []
    pictures = _find_pictures(samples)
    if pictures is None:
        return []

    count = format_count(pictures.num_pictures, "image")
    sample_count = format_count(pictures.num_samples, "sample")
    names = first_names(pictures.names, _MAX_SHOWN_PICTURES)
    reason = (
        f"because a key ends at the first dot: {names} are one sample "
        f"{readable(pictures.key)}"
    )
    if LABEL_EXTENSION in pictures.companions and not samples.class_names:
        name = pictures.names[0]
        raise PackError(
            f"{readable(root)}: {count} became {sample_count}, {reason}. They have their own "
            f".{LABEL_EXTENSION}, so they are probably samples of their own, and their labels "
            f"would be lost. Write the tar with names without dots, such as "
            f"{_without_dots(name)} for {name}, and the same for its .{LABEL_EXTENSION}. If they "
            f"are lists of images without labels, pack them with {_options_of(lists)}"
        )
    doubt = ""
    wanted = fields
    if pictures.companions:
        wanted = lists
        ending = pictures.companions[0]
        doubt = (
            f". They have their own .{ending}, so they are probably samples of their own: "
            f"write the tar with names without dots, such as {_without_dots(pictures.names[0])}"
        )
    return [
        Assumption(
            f"images: {count} became lists of {sample_count}, {reason}{doubt}",
            _options_of(wanted),
        )
    ]


def _find_pictures(samples: TarSamples) -> _NumberedPictures | None:
    """The numbered pictures of a source; None: no sample has several."""
    # Most tars have none, and then their samples, which are many, are not walked.
    stems = {
        extension.rpartition(".")[0]
        for extension in samples.extension_counts
        if place_in_list(extension) is not None
    }
    if not stems:
        return None

    num_pictures = 0
    num_samples = 0
    key = ""
    names: list[str] = []
    for index, ranges in samples.field_ranges.items():
        numbered = [
            extension for extension in ranges if place_in_list(extension) is not None
        ]
        if not numbered:
            continue
        num_pictures += len(numbered)
        num_samples += 1
        if not names and len(numbered) > 1:
            path = samples.sources[index].path
            # A sample without an image of its own has its key as its path.
            key = (split_key(path)[0] or path).rpartition("/")[2]
            names = [readable(f"{key}.{extension}") for extension in sorted(numbered)]
    if not names:
        return None

    companions: Counter[str] = Counter()
    for extension, count in samples.extension_counts.items():
        stem, _, ending = extension.rpartition(".")
        if stem in stems and place_in_list(extension) is None:
            companions[ending] += count
    return _NumberedPictures(
        num_pictures, num_samples, key, names, _labels_first(companions)
    )


def _labels_first(endings: Counter[str]) -> list[str]:
    """The endings, the most frequent first, but that of labels before all."""
    ordered = [ending for ending, _ in endings.most_common()]
    return sorted(ordered, key=lambda ending: ending != LABEL_EXTENSION)


def _options_of(fields: Sequence[SourceField]) -> str:
    """The options that ask for these fields as they are; "": they are too many to show."""
    if len(fields) > _MAX_SHOWN_FIELDS:
        return ""
    return " ".join(f"--field {field.name}={field.column}" for field in fields)


def _without_dots(name: str) -> str:
    """img0_0.jpg of img0.0.jpg."""
    stem, dot, ending = name.rpartition(".")
    return stem.replace(".", "_") + dot + ending
