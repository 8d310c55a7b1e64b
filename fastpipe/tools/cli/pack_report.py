"""The progress and the result of a pack or an add -> lines and tables for a terminal, and JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fastpipe.dataset.format.fields import RESERVED
from fastpipe.errors import first_names, format_count, readable
from fastpipe.machine.progress import show_progress
from fastpipe.packing.growth.grow import Grown
from fastpipe.packing.job.log import format_rejected
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.summary import Summary
from fastpipe.packing.shard.entry import Tally
from fastpipe.sources.files import is_left_behind, stray_images
from fastpipe.sources.listing import Assumption
from fastpipe.sources.tables.rows import is_annotation_name
from fastpipe.tools.cli.console import out, print_indented
from fastpipe.tools.cli.inspect_tables import describe_boxes
from fastpipe.tools.show.inspection import BoxCounts

# The speed that is shown is that of the last seconds.
_SPEED_OVER_S = 5.0
_MAX_REJECTED = 5
_MAX_NAMES = 8
# Names of files may be long paths.
_FOLDED_WIDTH = 100
_FRAME_WIDTH = 120  # characters; a file has no width of its own


class _TimedProgress(NamedTuple):
    at_s: float
    progress: PackProgress


@contextlib.contextmanager
def pack_progress(console: Console) -> Iterator[Callable[[PackProgress], None]]:
    """Shows how far a pack is: a bar with images/s, MB/s and time left, or a line now and then."""
    # Of this step, the oldest first.
    recent: list[_TimedProgress] = []

    def describe(progress: PackProgress) -> str:
        now_s = time.monotonic()
        recent.append(_TimedProgress(now_s, progress))
        while len(recent) > 2:
            age_of_second_s = now_s - recent[1].at_s
            if age_of_second_s <= _SPEED_OVER_S:
                break
            recent.pop(0)
        oldest = recent[0]
        latest = recent[-1]
        is_terminal = console.is_terminal
        return _describe_progress(oldest, latest, is_terminal=is_terminal)

    with show_progress(console, "packing", describe) as show:

        def update(progress: PackProgress) -> None:
            # Each step has its own speed.
            is_new_step = True
            if recent:
                latest = recent[-1].progress
                is_new_step = progress.step != latest.step
            if is_new_step:
                first_of_step = _TimedProgress(time.monotonic(), progress)
                recent[:] = [first_of_step]
            show(progress)

        yield update


def _describe_progress(
    first: _TimedProgress, last: _TimedProgress, *, is_terminal: bool
) -> str:
    """The last progress, with the speed since the first one."""
    start = first.progress
    end = last.progress
    span_s = max(last.at_s - first.at_s, 1e-6)
    num_files = end.files - start.files
    num_bytes = end.bytes - start.bytes
    images_per_s = num_files / span_s
    mb_per_s = num_bytes / span_s / 1e6
    text = f"{end.files:,}/{end.total_files:,} files"
    text += f"  {images_per_s:,.0f} images/s"
    text += f"  {mb_per_s:.1f} MB/s"
    if end.step != "packing":
        text = f"{end.step}: {text}"
    if end.total_tasks:
        cpus = format_count(end.workers, "CPU")
        text += f"  task {end.tasks:,}/{end.total_tasks:,}"
        text += f", {cpus}"
        # In a terminal the bar shows the time left.
        if not is_terminal and mb_per_s:
            bytes_left = end.total_bytes - end.bytes
            mb_left = bytes_left / 1e6
            seconds_left = round(mb_left / mb_per_s)
            time_left = timedelta(seconds=seconds_left)
            text += f"  {time_left} left"
    if end.uploaded_bytes:
        uploaded_mb = end.uploaded_bytes / 1e6
        text += f"  {uploaded_mb:,.0f} MB uploaded"
    if end.rejected:
        text += f"  {end.rejected:,} rejected"
    return text


def pack_table(
    summary: Summary,
    boxes: Mapping[str, BoxCounts] | None = None,
    *,
    is_folder: bool = True,
) -> RenderableType:
    """The result of a pack: one row for each thing that happened.

    Args:
        summary: of the pack.
        boxes: the numbers of boxes by field, if they were counted.
        is_folder: the source is a folder, and not a file such as a table.
    """
    info = summary.info
    counts = info["counts"]
    fields = info["fields"]
    counts_of_boxes = boxes or {}
    classes = info["classes"]
    num_samples = info["samples"]
    last_pack = info["packs"][-1]
    # Annotations without an image are rows of the listing, but no files.
    num_annotations = 0
    for path, _ in summary.tally.rejected:
        if is_annotation_name(path):
            num_annotations += 1
    num_listed = last_pack["source"]["files"]
    num_files = num_listed - num_annotations
    shard_bytes = sum(shard["size_bytes"] for shard in info["shards"])
    table = Table.grid(padding=(0, 2))
    files = format_count(num_files, "file")
    packed = f"{num_samples:,} of {files}"
    # A detection dataset has no classes of images: its rows of boxes list the categories.
    fields_with_classes = _list_fields_with_classes(summary, counts_of_boxes)
    if classes or not fields_with_classes:
        num_classes = format_count(len(classes), "class")
        packed += f", {num_classes}"
    table.add_row("packed", packed)
    num_shards = len(info["shards"])
    table.add_row("shards", f"{num_shards:,}, {shard_bytes:,} bytes")
    # 0 if no sample has a file: all values are in a table.
    if summary.tally.source_bytes:
        size = _describe_size(summary.tally, shard_bytes, fields)
        table.add_row("size", size)
        seconds = max(summary.seconds, 1e-9)
        files_per_s = summary.files / seconds
        table.add_row("time", f"{summary.seconds:.1f} s, {files_per_s:,.0f} files/s")
    if summary.uploaded_bytes:
        uploaded_mb = summary.uploaded_bytes / 1e6
        table.add_row("uploaded", f"{uploaded_mb:,.1f} MB")
    if fields:
        descriptions = []
        for name, field in fields.items():
            description = _describe_field(name, field["kind"])
            descriptions.append(description)
        table.add_row("fields", ", ".join(descriptions))
    for name, box_counts in counts_of_boxes.items():
        boxes_of_field = describe_boxes(box_counts, num_samples)
        table.add_row(name, boxes_of_field)
        if box_counts.categories:
            categories = _list_names(list(box_counts.categories))
            categories += _describe_ids(fields[name].get("names", []))
            table.add_row("categories", categories)
    num_labelled = sum(info["class_counts"])
    num_unlabelled = num_samples - num_labelled
    if num_unlabelled:
        samples = format_count(num_unlabelled, "sample")
        text = f"{samples}, with label -1"
        # Of a source whose annotations are all rejected, no box is left that has a class.
        names_with_values = []
        for name in fields_with_classes:
            counts_of_field = counts_of_boxes.get(name)
            if counts_of_field is None or counts_of_field.boxes:
                names_with_values.append(name)
        if names_with_values:
            fields_of_classes = ", ".join(names_with_values)
            text += f"; their classes are in {fields_of_classes}"
        elif is_folder and not classes and not fields:
            text += "; to give all one label, put the images into one subfolder: SRC/all/1.jpg"
        elif num_unlabelled < num_samples:
            text += '; to train without them: data = data.select(data["label"] >= 0)'
        table.add_row("no label", text)
    _add_changed_pictures(table, counts, last_pack["options"])
    empty_classes = []
    for name, class_count in zip(classes, info["class_counts"], strict=True):
        # COCO's ids have gaps. Such a number has no name and is not a class.
        if name and not class_count:
            empty_classes.append(name)
    if empty_classes:
        table.add_row("empty classes", _list_names(empty_classes))
    _add_left_out(table, summary, is_folder=is_folder)
    return table


def _describe_ids(names: Sequence[str]) -> str:
    """Says which numbers the labels of boxes have, where they are ids of the source, as COCO's.

    `names`: of all numbers from 0; "" where a number has none.
    """
    numbers = [number for number, name in enumerate(names) if name]
    if len(numbers) == len(names):
        return ""
    return (
        f"; the labels of boxes are the ids of the source, {numbers[0]:,} to {numbers[-1]:,}, so a "
        f"model needs {len(names):,} classes"
    )


def _list_fields_with_classes(
    summary: Summary, counts_of_boxes: Mapping[str, BoxCounts]
) -> list[str]:
    """The names of the fields whose values have classes."""
    names = []
    for name, field in summary.info["fields"].items():
        if field["kind"] not in ("boxes", "mask", "classes"):
            continue
        # Boxes may have no classes, as those of a table without a column of them.
        box_counts = counts_of_boxes.get(name)
        if box_counts is not None and not box_counts.categories:
            continue
        if name not in summary.masks_of_objects:
            names.append(name)
    return names


def _describe_field(name: str, kind: str) -> str:
    """A field and its kind, and why a column called `id` has become the field `id_`."""
    column = name.removesuffix("_")
    if column != name and column in RESERVED:
        return f"{name} ({kind}; column {column!r}, whose name is reserved)"
    return f"{name} ({kind})"


def _describe_size(tally: Tally, shard_bytes: int, fields: Mapping[str, Any]) -> str:
    """The size of images and shards beside that of the source's images.

    The files of fields do not count as the source's: many of them have no size of their own, such
    as columns of a table.
    """
    source = f"the source's {tally.source_bytes:,} bytes"
    share = shard_bytes / tally.source_bytes
    beside = "tars"
    if fields:
        beside += " and fields"
    if not tally.packed_bytes:
        return f"{share:.1%} of {source}, with {beside}"
    images_share = tally.packed_bytes / tally.source_bytes
    return f"images {images_share:.1%} of {source}; with {beside} {share:.1%}"


def _add_changed_pictures(
    table: Table, counts: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Adds a row for each kind of picture that is not stored as it was.

    `counts` are those of dataset.json, `options` those of the pack.
    """
    if counts["png"]:
        table.add_row("stored as PNG", _by_reason(counts["png"]))
    if counts.get("tiled"):
        table.add_row(
            "in tiles",
            f"{counts['tiled']:,}, so that a crop reads only the tiles that it touches",
        )
    if counts["reencoded"]:
        reasons = _by_reason(counts["reencoded"])
        text = f"{reasons}; all others keep their exact pixels"
        table.add_row("encoded again", text)
    if counts["exif_oriented"]:
        images = format_count(counts["exif_oriented"], "image")
        effect = "left as stored (--exif apply rotates them upright)"
        if options["apply_exif"]:
            effect = "rotated upright"
        table.add_row("EXIF orientation", f"{images}, {effect}")
    if counts["stray_bytes"]:
        jpegs = format_count(counts["stray_bytes"], "JPEG")
        text = f"{jpegs} had bytes outside of the segments; these bytes were left out"
        table.add_row("stray bytes", text)
    if counts["multi_frame"]:
        files = format_count(counts["multi_frame"], "file")
        table.add_row("frames", f"{files} with several; the first of each was packed")


def _add_left_out(table: Table, summary: Summary, *, is_folder: bool) -> None:
    """Adds a row of files that were not packed, and one of members of tars."""
    # Files of the system, such as .DS_Store, and of the demo are not worth a row.
    not_packed = []
    for name in summary.stray:
        if not is_left_behind(name):
            not_packed.append(name)
    if not_packed:
        files = format_count(len(not_packed), "file")
        names = _list_names(not_packed)
        text = f"{files}: {names}"
        has_images = bool(stray_images(summary.stray))
        if has_images and is_folder and summary.info["classes"]:
            text = f"{files} beside the class folders: {names}; move images into a class folder"
        elif has_images and not is_folder:
            text = f"{files} without a row: {names}"
        # In a file, rich pads all rows to the longest one.
        folded = Constrain(Text(text, overflow="fold"), _FOLDED_WIDTH)
        table.add_row("not packed", folded)
    if summary.contradictions:
        table.add_row("labels", summary.contradictions)
    if summary.dropped:
        numbers_of_kinds = []
        for kind, number in sorted(summary.dropped.items()):
            numbers_of_kinds.append(f"{number:,} {kind}")
        members = ", ".join(numbers_of_kinds)
        text = f"{members}: members that are neither an image nor a label"
        table.add_row("left out", text)


def grown_table(grown: Grown, dst: str, *, action: str) -> RenderableType:
    """The result of an `action`: "added" or "removed"."""
    table = Table.grid(padding=(0, 2))
    if grown.removed:
        table.add_row("removed", format_count(grown.removed, "sample"))
    if grown.added:
        table.add_row("added", format_count(grown.added, "sample"))
    if not grown.added and not grown.removed:
        table.add_row(action, "nothing")
    state = "still version"
    if grown.added or grown.removed:
        state = "version"
    version = grown.info["version"]
    folder = readable(dst)
    samples = format_count(grown.info["samples"], "sample")
    table.add_row("dataset", f"{state} {version} of {folder}, {samples}")
    if grown.removed:
        text = f"samples may have other numbers (id) than in version {version - 1}; keys stay"
        table.add_row("numbers", text)
    if grown.added:
        table.add_row("time", f"{grown.seconds:.1f} s")
    if grown.uploaded_bytes:
        uploaded_mb = grown.uploaded_bytes / 1e6
        table.add_row("uploaded", f"{uploaded_mb:,.1f} MB")
    if grown.known:
        files = format_count(grown.known, "file")
        table.add_row("known", f"{files}, by path, size and label")
    if grown.copies:
        files = format_count(grown.copies, "file")
        table.add_row("copies", f"{files} with an image of the dataset")
    if grown.skipped:
        files = format_count(grown.skipped, "file")
        table.add_row("skipped", f"{files} that changed since packing")
    return table


def print_rejected(rejected: Sequence[Mapping[str, str]], listed_in: str = "") -> None:
    """Prints the first rejected files, each with its "path" and "reason"."""
    if not rejected:
        out.print("rejected  none")
        return
    paths = [entry["path"] for entry in rejected]
    text = f"  {format_rejected(paths)}"
    if any(is_annotation_name(path) for path in paths):
        text += "; the annotations are left out, the images are packed without them"
    if listed_in:
        text += f", listed in {listed_in}"
    heading = ("rejected", "yellow")
    out.print(Text.assemble(heading, f"{text}:"))
    for entry in rejected[:_MAX_REJECTED]:
        line = f"{entry['path']}: {entry['reason']}"
        print_indented(readable(line))
    num_more = len(rejected) - _MAX_REJECTED
    if num_more > 0:
        print_indented(f"... and {num_more:,} more")


def print_assumed(assumed: Sequence[Assumption]) -> None:
    """Prints what the source does not say for sure, in a frame."""
    if not assumed:
        return
    lines = [f"- {readable(assumption)}" for assumption in assumed]
    text = Text("\n".join(lines), overflow="fold")
    frame = Panel(
        text,
        title="assumed, please check",
        title_align="left",
        border_style="yellow",
        expand=False,
    )
    # With soft wrap the frame would cut long lines off, with the options in them.
    frame_width = min(out.width, _FRAME_WIDTH)
    out.print(frame, soft_wrap=False, width=frame_width)


def _by_reason(counts: Mapping[str, int]) -> str:
    """3 (2 CMYK, 1 GIF)"""
    reasons = []
    for reason, number in counts.items():
        reasons.append(f"{number:,} {reason}")
    total = sum(counts.values())
    all_reasons = ", ".join(reasons)
    return f"{total:,} ({all_reasons})"


def _list_names(names: Sequence[str]) -> str:
    readable_names = [readable(name) for name in names]
    return first_names(readable_names, _MAX_NAMES)
