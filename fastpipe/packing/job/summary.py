"""All shards of a pack -> the dataset, and a summary of the pack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastpipe.errors import PackError, format_count, readable
from fastpipe.packing.shard.entry import Entries, Entry, Tally
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.shard.publish import describe_tally, publish_dataset
from fastpipe.sources.facts import Facts
from fastpipe.sources.listing import Assumption, list_masks_of_objects


@dataclass(frozen=True)
class Summary:
    """What a pack did.

    Attributes:
        info: the content of dataset.json.
        tally: what became of the sources, those of earlier runs included.
        files: source files that this run read.
        seconds: this run took.
        stray: files beside the class folders or tars, which have no class and are left out.
        dropped: members of tars that are neither image nor label, by extension; left out.
        assumed: what the source does not say for sure: how it was read, and the option that settles
            it.
        masks_of_objects: fields of masks whose pixels have the number of their object, not of its
            class.
        contradictions: images that have several labels, in a sentence; "": none, or not looked for.
        resumed: shards that an earlier run had finished.
        already_packed: the dataset was there; nothing was done.
        uploaded_bytes: that this run wrote into a bucket.
    """

    info: dict[str, Any]
    tally: Tally
    files: int
    seconds: float
    stray: list[str]
    dropped: Mapping[str, int]
    assumed: tuple[Assumption, ...] = ()
    masks_of_objects: frozenset[str] = frozenset()
    contradictions: str = ""
    resumed: int = 0
    already_packed: bool = False
    uploaded_bytes: int = 0

    def __repr__(self) -> str:
        """A line for people: `info` and `tally` take pages."""
        tars = self.info["shards"]
        num_bytes = sum(tar["size_bytes"] for tar in tars)
        samples = format_count(self.info["samples"], "sample")
        shards = format_count(len(tars), "shard")
        parts = [f"{samples} in {shards}, {num_bytes:,} bytes"]
        if self.already_packed:
            parts.append("packed before")
        num_rejected = self.info["counts"]["rejected"]
        if num_rejected:
            parts.append(f"{num_rejected:,} rejected")
        if self.resumed:
            resumed = format_count(self.resumed, "shard")
            parts.append(f"{resumed} of an interrupted run")
        return f"<fastpipe summary: {'; '.join(parts)}>"


@dataclass(frozen=True)
class PackedShards:
    """The shards of a pack that is to be published.

    Attributes:
        plan: of the pack; None: a program added the samples.
        entries: of all shards, in order.
        files: sources that this run read.
        resumed: shards that an earlier run had finished.
        on_published_file: is called after each file that publishing writes.
    """

    plan: Plan | None
    entries: Iterable[Entry]
    files: int = 0
    resumed: int = 0
    on_published_file: Callable[[], None] = lambda: None


def publish(
    journal: Journal,
    facts: Facts,
    options: PackOptions,
    shards: PackedShards,
    started: float,
) -> Summary:
    """Makes a dataset of finished shards. `started` is when the pack began, monotonic."""
    entries = Entries(shards.entries)
    if not entries:
        journal.check_only_writer()
        # Nothing is worth keeping: the next run, with the cause mended, begins anew.
        journal.clear()
        raise _nothing_packed_error(facts, entries.tally)
    # If no shard had to be made, the old dataset has not been removed yet. This also looks for
    # another Writer.
    journal.remove_old_dataset()
    journal.check_shards(entries)
    journal.remove_stale(entries)
    info = publish_dataset(
        journal.store,
        entries,
        facts,
        entries.tally,
        options.shaping(facts.kinds, facts.coordinates),
        plan=shards.plan,
        on_file=shards.on_published_file,
        check_last=journal.check_only_writer,
    )
    journal.clear()
    return Summary(
        info=info,
        tally=entries.tally,
        files=shards.files,
        seconds=time.monotonic() - started,
        stray=facts.stray,
        dropped=facts.dropped,
        assumed=(*facts.assumed, *assumed_of_tally(entries.tally)),
        masks_of_objects=list_masks_of_objects(facts.fields),
        resumed=shards.resumed,
        uploaded_bytes=journal.store.uploaded_bytes,
    )


def summarize_existing(info: dict[str, Any], facts: Facts, started: float) -> Summary:
    """The summary of a pack whose dataset, with this `info`, was there already."""
    return Summary(
        info=info,
        tally=Tally(),
        files=0,
        seconds=time.monotonic() - started,
        stray=facts.stray,
        dropped=facts.dropped,
        assumed=(*facts.assumed, *assumed_of_images(info["counts"])),
        masks_of_objects=list_masks_of_objects(facts.fields),
        already_packed=True,
    )


def assumed_of_tally(tally: Tally) -> list[Assumption]:
    """What was assumed about images when they were read."""
    counts = {**describe_tally(tally), "deep": tally.deep}
    return assumed_of_images(counts)


def assumed_of_images(counts: Mapping[str, Any]) -> list[Assumption]:
    """What was assumed about images when they were read, by the "counts" of dataset.json.

    "deep" is only in `Tally`: images of 16 bits by the bits of their largest value.
    """
    assumptions = []
    shown = counts.get("assumed_shown", 0)
    if shown:
        images = format_count(shown, "image")
        text = (
            f"boxes, points and masks of {images} that EXIF turns: of the image as it is shown, "
            "not as it is stored"
        )
        assumptions.append(Assumption(text, "--coordinates shown or stored"))
    stored = counts.get("assumed_stored", 0)
    if stored:
        images = format_count(stored, "image")
        text = (
            f"boxes and points of {images} that EXIF turns: of the image as it is stored, for the "
            "annotations have its width and height; if they were drawn on the image as it is shown, "
            "they are wrong"
        )
        assumptions.append(Assumption(text, "--coordinates stored or shown"))
    cut = counts.get("cut_boxes", 0)
    dropped = counts.get("dropped_boxes", 0)
    if cut or dropped:
        changes = []
        if cut:
            changes.append(f"{cut:,} cut at the border of their image")
        if dropped:
            changes.append(f"{dropped:,} dropped, outside it or not readable")
        text = f"boxes: {', '.join(changes)}"
        assumptions.append(Assumption(text, "--bad-boxes reject"))
    transparent = counts.get("transparent", 0)
    if transparent:
        images = format_count(transparent, "image")
        verb = "is" if transparent == 1 else "are"
        text = (
            f"{images} {verb} transparent in part; where a loader gives RGB, the colours under "
            "transparent pixels become visible"
        )
        assumptions.append(Assumption(text, "--background white"))
    deep = counts.get("deep", {})
    if deep:
        assumptions.append(_describe_deep_images(deep))
    return assumptions


def _describe_deep_images(counts: Mapping[str, int]) -> Assumption:
    """Says that images have 16 bits, of which a loader gives 8 by default.

    `counts`: images by the number of bits of their largest value.
    """
    bits = max(map(int, counts))
    images = format_count(sum(counts.values()), "image")
    verb = "has" if images.startswith("1 ") else "have"
    looks = ""
    if bits < 16:
        looks = ", so they are dark"
    return Assumption(
        f"{images} {verb} 16 bits a channel, with values of up to {bits} bits (below {1 << bits:,}). A "
        f"loader divides them by 256{looks}; its options dtype=torch.uint16 or torch.float32, with "
        'channels="gray" for gray images, keep all bits'
    )


def _nothing_packed_error(facts: Facts, tally: Tally) -> PackError:
    """The error for a pack without a sample; it has the first reason, and what may help."""
    if facts.made_by and not facts.files:
        return PackError(f"{facts.root} got no sample, so there is no dataset to write")
    if facts.why_empty:
        return PackError(facts.why_empty)
    noun = "file"
    place = f"in {facts.root}"
    if facts.made_by:
        noun = "sample"
        place = f"of {facts.root}"
    elif facts.table:
        # The folder of the images may have any number of others.
        noun = "image"
        place = f"in {readable(facts.table)}"
    text = f"none of the {format_count(facts.files, noun)} {place} could be packed"
    if facts.files == 1:
        text = f"the only {noun} {place} could not be packed"
    reason = ""
    if tally.rejected:
        path, reason = tally.rejected[0]
        if reason:
            first = "" if facts.files == 1 else "the first: "
            text += f"; {first}{path}: {reason}"

    is_of_field = any(reason.startswith(f"field {name}: ") for name in facts.kinds)
    if is_of_field and not facts.made_by:
        # What was assumed of the boxes may be wrong, and its option the remedy. The text of an
        # assumption begins with what it is about: "boxes: ...".
        for assumption in facts.assumed:
            name = assumption.text.partition(":")[0].partition(" ")[0]
            if assumption.option and reason.startswith(f"field {name}: "):
                text += f". Assumed: {assumption}"
        text += (
            ". If the field is at fault, leave it out (--field names the fields to store), or give "
            "it another kind, such as --field NAME=COLUMN:image or :bytes"
        )
    if reason.startswith("no such file"):
        text += f". The paths of the table are relative to {facts.root}"
        return PackError(text)
    if facts.made_by or (reason and facts.kinds):
        return PackError(text)

    text += ". Expected JPEG, PNG, WebP or other images in one folder for each class, or in tars"
    if any(name.endswith(".tar") for name in facts.stray):
        text += (
            f"; {facts.root} also holds tars, but if there are folders, fastpipe does not read "
            "tars: pass one of the tars, or move the tars to a separate folder"
        )
    return PackError(text)
