"""What a program that packs in Python should know of its source, in the log.

The commands show the same in a summary, and hide this log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastpipe.errors import format_count, in_one_line, readable
from fastpipe.sources.files import stray_images
from fastpipe.sources.listing import Assumption
from fastpipe.sources.tables.rows import is_annotation_name

_LOG = logging.getLogger("fastpipe.pack")
_MAX_REJECTED = 3
# --name, --name value, --name 'any text', or --name value or other
_OPTION = re.compile(
    r"--([a-z][a-z-]*)(?: ('[^']*'|(?!--)[^\s',;()]+)(?: or ([a-z]+)\b)?)?"
)


def log_assumed(source: object, assumed: Iterable[Assumption]) -> None:
    """Logs what was assumed about a source, with the argument of Python that settles it."""
    for assumption in assumed:
        in_python = assumption._replace(option=as_arguments(assumption.option))
        _LOG.warning("%s: assumed %s", source, in_python)


def as_arguments(options: str) -> str:
    """Options of the command line in a text -> arguments of Python: --first-label 1, first_label=1.

    --field NAME=COLUMN stays: its argument is a dict of all fields.
    """
    return _OPTION.sub(_as_argument, options)


def _as_argument(option: re.Match[str]) -> str:
    name, value, other_value = option.groups()
    if name == "field":
        return option[0]
    argument = name.replace("-", "_")
    if value is None:
        return f"{argument}=True"
    if not value.isdecimal() and not value.startswith("'"):
        value = repr(value)
    if other_value is None:
        return f"{argument}={value}"
    return f"{argument}={value} or {other_value!r}"


def log_contradictions(source: object, contradictions: str) -> None:
    """Logs that pictures have several labels, if there are any."""
    if contradictions:
        _LOG.warning("%s: %s", source, contradictions)


def log_oriented(source: object, info: Mapping[str, Any]) -> None:
    """Logs how many images have an EXIF orientation and lie on their side, as their files have them.

    `info`: the content of dataset.json.
    """
    num_oriented = info["counts"]["exif_oriented"]
    options = info["packs"][-1]["options"]
    if not num_oriented or options["apply_exif"]:
        return
    verbs = (
        "has an EXIF orientation and is"
        if num_oriented == 1
        else "have an EXIF orientation and are"
    )
    _LOG.warning(
        "%s: %s %s left as stored, as torchvision's ImageFolder gives them; exif='apply' rotates them "
        "upright",
        source,
        format_count(num_oriented, "image"),
        verbs,
    )


def format_rejected(paths: Sequence[str], noun: str = "file") -> str:
    """How many are not packed, such as "2 files and 60 annotations".

    `noun` names those that are no annotations.
    """
    num_annotations = sum(is_annotation_name(path) for path in paths)
    num_samples = len(paths) - num_annotations
    if not num_annotations:
        return format_count(num_samples, noun)
    annotations = format_count(num_annotations, "annotation")
    if not num_samples:
        return annotations
    return f"{format_count(num_samples, noun)} and {annotations}"


def log_rejected(
    source: object,
    rejected: Sequence[tuple[str, str]],
    listed_in: str = "",
    noun: str = "file",
) -> None:
    """Logs how many files or samples were not packed, and the first of them.

    Args:
        source: where they come from.
        rejected: path and reason of each.
        listed_in: the file that lists all of them; "": none does.
        noun: what they are.
    """
    if not rejected:
        return
    first, advice = _describe_first(rejected[:_MAX_REJECTED])
    if len(rejected) > _MAX_REJECTED:
        first.append(f"and {len(rejected) - _MAX_REJECTED:,} more")
    place = f" ({listed_in} lists them)" if listed_in else ""
    verb = "was" if len(rejected) == 1 else "were"
    _LOG.warning(
        "%s: %s %s not packed%s: %s%s. on_error='fail' stops at the first one",
        source,
        format_rejected([path for path, _ in rejected], noun),
        verb,
        place,
        "; ".join(first),
        advice,
    )


def _describe_first(rejected: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
    """A text for each of the first that were rejected, and the sentences with which all of them end.

    What was expected stands in the first of the texts alone, if it is the same for all.
    """
    problems = []
    beginnings = set()
    endings = set()
    for path, reason in rejected:
        problem, stop, ending = in_one_line(reason).partition(". ")
        endings.add(stop + ending)
        expected, _, got = problem.rpartition("; got ")
        beginnings.add(expected)
        problems.append((in_one_line(readable(path)), problem, got))

    is_repeated = len(problems) > 1 and len(beginnings) == 1 and "" not in beginnings
    has_one_ending = len(endings) == 1
    texts = []
    for number, (path, problem, got) in enumerate(problems):
        text = problem
        if is_repeated and number > 0:
            text = f"got {got}"
        if not has_one_ending:
            reason = in_one_line(rejected[number][1])
            text += reason.removeprefix(problem)
        texts.append(f"{path}: {text}")
    return texts, endings.pop() if has_one_ending else ""


def log_stray(source: object, stray: Iterable[str]) -> None:
    """Logs how many images were left out because the source gives them no class or row."""
    images = stray_images(stray)
    if not images:
        return
    verb = "is" if len(images) == 1 else "are"
    _LOG.warning(
        "%s: %s without a class or a row %s left out, such as %s; move images into a class folder, "
        "or name them in the table",
        source,
        format_count(len(images), "image"),
        verb,
        readable(images[0]),
    )
